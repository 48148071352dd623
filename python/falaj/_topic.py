"""`Topic`: a named stream of records.

What is called once a record (`append`, `extend`, `topic[i]`, iteration) is inherited from the
compiled class, because a Python frame costs more than an append. Here is what is called once a
read.
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
#: What to do where a handle cannot be pickled.
GIVE_THE_PATH = "give other processes the path of the store, and let them open it"


class Topic(_core.Topic[T]):
    """An open topic; `Store.topic` makes it.

    Offsets are positions in history, not list indexes: `topic[i]` is the record with offset i for
    as long as it is kept. What is gone or not written yet raises `OffsetOutOfRange`, which is an
    `IndexError`. A negative number counts records that are there, from the end: `topic[-1]` is the
    last one, also where compaction left gaps. `len(topic)` is `end_offset - start_offset`, which
    counts offsets; `count` counts records. So `topic[len(topic) - 1]` is not the last record once
    some were trimmed, and `random.choice`, which asks for such, takes `topic[:]`. A topic is always
    true.
    `reversed(topic)` is newest first; `in` raises.

    A plain `for` sees what was committed when it began; `follow` goes on. A handle that was opened
    with `visibility="durable"` sees only what is on the medium, in all that it does.

    Where a topic has several partitions, each has offsets of its own: `topic[i]`, slices, `read`,
    `last` and `at` are then for `topic.partition(p)`, and iteration merges the partitions by
    timestamp.

    Threads may share it. A forked child may go on with it.

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

        For what one process writes in one go and `extend` cannot take. Records are staged in a file
        beside the log and committed when the `with` block ends. Then they are on the disk, whatever
        the topic's sync mode. For loads of several processes see `stage`.

        Args:
            name: Name of the load, for messages and files; up to 191 of the characters that a
                topic's name may have.
            idempotency_key: Name of a series of loads and the number of this one in it. A number
                that is not higher than the last one committed is not committed again, so a load
                may be run as often as it takes.

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

    def read(self, start: int, n: int) -> list[Record[T]]:
        """Read up to `n` records from an offset on.

        What compaction took does not count: it goes on with what is there.

        Args:
            start: First offset; a negative one stands for the record so many from the end.
            n: Most records to return.

        Returns:
            The records; fewer than `n` only at the end.

        Raises:
            OffsetOutOfRange: `start` is gone, beyond the end, or further from it than the first.
        """
        start, n = number(start, "an offset"), number(n, "how many to read")
        end = self.end_offset
        if n < 0:
            raise InvalidArgument(f"read() takes how many records to read, not {shown(n)}")
        if start < 0:
            start = self._absolute(start)
        if not self.start_offset <= start <= end:
            raise self._out_of_range(start)
        return list(islice(self._records(start, end), min(n, end - start)))

    def last(self, n: int = 1) -> list[Record[T]]:
        """Read the last `n` records, oldest first; fewer where there are fewer."""
        n = number(n, "how many to read")
        if n < 0:
            raise InvalidArgument(f"last() takes how many records to read, not {shown(n)}")
        end = self.end_offset
        return list(self._records(self._start_of_last(n, end), end))

    def count(self, start: int | None = None, end: int | None = None) -> int:
        """Count the records that are there, without reading them.

        In a compacted topic offsets have gaps, so there are fewer records than `len(topic)`. Their
        number is looked up in the headers of compacted files, once for each file; elsewhere it is a
        subtraction. Records that corruption hides count.

        Args:
            start: Count from this offset on; the first by default. A negative one stands for the
                record so many from the end. Of a topic with several partitions an offset is for
                `topic.partition(p)`.
            end: Count records before this offset; the end by default.

        Returns:
            How many records have such an offset, in all partitions.

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
            start: The first offset or time; by default the first record that is there. -10 stands
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

        It looks the time up in the index, so that it reads a few blocks.

        Args:
            time: An aware datetime, or ISO text with a zone.
            time_ns: The same as nanoseconds since 1970. Give exactly one of the two.

        Returns:
            The offset, or None where all records are older.

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
            The record, or None where all are older.

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

    def forget_producer(self, *producers: str | Producer) -> int:
        """Forget producers that append no more: a log remembers 65,536, fewer with small segments.

        The next append under such a name is a new producer's, whatever its sequence; what it
        appended before is not known as a repeat. On the medium when it returns.

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

    def batches(self, size: int = _BATCH) -> Iterator[Batch[T]]:
        """Read everything that there is now, thousands of records at a time.

        The fastest way to read: `batch.values` are the values as the codec reads them,
        `batch.raw_values` views of the payloads, `batch.to_list()` copies. Partitions come one
        after the other. Before corruption all that is valid is delivered; the next step raises.

        Args:
            size: About how many records a batch has: it ends with the block that reaches them, or
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
        return chain.from_iterable([part._whole(size) for part in self._parts()])

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
            start: "earliest", "latest" (only what comes from now on), an offset, or a time: an
                aware datetime, or ISO text with a zone.
                -10 is the last ten records that are there, or all where there are fewer.
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
        batch_bytes: int = 64 << 20,
        on_corrupt: Literal["raise", "skip"] = "raise",
    ) -> Scan:
        """Make a lazy table of it, for Polars, DuckDB, pandas and pyarrow.

        `falaj.arrow.scan` says what the arguments are; it takes several topics, too.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([(b"eu", b"two coffees"), (b"us", b"one tea")])
            >>> orders.scan().to_table(columns=["offset", "value"]).to_pylist()
            [{'offset': 0, 'value': b'two coffees'}, {'offset': 1, 'value': b'one tea'}]
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

    def trim(
        self,
        *,
        before_offset: int | None = None,
        before_time: Time | None = None,
        dry_run: bool = False,
    ) -> TrimReport:
        """Delete the oldest records, for all readers.

        They are gone for every reader when this returns, also after a power failure: reading them
        raises `OffsetOutOfRange`. Values that were read before stay valid. A file is removed once
        all of its records are gone; the newest one stays. Offsets go on as before.

        Give exactly one of `before_offset` and `before_time`.

        Args:
            before_offset: The first offset to keep. -10 keeps the last ten records that are there.
                Where there are several partitions, trim `topic.partition(p)`.
            before_time: Keep the first record of this time or later, and all after it: an aware
                datetime, or ISO text with a zone.
            dry_run: Only report what would be removed.

        Returns:
            The new first offsets, and how many files and bytes were removed.

        Raises:
            InvalidArgument: Both or neither of the two were given.
            OffsetOutOfRange: `before_offset` lies beyond the end.
            CorruptData: What to keep depends on records that cannot be read; nothing was removed.
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
        """Append a tombstone: a key without a value, by which it is deleted.

        It says that what was said of the key before holds no more. `compact` removes that, and the
        tombstone itself some time later. A reader gets a record whose `is_tombstone` is true and
        whose value is None. Nothing else writes one: a value of None is JSON's null or msgpack's
        nil, and an error where the codec has no None. In `extend` write `NewRecord.tombstone(key)`.

        Args:
            key: Text (kept as UTF-8) or bytes that tell what is deleted.
            timestamp: When it was deleted.
            timestamp_ns: The same in nanoseconds since 1970.
            headers: As for `append`, and so is all that follows.
            partition: The partition that it goes to, whatever its key.
            sync: "none", "interval" or "durable".
            producer: The name under which a repeat is known.
            sequence: The number of this append among the producer's.
            expect: The offset that it must get.

        Returns:
            Its offset; where there are several partitions a `Position(partition, offset)`.

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
        """Of all records with the same key leave the last one, in each partition by itself.

        The others are gone for every reader when this returns, also after a power cut, and their
        room with them. Offsets stay: asking for one that is gone raises `RecordCompacted`,
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
                small: so this is for a topic that nobody writes to for a while.
            last: Which records are the last of their keys, where that was found out elsewhere, by
                partition: see `falaj.Last`. Of other partitions everything stays.
            progress: Called with bytes done and bytes in all.

        Returns:
            How many records were looked at and went, and what the files took before and after.

        Raises:
            InvalidArgument: The topic is not marked compacted, or shares its log with another
                topic.
            CorruptData: Something that was to be compacted is damaged; it stays as it is.
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
        self, *, compacted: bool | None = None, **settings: Unpack[Retention]
    ) -> TopicRetention:
        """Change which records may go by themselves, for everybody; on any day.

        What is not given stays as it is, and None lifts a limit. By itself this removes nothing:
        whichever process begins the next file of the log acts on it, and `Store.maintain` at once.
        A record that goes is gone for every reader; what was read before stays valid.

        Args:
            compacted: Whether `compact` may leave of all records with the same key only the last
                one; what it took does not come back.
            **settings: `retention_bytes`: the oldest files go while those of its log take more;
                between two files it may be one more. In a log that several topics share those of
                all of them count, so a neighbour that writes much takes the topic's old records
                with it. `retention_age`: files go of which the newest record is older, in seconds
                or as a timedelta. `retention_records`: so many of each partition stay.
                `retention_waits`: what a registered consumer still needs stays all the same.
                `retention_protected`: the limit of the store takes nothing of it.

        Returns:
            All of them as they are now.

        Raises:
            InvalidArgument: A limit is less than 1.
            NotWritable: The store was opened for reading.
            TopicDeleted: The topic was deleted, also if there is another of its name now.

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
            return parts[0]
        from heapq import merge  # few need it

        # Of records of the same time, a plain `for` reads the lowest partition first.
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
        try:
            offset = self.offset_at(place)
        except (InvalidArgument, TypeError) as error:
            error.add_note('follow() begins at "earliest", "latest", an offset or a time')
            raise
        return self.end_offset if offset is None else offset

    def __enter__(self) -> Topic[T]:
        return self

    def __exit__(self, *_exception: Any) -> None:
        self.close()
