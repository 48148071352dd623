"""`Consumer` and `AsyncConsumer`: members of a consumer group behind a server."""

from __future__ import annotations

from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from falaj_client.errors import HandleClosed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator
    from typing import Self

    from falaj_client._drivers import AsyncDriver, Driver
    from falaj_client._groups import Member
    from falaj_client._times import Duration
    from falaj_client.records import Record
    from falaj_client.topics import Start, Sync

T = TypeVar("T")

__all__ = ["AsyncConsumer", "Consumer"]

#: Records of one request of a loop.
_MOST = 500


class Consumer(Generic[T]):
    """A member of a consumer group; `Store.consumer` makes it.

    It resumes at the group's committed offsets. Members over HTTP and native members share the
    partitions. Delivery is at least once: what is not committed comes again, to this member or
    another, when its session ends. A session ends when no call came for so long as `session` says.
    One thread at a time may use a consumer.
    """

    def __init__(self, driver: Driver, member: Member[T]) -> None:
        self._driver, self._member = driver, member

    @property
    def group(self) -> str:
        """The consumer group that it is a member of."""
        return self._member.group

    @property
    def topics(self) -> list[str]:
        """Names of the topics that it reads, as far as they are known, sorted."""
        return self._member.topics

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """The partitions of this member, as of its last poll."""
        return list(self._member.assigned)

    @property
    def closed(self) -> bool:
        """True once it or its store was closed."""
        return self._member.is_closed or self._driver.is_closed

    def poll(self, max_records: int = 500, timeout: Duration | None = None) -> list[Record[T]]:
        """Return the next records, waiting for the first of them.

        Args:
            max_records: Most records to return.
            timeout: Seconds to wait for the first record. None waits as long as it takes.

        Returns:
            The records; none when the time is over.
        """
        return self._driver.run(self._member.poll(max_records, timeout))

    def follow(self, timeout: Duration | None = None) -> Iterator[Record[T]]:
        """Iterate over the records that are there and later ones.

        Args:
            timeout: Seconds without a record after which the iteration ends; None waits on.
        """
        while True:
            # Fetch many, and deliver one: what was not reached is not committed.
            found = [] if self.closed else self._member.held(1)
            found = found or self._driver.run(self._member.fetch(_MOST, timeout))
            yield from found
            if not found or self.closed:
                return

    def __iter__(self) -> Iterator[Record[T]]:
        return self.follow(timeout=0)

    def commit(
        self,
        offset: int | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        metadata: str | None = None,
    ) -> None:
        """Commit after all delivered records, or an offset (of the next record to read).

        Args:
            offset: The offset; by default after all delivered records of all partitions.
            topic: The topic of the offset, if the consumer reads several.
            partition: The partition of the offset, if there are several.
            sync: "durable" waits for the disk.
            metadata: A text of at most 384 bytes that is stored with each offset.

        Raises:
            PartitionNotAssigned: Another member has the partition; nothing was committed.
        """
        self._driver.run(self._member.commit(offset, topic, partition, sync, metadata))

    def seek(self, to: Start, *, topic: str | None = None, partition: int | None = None) -> None:
        """Move the position; the next `commit` commits it.

        Args:
            to: "earliest", "latest", an offset, or a time.
            topic: Only this topic; all topics by default.
            partition: Only this partition of it; by default all partitions of this member.
        """
        self._driver.run(self._member.seek(to, topic, partition))

    def close(self) -> None:
        """Leave the group: other members get its partitions at once."""
        with suppress(HandleClosed):  # with its store, so its session ends by itself
            self._driver.run(self._member.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class AsyncConsumer(Generic[T]):
    """The same for asyncio: calls are awaited; as `Consumer`."""

    def __init__(self, driver: AsyncDriver, member: Member[T]) -> None:
        self._driver, self._member = driver, member

    @property
    def group(self) -> str:
        """The consumer group that it is a member of."""
        return self._member.group

    @property
    def topics(self) -> list[str]:
        """Names of the topics that it reads, as far as they are known, sorted."""
        return self._member.topics

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """The partitions of this member, as of its last poll."""
        return list(self._member.assigned)

    @property
    def closed(self) -> bool:
        """True once it or its store was closed."""
        return self._member.is_closed or self._driver.is_closed

    async def poll(
        self, max_records: int = 500, timeout: Duration | None = None
    ) -> list[Record[T]]:
        """Return the next records, waiting for the first of them."""
        return await self._driver.run(self._member.poll(max_records, timeout))

    async def follow(self, timeout: Duration | None = None) -> AsyncGenerator[Record[T], None]:
        """Iterate over the records that are there and later ones."""
        while True:
            found = [] if self.closed else self._member.held(1)
            found = found or await self._driver.run(self._member.fetch(_MOST, timeout))
            for record in found:
                yield record
            if not found or self.closed:
                return

    async def __aiter__(self) -> AsyncIterator[Record[T]]:
        async with aclosing(self.follow(timeout=0)) as records:
            async for record in records:
                yield record

    async def commit(
        self,
        offset: int | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        metadata: str | None = None,
    ) -> None:
        """Commit after all delivered records, or an offset; as `Consumer.commit`."""
        await self._driver.run(self._member.commit(offset, topic, partition, sync, metadata))

    async def seek(
        self, to: Start, *, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Move the position; as `Consumer.seek`."""
        await self._driver.run(self._member.seek(to, topic, partition))

    async def aclose(self) -> None:
        """Leave the group."""
        with suppress(HandleClosed):
            await self._driver.run(self._member.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.aclose()
