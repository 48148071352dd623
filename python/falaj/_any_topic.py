"""`AnyTopic`: what a topic offers whatever its number of partitions.

`_topic` derives the two kinds from it, which append and look records up. Methods that a program
calls once a record are inherited from the compiled class, because a Python frame costs more than an
append. The methods here are called once a read.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack

from falaj import _core
from falaj._checks import flag, optional_flag
from falaj._numbers import number
from falaj._slice import OneByOne, backwards
from falaj.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Literal, Self

    import pyarrow

    from falaj._admin import Progress, TrimReport
    from falaj._arguments import Retention, Start, Visibility
    from falaj._bulk import BulkLoad
    from falaj._compaction import CompactReport, Last
    from falaj._core import Batch, ExpiringProducer, Follower, Opened, Record
    from falaj._producers import Producer
    from falaj._retention import TopicRetention
    from falaj._scan import Scan
    from falaj._store import Store
    from falaj._time import Duration, Time
    from falaj._topic import Topic
    from falaj._transaction import Cursor
    from falaj._wait import AsyncFollower
    from falaj.arrow import Reader

T = TypeVar("T")

__all__ = ["AnyTopic"]

#: As `falaj.arrow.USUAL` and `SCANNED`, which need not be imported for that.
_USUAL = ("partition", "offset", "timestamp", "key", "value")
_SCANNED = (*_USUAL, "headers", "topic", "timestampType")

_BATCH = 8192
#: The remedy where a handle cannot be pickled.
GIVE_THE_PATH = "give other processes the path of the store, and let them open it"


class AnyTopic(_core.AnyTopic[T]):
    """The base of `Topic` and `PartitionedTopic`: everything but appends and lookups.

    Annotate with it what reads topics of both kinds; `Store.any_topic` opens either. To look
    records up, take a partition: `topic.partition(p)` is a `Topic`. A loop over the topic merges
    its partitions by timestamp. `offsets` are the offsets of each partition, `count` counts the
    records of all. `in` raises, since a record equals no value. A topic is always true.

    A plain `for` sees what was visible when it began; `follow` goes on. A handle that was opened
    with `visibility="durable"` sees only what is on disk, in all that it does.

    Threads may share it. A forked child may go on with it.

    Example:
        >>> _ = store.topic("orders").append(b"one")
        >>> _ = store.partitioned_topic("clicks", partitions=2)
        >>> for name in store.topics:
        ...     topic = store.any_topic(name)
        ...     print(topic.name, topic.offsets, topic.count())
        clicks {0: range(0, 0), 1: range(0, 0)} 0
        orders {0: range(0, 1)} 1
    """

    __slots__ = ()
    _store: Store

    @property
    def store(self) -> Store:
        """The store that it is in."""
        return self._store

    def partition(self, partition: int) -> Topic[T]:
        """View one partition as a topic of its own.

        The view shares this handle: closing either closes both.

        Args:
            partition: Its number, from 0.

        Returns:
            A topic that reads and writes this partition alone.

        Raises:
            InvalidArgument: There is no such partition.

        Example:
            >>> clicks = store.partitioned_topic("clicks", partitions=4)
            >>> clicks.append(b"x", partition=2)
            Position(partition=2, offset=0)
            >>> clicks.partition(2)[0].to_bytes()
            b'x'
        """
        return self._store._topic_of(self._view(partition))

    def bulk_load(self, name: str, *, idempotency_key: tuple[str, int] | None = None) -> BulkLoad:
        """Append many records so that all of them become visible at once, or none.

        For what one process writes in one go and `extend` cannot take. Records are staged in a file
        beside the log and committed when the `with` block ends. Then they are on the disk, whatever
        the topic's sync mode. For loads of several processes see `stage`.

        Args:
            name: Name of the load, for messages and files; up to 191 of the characters that a
                topic's name may have.
            idempotency_key: Name of a series of loads and the number of this one in it. A number
                that is not higher than the last committed one is not committed again. So a load may
                be run as often as it takes.

        Returns:
            A context manager with `append` and `append_arrow`.

        Raises:
            InvalidArgument: The name cannot be one; or the log remembers as many series as it can.
            AppendTooLarge: At the end: the load is larger than it may be; the limit is named.
            NotWritable: The topic was opened for reading.

        Example:
            >>> flights = store.topic("flights")
            >>> with flights.bulk_load("nightly", idempotency_key=("import", 20261122)) as load:
            ...     load.append(b"EWR to IAH", key=b"UA")
            ...     load.append(b"JFK to MIA", key=b"AA")
            >>> load.committed, load.offsets, len(flights)
            (True, {0: range(0, 2)}, 2)
            >>> with flights.bulk_load("nightly", idempotency_key=("import", 20261122)) as load:
            ...     load.append(b"EWR to IAH", key=b"UA")
            >>> load.done, load.committed, len(flights)
            (True, False, 2)
        """
        from falaj._bulk import BulkLoad

        return BulkLoad(self, name, idempotency_key)

    def extend_arrow(self, data: Any) -> int:
        """Append the rows of a table or data frame, all at once, as a bulk load does.

        Args:
            data: Anything with `__arrow_c_stream__` or `__arrow_c_array__`: a table of pyarrow, a
                frame of pandas or Polars, a relation of DuckDB. Columns: `value` (bytes or text),
                and if they are there `key`, `headers`, `timestamp` and `partition`. Values are
                taken as they are, without the codec. A null value is a tombstone.

        Returns:
            How many rows were appended. They are on the disk.

        Raises:
            TypeError: It has neither method.
            InvalidArgument: A column is missing, unknown or of another type.
            AppendTooLarge, NoSpace, NotWritable, TopicDeleted: Nothing was appended.

        Example:
            >>> import pyarrow as pa
            >>> flights = store.topic("flights")
            >>> flights.extend_arrow(pa.table({"key": ["UA"], "value": ["EWR to IAH"]}))
            1
            >>> flights[0].to_bytes()
            b'EWR to IAH'
        """
        with self.bulk_load("extend_arrow") as load:
            load.append_arrow(data)
        return load.records

    def cursor(self, name: str | bytes) -> Cursor | None:
        """Find out where a cursor stands that is kept in the topic's log.

        Costs little where the store is open for writing, and else a pass over the newest segment's
        headers.

        Args:
            name: What `Transaction.commit_cursor` called it.

        Returns:
            The cursor; None for one that never moved there.

        Example:
            >>> orders = store.topic("orders")
            >>> with store.transaction() as tx:
            ...     tx.commit_cursor([falaj.Cursor("billing", 18)], into=orders)
            >>> orders.cursor("billing").offset, orders.cursor("shipping")
            (18, None)
        """
        from falaj._transaction import Cursor  # few need it, and it imports contextvars

        key = Cursor(name, 0).name
        found = _core._cursor(self, key)
        return None if found is None else Cursor(key, *found)

    def producers(self) -> list[Producer]:
        """List the producers that the topic remembers: who appended with `producer=`.

        Looks up the last record of each. Where several partitions are, those of all of them.

        Returns:
            A `falaj.Producer` for each, by id: names are kept as hashes alone.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.append(b"2 pears", producer="till-3", sequence=17)
            >>> orders.producers()[0].sequence
            17
        """
        from falaj._producers import producer  # few need it

        return [producer(row) for row in self._producers()]

    def forget_producer(self, *producers: str | ExpiringProducer | Producer) -> int:
        """Forget producers that append no more: a log remembers 65,536, fewer with small segments.

        The next append under such a name is a new producer's, whatever its sequence; what it
        appended before is not known as a repeat. It is on the disk when the call returns.

        Args:
            producers: Names, or what `producers()` lists.

        Returns:
            How many of them were known.

        Raises:
            NotWritable, TopicDeleted, HandleClosed: Nothing was forgotten.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.append(b"2 pears", producer="till-3", sequence=17)
            >>> orders.forget_producer("till-3")
            1
            >>> orders.append(b"2 pears", producer="till-3", sequence=17)
            1
        """
        from falaj._producers import split  # few need it

        return self._forget_producers(*split(producers))

    def count(self) -> int:
        """Count the records of all partitions, without reading them.

        In a compacted topic offsets have gaps, so there are fewer records than `len(topic)`. Their
        number is looked up in the headers of compacted files, once for each file; elsewhere it is a
        subtraction. Records that corruption hides count.

        Returns:
            How many records are there.

        Example:
            >>> clicks = store.partitioned_topic("clicks", partitions=4)
            >>> _ = clicks.extend([("ann", b"home"), ("bob", b"cart")])
            >>> clicks.count()
            2
        """
        return sum(part._count(0) for part in self._parts())

    def batches(self, size: int = _BATCH) -> Iterator[Batch[T]]:
        """Read everything that there is now, thousands of records at a time.

        The fastest way to read: `batch.values` are the values as the codec reads them,
        `batch.raw_values` views of the payloads, `batch.to_list()` copies. Partitions come one
        after the other. Before corruption all that is valid is delivered; the next step raises.

        Args:
            size: About how many records a batch has. It ends with the block that reaches them, or
                with the file of the log that holds them.

        Returns:
            An iterator of batches, each of one partition.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([b"one", b"two"])
            >>> [value for batch in orders.batches() for value in batch.to_list()]
            [b'one', b'two']
        """
        size = number(size, "the size of a batch")
        if size < 1:
            raise InvalidArgument(f"a batch has at least one record, not {shown(size)}")
        parts = [part._whole(size) for part in self._parts()]
        return parts[0] if len(parts) == 1 else OneByOne(self, chain.from_iterable(parts))

    def follow(
        self,
        start: Start = "earliest",
        *,
        timeout: Duration | None = None,
        visibility: Visibility | None = None,
    ) -> Follower[T]:
        """Read from a place on, and go on as records are appended, by any process.

        Waiting takes no processor time. It ends after `timeout`, when the follower or the topic is
        closed, from any thread, and with Ctrl-C.

        Args:
            start: "earliest"; "latest", which is only what comes from now on; an offset; or a time.
                A time is an aware datetime, or ISO text with a zone. The offset -10 is the last ten
                records that are there, or all where there are fewer.
            timeout: How long to wait for a record before the iteration ends: seconds, a timedelta,
                or text such as "5m"; None waits without end.
            visibility: "durable" holds back what is not known to be on the disk yet, "visible"
                nothing; by default as the topic was opened.

        Returns:
            An iterator, and a context manager that closes it.

        Raises:
            OffsetOutOfRange: `start` is gone, or beyond the end.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([b"one", b"two"])
            >>> [record.to_bytes() for record in orders.follow(timeout=0)]
            [b'one', b'two']
        """
        seen = self if visibility is None else self._as(self._seen_as(visibility))
        starts = [part._start(start) for part in seen._parts()]
        return seen._follow(starts, timeout)

    def afollow(
        self,
        start: Start = "earliest",
        *,
        timeout: Duration | None = None,
        visibility: Visibility | None = None,
    ) -> AsyncFollower[T]:
        """Follow from asyncio: `async for`. Arguments as for `follow`.

        Cancelling the task ends it; nothing polls.

        Example:
            >>> import asyncio
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([b"one", b"two"])
            >>> async def read():
            ...     return [record.to_bytes() async for record in orders.afollow(timeout=0)]
            >>> asyncio.run(read())
            [b'one', b'two']
        """
        from falaj._wait import AsyncFollower  # asyncio takes as long to import as all of falaj

        return AsyncFollower(self.follow(start, visibility=visibility), timeout)

    def to_reader(
        self,
        start: Start = "earliest",
        end: int | Time | None = None,
        *,
        columns: Sequence[str] = _USUAL,
        views: bool = False,
        batch_rows: int = 65_536,
        batch_bytes: int = 64 << 20,
        on_corrupt: Literal["raise", "skip"] = "raise",
    ) -> Reader:
        """Read as Arrow record batches, one after the other.

        `falaj.arrow.read` says what the arguments are, and what can take the stream.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([b"one", b"two", b"three"])
            >>> reader = orders.to_reader(start=1, columns=["offset", "value"])
            >>> [batch.to_pydict() for batch in reader]
            [{'offset': [1, 2], 'value': [b'two', b'three']}]
        """
        from falaj import arrow

        return arrow.read(
            self,
            start,
            end,
            columns=columns,
            views=views,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            on_corrupt=on_corrupt,
        )

    def to_arrow(
        self,
        start: Start = "earliest",
        end: int | Time | None = None,
        *,
        columns: Sequence[str] = _USUAL,
        views: bool = False,
        batch_rows: int = 65_536,
        batch_bytes: int = 64 << 20,
        on_corrupt: Literal["raise", "skip"] = "raise",
    ) -> pyarrow.Table:
        """Read into a pyarrow table; arguments as for `falaj.arrow.read`.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([b"one", b"two"])
            >>> orders.to_arrow().column_names
            ['partition', 'offset', 'timestamp', 'key', 'value']
        """
        from falaj import arrow

        return arrow.table(
            self,
            start,
            end,
            columns=columns,
            views=views,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            on_corrupt=on_corrupt,
        )

    def scan(
        self,
        start: Start = "earliest",
        end: int | Time | None = None,
        *,
        columns: Sequence[str] = _SCANNED,
        batch_rows: int = 65_536,
        batch_bytes: int = 8 << 20,
        on_corrupt: Literal["raise", "skip"] = "raise",
        fields: Mapping[str, Any] | None = None,
        on_bad: Literal["raise", "skip", "null"] = "raise",
    ) -> Scan:
        """Make a lazy table of it, for Polars, DuckDB, pandas and pyarrow.

        `falaj.arrow.scan` says what the arguments are; it takes several topics, too.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([(b"eu", b"two coffees"), (b"us", b"one tea")])
            >>> orders.scan().to_table(columns=["offset", "value"]).to_pylist()
            [{'offset': 0, 'value': b'two coffees'}, {'offset': 1, 'value': b'one tea'}]
            >>> _ = store.topic("sales").append(b'{"item": "tea", "amount": 1.5}')
            >>> sales = store.topic("sales").scan(columns=["offset"], fields={"amount": "double"})
            >>> sales.to_table().to_pylist()
            [{'offset': 0, 'amount': 1.5}]
        """
        from falaj import arrow

        return arrow.scan(
            self,
            start=start,
            end=end,
            columns=columns,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            on_corrupt=on_corrupt,
            fields=fields,
            on_bad=on_bad,
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Pass all records to a library that takes Arrow streams, as `to_reader()` does.

        Example:
            >>> import pyarrow as pa
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([b"one", b"two"])
            >>> pa.table(orders).column("value").to_pylist()
            [b'one', b'two']
        """
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Show the last ten records of each partition as a table, in a notebook."""
        from falaj import _html  # for notebooks alone

        return _html.of_topic(self)

    def trim(self, *, before_time: Time, dry_run: bool = False) -> TrimReport:
        """Delete the records before a time, for all readers; `Topic.trim` also takes an offset.

        They are gone for every reader when this returns, also after a power failure. Reading them
        raises `OffsetOutOfRange`, also for a reader that stands before them. Records and batches
        that were read before stay valid, also those that an Arrow reader has read ahead. A file is
        removed once all of its records are gone; the newest one stays. Offsets go on as before.

        Args:
            before_time: In each partition, keep the first record of this time or later, and all
                after it. The time is an aware datetime, or ISO text with a zone.
            dry_run: Only report what would be removed.

        Returns:
            The new first offsets, and how many files and bytes were removed.

        Raises:
            CorruptData: What to keep depends on records that cannot be read; nothing was removed.
            NotWritable: The store was opened for reading.

        Example:
            >>> clicks = store.partitioned_topic("clicks", partitions=2)
            >>> _ = clicks.append(b"home", partition=1, timestamp="2026-11-20T08:00:00Z")
            >>> clicks.trim(before_time="2026-11-21T00:00:00Z")["firsts"]
            {0: 0, 1: 1}
        """
        flag(dry_run, "dry_run")
        found = ((part, part.offset_at(before_time)) for part in self._parts())
        return self._trimmed(
            {
                part.partitions[0]: part.end_offset if offset is None else offset
                for part, offset in found
            },
            dry_run,
        )

    def _trimmed(self, firsts: dict[int, int], dry_run: bool) -> TrimReport:
        segments, freed = self._trim(list(firsts.items()), dry_run)
        return {"firsts": firsts, "segments": segments, "bytes": freed}

    def compact(
        self,
        *,
        delete_retention: Duration = 86_400,
        memory: int = 128 << 20,
        seal: bool = False,
        last: Mapping[int, Last] | None = None,
        progress: Progress | None = None,
    ) -> CompactReport:
        """Remove all but the last record of each key, in each partition by itself.

        The others are gone for every reader when this returns, also after a power failure, and
        their space with them. Offsets stay: asking for one that is gone raises `RecordCompacted`,
        iteration goes on with the next. Others read and write meanwhile, what was read stays valid,
        and consumers go on where they were. Records without a key stay, and so does what was
        appended lately: the newest file of the log is not looked at. A tombstone takes what it
        hides with it, and goes itself some time later.

        Costs a reading of the topic two or three times, and writing what is left of the files from
        which something goes.

        Args:
            delete_retention: For how long a tombstone stays once all that it hides is gone:
                seconds, a timedelta, or text such as "12h". A reader that reads the topic from its
                beginning in less time meets every deletion of what it met. 0: no longer than that.
            memory: Bytes to remember keys in, about 100 for each; with more keys than that the
                topic is read more often.
            seal: Begin a new file first, so that all that was appended is looked at. Files that
                were ended early become one with others only while what is left of all of them is
                small: so this is for a topic that no process writes to for a while.
            last: Which records are the last of their keys, where that was found out elsewhere, by
                partition: see `falaj.Last`. Everything stays in other partitions.
            progress: Called with bytes done and bytes in all.

        Returns:
            How many records were looked at and went, and what the files took before and after.

        Raises:
            InvalidArgument: The topic is not marked compacted, or shares its log with another
                topic.
            CorruptData: Something that was to be compacted is corrupt; it stays as it is.
            LockTimeout: Somebody else compacts it all the while.
            NotWritable: The store was opened for reading.

        Example:
            >>> prices = store.topic("prices", compacted=True)
            >>> _ = prices.extend([(b"tea", b"3"), (b"coffee", b"4"), (b"tea", b"5")])
            >>> prices.compact(seal=True)["removed"]
            1
            >>> [record.offset for record in prices], len(prices)
            ([1, 2], 3)
        """
        from falaj._compaction import compact  # few need it, and datetime takes its time to import

        self._expect()
        return compact(self, delete_retention, memory, seal, last, progress)

    def configure(
        self,
        *,
        compacted: bool | None = None,
        properties: Mapping[str, str | None] | None = None,
        **settings: Unpack[Retention],
    ) -> TopicRetention:
        """Change retention and properties of the topic, for all processes.

        A setting that is not given stays as it is, and None lifts a limit. By itself this removes
        no record. The process that begins the next file of the log acts on it, or `Store.maintain`.
        A record that goes is gone for every reader; what was read before stays valid.

        Args:
            compacted: Whether `compact` may leave of all records with the same key only the last
                one. Removed records do not come back.
            properties: Texts by name, which programs keep with the topic: `Topic.properties`. Those
                that are not named stay, and None removes one. A name has 1 to 128 bytes, all names
                and values together at most 16,384. They change at once, or none does.
            **settings: `retention_bytes`: the oldest files are deleted while the files of the log
                take more; between two files it may be one more. In a log that several topics share
                the files of all topics count. So a topic with many appends displaces old records of
                the others.
                `retention_age`: files are deleted once their newest record is older: seconds, a
                timedelta, or text such as "7d".
                `retention_records`: so many records of each partition stay.
                `retention_waits`: records that a registered consumer still needs stay.
                `retention_protected`: the limit of the store deletes nothing of the topic.

        Returns:
            All of them as they are now.

        Raises:
            InvalidArgument: A limit is less than 1, or the properties are too large.
            NotWritable: The store was opened for reading.
            TopicDeleted: The topic was deleted, also if there is another of its name now.

        Example:
            >>> orders = store.topic("orders", retention_records=1000)
            >>> orders.configure(retention_age=7 * 86_400, retention_records=None)["age_ms"]
            604800000
        """
        from falaj._retention import changes, texts  # few need it: datetime is slow to import

        self._expect()
        told = changes(settings)
        compacted = optional_flag(compacted, "compacted")
        if properties is not None:
            _core._set_properties(self._store, self, texts(properties))
        if compacted is not None:
            _core._mark_compacted(self._store, self, compacted)
        return _core._configure_topic(self._store, self, told)

    def delete(self) -> None:
        """Delete the topic and all its records, for everybody.

        Values that were read stay valid. Other handles get `TopicDeleted`.

        Raises:
            NotWritable: The store was opened for reading.
            TopicDeleted: Somebody did before.
        """
        self._expect()
        self._store.delete_topic(self.name)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a topic cannot be pickled or copied: {GIVE_THE_PATH}")

    def __reversed__(self) -> Iterator[Record[T]]:
        """Read what there is now, newest first; several partitions are merged by timestamp.

        It ends with the oldest record that is still there when it comes to it. Behind corruption
        all records are read; the next step raises.
        """
        parts = [backwards(part, part.start_offset, part.end_offset) for part in self._parts()]
        if len(parts) == 1:
            return OneByOne(self, parts[0])
        from heapq import merge  # few need it

        # A plain `for` reads the lowest partition first among records of the same time.
        newest = merge(*parts[::-1], key=lambda record: record.timestamp_ns, reverse=True)
        return OneByOne(self, newest)

    if TYPE_CHECKING:
        # Each of the two kinds says what a handle of it is.
        def _as(self, opened: Opened) -> AnyTopic[T]: ...

    def _parts(self) -> list[Topic[T]]:
        return [self.partition(p) for p in self.partitions]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: Any) -> None:
        self.close()
