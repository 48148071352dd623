"""`AsyncFollower`: following a topic from asyncio, without a thread for each task.

For each store, one thread waits for all tasks of the process that follow any of its topics. It
wakes their event loops when there is news: once a loop, however many tasks. It is a thread of the
operating system, even if gevent or eventlet has replaced Python's threads. It begins when the first
task has nothing to read and ends with the last of them. Nothing polls, and nothing runs in the loop
while there is nothing to read. The thread sleeps on the store's bell. A waiting task asks the log
to ring it, so that the thread need not be woken for that.
"""

from __future__ import annotations

import asyncio
import os
from _thread import RLock  # the system's: `threading.RLock` may be replaced, for example by gevent
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from falaj._any_topic import GIVE_THE_PATH
from falaj._numbers import seconds
from falaj._threads import begin_thread
from falaj.errors import Error, HandleClosed, LockTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from falaj._consumer import Consumer
    from falaj._core import Batch, Bell, Follower, Job, Record, Watch
    from falaj._jobs import Jobs
    from falaj._queue import Queue
    from falaj._time import Duration

__all__ = ["AsyncBatches", "AsyncConsumer", "AsyncFollower", "AsyncJobs"]

T = TypeVar("T")
Found = TypeVar("Found")
Waiter = asyncio.Future[None]

_RECORDS_A_TURN = 256
_LONGEST_S = 1.0
#: Seconds between two looks whether a consumer without topics was closed.
_CLOSED_S = 0.05


def _expect_asyncio() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "afollow, apoll, abatches and atake need a running event loop of asyncio; from trio "
            "call follow, poll, batches or take in trio.to_thread.run_sync"
        ) from None


class AsyncFollower(Generic[T]):
    """Records of a topic for `async for`, present and future; `Topic.afollow` makes it.

    After every 256 available records, other tasks get a turn. One task at a time may read from it;
    give each its own.
    """

    __slots__ = ("__weakref__", "_follower", "_read", "_timeout", "_watch", "_watcher")

    def __init__(self, follower: Follower[T], timeout: Duration | None) -> None:
        self._follower = follower
        self._timeout = seconds(timeout)
        self._watch: Watch | None = None
        self._watcher: _Watcher | None = None
        self._read = 0

    def __aiter__(self) -> AsyncFollower[T]:
        _expect_asyncio()
        return self

    async def __anext__(self) -> Record[T]:
        self._read += 1
        if self._read % _RECORDS_A_TURN == 0:
            await asyncio.sleep(0)
        record = self._follower.poll()
        if record is not None:
            return record
        try:
            async with asyncio.timeout(self._timeout):
                while record is None and not self._follower.closed:
                    over = self._follower._over
                    if not over:
                        await self._news()
                    record = self._follower.poll()
                    if over:
                        break
        except LockTimeout:
            raise
        except TimeoutError:
            pass
        if record is None:
            self.close()
            raise StopAsyncIteration
        return record

    async def _news(self) -> None:
        watch, watcher = self._watched()
        waiter = asyncio.get_running_loop().create_future()
        try:
            watcher.add(watch, waiter, self._follower._seen)
            # A close from now on wakes the waiter.
            if not self._follower.closed:
                await waiter
        finally:
            watcher.discard(watch, waiter)

    def _watched(self) -> tuple[Watch, _Watcher]:
        watch, watcher = self._watch, self._watcher
        if watch is None or watcher is None or not watcher.alive:
            if watcher is not None:
                watcher.leave()
            self._watcher = None
            watch = self._watch = self._follower._watch()
            watcher = self._watcher = _watcher_of(watch)
        return watch, watcher

    def close(self) -> None:
        """End the iteration, from any thread."""
        self._follower.close()
        watch, watcher, self._watcher = self._watch, self._watcher, None
        if watch is not None and watcher is not None:
            watcher.wake(watch)
            watcher.leave()

    async def aclose(self) -> None:
        """End the iteration, as `contextlib.aclosing` does it."""
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_watcher", None) is not None:
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a follower cannot be pickled or copied: {GIVE_THE_PATH}")

    def __repr__(self) -> str:
        return repr(self._follower).replace("Follower", "AsyncFollower", 1)

    async def __aenter__(self) -> AsyncFollower[T]:
        return self

    async def __aexit__(self, *_exception: Any) -> None:
        self.close()


