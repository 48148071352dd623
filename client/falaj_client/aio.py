"""The same for asyncio: `aconnect`, `AsyncStore`, `AsyncTopic`, `AsyncPartitionedTopic`.

Calls have the names and arguments of `store`, and are awaited. A property that asks the server
there is a call here. Iteration is `async for`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from falaj_client._calls import Patience, Producers
from falaj_client._drivers import AsyncDriver, AsyncItems
from falaj_client._groups import join
from falaj_client._looks import (
    delete_named,
    forget_topic,
    group_info,
    names_of,
    queue_info,
    seek_group,
)
from falaj_client._missing import STORE, TOPIC, refuse
from falaj_client._queues import hire
from falaj_client._settings import given, token_of
from falaj_client._times import seconds
from falaj_client._topics import Core, delete_topic, describe, open_topic, topic_names
from falaj_client._transactions import Gathered
from falaj_client.errors import InvalidArgument
from falaj_client.groups import AsyncConsumer
from falaj_client.queues import AsyncQueue
from falaj_client.records import NewRecord, Record

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterable, Mapping
    from typing import Literal, Self, Unpack

    from falaj_client._settings import Retention, Settings
    from falaj_client._times import Duration, Time
    from falaj_client._wire import Operation
    from falaj_client.codecs import Codec
    from falaj_client.records import Headers, Key, Position
    from falaj_client.topics import Start, Sync

T = TypeVar("T")
R = TypeVar("R")

__all__ = [
    "AsyncAnyTopic",
    "AsyncPartitionedTopic",
    "AsyncSlice",
    "AsyncStore",
    "AsyncTopic",
    "AsyncTransaction",
    "aconnect",
]


def aconnect(
    url: str,
    *,
    token: str | os.PathLike[str] | None = None,
    timeout: Duration = 30.0,
) -> AsyncStore:
    """Connect to a server of falaj from asyncio; else as `connect`. It needs no await.

    Args:
        url, token, timeout: As for `connect`.
    """
    return AsyncStore(AsyncDriver(url, token_of(token)), Patience(seconds(timeout, "timeout")))


class AsyncStore:
    """A store behind a server; `aconnect` makes it. Tasks of one event loop may share it."""

    def __init__(self, driver: AsyncDriver, patience: Patience) -> None:
        self._driver, self._patience = driver, patience
        self._producers = Producers()

    async def _run(self, operation: Operation[R]) -> R:
        return await self._driver.run(operation)

    if TYPE_CHECKING:

        @overload
        async def topic(
            self, name: str, *, codec: Literal["raw", "bytes"], **settings: Unpack[Settings]
        ) -> AsyncTopic[bytes]: ...
        @overload
        async def topic(
            self, name: str, *, codec: Literal["str"], **settings: Unpack[Settings]
        ) -> AsyncTopic[str]: ...
        @overload
        async def topic(
            self, name: str, *, codec: Codec[T], **settings: Unpack[Settings]
        ) -> AsyncTopic[T]: ...
        @overload
        async def topic(
            self, name: str, *, codec: str | None = None, **settings: Unpack[Settings]
        ) -> AsyncTopic[Any]: ...

    async def topic(
        self, name: str, *, codec: str | Codec[Any] | None = None, **settings: Unpack[Settings]
    ) -> AsyncTopic[Any]:
        """Open a topic of one partition, and create it where there is none; as `Store.topic`."""
        own, sent = given(settings)
        opening = open_topic(self._patience, name, codec, sent, single=True, **own)
        return AsyncTopic(self, await self._run(opening))

    async def partitioned_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        codec: str | Codec[Any] | None = None,
        **settings: Unpack[Settings],
    ) -> AsyncPartitionedTopic[Any]:
        """Open a topic of several partitions; as `Store.partitioned_topic`."""
        own, sent = given(settings)
        sent["partitions"] = partitions
        own["create"] = own["create"] and partitions is not None
        opening = open_topic(self._patience, name, codec, sent, single=False, **own)
        return AsyncPartitionedTopic(self, await self._run(opening))

    async def any_topic(
        self,
        name: str,
        *,
        codec: str | Codec[Any] | None = None,
        visibility: str | None = None,
    ) -> AsyncAnyTopic[Any]:
        """Open a topic that exists, of whichever kind."""
        opening = open_topic(
            self._patience, name, codec, {}, create=False, single=None, visibility=visibility
        )
        core = await self._run(opening)
        return (AsyncTopic if len(core.partitions) == 1 else AsyncPartitionedTopic)(self, core)

    async def topics(self) -> dict[str, Any]:
        """Describe the topics that the token may read, by name."""
        names = await self._run(topic_names(self._patience))
        return {name: await self._run(describe(self._patience, name)) for name in names}

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        await self._run(delete_topic(self._patience, name))

    def transaction(
        self, *, sync: Sync | None = None, timeout: Duration | None = None
    ) -> AsyncTransaction:
        """Begin to write to several topics of one log at once: `async with`.

        Its calls gather records and need no await; the end of the block sends them.
        """
        return AsyncTransaction(self, Gathered(self._patience, self._producers, sync, timeout))

    async def consumer(
        self,
        group: str,
        topics: Any = None,
        *,
        pattern: str | None = None,
        start: Start = "earliest",
        session: Duration = 30.0,
        cursor_in: Any = None,
    ) -> AsyncConsumer[Any]:
        """Join a consumer group with the first poll; as `Store.consumer`."""
        joining = join(self._patience, group, topics, pattern, start, session, cursor_in)
        return AsyncConsumer(self._driver, await self._run(joining))

    async def queue(
        self,
        name: str,
        topic: str | None = None,
        *,
        codec: str | Codec[Any] | None = None,
        max_attempts: int | None = None,
        dead_letter: str | None = None,
        order: Literal["key"] | None = None,
        create: bool = True,
    ) -> AsyncQueue[Any]:
        """Open a work queue over a topic; as `Store.queue`."""
        told = {"max_attempts": max_attempts, "dead_letter": dead_letter}
        limits = {name: value for name, value in told.items() if value is not None}
        hiring = hire(self._patience, name, codec, limits, create=create, topic=topic, order=order)
        return AsyncQueue(self._driver, await self._run(hiring))

    async def groups(self) -> dict[str, Any]:
        """Describe the consumer groups that the token may read, by name."""
        names = await self._run(names_of(self._patience, "groups"))
        return {name: await self._run(group_info(self._patience, name)) for name in names}

    async def delete_group(self, name: str) -> None:
        """Delete a consumer group and its committed offsets."""
        await self._run(delete_named(self._patience, "group", name))

    async def seek_group(
        self, group: str, topic: str, to: Start, *, partition: int | None = None
    ) -> dict[int, int]:
        """Move the committed offsets of a group without members; as `Store.seek_group`."""
        return await self._run(seek_group(self._patience, group, topic, to, partition))

    async def forget_topic(self, group: str, topic: str | AsyncAnyTopic[Any]) -> None:
        """Forget the committed offsets of a group in a topic that it no longer reads."""
        await self._run(forget_topic(self._patience, group, topic))

    async def queues(self) -> dict[str, Any]:
        """Describe the work queues that the token may read, by name."""
        names = await self._run(names_of(self._patience, "queues"))
        return {name: await self._run(queue_info(self._patience, name)) for name in names}

    async def delete_queue(self, name: str) -> None:
        """Delete the state of a queue; the records stay in their topic."""
        await self._run(delete_named(self._patience, "queue", name))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.aclose()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise refuse(self, name, STORE)


class AsyncAnyTopic(Generic[T]):
    """The base of both kinds of topics; as `AnyTopic`."""

    def __init__(self, store: AsyncStore, core: Core[T]) -> None:
        self._store, self._core = store, core

    async def _run(self, operation: Operation[R]) -> R:
        return await self._store._run(operation)

    def _items(self, operation: Operation[None]) -> AsyncItems[Record[T]]:
        return self._store._driver.items(operation)

    @property
    def name(self) -> str:
        """Name of the topic."""
        return self._core.name

    @property
    def codec(self) -> str:
        """Name of its codec."""
        return self._core.codec.name

    @property
    def partitions(self) -> range:
        """Numbers of the partitions that this handle reads."""
        return self._core.partitions

    @property
    def store(self) -> AsyncStore:
        """The store that it is in."""
        return self._store

    async def offsets(self) -> dict[int, range]:
        """Ask for the offsets of each partition."""
        return await self._run(self._core.offsets())

    async def finished(self) -> bool:
        """Ask whether the topic is finished."""
        return bool((await self._run(self._core.describe()))["finished"])

    async def properties(self) -> dict[str, str]:
        """Ask for the texts that programs keep with the topic, by name."""
        return await self._run(self._core.properties())

    async def count(self) -> int:
        """Count the records, without reading them; as `AnyTopic.count`."""
        return await self._run(self._core.count())

    def partition(self, partition: int) -> AsyncTopic[T]:
        """View one partition as a topic of its own."""
        return AsyncTopic(self._store, self._core.partition(partition))

    def __aiter__(self) -> AsyncIterator[Record[T]]:
        return self._items(self._core.everything())

    def follow(
        self, start: Start = "earliest", *, timeout: Duration | None = None
    ) -> AsyncItems[Record[T]]:
        """Read from a place on, and go on as records are appended; as `AnyTopic.follow`.

        The place is looked up at the first step: "latest" means what comes from then on.
        """
        return self._items(self._core.follow(start, timeout))

    async def configure(
        self,
        *,
        compacted: bool | None = None,
        properties: Mapping[str, str | None] | None = None,
        **settings: Unpack[Retention],
    ) -> Mapping[str, Any]:
        """Change what the topic keeps, for all processes; as `AnyTopic.configure`."""
        return await self._run(self._core.configure(compacted, properties, settings))

    async def compact(
        self, *, delete_retention: Duration = 86_400, seal: bool = False
    ) -> Mapping[str, int]:
        """Remove all but the last record of each key; as `AnyTopic.compact`."""
        return await self._run(self._core.compact(delete_retention, seal))

    async def finish(self) -> None:
        """Finish the topic: no process appends to it any more."""
        await self._run(self._core.finish())

    async def delete(self) -> None:
        """Delete the topic and all its records."""
        await self._run(self._core.delete())

    def __repr__(self) -> str:
        return f"<falaj_client.{type(self).__name__} {self.name}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise refuse(self, name, TOPIC)


class AsyncTopic(AsyncAnyTopic[T]):
    """A topic of one partition, or one partition of a topic.

    `await topic[i]` is a record, `topic[10:20]` a slice for `async for`.
    """

    async def append(
        self,
        value: T,
        key: Key | None = None,
        *,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> int:
        """Append a record, and return its offset; as `Topic.append`."""
        record = NewRecord(
            value, key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        appending = self._core.append(record, producer=producer, sequence=sequence, **options)
        return (await self._run(appending)).offset

    async def extend(
        self,
        records: Iterable[T | NewRecord | Record[Any] | tuple[Key, T]],
        *,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> range:
        """Append many records at once; as `Topic.extend`."""
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        placed = await self._run(
            self._core.extend(records, producer=producer, sequence=sequence, **options)
        )
        return next(iter(placed.values()), range(0))

    async def tombstone(
        self,
        key: Key,
        *,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        expect: int | None = None,
    ) -> int:
        """Append a tombstone: a key without a value; as `Topic.tombstone`."""
        record = NewRecord.tombstone(
            key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        return (await self._run(self._core.append(record, **options))).offset

    async def _there(self) -> range:
        return (await self.offsets())[self.partitions.start]

    async def start_offset(self) -> int:
        """Ask for the lowest offset that is still there."""
        return (await self._there()).start

    async def end_offset(self) -> int:
        """Ask for the offset after the last record."""
        return (await self._there()).stop

    if TYPE_CHECKING:

        @overload
        async def __getitem__(self, at: int) -> Record[T]: ...
        @overload
        async def __getitem__(self, at: slice) -> AsyncSlice[T]: ...

    async def __getitem__(self, at: int | slice) -> Record[T] | AsyncSlice[T]:
        if isinstance(at, slice):
            return AsyncSlice(self, await self._run(self._core.slice(at)))
        return await self._run(self._core.one(at))

    async def read(self, start: int, n: int) -> list[Record[T]]:
        """Read up to `n` records from an offset on."""
        return await self._run(self._core.read(start, n))

    async def last(self, n: int = 1) -> list[Record[T]]:
        """Read the last `n` records, oldest first."""
        return await self._run(self._core.last(n))

    async def range(
        self, start: int | Time | None = None, end: int | Time | None = None
    ) -> AsyncSlice[T]:
        """Take the records from one offset or time up to another; as `Topic.range`."""
        return AsyncSlice(self, await self._run(self._core.slice(slice(start, end))))

    async def at(self, time: Time) -> Record[T] | None:
        """Find the first record whose timestamp is at or after a time."""
        return await self._run(self._core.at(time))

    async def offset_at(self, time: Time) -> int | None:
        """Find the offset of that record."""
        record = await self.at(time)
        return None if record is None else record.offset

    async def trim(
        self, *, before_offset: int | None = None, before_time: Time | None = None
    ) -> Mapping[str, Any]:
        """Delete the oldest records, for all readers; as `Topic.trim`."""
        return await self._run(self._core.trim(before_offset, before_time))


class AsyncPartitionedTopic(AsyncAnyTopic[T]):
    """A topic of several partitions; as `PartitionedTopic`."""

    async def append(
        self,
        value: T,
        key: Key | None = None,
        *,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> Position:
        """Append a record to the partition that its key chooses, and return its place."""
        record = NewRecord(
            value, key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        return await self._run(
            self._core.append(record, producer=producer, sequence=sequence, **options)
        )

    async def extend(
        self,
        records: Iterable[T | NewRecord | Record[Any] | tuple[Key, T]],
        *,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> dict[int, range]:
        """Append many records at once; as `PartitionedTopic.extend`."""
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        return await self._run(
            self._core.extend(records, producer=producer, sequence=sequence, **options)
        )

    async def tombstone(
        self,
        key: Key,
        *,
        headers: Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        expect: int | None = None,
    ) -> Position:
        """Append a tombstone to the key's partition."""
        record = NewRecord.tombstone(
            key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        return await self._run(self._core.append(record, **options))

    async def __getitem__(self, position: tuple[int, int]) -> Record[T]:
        return await self._run(self._core.positioned(position))

    async def trim(self, *, before_time: Time) -> Mapping[str, Any]:
        """Delete the records before a time, in each partition."""
        return await self._run(self._core.trim(None, before_time))


class AsyncSlice(Generic[T]):
    """Records of one partition, read a page at a time; as `Slice`.

    Attributes:
        offsets: Its offsets, fixed when it is made.
    """

    def __init__(self, topic: AsyncTopic[T], offsets: range) -> None:
        self._topic, self.offsets = topic, offsets

    def __len__(self) -> int:
        return len(self.offsets)

    def __aiter__(self) -> AsyncIterator[Record[T]]:
        return self._topic._items(self._topic._core.stepping(self.offsets))


class AsyncTransaction(Gathered):
    """A `Gathered` that is sent when its `async with` block ends without an exception."""

    def __init__(self, store: AsyncStore, gathered: Gathered) -> None:
        self.__dict__.update(gathered.__dict__)
        self._store = store

    async def __aenter__(self) -> Self:
        if self._is_over:
            raise InvalidArgument("a transaction is used once: begin another one")
        return self

    async def __aexit__(self, kind: object, *_exception: object) -> None:
        if kind is None:
            await self._store._run(self.commit())
        self._is_over = True
