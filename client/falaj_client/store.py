"""`connect`, and what it returns: `Store`, `Topic`, `PartitionedTopic`, without asyncio.

Each call does an operation of `_topics`, `_groups`, `_queues` or `_transactions` in the calling
thread. `aio` has the same for asyncio.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from falaj_client._calls import Patience, Producers
from falaj_client._drivers import Driver, Items
from falaj_client._groups import join
from falaj_client._looks import delete_named, group_info, names_of, queue_info
from falaj_client._missing import STORE, TOPIC, refuse
from falaj_client._queues import hire
from falaj_client._settings import given, token_of
from falaj_client._times import seconds
from falaj_client._topics import Core, delete_topic, describe, open_topic, topic_names
from falaj_client._transactions import Gathered
from falaj_client.errors import InvalidArgument
from falaj_client.groups import Consumer
from falaj_client.queues import Queue
from falaj_client.records import Headers, Key, NewRecord, Position, Record

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from typing import Self, Unpack

    from falaj_client._settings import Retention, Settings
    from falaj_client._times import Duration, Time
    from falaj_client._wire import Operation
    from falaj_client.codecs import Codec

T = TypeVar("T")
R = TypeVar("R")

__all__ = ["AnyTopic", "PartitionedTopic", "Slice", "Store", "Topic", "Transaction", "connect"]

Start = Any
Sync = Literal["none", "interval", "durable"]


def connect(
    url: str,
    *,
    token: str | os.PathLike[str] | None = None,
    timeout: Duration = 30.0,
) -> Store:
    """Connect to a server of falaj.

    It sends nothing yet: the first call does. A call is repeated while its answer is lost or the
    server is busy, until `timeout` is over. Appends carry a producer of their own, so a repeat
    appends nothing twice.

    Args:
        url: Where the server is, such as `http://127.0.0.1:4437`.
        token: A token, or the path of a file with one. On the server's machine that file is
            `server/token` in the store's directory. By default the environment variable
            `FALAJ_TOKEN`.
        timeout: How long a call may take, repeats included.

    Returns:
        The store: a context manager that closes it.

    Raises:
        InvalidArgument: The URL is none of a server.
    """
    return Store(Driver(url, token_of(token)), Patience(seconds(timeout, "timeout")))


class Store:
    """A store behind a server; `connect` makes it. Threads may share it."""

    def __init__(self, driver: Driver, patience: Patience) -> None:
        self._driver, self._patience = driver, patience
        self._producers = Producers()

    def _run(self, operation: Operation[R]) -> R:
        return self._driver.run(operation)

    if TYPE_CHECKING:

        @overload
        def topic(
            self, name: str, *, codec: Literal["raw", "bytes"], **settings: Unpack[Settings]
        ) -> Topic[bytes]: ...
        @overload
        def topic(
            self, name: str, *, codec: Literal["str"], **settings: Unpack[Settings]
        ) -> Topic[str]: ...
        @overload
        def topic(
            self, name: str, *, codec: Codec[T], **settings: Unpack[Settings]
        ) -> Topic[T]: ...
        @overload
        def topic(
            self, name: str, *, codec: str | None = None, **settings: Unpack[Settings]
        ) -> Topic[Any]: ...

    def topic(
        self, name: str, *, codec: str | Codec[Any] | None = None, **settings: Unpack[Settings]
    ) -> Topic[Any]:
        """Open a topic of one partition, and create it where there is none.

        Args:
            name: 1 to 249 of `A-Z a-z 0-9 . _ -`.
            codec: "bytes", "str", "json", "msgpack", or a `Codec`. By default what the topic has.
            **settings: `create`: False raises `UnknownTopic` for a missing topic. For a new topic:
                `log`, `segment_bytes`, `sync_interval_ms`, `compacted`, `retention_bytes`,
                `retention_age`, `retention_records`, `retention_waits`, `retention_protected`.

        Returns:
            The topic.

        Raises:
            SettingsMismatch: It exists with another setting, or with several partitions.
            UnknownTopic: There is none, and `create` is False.
            PermissionDenied: The token has no grant for it.
        """
        create, sent = given(settings)
        opening = open_topic(self._patience, name, codec, sent, create=create, single=True)
        return Topic(self, self._run(opening))

    def partitioned_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        codec: str | Codec[Any] | None = None,
        **settings: Unpack[Settings],
    ) -> PartitionedTopic[Any]:
        """Open a topic of several partitions, and create it where there is none.

        Args:
            name: As for `topic`.
            partitions: How many, where it is created; a topic that exists must have as many.
            codec, **settings: As for `topic`.
        """
        create, sent = given(settings)
        sent["partitions"] = partitions
        create = create and partitions is not None
        opening = open_topic(self._patience, name, codec, sent, create=create, single=False)
        return PartitionedTopic(self, self._run(opening))

    def any_topic(self, name: str, *, codec: str | Codec[Any] | None = None) -> AnyTopic[Any]:
        """Open a topic that exists, of whichever kind.

        Args:
            name: Its name.
            codec: As for `topic`.
        """
        opening = open_topic(self._patience, name, codec, {}, create=False, single=None)
        core = self._run(opening)
        return (Topic if len(core.partitions) == 1 else PartitionedTopic)(self, core)

    @property
    def topics(self) -> Mapping[str, Any]:
        """The topics that the token may read: a mapping from names to the API's descriptions."""
        return _Named(self, lambda: topic_names(self._patience), describe)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records.

        Raises:
            UnknownTopic: There is none.
        """
        self._run(delete_topic(self._patience, name))

    def transaction(self, *, sync: Sync | None = None) -> Transaction:
        """Begin to write to several topics of one log at once.

        Records are gathered, and sent as one request at the end of the `with` block. After an
        exception in the block nothing was sent.

        Args:
            sync: When the block ends, as for `Topic.append`.
        """
        return Transaction(self, Gathered(self._patience, self._producers, sync))

    def consumer(
        self,
        group: str,
        topics: Any = None,
        *,
        pattern: str | None = None,
        start: Start = "earliest",
        session: Duration = 30.0,
        cursor_in: Any = None,
    ) -> Consumer[Any]:
        """Join a consumer group with the first poll, and resume at its committed offsets.

        Args:
            group: Name of the group.
            topics: The topics that it reads, by name, or as handles with a codec of their own.
            pattern: Instead of topics: read all topics whose names match, as `orders.*`.
            start: Where the group begins in a partition that it never read: "earliest", "latest",
                an offset, or a time.
            session: After so long without a call the server gives its partitions to others.
            cursor_in: A topic, or its name: its log keeps the committed offsets, so a transaction
                of that log can commit them. All members of a group name the same log.

        Returns:
            The member: a context manager that leaves the group.
        """
        joining = join(self._patience, group, topics, pattern, start, session, cursor_in)
        return Consumer(self._driver, self._run(joining))

    def queue(
        self,
        name: str,
        *,
        codec: str | Codec[Any] | None = None,
        max_attempts: int | None = None,
        dead_letter: str | None = None,
        create: bool = True,
    ) -> Queue[Any]:
        """Open a work queue over a topic; the first to use it creates it.

        Args:
            name: Its name; a new queue is over the topic of that name.
            codec: The codec of the topic, as for `topic`.
            max_attempts: After how many attempts a job becomes a dead letter; None tries on.
            dead_letter: The topic of dead letters; by default the topic's name and `.dead`.
            create: False raises `UnknownQueue` where there is none.

        Returns:
            The queue.
        """
        told = {"max_attempts": max_attempts, "dead_letter": dead_letter}
        limits = {name: value for name, value in told.items() if value is not None}
        hiring = hire(self._patience, name, codec, limits, create=create)
        return Queue(self._driver, self._run(hiring))

    @property
    def groups(self) -> Mapping[str, Any]:
        """The consumer groups that the token may read: a mapping from names to how far each is."""
        return _Named(self, lambda: names_of(self._patience, "groups"), group_info)

    def delete_group(self, name: str) -> None:
        """Delete a consumer group and its committed offsets.

        Raises:
            UnknownGroup: There is no group of this name.
            InvalidArgument: The group has a living member.
        """
        self._run(delete_named(self._patience, "group", name))

    @property
    def queues(self) -> Mapping[str, Any]:
        """The work queues that the token may read: a mapping from names to their numbers."""
        return _Named(self, lambda: names_of(self._patience, "queues"), queue_info)

    def delete_queue(self, name: str) -> None:
        """Delete the state of a queue; the records stay in their topic.

        Raises:
            UnknownQueue: There is no queue of this name.
        """
        self._run(delete_named(self._patience, "queue", name))

    def close(self) -> None:
        """Close all connections; what is opened through it ends."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise refuse(self, name, STORE)


