"""`Queue`, `Job` and their twins for asyncio: a work queue behind a server."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Generic, TypeVar

from falaj_client._queues import Taken, Worker, reason_of
from falaj_client.records import NewRecord, Record, new_records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from typing import Self

    from falaj_client._drivers import AsyncDriver, Driver
    from falaj_client._times import Duration
    from falaj_client.records import Headers, Key
    from falaj_client.topics import Sync

T = TypeVar("T")

__all__ = ["AsyncJob", "AsyncQueue", "Job", "Queue"]

_LEASE_S = 30.0


class Queue(Generic[T]):
    """A work queue over a topic; `Store.queue` makes it.

    Workers over HTTP and native ones share its jobs. A lease ends with an ack or nack, or at its
    deadline: the server does not see that this process died. So take short leases and extend them.
    All jobs of a take count as begun. One thread at a time may take; any may settle jobs.
    """

    def __init__(self, driver: Driver, worker: Worker[T]) -> None:
        self._driver, self._worker = driver, worker

    @property
    def name(self) -> str:
        """Name of the queue."""
        return self._worker.name

    def put(
        self,
        value: T,
        key: Key | None = None,
        *,
        delay: Duration = 0.0,
        headers: Headers | None = None,
        sync: Sync | None = None,
    ) -> int:
        """Append a job, and return the offset of its record.

        Args:
            value: A value for the topic's codec.
            key: The key of the record.
            delay: How long before the job may be delivered.
            headers: Headers of the record.
            sync: As for `Topic.append`.
        """
        records = [NewRecord(value, key, headers=headers)]
        return self._driver.run(self._worker.put(records, delay, sync)).start

    def put_many(
        self,
        values: Iterable[T | tuple[Key, T]],
        *,
        delay: Duration = 0.0,
        headers: Headers | None = None,
        sync: Sync | None = None,
    ) -> range:
        """Append jobs in one append, and return the offsets of their records.

        Args:
            values: Values, or pairs of a key and a value.
            delay, headers, sync: As for `put`.
        """
        records = _of_values(values, headers)
        return self._driver.run(self._worker.put(records, delay, sync))

    def take(
        self, n: int = 1, lease: Duration = _LEASE_S, timeout: Duration | None = None
    ) -> list[Job[T]]:
        """Take jobs, waiting for the first of them.

        Args:
            n: Most jobs to take.
            lease: Seconds until their lease ends.
            timeout: Seconds to wait for the first job; None waits as long as it takes.

        Returns:
            The jobs; none when the time is over.
        """
        taken = self._driver.run(self._worker.take(n, lease, timeout))
        return [Job(self, *each) for each in taken]

    def jobs(self, lease: Duration = _LEASE_S, timeout: Duration | None = None) -> Iterator[Job[T]]:
        """Iterate over jobs, one at a time; settle each with `with job:`.

        Args:
            lease: Seconds until a job's lease ends.
            timeout: Seconds without a job after which the iteration ends; None waits on.
        """
        while found := self.take(1, lease, timeout):
            yield from found
            if self._driver.is_closed:
                return

    def __iter__(self) -> Iterator[Job[T]]:
        return self.jobs()

    def redrive(self, limit: int | None = None) -> int:
        """Put dead letters of the queue back into its topic, each once.

        They are new jobs with the values, keys and headers of the old ones. The letters stay in
        their topic.

        Args:
            limit: Most letters to put back; None puts back all.

        Returns:
            The number of letters put back.

        Raises:
            InvalidArgument: The queue was opened without `max_attempts`.
            ServerUnavailable: The answer was lost. Call it again: it puts no letter back twice.
        """
        return self._driver.run(self._worker.redrive(limit))

    def close(self) -> None:
        """Do nothing: jobs that were taken return when their leases end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class Job(Taken[T]):
    """A record, and the right to work on it until its lease ends.

    A context manager: the end of its block acks the job. An exception that leaves the block gives
    the job back, and that counts an attempt.
    """

    def __init__(self, queue: Queue[T], ticket: str, attempt: int, record: Record[T]) -> None:
        super().__init__(ticket, attempt, record)
        self._queue = queue

    def ack(self) -> None:
        """Say that the job is done.

        Raises:
            LeaseExpired: Its lease is over: another worker may have it.
        """
        self._queue._driver.run(self._queue._worker.ack([self._ticket]))
        self.settled = True

    def nack(self, delay: Duration | None = None, *, reason: str | None = None) -> None:
        """Return the job because it failed.

        Args:
            delay: Seconds before it is delivered again; by default none.
            reason: Why it failed, for a dead letter.

        Raises:
            LeaseExpired: As for `ack`.
        """
        self._queue._driver.run(self._queue._worker.nack([self._ticket], delay, reason))
        self.settled = True

    def extend(self, lease: Duration = _LEASE_S) -> None:
        """Keep the job for longer.

        Args:
            lease: Seconds from now until its lease is over.

        Raises:
            LeaseExpired: As for `ack`.
        """
        self._queue._driver.run(self._queue._worker.extend([self._ticket], lease))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not self.settled:
            self.ack() if error is None else self.nack(reason=reason_of(error))


