"""`Queue`: the records of a topic as jobs, each for one worker at a time; `Store.queue` makes it.

The compiled class has the calls that run for each job. This module has those that run once a take:
dead-lettering, timeouts, asyncio.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from falaj import _core
from falaj._any_topic import GIVE_THE_PATH
from falaj._backoff import USUAL, delay_after, delay_of
from falaj._checks import choice, flag, writable
from falaj._core import Job, NewRecord, Record
from falaj._jobs import Jobs
from falaj._numbers import number, seconds
from falaj._taking import Taking
from falaj.errors import (
    Error,
    HandleClosed,
    InvalidArgument,
    LockTimeout,
    SettingsMismatch,
    TopicDeleted,
    UnknownTopic,
    named,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from falaj._any_topic import AnyTopic
    from falaj._arguments import QueueInfo, Sync
    from falaj._backoff import Backoff
    from falaj._store import Store
    from falaj._time import Duration
    from falaj._topic import Topic
    from falaj.codecs import Codec

    Bytes = bytes | bytearray | memoryview
    Headers = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]

__all__ = ["Job", "Queue"]

T = TypeVar("T")

_FOREVER = 2**32 - 1
_ALL = 2**64 - 1
#: Seconds before jobs that could not be dead-lettered are tried again.
_AGAIN = 1.0
#: The lease of jobs, in seconds, while their dead letters are written.
_LETTER_S = 600.0
_BUILT_IN = ("raw", "bytes", "str", "json", "msgpack", "pickle")


def check_limits(
    max_attempts: int | None,
    dead_letter: str | AnyTopic[Any] | None,
    order: str | None,
    backoff: Backoff | None,
) -> int | None:
    """Check the arguments of a queue before its topic is opened, which may create it.

    Returns:
        The limit of attempts.

    Raises:
        InvalidArgument, TypeError: One of them cannot be right.
    """
    if backoff is not None:
        delay_of(backoff, 1)
    choice(order, "order", "key", None)
    if max_attempts is None and dead_letter is not None:
        raise InvalidArgument(
            "dead_letter= is where jobs go after max_attempts=: give that as well"
        )
    if not isinstance(dead_letter, str | _core.AnyTopic | None):
        raise TypeError(f"dead_letter is a topic, or its name, not {named(dead_letter)}")
    if isinstance(dead_letter, _core.AnyTopic):
        dead_letter._expect()
    elif dead_letter is not None:
        _core.Store._check_topic(
            dead_letter, codec=None, partitions=None, segment_bytes=None, sync_interval_ms=None
        )
    if max_attempts is None:
        return None
    most = number(max_attempts, "max_attempts")
    if not 1 <= most < 2**24:
        raise InvalidArgument(f"max_attempts is 1 to {2**24 - 1}, or None, not {shown(most)}")
    return most


def topic_of(
    store: Store,
    name: str,
    topic: str | Topic[Any] | None,
    codec: str | Codec[Any] | type[Any] | None,
    dead_letter: str | AnyTopic[Any] | None,
) -> Topic[Any]:
    """Open the topic of a queue, and create none for what is refused then.

    Raises:
        SettingsMismatch: The queue has another topic.
        InvalidArgument: It would be the topic of its own dead letters.
        TypeError: A codec was given beside a topic that is open.
    """
    own = _core._topic_of_queue(store, name)
    if topic is None:
        topic = own or name
    called = topic.name if isinstance(topic, _core.AnyTopic) else topic
    if isinstance(dead_letter, str):
        _expect_other(called, dead_letter)
    if isinstance(topic, _core.AnyTopic):
        if codec is not None:
            raise TypeError(
                "codec= is for a topic that is named: the given topic is open with its own"
            )
        return topic
    if own is not None and topic != own:
        mismatch = SettingsMismatch(
            f"queue {name!r} is over topic {own!r}, not {topic!r}: leave out topic=, or name "
            "another queue"
        )
        mismatch.topic, mismatch.setting = name, "topic"
        mismatch.stored, mismatch.asked = own, topic
        raise mismatch
    return store.topic(topic, codec=codec)


class Queue(_core.Queue[T]):
    """A work queue over a topic; `Store.queue` makes it.

    Any number of processes take from it, and no two of them have a job at a time. A lease ends with
    an ack or nack, at its deadline, or with its process. Threads may share a handle. A forked child
    may use it too; the jobs that its parent took stay the parent's.

    An attempt counts when work on a job begins: `Jobs` says when that is. When a worker dies or is
    late, the jobs that it had begun are suspects: each is delivered in a batch of its own. So are
    several begun jobs of a block that an exception ends. Jobs that it had not begun are delivered
    again as if for the first time.

    A job may be done twice. That happens when its worker dies or is late after the work and before
    the ack, and when a power failure loses an ack. So make jobs idempotent; docs/guide/queues.md.

    Example:
        >>> queue = store.queue("jobs")
        >>> _ = queue.put(b"resize 1.png", key=b"ann")
        >>> with queue.take(10, lease=60) as jobs:
        ...     for job in jobs:
        ...         with job:
        ...             job.to_bytes()
        b'resize 1.png'
    """

    __slots__ = ("_backoff", "_dead", "_dead_letter", "_max_attempts", "_topic")
    _backoff: Backoff | None
    _dead: AnyTopic[Any] | None
    _dead_letter: str | AnyTopic[Any]
    _max_attempts: int | None
    _topic: Topic[T]

    def __new__(
        cls,
        topic: Topic[T],
        name: str,
        max_attempts: int | None = None,
        dead_letter: str | AnyTopic[Any] | None = None,
        order: Literal["key"] | None = None,
        backoff: Backoff | None = None,
    ) -> Queue[T]:
        """Make a handle; `Store.queue` calls this."""
        if not isinstance(topic, _core.AnyTopic):
            raise TypeError(f"topic is a topic, or the name of one, not {named(topic)}")
        if isinstance(dead_letter, _core.AnyTopic) and topic.store.path == dead_letter.store.path:
            _expect_other(topic.name, dead_letter.name)
        queue = super().__new__(cls, topic, name, True if order == "key" else None)
        queue._topic = topic
        queue._max_attempts = max_attempts
        queue._backoff = backoff
        queue._dead_letter = dead_letter if dead_letter is not None else topic.name + ".dead"
        queue._dead = None
        if dead_letter is not None or max_attempts is not None:
            # Its codec and state are looked at now, and not when a job is given up.
            # If there is none, the first letter creates it.
            with suppress(UnknownTopic):
                if isinstance(where := queue._dead_letter, str):
                    topic.store.topics[where]
                writable(queue._letters(), "dead_letter")
        return queue

    @property
    def topic(self) -> Topic[T]:
        """The topic that has the jobs; append to it as to any."""
        return self._topic

    @property
    def max_attempts(self) -> int | None:
        """After how many attempts this handle dead-letters a job."""
        return self._max_attempts

    @property
    def dead(self) -> AnyTopic[Any] | None:
        """The topic of dead-lettered jobs, None if jobs are tried without a limit.

        Its records are those of the jobs with additional headers: `falaj-queue`, `falaj-topic`,
        `falaj-offset`, `falaj-attempts`. `falaj-reason` is the reason that `nack` gave, or says
        that the last worker died or was late.
        """
        return None if self._max_attempts is None else self._letters()

    def _is_given(self) -> bool:
        return not isinstance(self._dead_letter, str)

    def _letters(self) -> AnyTopic[Any]:
        if self._dead is None or (self._dead.closed and not self._is_given()):
            where = self._dead_letter
            if isinstance(where, str):
                store = self._topic.store
                codec: str | None = self._topic.codec
                is_new = where not in store.topics and codec in _BUILT_IN
                # Pickles are read only by a handle that names the codec. Where no program has named
                # the codec of the jobs, the first dead letter names both topics' alike.
                if codec == "bytes" or not (is_new or codec == "pickle"):
                    codec = None
                opens = store.any_topic if where in store.topics else store.topic
                where = opens(where, codec=codec)
            if where.codec not in (self._topic.codec, "bytes"):
                raise InvalidArgument(
                    f"dead letters keep the bytes of their jobs, and topic {where.name!r} of codec "
                    f"{where.codec} cannot read those of {self._topic.name!r} of codec "
                    f"{self._topic.codec}: name a topic of that codec or of bytes as dead_letter="
                )
            self._dead = where
        return self._dead

    if TYPE_CHECKING:

        @overload
        def put(
            self: Queue[memoryview] | Queue[bytes],
            value: Bytes,
            key: str | bytes | None = None,
            *,
            delay: Duration = 0.0,
            headers: Headers | None = None,
            sync: Sync | None = None,
        ) -> int: ...
        @overload
        def put(
            self,
            value: T,
            key: str | bytes | None = None,
            *,
            delay: Duration = 0.0,
            headers: Headers | None = None,
            sync: Sync | None = None,
        ) -> int: ...

    def put(
        self,
        value: Any,
        key: str | bytes | None = None,
        *,
        delay: Duration = 0.0,
        headers: Headers | None = None,
        sync: Sync | None = None,
    ) -> int:
        """Append a job to the topic.

        Args:
            value: A value for the topic's codec.
            key: The key of the record.
            delay: How long before the job may be delivered: seconds, a timedelta or text such as
                "5m". The record's header `falaj-not-before`
                has it, and every queue over the topic obeys it. With `order="key"` later jobs of
                its key wait for it.
            headers: Additional headers.
            sync: As for `Topic.append`.

        Returns:
            The offset of its record.

        Example:
            >>> queue = store.queue("jobs")
            >>> _ = queue.put(b"later", delay=3600)
            >>> queue.take(timeout=0)
            []
        """
        self._expect_open()
        return self._topic.append(value, key, headers=self._told(delay, headers), sync=sync)

    if TYPE_CHECKING:

        @overload
        def put_many(
            self: Queue[memoryview] | Queue[bytes],
            values: Iterable[Bytes | NewRecord | Record[Any] | tuple[str | bytes, Bytes]],
            *,
            delay: Duration = 0.0,
            headers: Headers | None = None,
            sync: Sync | None = None,
        ) -> range: ...
        @overload
        def put_many(
            self,
            values: Iterable[T | NewRecord | Record[Any] | tuple[str | bytes, T]],
            *,
            delay: Duration = 0.0,
            headers: Headers | None = None,
            sync: Sync | None = None,
        ) -> range: ...

    def put_many(
        self,
        values: Iterable[Any],
        *,
        delay: Duration = 0.0,
        headers: Headers | None = None,
        sync: Sync | None = None,
    ) -> range:
        """Append jobs to the topic in one append: other processes see all of them, or none.

        Args:
            values: Values for the topic's codec, or anything else that `Topic.extend` takes. A
                `Record` keeps its key and headers.
            delay: Seconds before the jobs may be delivered, as for `put`.
            headers: Additional headers of each job, in place of its own of the same names.
            sync: As for `Topic.append`.

        Returns:
            The offsets of their records.

        Example:
            >>> queue = store.queue("jobs")
            >>> queue.put_many([b"1.png", ("ann", b"2.png")])
            range(0, 2)
        """
        self._expect_open()
        told = self._told(delay, headers)
        return self._topic._extend_with(values, () if told is None else told, sync)

    def _told(self, delay: Duration, headers: Headers | None) -> Headers | None:
        """Return the headers of a new job."""
        if type(delay) in (int, float) and delay == 0:
            return headers
        wait = seconds(delay, "a delay")
        if wait is None or wait >= 2**32:
            raise InvalidArgument(f"a delay is a number of seconds from 0 on, not {shown(delay)}")
        at = str((time.time_ns() + int(wait * 1e9)) // 1000).encode()
        others = NewRecord(b"", headers=headers).headers
        return [*(each for each in others if each[0] != self._NOT_BEFORE), (self._NOT_BEFORE, at)]

    def jobs(self, lease: Duration = 30.0, timeout: Duration | None = None) -> Iterator[Job[T]]:
        """Iterate over jobs, one at a time; `for job in queue` does the same.

        Iteration begins each job and settles none, because an iterator does not see an exception in
        the body of its loop. So settle each in a block: `with job:` acks it, and returns it if an
        exception leaves the block. `work` does all of that for a function.

        Args:
            lease: Seconds until a job's lease ends.
            timeout: Seconds without a job after which the iteration ends. None waits until the
                queue is closed; 0 ends when no job is ready.

        Example:
            >>> queue = store.queue("jobs")
            >>> _ = queue.put_many([b"1.png", b"2.png"])
            >>> for job in queue.jobs(timeout=0):
            ...     with job:
            ...         job.to_bytes()
            b'1.png'
            b'2.png'
        """
        self._expect_open()
        return self._each(_lease(lease), _span(timeout))

    def _each(self, lease: float, timeout: float | None) -> Iterator[Job[T]]:
        try:
            while jobs := self.take(1, lease, timeout):
                yield from jobs
        except HandleClosed:
            if not self.closed:
                raise

    def __iter__(self) -> Iterator[Job[T]]:
        return self.jobs()

    def __contains__(self, _item: object) -> NoReturn:
        raise TypeError("`in` does not search a queue: it would take its jobs")

    def ajobs(
        self, lease: Duration = 30.0, timeout: Duration | None = None
    ) -> AsyncIterator[Job[T]]:
        """Iterate over jobs from asyncio; `async for job in queue` does the same; else as `jobs`.

        Example:
            >>> import asyncio
            >>> queue = store.queue("jobs")
            >>> _ = queue.put(b"1.png")
            >>> async def work():
            ...     async for job in queue.ajobs(timeout=0):
            ...         with job:
            ...             return job.to_bytes()
            >>> asyncio.run(work())
            b'1.png'
        """
        from falaj._wait import AsyncJobs  # asyncio takes as long to import as all of falaj

        self._expect_open()
        return AsyncJobs(self, _lease(lease), timeout)

    def __aiter__(self) -> AsyncIterator[Job[T]]:
        return self.ajobs().__aiter__()

    def work(
        self,
        handler: Callable[[Job[T]], object],
        *,
        lease: Duration = 30.0,
        backoff: Backoff | None = None,
        timeout: Duration | None = None,
        on_error: Callable[[Job[T], Exception], object] | None = None,
    ) -> int:
        """Run a function for each job: ack if it returns, nack if it raises.

        While the function runs, a thread extends the lease: it ends early only if this process is
        stopped for longer than a lease. A job that raised is delivered again after a delay, to any
        worker. It counts an attempt, so after `max_attempts` it is dead-lettered. If the function
        settles the job itself, that counts.

        SIGTERM ends the loop: a waiting worker returns, a working one after its job. For that, call
        this in the main thread; it restores the signal's handler. `close`, from any thread, ends it
        as well.

        Args:
            handler: The function; it gets the job.
            lease: Seconds that a job stays with a worker that is stopped or whose machine hangs.
            backoff: The delay of the first retry and the longest, in seconds: delays double, each
                shortened by up to a half at random. Or a function of the attempts so far. By
                default the queue's, else (1, 300). If the function raises, or returns something
                else, that is logged, and the job waits as by (1, 300).
            timeout: Seconds without a job after which this returns; None waits.
            on_error: Called with a job and the exception that it raised, before the job is
                returned: to log it.

        Returns:
            The number of jobs done.

        Example:
            >>> queue = store.queue("jobs")
            >>> _ = queue.put_many([b"1.png", b"2.png"])
            >>> queue.work(lambda job: print(job.to_bytes()), timeout=0)
            b'1.png'
            b'2.png'
            2
        """
        from falaj._work import work  # few need it

        self._expect_open()
        if backoff is None:
            backoff = self._backoff or USUAL
        return work(self, handler, _lease(lease), backoff, _span(timeout), on_error)

    def redrive(self, limit: int | None = None, *, dry_run: bool = False) -> int:
        """Put dead letters of the queue back into its topic, each once.

        They are new jobs with the values, keys and headers of the old ones. The letters stay in
        their topic. An interrupted and repeated redrive puts none back twice.

        Args:
            limit: Most letters to put back; None puts back all.
            dry_run: Only count them.

        Returns:
            The number of letters put back.

        Raises:
            InvalidArgument: The queue was opened without `max_attempts`, so it has no dead letters.

        Example:
            >>> queue = store.queue("jobs", max_attempts=1)
            >>> _ = queue.put(b"1.png")
            >>> for job in queue.jobs(timeout=0):
            ...     job.nack()
            >>> queue.redrive()
            1
            >>> [job.to_bytes() for job in queue.take(timeout=0)]
            [b'1.png']
        """
        self._expect_open()
        if self._max_attempts is None:
            raise InvalidArgument(
                f"queue {self.name!r} has no dead letters: open it with max_attempts="
            )
        if limit is not None and (limit := number(limit, "limit")) < 0:
            raise InvalidArgument(f"limit is a number from 0 on, not {shown(limit)}")
        flag(dry_run, "dry_run")
        limit = None if limit is None else min(limit, _ALL)
        return _core._redrive(self.name, self._topic, self._letters(), limit, dry_run)

    def take(self, n: int = 1, lease: Duration = 30.0, timeout: Duration | None = None) -> Jobs[T]:
        """Take up to `n` jobs, waiting until there is one.

        Returned jobs are delivered before records that were never delivered. Work on none of them
        has begun: see `Jobs`. A suspect is delivered alone. Waiting takes no processor time while
        no job is in flight. It ends at once when a job is appended or returned, or when a delay
        or a lease is over. It ends within 50 ms of a holder's death. If a signal's handler raises
        meanwhile, the taken jobs are returned, without an attempt.

        Args:
            n: Most jobs to take.
            lease: Seconds until the leases end, and others may get the jobs.
            timeout: Seconds to wait for the first; None waits without a limit, 0 not at all.

        Returns:
            The jobs: fewer than `n` if there are no more or a suspect is next. There are none if
            the time is over, or if the queue was closed meanwhile.

        Raises:
            HandleClosed: The queue was closed before.
            InvalidArgument: A number is out of range.
            TopicDeleted: The topic was deleted.
            CorruptData: A record cannot be read, and there is no other job; nothing was taken.
                `skip_damage()` gives up such jobs.
            Error: With `max_attempts=`, also an error of writing dead letters, such as `NoSpace`,
                `LockTimeout`, `AppendTooLarge` or `SettingsMismatch`. It is `TopicDeleted` if the
                topic that was given as `dead_letter=` was deleted. Nothing was taken then, and
                these jobs are tried again after a second.
        """
        n = number(n, "how many jobs to take")
        if n < 1:
            raise InvalidArgument(f"n is how many jobs to take, from 1 on, not {shown(n)}")
        # Before anything is taken: a wrong one must not depend on what the queue holds.
        lease, limit = _lease(lease), _span(timeout)
        left, begun = limit, time.monotonic()
        found: list[Job[T]] = []
        worn: list[Job[T]] = []
        try:
            while not found:
                most = self._max_attempts
                has_policy = most is not None or self._backoff is not None
                self._take(found, worn, n, lease, left, most or _FOREVER, has_policy)
                if not worn:
                    break
                found[:] = self._give_up(worn, found, lease)
                worn.clear()
                if limit is not None:
                    left = max(0.0, begun + limit - time.monotonic())
            return Jobs(found, self)
        except BaseException:
            with suppress(Error):  # such as that of a store which the signal's handler closed
                self._put_back([*found, *worn], 0.0)
            raise

    def atake(
        self, n: int = 1, lease: Duration = 30.0, timeout: Duration | None = None
    ) -> Taking[T]:
        """Take jobs from asyncio; arguments as for `take`.

        `jobs = await queue.atake(10)`, or `async with queue.atake(10) as jobs:`, which returns
        unsettled jobs, even if the task is cancelled. Cancelling the wait takes nothing.

        It waits for jobs without blocking the event loop. But it blocks the loop while it waits for
        the queue's lock, and for the disk when it writes dead letters (`max_attempts=`). To avoid
        that, `await asyncio.to_thread(queue.take, 10, timeout=0)`. If that is cancelled, it may
        have taken jobs, which others get when their leases end.

        Example:
            >>> import asyncio
            >>> queue = store.queue("jobs")
            >>> _ = queue.put(b"one")
            >>> async def work():
            ...     async with queue.atake(10) as jobs:
            ...         jobs.ack()
            ...         return len(jobs)
            >>> asyncio.run(work())
            1
        """
        return Taking(self, n, lease, timeout)

    def info(self) -> QueueInfo:
        """Return the queue in numbers: jobs that are ready, delayed, in flight, done and dead.

        `falaj.QueueInfo` says what each number counts: `ready` counts records, and `done` counts
        offsets, which differ in a compacted topic. A job that was put with a delay counts as
        ready until the first take that comes upon it. Where jobs came back, this reads the state
        of all jobs from the first that is not done.

        Example:
            >>> queue = store.queue("jobs")
            >>> _ = queue.put(b"one"), queue.put(b"two")
            >>> _ = queue.take()
            >>> info = queue.info()
            >>> info["ready"], info["in_flight"]
            (1, 1)
        """
        return self._info()

    def _give_up_on(self, job: Job[T], reason: str | None) -> None:
        """Write the dead letter of a job whose last attempt failed; if not, a later take does."""
        with suppress(Error):
            self._bury([job], self._letters(), reason or "")

    def _delay(self, attempt: int) -> float:
        """Seconds before a job that failed its attempt is delivered again."""
        return 0.0 if self._backoff is None else delay_after(self._backoff, attempt, self.name)

    def _give_up(self, worn: list[Job[T]], others: list[Job[T]], lease: float) -> list[Job[T]]:
        """Write the dead letters of some jobs, and return which of the others can be worked on."""
        try:
            # However long it takes: no other process writes the same meanwhile, or gets the others,
            # which no caller has yet.
            worn, others = self._keep(worn, _LETTER_S), self._keep(others, _LETTER_S)
            try:
                self._bury(worn, self._letters())
            except TopicDeleted:
                if self._is_given():
                    raise
                self._dead = None
                self._bury(self._keep(worn, _LETTER_S), self._letters())
        except BaseException as error:
            # No caller has these jobs; those that cannot be moved now delay no others.
            self._put_back(others, 0.0)
            self._put_back(worn, _AGAIN)
            where = self._dead_letter
            name = where if isinstance(where, str) else where.name
            error.add_note(
                f"Jobs of queue {self.name!r} that were tried too often could not be moved to "
                f"topic {name!r}: none is lost, and the next try is in a second."
            )
            raise
        try:
            return self._keep(others, lease) if others else others
        except LockTimeout:
            return others  # they are had for longer than was asked for
        except BaseException:
            self._put_back(others, 0.0)
            raise

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a queue cannot be pickled or copied: {GIVE_THE_PATH}")

    def __enter__(self) -> Queue[T]:
        return self

    def __exit__(self, *_exception: Any) -> None:
        self.close()

    async def __aenter__(self) -> Queue[T]:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<falaj.Queue {self.name!r} over {self._topic.name!r}{state}>"


def _expect_other(topic: str, dead_letter: str) -> None:
    if topic == dead_letter:
        raise InvalidArgument(
            f"dead_letter= is topic {topic!r}, the queue's own: dead letters would become jobs "
            "again, without end; name another topic"
        )


def _span(given: Duration | None, what: str = "a timeout") -> float | None:
    """Turn a span into seconds; plain numbers need no import of datetime."""
    if type(given) in (int, float) and 0 <= given < _FOREVER:  # type: ignore[operator]
        return float(given)  # type: ignore[arg-type]
    found = seconds(given, what)
    if found is not None and found >= 2**64:
        raise InvalidArgument(f"{what} is below 2**64 seconds, not {shown(given)}")
    return found


def _lease(given: Duration) -> float:
    found = _span(given, "a lease")
    if found is None:
        raise TypeError('a lease is seconds, a timedelta or text such as "5m", not None')
    return found
