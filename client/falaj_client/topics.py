"""The topics of a store behind a server, without asyncio: `Topic`, `PartitionedTopic`, `Slice`.

Each call does an operation of `_topics` in the calling thread. `aio` has the same for asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from falaj_client._missing import TOPIC, refuse
from falaj_client.records import Headers, Key, NewRecord, Position, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Self, Unpack

    from falaj_client._drivers import Items
    from falaj_client._settings import Retention
    from falaj_client._times import Duration, Time
    from falaj_client._topics import Core
    from falaj_client._wire import Operation
    from falaj_client.store import Store

T = TypeVar("T")
R = TypeVar("R")

__all__ = ["AnyTopic", "PartitionedTopic", "Slice", "Start", "Sync", "Topic"]

Start = Any
Sync = Literal["none", "interval", "durable", "remote"]


class AnyTopic(Generic[T]):
    """The base of both kinds of topics. Records are copies; threads may share a handle."""

    def __init__(self, store: Store, core: Core[T]) -> None:
        self._store, self._core = store, core

    def _run(self, operation: Operation[R]) -> R:
        return self._store._run(operation)

    def _items(self, operation: Operation[None]) -> Items[Record[T]]:
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
    def store(self) -> Store:
        """The store that it is in."""
        return self._store

    @property
    def offsets(self) -> dict[int, range]:
        """The offsets of each partition, from the lowest that is still there to the end."""
        return self._run(self._core.offsets())

    @property
    def finished(self) -> bool:
        """True once no record comes after those that are there."""
        return bool(self._run(self._core.describe())["finished"])

    @property
    def properties(self) -> dict[str, str]:
        """The texts that programs keep with the topic, by name; `configure` changes them."""
        return self._run(self._core.properties())

    def count(self) -> int:
        """Count the records, without reading them; compaction leaves fewer than `len(topic)`."""
        return self._run(self._core.count())

    def partition(self, partition: int) -> Topic[T]:
        """View one partition as a topic of its own.

        Args:
            partition: Its number, from 0.
        """
        return Topic(self._store, self._core.partition(partition))

    def __iter__(self) -> Iterator[Record[T]]:
        return self._items(self._core.everything())

    def __len__(self) -> int:
        return sum(map(len, self.offsets.values()))

    def __bool__(self) -> bool:
        return True

    def __contains__(self, item: object) -> bool:
        raise TypeError("`in` does not search a topic: a record equals no value")

    def follow(
        self, start: Start = "earliest", *, timeout: Duration | None = None
    ) -> Items[Record[T]]:
        """Read from a place on, and go on as records are appended.

        A broken connection is taken up where it broke: no record is missed, none comes twice.

        Args:
            start: "earliest"; "latest"; an offset, or -10 for the last ten records; an aware
                datetime, or ISO text.
            timeout: How long to wait for a record before the iteration ends; None waits on.

        Returns:
            An iterator, and a context manager that closes it.
        """
        places = self._run(self._core.begin(start))
        return self._items(self._core.follow(start, timeout, places))

    def configure(
        self,
        *,
        compacted: bool | None = None,
        properties: Mapping[str, str | None] | None = None,
        **settings: Unpack[Retention],
    ) -> Mapping[str, Any]:
        """Change what the topic keeps, for all processes.

        A setting that is not given stays as it is, and None lifts a limit.

        Args:
            compacted: Whether `compact` may leave only the last record of each key.
            properties: Texts by name; those that are not named stay, and None removes one. They
                change at once, or none does.
            **settings: `retention_bytes`, `retention_age`, `retention_records`, `retention_waits`,
                `retention_protected`, as for a native topic. An age has at most six digits in one
                unit; a finer one is rounded up.

        Returns:
            All limits as they are now.

        Raises:
            InvalidArgument: A limit is less than 1, or the properties are too large.
            TopicDeleted: The topic was deleted, also if there is another of its name now.
        """
        return self._run(self._core.configure(compacted, properties, settings))

    def compact(
        self, *, delete_retention: Duration = 86_400, seal: bool = False
    ) -> Mapping[str, int]:
        """Remove all but the last record of each key, in each partition by itself.

        It ends when the server has done it. It is asked for once, with the whole time of
        `connect(timeout=)`: give a longer one for a large topic.

        Args:
            delete_retention: For how long a tombstone stays once all that it hides is gone.
            seal: Begin a new file first, so that all that was appended is looked at.

        Returns:
            How many records were looked at and went, and what the files took before and after.

        Raises:
            InvalidArgument: The topic is not marked compacted, or shares its log.
            ServerUnavailable: There was no answer in time; the server may go on with it.
        """
        return self._run(self._core.compact(delete_retention, seal))

    def finish(self) -> None:
        """Finish the topic: no process appends to it any more, and followers end."""
        self._run(self._core.finish())

    def delete(self) -> None:
        """Delete the topic and all its records."""
        self._run(self._core.delete())

    def close(self) -> None:
        """Do nothing: a handle holds nothing. It is here for programs that close a native topic."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<falaj_client.{type(self).__name__} {self.name}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise refuse(self, name, TOPIC)