class AsyncQueue(Generic[T]):
    """The same for asyncio: calls are awaited; as `Queue`."""

    def __init__(self, driver: AsyncDriver, worker: Worker[T]) -> None:
        self._driver, self._worker = driver, worker

    @property
    def name(self) -> str:
        """Name of the queue."""
        return self._worker.name

    async def put(
        self,
        value: T,
        key: Key | None = None,
        *,
        delay: Duration = 0.0,
        headers: Headers | None = None,
        sync: Sync | None = None,
    ) -> int:
        """Append a job, and return the offset of its record; as `Queue.put`."""
        records = [NewRecord(value, key, headers=headers)]
        return (await self._driver.run(self._worker.put(records, delay, sync))).start

    async def put_many(
        self,
        values: Iterable[T | tuple[Key, T]],
        *,
        delay: Duration = 0.0,
        headers: Headers | None = None,
        sync: Sync | None = None,
    ) -> range:
        """Append jobs in one append; as `Queue.put_many`."""
        records = _of_values(values, headers)
        return await self._driver.run(self._worker.put(records, delay, sync))

    async def take(
        self, n: int = 1, lease: Duration = _LEASE_S, timeout: Duration | None = None
    ) -> list[AsyncJob[T]]:
        """Take jobs, waiting for the first of them; as `Queue.take`."""
        taken = await self._driver.run(self._worker.take(n, lease, timeout))
        return [AsyncJob(self, *each) for each in taken]

    async def jobs(
        self, lease: Duration = _LEASE_S, timeout: Duration | None = None
    ) -> AsyncIterator[AsyncJob[T]]:
        """Iterate over jobs, one at a time; settle each with `async with job:`."""
        while found := await self.take(1, lease, timeout):
            for job in found:
                yield job
            if self._driver.is_closed:
                return

    def __aiter__(self) -> AsyncIterator[AsyncJob[T]]:
        return self.jobs()

    async def redrive(self, limit: int | None = None) -> int:
        """Put dead letters of the queue back into its topic; as `Queue.redrive`."""
        return await self._driver.run(self._worker.redrive(limit))


class AsyncJob(Taken[T]):
    """A job of asyncio: `async with` acks it or gives it back; as `Job`."""

    def __init__(self, queue: AsyncQueue[T], ticket: str, attempt: int, record: Record[T]) -> None:
        super().__init__(ticket, attempt, record)
        self._queue = queue

    async def ack(self) -> None:
        """Say that the job is done."""
        await self._queue._driver.run(self._queue._worker.ack([self._ticket]))
        self.settled = True

    async def nack(self, delay: Duration | None = None, *, reason: str | None = None) -> None:
        """Return the job because it failed."""
        await self._queue._driver.run(self._queue._worker.nack([self._ticket], delay, reason))
        self.settled = True

    async def extend(self, lease: Duration = _LEASE_S) -> None:
        """Keep the job for longer."""
        await self._queue._driver.run(self._queue._worker.extend([self._ticket], lease))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not self.settled:
            await (self.ack() if error is None else self.nack(reason=reason_of(error)))


def _of_values(values: Iterable[object], headers: Headers | None) -> Iterator[NewRecord]:
    told = NewRecord(None, headers=headers).headers
    for each in new_records(values):
        job = copy(each)  # the caller's own keeps its headers
        job.headers = [*each.headers, *told]
        yield job
