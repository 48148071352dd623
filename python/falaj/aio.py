"""`AsyncFollower`: following a topic from asyncio, without a thread for each task.

One thread a log waits for all tasks of the process that follow it, and wakes their event loops when
there is news. It begins when the first of them has nothing to read and ends with the last of them.
Nothing polls, and nothing runs in the loop while there is nothing to read.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from falaj._core import Follower, Record, Watch

__all__ = ["AsyncFollower"]

T = TypeVar("T")
Waiter = asyncio.Future[None]

_RECORDS_A_TURN = 256


class AsyncFollower(Generic[T]):
    """Records of a topic for `async for`, present and future; `Topic.afollow` makes it.

    After every 256 records that lay ready, other tasks have a turn. One task at a time may read
    from it; give each its own.
    """

    __slots__ = ("__weakref__", "_follower", "_read", "_timeout", "_watcher")

    def __init__(self, follower: Follower[T], timeout: float | None) -> None:
        self._follower = follower
        self._timeout = timeout
        self._watcher: _Watcher | None = None
        self._read = 0

    def __aiter__(self) -> AsyncFollower[T]:
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
                    await self._news()
                    record = self._follower.poll()
        except TimeoutError:
            pass
        if record is None:
            self.close()
            raise StopAsyncIteration
        return record

    async def _news(self) -> None:
        watcher = self._watcher
        if watcher is None or not watcher.alive:
            watcher = self._watcher = _watch(self._follower, watcher)
        waiter = asyncio.get_running_loop().create_future()
        watcher.add(waiter, self._follower._seen)
        try:
            # Whoever closes it from now on wakes the waiter.
            if not self._follower.closed:
                await waiter
        finally:
            watcher.discard(waiter)

    def close(self) -> None:
        """End the iteration, from any thread."""
        self._follower.close()
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.wake()
            watcher.leave()

    def __del__(self) -> None:
        if getattr(self, "_watcher", None) is not None:
            self.close()

    async def __aenter__(self) -> AsyncFollower[T]:
        return self

    async def __aexit__(self, *_exception: Any) -> None:
        self.close()


class _Watcher:
    """The thread that waits for one log, and who waits for it."""

    def __init__(self, key: object, watch: Watch) -> None:
        self.key = key
        self.alive = True
        self.users = 0
        self._watch = watch
        self._lock = threading.RLock()  # a collected follower may come here from within
        self._waiters: set[Waiter] = set()

    def add(self, waiter: Waiter, seen: int) -> None:
        """Note down who waits for more than was there at the address `seen`."""
        with self._lock:
            self._waiters.add(waiter)
        # The thread may have reported it before this one was noted down.
        if self._watch.position > seen or not self.alive:
            _settle(waiter, None)

    def discard(self, waiter: Waiter) -> None:
        """Forget who does not wait any more."""
        with self._lock:
            self._waiters.discard(waiter)

    def leave(self) -> None:
        """End the thread with its last user."""
        with _LOCK:
            self.users -= 1
            if self.users == 0:
                self._end()

    def wake(self, error: BaseException | None = None) -> None:
        """Have all who wait look again."""
        with self._lock:
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            try:
                waiter.get_loop().call_soon_threadsafe(_settle, waiter, error)
            except RuntimeError:
                continue  # its loop is closed, so nobody waits

    def run(self) -> None:
        """Wait for the log until nobody wants to know; the thread's work."""
        error: Exception | None = None
        try:
            while True:
                # Both before the wake: what comes after them ends the wait that follows.
                wakes, seen = self._watch.wakes, self._watch.position
                self.wake()
                if not self._watch.wait(seen, wakes):
                    break
        except Exception as raised:  # noqa: BLE001  # each who waits gets it
            error = raised
        with _LOCK:
            self._end()
        self.wake(error)

    def _end(self) -> None:
        self.alive = False
        self._watch.close()
        if _WATCHERS.get(self.key) is self:
            del _WATCHERS[self.key]


def _settle(waiter: Waiter, error: BaseException | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)


def _watch(follower: Follower[Any], before: _Watcher | None) -> _Watcher:
    """Get the watcher of a follower's log, in place of one that ended."""
    if before is not None:
        before.leave()
    watch = follower._watch()
    with _LOCK:
        watcher = _WATCHERS.get(watch.key)
        if watcher is None:
            watcher = _WATCHERS[watch.key] = _Watcher(watch.key, watch)
            threading.Thread(target=watcher.run, name="falaj-watcher", daemon=True).start()
        watcher.users += 1
    return watcher


_LOCK = threading.RLock()
_WATCHERS: dict[object, _Watcher] = {}


def _forget() -> None:
    """In a forked child: its parent's threads are not here."""
    global _LOCK
    _LOCK = threading.RLock()
    for watcher in _WATCHERS.values():
        watcher.alive = False
        watcher._lock = threading.RLock()
    _WATCHERS.clear()


os.register_at_fork(after_in_child=_forget)