class _Ending:
    """The end of an iteration: a task that waits in it is woken, and takes nothing more."""

    __slots__ = ("over", "waiters")

    def __init__(self) -> None:
        self.over = False
        self.waiters: set[Waiter] = set()

    def end(self) -> None:
        self.over = True
        _settle_all(list(self.waiters), None)


class _AsyncIteration(Generic[T]):
    """An iteration from asyncio that takes what it returns from something that stays open."""

    __slots__ = ("__weakref__", "_ending", "_found")
    #: How many are returned before other tasks get a turn.
    _TURN = _RECORDS_A_TURN

    def __init__(self) -> None:
        self._found = 0
        self._ending = _Ending()

    def __aiter__(self) -> Self:
        _expect_asyncio()
        return self

    async def __anext__(self) -> T:
        self._found += 1
        if self._found % self._TURN == 0:
            await asyncio.sleep(0)
        found = None if self._ending.over else await self._next()
        if found is None:
            self._ending.end()
            raise StopAsyncIteration
        return found

    async def _next(self) -> T | None:
        """Wait for the next one; None at the end."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """End the iteration, as `contextlib.aclosing` does it; a task that waits in it ends too.

        The consumer or queue stays open.
        """
        self._ending.end()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"an iterator cannot be pickled or copied: {GIVE_THE_PATH}")


class AsyncConsumer(_AsyncIteration["Record[T]"]):
    """Records of a consumer for `async for`, present and future; `Consumer.afollow` makes it.

    After every 256 available records, other tasks get a turn. If the group has other members, it
    checks every 20 ms whether they live.
    """

    __slots__ = ("_consumer", "_timeout")

    def __init__(self, consumer: Consumer[T], timeout: Duration | None) -> None:
        super().__init__()
        self._consumer = consumer
        self._timeout = seconds(timeout)

    def __repr__(self) -> str:
        return f"<falaj.AsyncConsumer of {self._consumer!r}>"

    async def _next(self) -> Record[T] | None:
        consumer = self._consumer
        if consumer.closed:
            return None
        found = await _look(consumer, consumer._poll, 1, self._timeout, self._ending)
        return found[0] if found else None


class AsyncBatches(_AsyncIteration["Batch[T]"]):
    """Batches of a consumer for `async for`; `Consumer.abatches` makes it."""

    __slots__ = ("_consumer", "_size", "_timeout")
    _TURN = 1

    def __init__(self, consumer: Consumer[T], size: int, timeout: Duration | None) -> None:
        super().__init__()
        self._consumer = consumer
        self._size = size
        self._timeout = seconds(timeout)

    async def _next(self) -> Batch[T] | None:
        consumer = self._consumer
        found = await _look(consumer, consumer._batch, self._size, self._timeout, self._ending)
        return found[0] if found else None


class AsyncJobs(_AsyncIteration["Job[T]"]):
    """Jobs of a queue for `async for`, one at a time; `Queue.ajobs` makes it."""

    __slots__ = ("_lease", "_queue", "_timeout")

    def __init__(self, queue: Queue[T], lease: Duration, timeout: Duration | None) -> None:
        super().__init__()
        self._queue = queue
        self._lease = lease
        self._timeout = seconds(timeout)

    async def _next(self) -> Job[T] | None:
        try:
            while jobs := await take(self._queue, 1, self._lease, self._timeout, self._ending):
                for job in jobs:  # it passes over a job whose lease is over
                    return job
        except HandleClosed:
            if not self._queue.closed:
                raise
        return None


async def poll(consumer: Consumer[T], records: int, timeout: Duration | None) -> list[Record[T]]:
    """Return the next records as `Consumer.poll` does; `Consumer.apoll` calls this."""
    _expect_asyncio()
    # First: found records are returned, even if the task is cancelled.
    await asyncio.sleep(0)
    return await _look(consumer, consumer._poll, records, timeout, _Ending())


def _fill(
    consumer: Consumer[Any],
    found: list[Found],
    look: Callable[[list[Found], int, float], None],
    most: int,
) -> None:
    try:
        look(found, most, 0.0)
    except BaseException:
        consumer._put_back(found)
        raise


async def _look(
    consumer: Consumer[Any],
    look: Callable[[list[Found], int, float], None],
    most: int,
    timeout: Duration | None,
    ending: _Ending,
) -> list[Found]:
    """Wait for records and return them; none when the time is over or it was closed."""
    timeout = seconds(timeout)
    found: list[Found] = []
    _fill(consumer, found, look, most)
    if found or timeout == 0:
        return found
    try:
        async with asyncio.timeout(timeout):
            over = False
            while not found and not over:
                over = consumer._over()
                if not over:
                    await _news(consumer, ending)
                if consumer.closed or ending.over:
                    break
                _fill(consumer, found, look, most)
    except LockTimeout:
        raise
    except TimeoutError:
        pass
    except HandleClosed:
        if not consumer.closed:
            raise
    return found


async def _news(consumer: Consumer[Any], ending: _Ending) -> None:
    """Wait until one of its logs has more, or it is time to check the other members."""
    loop = asyncio.get_running_loop()
    waiter: Waiter = loop.create_future()
    due = consumer._due()
    timer = loop.call_later(_LONGEST_S if due is None else due, _settle, [waiter], None)
    joined: list[tuple[Watch, _Watcher]] = []
    ending.waiters.add(waiter)
    try:
        for watch, seen in consumer._watches():
            watcher = _watcher_of(watch)
            joined.append((watch, watcher))
            watcher.add(watch, waiter, seen)
        # A consumer of a pattern may read no topic: then no log tells that it was closed.
        while not (joined or waiter.done() or consumer.closed):
            await asyncio.wait([waiter], timeout=_CLOSED_S)
        if not consumer.closed:
            await waiter
    finally:
        ending.waiters.discard(waiter)
        timer.cancel()
        for watch, watcher in joined:
            watcher.discard(watch, waiter)
            watcher.leave()


async def take(
    queue: Queue[T],
    n: int,
    lease: Duration,
    timeout: Duration | None,
    ending: _Ending | None = None,
) -> Jobs[T]:
    """Take jobs as `Queue.take` does; `Queue.atake` calls this."""
    timeout = seconds(timeout)
    ending = ending or _Ending()
    _expect_asyncio()
    jobs = queue.take(n, lease, 0)
    if jobs or timeout == 0:
        return jobs
    watch = queue._watch()
    watcher = _watcher_of(watch)
    try:
        async with asyncio.timeout(timeout):
            while not jobs:
                await _jobs_due(queue, watch, watcher, ending)
                if ending.over:
                    break
                jobs = queue.take(n, lease, 0)
    except LockTimeout:
        raise
    except TimeoutError:
        pass
    except HandleClosed:
        if not queue.closed:
            raise
    finally:
        watcher.leave()
    return jobs


async def _jobs_due(queue: Queue[Any], watch: Watch, watcher: _Watcher, ending: _Ending) -> None:
    """Wait until a queue may have something to take, or the iteration ends."""
    waiter = asyncio.get_running_loop().create_future()
    seen, _ = queue._next()
    ending.waiters.add(waiter)
    try:
        watcher.add(watch, waiter, seen)
        # A nack or close from now on wakes the waiter; an earlier one is seen here.
        _, seconds = queue._next()
        if seconds != 0:
            done, _ = await asyncio.wait([waiter], timeout=seconds)
            for ended in done:
                ended.result()
    finally:
        ending.waiters.discard(waiter)
        watcher.discard(watch, waiter)


class _Waits:
    """The waiters for one log, and for what part of it."""

    __slots__ = ("seen", "waiters", "wakes", "watch")

    def __init__(self, watch: Watch, seen: int) -> None:
        self.watch = watch
        self.wakes = watch.wakes
        self.seen = seen
        self.waiters: set[Waiter] = set()


class _Watcher:
    """The thread that waits for the logs of one store, and the waiters for each log."""

    def __init__(self, key: object, bell: Bell) -> None:
        self.key = key
        self.alive = True
        self.users = 0
        self._bell = bell
        self._lock = RLock()  # the collection of a follower may come here from within
        self._waits: dict[object, _Waits] = {}

    def add(self, watch: Watch, waiter: Waiter, seen: int) -> None:
        """Add a waiter for more than was there at the address `seen`."""
        with self._lock:
            waits = self._waits.get(watch.key)
            if waits is None:
                waits = self._waits[watch.key] = _Waits(watch, seen)
            waits.waiters.add(waiter)
            waits.seen = min(waits.seen, seen)
        # In this order: a ring from now on wakes the thread, which finds the waiter.
        if watch.ask(seen) or not self.alive:
            _settle([waiter], None)

    def discard(self, watch: Watch, waiter: Waiter) -> None:
        """Remove a waiter."""
        with self._lock:
            waits = self._waits.get(watch.key)
            if waits is not None:
                waits.waiters.discard(waiter)
                if not waits.waiters:
                    del self._waits[watch.key]

    def leave(self) -> None:
        """End the thread with its last user."""
        with _LOCK:
            self.users -= 1
            if self.users == 0:
                self._end()

    def wake(self, watch: Watch) -> None:
        """Make all waiters for a log look again."""
        with self._lock:
            waits = self._waits.pop(watch.key, None)
        if waits is not None:
            _settle_all(waits.waiters, None)

    def run(self) -> None:
        """Wait for the logs until there are no waiters; the thread's work."""
        error: Exception | None = None
        idle_turns = 0
        self._bell.name_thread()
        try:
            while True:
                # First: later news ends the sleep, and so does the end of the thread.
                ticket = self._bell.ticket()
                if not self.alive:
                    break
                idle_turns = 0 if self._look() else idle_turns + 1
                self._bell.sleep(ticket, idle_turns)
        except Exception as raised:  # noqa: BLE001  # each who waits gets it
            error = raised
        with _LOCK:
            self._end()
        with self._lock:
            left, self._waits = self._waits, {}
        for waits in left.values():
            _settle_all(waits.waiters, error)

    def _look(self) -> bool:
        """Ask each log with waiters; true when one of them had news."""
        with self._lock:
            every = list(self._waits.values())
        # Every one, whatever the others return: the call also requests a ring of the bell.
        news = [self._look_at(waits) for waits in every]
        return any(news)

    def _look_at(self, waits: _Waits) -> bool:
        error: Exception | None = None
        try:
            # Asked first, since that requests a ring. After a wake, some may have closed.
            if not waits.watch.ask(waits.seen) and waits.watch.wakes == waits.wakes:
                return False
        except Error as raised:
            error = raised
        with self._lock:
            if self._waits.get(waits.watch.key) is waits:
                del self._waits[waits.watch.key]
        _settle_all(waits.waiters, error)
        return True

    def _end(self) -> None:
        self.alive = False
        self._bell.rouse()
        if _WATCHERS.get(self.key) is self:
            del _WATCHERS[self.key]


def _settle_all(waiters: Iterable[Waiter], error: BaseException | None) -> None:
    """Make the waiters continue, from another thread than their loops'."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, its in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, its, error)
        except RuntimeError:
            continue  # it is closed, so there are no waiters


def _settle(waiters: Iterable[Waiter], error: BaseException | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


def _watcher_of(watch: Watch) -> _Watcher:
    """Get the watcher of a log's store."""
    with _LOCK:
        watcher = _WATCHERS.get(watch.store)
        if watcher is None:
            watcher = _WATCHERS[watch.store] = _Watcher(watch.store, watch.bell())
            begin_thread(watcher.run)
        watcher.users += 1
    return watcher


_LOCK = RLock()
_WATCHERS: dict[object, _Watcher] = {}


def _forget() -> None:
    """Forget the threads in a forked child: its parent's threads are not here."""
    global _LOCK
    _LOCK = RLock()
    for watcher in _WATCHERS.values():
        watcher.alive = False
        watcher._lock = RLock()
    _WATCHERS.clear()


os.register_at_fork(after_in_child=_forget)