class _Named(Mapping[str, Any]):
    """The topics, groups or queues of a store, asked for each time."""

    def __init__(
        self,
        store: Store,
        names: Callable[[], Operation[list[str]]],
        look: Callable[[Patience, str], Operation[dict[str, Any]]],
    ) -> None:
        self._store, self._names, self._look = store, names, look

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise KeyError(name)
        return self._store._run(self._look(self._store._patience, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._store._run(self._names()))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in list(iter(self))


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
        self, *, compacted: bool | None = None, **settings: Unpack[Retention]
    ) -> Mapping[str, Any]:
        """Change what the topic keeps, for all processes.

        A setting that is not given stays as it is, and None lifts a limit.

        Args:
            compacted: Whether `compact` may leave only the last record of each key.
            **settings: `retention_bytes`, `retention_age`, `retention_records`, `retention_waits`,
                `retention_protected`, as for a native topic. An age has at most six digits in one
                unit; a finer one is rounded up.

        Returns:
            All limits as they are now.

        Raises:
            InvalidArgument: A limit is less than 1.
            TopicDeleted: The topic was deleted, also if there is another of its name now.
        """
        return self._run(self._core.configure(compacted, settings))

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
            sync: "none", "interval" or "durable": the last answers once it is on the disk.
            producer: The name of a producer of your own, with `sequence`. Without them the client
                has its own, which lasts as long as this process.
            sequence: The number of this append among the producer's, one more than the last.
            expect: The offset that the record must get.

        Raises:
            OffsetConflict: Another append was faster.
            ServerUnavailable: There was no answer in time; `may_have_happened` says more.
        """
        record = NewRecord(
            value, key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "expect": expect}
        appending = self._core.append(record, producer=producer, sequence=sequence, **options)
        return self._run(appending).offset

    def extend(
        self,
        records: Iterable[T | NewRecord | Record[Any] | tuple[Key, T]],
        *,
        partition: int | None = None,
        sync: Sync | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> range:
        """Append many records at once: all of them become visible together, or none.

        Args:
            records: Values, pairs `(key, value)`, `NewRecord`s, or `Record`s.
            partition, sync, producer, sequence, expect: As for `append`.

        Returns:
            The range of their offsets.
        """
        options = {"partition": partition, "sync": sync, "expect": expect}
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
        expect: int | None = None,
    ) -> int:
        """Append a tombstone: a key without a value, which deletes the key.

        Args:
            key: Text or bytes.
            headers, timestamp, timestamp_ns, partition, sync, expect: As for `append`.
        """
        record = NewRecord.tombstone(
            key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "expect": expect}
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
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> Position:
        """Append a record to the partition that its key chooses, and return its place.

        Args:
            value, key, headers, timestamp, timestamp_ns: As for `Topic.append`.
            partition: The partition that the record goes to, whatever its key.
            sync, producer, sequence, expect: As for `Topic.append`.
        """
        record = NewRecord(
            value, key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "expect": expect}
        return self._run(self._core.append(record, producer=producer, sequence=sequence, **options))

    def extend(
        self,
        records: Iterable[T | NewRecord | Record[Any] | tuple[Key, T]],
        *,
        partition: int | None = None,
        sync: Sync | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> dict[int, range]:
        """Append many records at once: all of them become visible together, or none.

        Args:
            records, partition, sync, producer, sequence, expect: As for `Topic.extend`.

        Returns:
            The range of offsets of each partition that got records.
        """
        options = {"partition": partition, "sync": sync, "expect": expect}
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
        expect: int | None = None,
    ) -> Position:
        """Append a tombstone to the key's partition; else as `Topic.tombstone`."""
        record = NewRecord.tombstone(
            key, headers=headers, timestamp=timestamp, timestamp_ns=timestamp_ns
        )
        options = {"partition": partition, "sync": sync, "expect": expect}
        return self._run(self._core.append(record, **options))

    def __getitem__(self, position: tuple[int, int]) -> Record[T]:
        partition, offset = position
        return self.partition(partition)[offset]

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


class Transaction(Gathered):
    """A `Gathered` that is sent when its `with` block ends without an exception."""

    def __init__(self, store: Store, gathered: Gathered) -> None:
        self.__dict__.update(gathered.__dict__)
        self._store = store

    def __enter__(self) -> Self:
        if self._is_over:
            raise InvalidArgument("a transaction is used once: begin another one")
        return self

    def __exit__(self, kind: object, *_exception: object) -> None:
        if kind is None:
            self._store._run(self.commit())
        self._is_over = True