class Topic(AnyTopic[T]):
    """A topic of one partition, or one partition of a topic.

    `topic[i]` is the record with offset i, `topic[-1]` the last one, and `topic[10:20]` a slice,
    which is read a page at a time. A plain `for` sees what was there when it began.
    """

    def append(
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
        """Append a record, and return its offset.

        Args:
            value: What the codec takes.
            key: Text or bytes that tell what the record is about.
            headers: A dict or pairs of names and values.
            timestamp: When it happened: an aware datetime, or ISO text with a zone.
            timestamp_ns: The same as nanoseconds since 1970.
            partition: The partition that the record goes to.
            sync: "none", "interval", "durable" or "remote". With "durable" it is on the disk when
                the call returns, with "remote" in the place that the store is shipped to.
            timeout: How long `sync="remote"` waits for that; by default as long as `connect` says.
            producer: The name of a producer of your own, with `sequence`. Without them the client
                has its own, which lasts as long as this process.
            sequence: The number of this append among the producer's, one more than the last.
            expect: The offset that the record must get.

        Raises:
            OffsetConflict: Another append was faster.
            NoShipper: No process ships the store. Without an `offset`, nothing was appended.
            Fenced: The process that shipped it stopped, for another one of its place.
            RemoteTimeout: It is on the server's disk from `offset` on, and not known to be in the
                place: do not append it again.
            ServerUnavailable: There was no answer in time; `may_have_happened` says more.
        """
        record = NewRecord(
            value, key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        appending = self._core.append(record, producer=producer, sequence=sequence, **options)
        return self._run(appending).offset

    def extend(
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
        """Append many records at once: all of them become visible together, or none.

        Args:
            records: Values, pairs `(key, value)`, `NewRecord`s, or `Record`s.
            partition, sync, timeout, producer, sequence, expect: As for `append`.

        Returns:
            The range of their offsets.
        """
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        placed = self._run(
            self._core.extend(records, producer=producer, sequence=sequence, **options)
        )
        return next(iter(placed.values()), range(0))

    def tombstone(
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
        """Append a tombstone: a key without a value, which deletes the key.

        Args:
            key: Text or bytes.
            headers, timestamp, timestamp_ns, partition, sync, timeout, expect: As for `append`.
        """
        record = NewRecord.tombstone(
            key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        return self._run(self._core.append(record, **options)).offset

    @property
    def start_offset(self) -> int:
        """Lowest offset that is still there."""
        return self._there.start

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""
        return self._there.stop

    @property
    def _there(self) -> range:
        return self.offsets[self.partitions.start]

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, at: int) -> Record[T]: ...
        @overload
        def __getitem__(self, at: slice) -> Slice[T]: ...

    def __getitem__(self, at: int | slice) -> Record[T] | Slice[T]:
        if isinstance(at, slice):
            return Slice(self, self._run(self._core.slice(at)))
        return self._run(self._core.one(at))

    def __reversed__(self) -> Iterator[Record[T]]:
        return iter(self[::-1])

    def read(self, start: int, n: int) -> list[Record[T]]:
        """Read up to `n` records from an offset on.

        Args:
            start: First offset; a negative one stands for the record so many from the end.
            n: Most records to return.
        """
        return self._run(self._core.read(start, n))

    def last(self, n: int = 1) -> list[Record[T]]:
        """Read the last `n` records, oldest first."""
        return self._run(self._core.last(n))

    def range(self, start: int | Time | None = None, end: int | Time | None = None) -> Slice[T]:
        """Take the records from one offset or time up to another, to be read when needed.

        Args:
            start: The first offset or time; by default the first record.
            end: The offset or time that ends the range, not included; by default the end.
        """
        return Slice(self, self._run(self._core.slice(slice(start, end))))

    def at(self, time: Time) -> Record[T] | None:
        """Find the first record whose timestamp is at or after a time; None where all are older."""
        return self._run(self._core.at(time))

    def offset_at(self, time: Time) -> int | None:
        """Find the offset of that record."""
        record = self.at(time)
        return None if record is None else record.offset

    def trim(
        self, *, before_offset: int | None = None, before_time: Time | None = None
    ) -> Mapping[str, Any]:
        """Delete the oldest records, for all readers.

        Args:
            before_offset: The first offset to keep.
            before_time: Keep the first record of this time or later, and all after it.

        Returns:
            The new first offset of each partition, as `firsts`.
        """
        return self._run(self._core.trim(before_offset, before_time))


class PartitionedTopic(AnyTopic[T]):
    """A topic of several partitions. Keys choose partitions; `topic[position]` is a record."""

    def append(
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
        """Append a record to the partition that its key chooses, and return its place.

        Args:
            value, key, headers, timestamp, timestamp_ns: As for `Topic.append`.
            partition: The partition that the record goes to, whatever its key.
            sync, timeout, producer, sequence, expect: As for `Topic.append`.
        """
        record = NewRecord(
            value, key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        return self._run(self._core.append(record, producer=producer, sequence=sequence, **options))

    def extend(
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
        """Append many records at once: all of them become visible together, or none.

        Args:
            records, partition, sync, timeout, producer, sequence, expect: As for
                `Topic.extend`.

        Returns:
            The range of offsets of each partition that got records.
        """
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        return self._run(
            self._core.extend(records, producer=producer, sequence=sequence, **options)
        )

    def tombstone(
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
        """Append a tombstone to the key's partition; else as `Topic.tombstone`."""
        record = NewRecord.tombstone(
            key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "timeout": timeout, "expect": expect}
        return self._run(self._core.append(record, **options))

    def __getitem__(self, position: tuple[int, int]) -> Record[T]:
        return self._run(self._core.positioned(position))

    def trim(self, *, before_time: Time) -> Mapping[str, Any]:
        """Delete the records before a time, in each partition; else as `Topic.trim`."""
        return self._run(self._core.trim(None, before_time))


class Slice(Generic[T]):
    """Records of one partition, as `topic[10:20]` gives them, read a page at a time.

    Attributes:
        offsets: Its offsets, fixed when it is made. Those that compaction removed have no record.
    """

    def __init__(self, topic: Topic[T], offsets: range) -> None:
        self._topic, self.offsets = topic, offsets

    @property
    def partition(self) -> int:
        """The partition that it is of."""
        return self._topic.partitions.start

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record[T]]:
        return self._topic._items(self._topic._core.stepping(self.offsets))

    def __reversed__(self) -> Iterator[Record[T]]:
        return iter(self[::-1])

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, at: int) -> Record[T]: ...
        @overload
        def __getitem__(self, at: slice) -> Slice[T]: ...

    def __getitem__(self, at: int | slice) -> Record[T] | Slice[T]:
        if isinstance(at, slice):
            return Slice(self._topic, self.offsets[at])
        return self._topic[self.offsets[at]]

    def __repr__(self) -> str:
        return f"<falaj_client.Slice {self._topic.name} {self.offsets}>"
