"""`Topic`: a named stream of records.

The compiled class has the calls that run once a record (`append`, `extend`, `topic[i]`, iteration),
because a Python frame costs more than an append. This module has those that run once a read.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack

from falaj import _core
from falaj._numbers import number, plain
from falaj._slice import Slice, backwards
from falaj.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Literal

    import pyarrow

    from falaj._admin import Progress, TrimReport
    from falaj._arguments import Retention, Start, Sync, Visibility
    from falaj._bulk import BulkLoad
    from falaj._compaction import CompactReport, Last
    from falaj._core import Batch, Follower, Opened, Record
    from falaj._producers import Producer
    from falaj._records import Position
    from falaj._retention import TopicRetention
    from falaj._scan import Scan
    from falaj._store import Store
    from falaj._time import Duration, Time
    from falaj._transaction import Cursor
    from falaj._wait import AsyncFollower
    from falaj.arrow import Reader

T = TypeVar("T")

__all__ = ["Topic"]

#: As `falaj.arrow.USUAL` and `SCANNED`, which need not be imported for that.
_USUAL = ("partition", "offset", "timestamp", "key", "value")
_SCANNED = (*_USUAL, "headers", "topic", "timestampType")

_BATCH = 8192
#: The remedy when a handle cannot be pickled.
GIVE_THE_PATH = "give other processes the path of the store, and let them open it"


class Topic(_core.Topic[T]):
    """An open topic; `Store.topic` makes it.

    Offsets are positions in history, not list indexes: `topic[i]` is the record with offset i for
    as long as it is kept. An offset that was deleted or is not written yet raises
    `OffsetOutOfRange`, which is an `IndexError`. A negative number counts existing records from the
    end: `topic[-1]` is the last one, also where compaction left gaps. `len(topic)` is `end_offset -
    start_offset`, which counts offsets; `count` counts records. So `topic[len(topic) - 1]` is not
    the last record after a trim; `random.choice` uses such indexes, so give it `topic[:]`. A topic
    is always true. `reversed(topic)` is newest first; `in` raises.

    A plain `for` sees what was committed when it began; `follow` continues. A handle that was
    opened with `visibility="durable"` sees only what is on disk, in all its calls.

    If a topic has several partitions, each has offsets of its own. Then `topic[i]`, slices, `read`,
    `last` and `at` need `topic.partition(p)`, and iteration merges the partitions by timestamp.

    Threads may share it. A forked child may continue to use it.

    Example:
        >>> orders = store.topic("orders")
        >>> orders.extend([b"one", b"two", b"three"])
        range(0, 3)
        >>> bytes(orders[1].value), len(orders)
        (b'two', 3)
        >>> [record.to_bytes() for record in orders[-2:]]
        [b'two', b'three']
    """

    __slots__ = ("_store",)
    _store: Store

    def __new__(cls, opened: Opened, store: Store) -> Topic[T]:
        """Make a handle; `Store.topic` calls this."""
        topic = super().__new__(cls, opened)
        topic._store = store
        return topic

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
            >>> orders = store.topic("orders", partitions=4)
            >>> orders.append(b"x", partition=2)
            Position(partition=2, offset=0)
            >>> orders.partition(2)[0].to_bytes()
            b'x'
        """
        return Topic(self._view(partition), self._store)

    def bulk_load(self, name: str, *, idempotency_key: tuple[str, int] | None = None) -> BulkLoad:
        """Append many records so that all of them become visible at once, or none.

        For records that one process writes and that `extend` cannot take at once. Records are
        staged in a file beside the log and committed when the `with` block ends. Then they are on
        disk, whatever the topic's sync mode. For loads of several processes see `stage`.

        Args:
            name: Name of the load, for messages and files; up to 191 of the characters that a
                topic's name may have.
            idempotency_key: Name of a series of loads and the number of this one in it. A number
                that is not higher than the last one committed is not committed again, so a load may
                be repeated at will.

        Returns:
            A context manager with `append` and `append_arrow`.

        Raises:
            InvalidArgument: The name is not allowed; or the log cannot remember another series.
            AppendTooLarge: At the end: the load is too large; the message has the limit.
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
                and optionally `key`, `headers`, `timestamp` and `partition`. Values are stored as
                they are, without the codec. A null value is a tombstone.

        Returns:
            The number of appended rows. They are on disk.

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

    def read(self, start: int, n: int) -> list[Record[T]]:
        """Read up to `n` records from an offset on.

        Offsets that compaction left without a record do not count: it continues with the next ones.

        Args:
            start: First offset; a negative one counts existing records from the end.
            n: Most records to return.

        Returns:
            The records; fewer than `n` only at the end.

        Raises:
            OffsetOutOfRange: `start` was deleted, or lies beyond the end or before the first
                record.
        """
        start, n = number(start, "an offset"), number(n, "how many to read")
        end = self.end_offset
        if n < 0:
            raise InvalidArgument(f"n is how many records to read, from 0 on, not {shown(n)}")
        if start < 0:
            start = self._absolute(start)
        if not self.start_offset <= start <= end:
            raise self._out_of_range(start)
        return list(islice(self._records(start, end), min(n, end - start)))

    def last(self, n: int = 1) -> list[Record[T]]:
        """Read the last `n` records, oldest first, or all if there are fewer."""
        n = number(n, "how many to read")
        if n < 0:
            raise InvalidArgument(f"n is how many records to read, from 0 on, not {shown(n)}")
        end = self.end_offset
        return list(self._records(self._start_of_last(n, end), end))

    def count(self, start: int | None = None, end: int | None = None) -> int:
        """Count the existing records, without reading them.

        In a compacted topic offsets have gaps, so there are fewer records than `len(topic)`. The
        headers of compacted files have their number, and are read once for each file; elsewhere it
        is a subtraction. Offsets that corruption hides count.

        Args:
            start: Count from this offset on; the first by default. A negative one counts existing
                records from the end. If a topic has several partitions, use `topic.partition(p)`
                for an offset.
            end: Count records before this offset; the end by default.

        Returns:
            The number of records with such an offset, in all partitions.

        Example:
            >>> prices = store.topic("prices", compacted=True)
            >>> _ = prices.extend([(b"tea", b"3"), (b"coffee", b"4"), (b"tea", b"5")])
            >>> _ = prices.compact(seal=True)
            >>> prices.count(), len(prices)
            (2, 3)
        """
        if start is None and end is None:
            return sum(part._count(0) for part in self._parts())
        begin = 0 if start is None else number(start, "an offset")
        stop = None if end is None else self._bound(number(end, "an offset"))
        return self._count(self._bound(begin), stop)

    def range(self, start: int | Time | None = None, end: int | Time | None = None) -> Slice[T]:
        """Take the records from one offset or time up to another, to be read when needed.

        With offsets it is the same as `topic[start:end]`.

        Args:
            start: The first offset or time; by default the first record that is left. -10 stands
                for the last ten records. A time is an aware datetime, or ISO text with a zone.
            end: The offset or time that ends the range, not included; by default the end.

        Returns:
            A slice: iterate it, index it, or ask for its `batches`.

        Raises:
            OffsetOutOfRange: It begins with records that were trimmed.

        Example:
            >>> orders = store.topic("orders")
            >>> for hour in range(8, 12):
            ...     _ = orders.append(b"%d" % hour, timestamp=f"2026-11-20T{hour:02}:00:00Z")
            >>> morning = orders.range("2026-11-20T09:00:00Z", "2026-11-20T11:00:00Z")
            >>> [record.offset for record in morning]
            [1, 2]
        """
        return self._slice(slice(self._edge(start), self._edge(end)))

    def offset_at(self, time: Time | None = None, *, time_ns: int | None = None) -> int | None:
        """Find the offset of the first record whose timestamp is at or after a time.

        The index leads to the time, so that it reads a few blocks.

        Args:
            time: An aware datetime, or ISO text with a zone.
            time_ns: The same as nanoseconds since 1970. Give exactly one of the two.

        Returns:
            The offset, or None if all records are older.

        Example:
            >>> orders = store.topic("orders")
            >>> orders.append(b"x", timestamp="2026-11-20T08:00:00Z")
            0
            >>> orders.offset_at("2026-11-20T07:59:00Z")
            0
        """
        from falaj import _time  # few need it, and datetime takes its time to import

        if time_ns is None:
            return self._offset_at(_time.to_ns(time))
        if time is not None:
            raise InvalidArgument("offset_at() takes a time or time_ns=: give one of them")
        return self._offset_at(_time.expect_ns(time_ns))

    def at(self, time: Time) -> Record[T] | None:
        """Find the first record whose timestamp is at or after a time.

        Args:
            time: An aware datetime, or ISO text with a zone.

        Returns:
            The record, or None if all are older.

        Example:
            >>> orders = store.topic("orders")
            >>> orders.append(b"x", timestamp="2026-11-20T08:00:00Z")
            0
            >>> orders.at("2026-11-20T07:59:00Z").offset
            0
        """
        offset = self.offset_at(time)
        return None if offset is None else self[offset]

    def cursor(self, name: str | bytes) -> Cursor | None:
        """Return a cursor that the topic's log keeps.

        Costs little if the store is open for writing, and otherwise a pass over the newest
        segment's headers.

        Args:
            name: The cursor's name in `Transaction.commit_cursor`.

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
        """List the producers that the topic remembers: names given as `producer=`.

        Reads the last record of each. Covers all partitions of the topic.

        Returns:
            A `falaj.Producer` for each, by id: only hashes of the names are stored.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.append(b"2 pears", producer="till-3", sequence=17)
            >>> orders.producers()[0].sequence
            17
        """
        from falaj._producers import producer  # few need it

        return [producer(row) for row in self._producers()]

    def forget_producer(self, *producers: str | Producer) -> int:
        """Forget producers that append no more: a log remembers 65,536, fewer with small segments.

        The next append under such a name is a new producer's, whatever its sequence. Its earlier
        appends are not recognised as repeats. It is on disk when this returns.

        Args:
            producers: Names, or items of `producers()`.

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

    def batches(self, size: int = _BATCH) -> Iterator[Batch[T]]:
        """Read all present records, thousands of records at a time.

        The fastest way to read: `batch.values` are the values as the codec reads them,
        `batch.raw_values` views of the payloads, `batch.to_list()` copies. Partitions come one
        after the other. All valid records before corruption are delivered; the next step raises.

        Args:
            size: About how many records a batch has: it ends with the block that reaches this
                number, or with its file.

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
        return chain.from_iterable([part._whole(size) for part in self._parts()])

    def follow(
        self,
        start: Start = "earliest",
        *,
        timeout: Duration | None = None,
        visibility: Visibility | None = None,
    ) -> Follower[T]:
        """Read from a place on, and continue as any process appends records.

        Waiting takes no processor time. It ends after `timeout`, when the follower or the topic is
        closed, from any thread, and with Ctrl-C.

        Args:
            start: "earliest", "latest" (only later records), an offset, or a time: an aware
                datetime, or ISO text with a zone. -10 is the last ten existing records, or all if
                there are fewer.
            timeout: How long to wait for a record before the iteration ends: seconds, a timedelta,
                or text such as "5m"; None waits without end.
            visibility: "durable" delivers only records on disk, "visible" all; by default as the
                topic was opened.

        Returns:
            An iterator, and a context manager that closes it.

        Raises:
            OffsetOutOfRange: `start` was deleted, or lies beyond the end.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([b"one", b"two"])
            >>> [record.to_bytes() for record in orders.follow(timeout=0)]
            [b'one', b'two']
        """
        seen = self if visibility is None else Topic(self._seen_as(visibility), self._store)
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
        """Read as Arrow record batches, in sequence.

        `falaj.arrow.read` explains the arguments, and which libraries read the stream.

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
        batch_bytes: int = 64 << 20,
        on_corrupt: Literal["raise", "skip"] = "raise",
        fields: Mapping[str, Any] | None = None,
        on_bad: Literal["raise", "skip", "null"] = "raise",
    ) -> Scan:
        """Make a lazy table of it, for Polars, DuckDB, pandas and pyarrow.

        `falaj.arrow.scan` explains the arguments; it also takes several topics.

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
        """Pass all records to a library that reads Arrow streams, as `to_reader()` does.

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

    def trim(
        self,
        *,
        before_offset: int | None = None,
        before_time: Time | None = None,
        dry_run: bool = False,
    ) -> TrimReport:
        """Delete the oldest records, for all readers.

        They are gone for every reader when this returns, even after a power failure: reading them
        raises `OffsetOutOfRange`. Values that were read before stay valid. A file is removed once
        all of its records are gone; the newest one stays. Later offsets do not change.

        Give exactly one of `before_offset` and `before_time`.

        Args:
            before_offset: The first offset to keep. -10 keeps the last ten existing records. If
                there are several partitions, trim `topic.partition(p)`.
            before_time: Keep the first record of this time or later, and all after it: an aware
                datetime, or ISO text with a zone.
            dry_run: Only report what would be removed.

        Returns:
            The new first offsets, and the number of removed files and bytes.

        Raises:
            InvalidArgument: Both or neither of the two were given.
            OffsetOutOfRange: `before_offset` lies beyond the end.
            CorruptData: Unreadable records decide what to keep; nothing was removed.
            NotWritable: The store was opened for reading.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([b"one", b"two", b"three"])
            >>> orders.trim(before_offset=2)
            {'firsts': {0: 2}, 'segments': 0, 'bytes': 0}
            >>> orders.start_offset, len(orders)
            (2, 1)
        """
        if (before_offset is None) == (before_time is None):
            raise InvalidArgument(
                "trim() takes before_offset= or before_time=: give exactly one of them"
            )
        if before_offset is not None and not self._single:
            n = len(self.partitions)
            raise InvalidArgument(
                f"topic {self.name!r} has {n} partitions, each with offsets of its own: trim "
                "topic.partition(p), or give before_time="
            )
        parts = self._parts()
        if before_offset is not None:
            keep = {parts[0].partitions[0]: parts[0]._kept_from(number(before_offset, "an offset"))}
        else:
            found = ((part, part.offset_at(before_time)) for part in parts)
            keep = {
                part.partitions[0]: part.end_offset if offset is None else offset
                for part, offset in found
            }
        segments, freed = self._trim(list(keep.items()), dry_run)
        return {"firsts": keep, "segments": segments, "bytes": freed}

    def tombstone(
        self,
        key: str | bytes | bytearray | memoryview,
        *,
        headers: Mapping[str, str | bytes | None]
        | Iterable[tuple[str, str | bytes | None]]
        | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> int | Position:
        """Append a tombstone: a key without a value, which deletes the key.

        It says that the key's earlier records no longer hold. `compact` removes them, and the
        tombstone itself some time later. A reader gets a record whose `is_tombstone` is true and
        whose value is None. No other call writes one: a value of None is JSON's null or msgpack's
        nil, and an error if the codec has no None. In `extend` write `NewRecord.tombstone(key)`.

        Args:
            key: Text (stored as UTF-8) or bytes that name what is deleted.
            timestamp: When it was deleted.
            timestamp_ns: The same in nanoseconds since 1970.
            headers: As for `append`, like all later arguments.
            partition: The partition to append to, whatever its key.
            sync: "none", "interval" or "durable".
            producer: The name under which a repeat is recognised.
            sequence: The number of this append among the producer's.
            expect: The offset that it must get.

        Returns:
            Its offset; with several partitions a `Position(partition, offset)`.

        Raises:
            TypeError: The key is neither text nor bytes.
            OffsetConflict, NotWritable, NoSpace, TopicDeleted: As for `append`; nothing was
                appended.

        Example:
            >>> prices = store.topic("prices", compacted=True)
            >>> prices.append(b"3 rials", key=b"tea"), prices.tombstone(b"tea")
            (0, 1)
            >>> prices[1].key, prices[1].is_tombstone
            (b'tea', True)
        """
        return _core._tombstone(
            self,
            key,
            headers=headers,
            timestamp=timestamp,
            timestamp_ns=timestamp_ns,
            partition=partition,
            sync=sync,
            producer=producer,
            sequence=sequence,
            expect=expect,
        )

    def compact(
        self,
        *,
        delete_retention: Duration = 86_400,
        memory: int = 128 << 20,
        seal: bool = False,
        last: Mapping[int, Last] | None = None,
        progress: Progress | None = None,
    ) -> CompactReport:
        """Keep only the last record of each key, in each partition separately.

        The others are gone for every reader when this returns, even after a power failure, and
        their disk space is free. Offsets stay: reading a removed record raises `RecordCompacted`,
        and iteration continues with the next. Others read and write meanwhile, earlier reads stay
        valid, and consumers continue at their positions. Records without a key stay. So do recent
        records: the newest file of the log is left as it is. A tombstone removes what it hides, and
        is itself removed some time later.

        It reads the topic two or three times, and rewrites the remaining records of files that lose
        some.

        Args:
            delete_retention: How long a tombstone stays once all that it hides is gone: seconds, a
                timedelta, or text such as "12h". A reader that reads the topic from its beginning
                in less time sees every deletion of records that it saw. 0: no longer than that.
            memory: Bytes for remembering keys, about 100 for each; with more keys than that the
                topic is read more often.
            seal: Begin a new file first, so that all records so far are compacted. Files that ended
                early are merged only while their remaining records are few. So this is for a topic
                without writers for a while.
            last: The last record of each key, by partition, if another program found them: see
                `falaj.Last`. Other partitions stay as they are.
            progress: Called with the bytes done and all bytes.

        Returns:
            The numbers of examined and removed records, and the size of the files before and after.

        Raises:
            InvalidArgument: The topic is not marked compacted, or shares its log with another
                topic.
            CorruptData: A part to be compacted is corrupt; it stays as it is.
            LockTimeout: Another process is compacting it.
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
        self, *, compacted: bool | None = None, **settings: Unpack[Retention]
    ) -> TopicRetention:
        """Change which records expire, for all processes; at any time.

        A missing setting stays as it is, and None lifts a limit. By itself this removes nothing:
        the process that begins the next file of the log applies it, and `Store.maintain` at once.
        An expired record is gone for every reader; earlier reads stay valid.

        Args:
            compacted: Whether `compact` may keep only the last record of each key; removed records
                do not come back.
            **settings: `retention_bytes`: the oldest files are deleted while those of its log have
                more bytes; the last file may exceed it. In a shared log the files of all its topics
                count, so a neighbour that writes much displaces the topic's old records.
                `retention_age`: files whose newest record is older are deleted, in seconds or as a
                timedelta. `retention_records`: this many records of each partition stay.
                `retention_waits`: records that a registered consumer group still needs stay all the
                same. `retention_protected`: the store's limit deletes nothing of it.

        Returns:
            All settings as they are now.

        Raises:
            InvalidArgument: A limit is less than 1.
            NotWritable: The store was opened for reading.
            TopicDeleted: The topic was deleted, even if another has its name now.

        Example:
            >>> orders = store.topic("orders", retention_records=1000)
            >>> orders.configure(retention_age=7 * 86_400, retention_records=None)["age_ms"]
            604800000
        """
        from falaj._retention import changes  # few need it, and datetime takes its time to import

        self._expect()
        told = changes(settings)
        if compacted is not None:
            _core._mark_compacted(self._store, self, compacted)
        return _core._configure_topic(self._store, self, told)

    def delete(self) -> None:
        """Delete the topic and all its records, for all processes.

        Values that were read stay valid. Other handles get `TopicDeleted`.

        Raises:
            NotWritable: The store was opened for reading.
            TopicDeleted: It was deleted before.
        """
        self._expect()
        self._store.delete_topic(self.name)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a topic cannot be pickled or copied: {GIVE_THE_PATH}")

    def __reversed__(self) -> Iterator[Record[T]]:
        """Read the present records, newest first; several partitions are merged by timestamp.

        It ends with the oldest record that is left when it gets there. All records after corruption
        are read; the next step raises.
        """
        parts = [backwards(part, part.start_offset, part.end_offset) for part in self._parts()]
        if len(parts) == 1:
            return parts[0]
        from heapq import merge  # few need it

        # Among records of the same time, a plain `for` reads the lowest partition first.
        return merge(*parts[::-1], key=lambda record: record.timestamp_ns, reverse=True)

    def _slice(self, wanted: slice) -> Slice[T]:
        return Slice(self, Slice.offsets_of(self, wanted))

    def _parts(self) -> list[Topic[T]]:
        return [self] if self._single else [self.partition(p) for p in self.partitions]

    def _kept_from(self, offset: int) -> int:
        if offset > self.visible_offset:
            raise self._out_of_range(offset)
        if offset < 0:
            return self._start_of_last(-offset, self.end_offset)
        return max(self.start_offset, offset)

    def _edge(self, at: int | Time | None) -> int | None:
        """Turn an edge of a range into one of a slice."""
        place: Any = plain(at)
        if place is None or (isinstance(place, int) and not isinstance(place, bool)):
            return place
        offset = self.offset_at(place)
        return self.end_offset if offset is None else offset

    def _bound(self, at: int) -> int:
        return at if at >= 0 else self._start_of_last(-at)

    def _whole(self, size: int) -> Iterator[Batch[T]]:
        return self._batches(self.start_offset, self.end_offset, size)

    def _start(self, start: Start) -> int:
        place: Any = plain(start)
        if place == "earliest":
            return self.start_offset
        if place == "latest":
            return self.end_offset
        if isinstance(place, int) and not isinstance(place, bool):
            if place > self.visible_offset:
                raise self._out_of_range(place)
            return self._bound(place)
        from falaj import _time  # few need it, and datetime takes its time to import

        offset = self._offset_at(_time.start_ns(place, "start"))
        return self.end_offset if offset is None else offset

    def __enter__(self) -> Topic[T]:
        return self

    def __exit__(self, *_exception: Any) -> None:
        self.close()
