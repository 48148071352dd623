"""`Topic` and `PartitionedTopic`: the two kinds of topics.

A topic has one sequence of offsets, or several partitions with offsets each. So an append returns
an offset, or a position. `_any_topic` has all that both kinds offer. Methods that a program calls
once a record are inherited from the compiled classes: `append`, `extend`, `topic[i]`, iteration. A
Python frame costs more than an append.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from falaj import _core
from falaj._any_topic import AnyTopic
from falaj._checks import flag
from falaj._numbers import number, plain
from falaj._slice import Slice
from falaj.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from falaj._admin import TrimReport
    from falaj._arguments import Start
    from falaj._core import Batch, Opened, Record, _Key
    from falaj._store import Store
    from falaj._time import Time

    #: A topic that a program writes to, of whichever kind.
    EitherTopic: TypeAlias = "Topic[Any] | PartitionedTopic[Any]"

T = TypeVar("T")

__all__ = ["PartitionedTopic", "Topic", "handle_of"]


#: Beyond every offset.
_FAR = 2**64


def handle_of(opened: Opened, store: Store) -> EitherTopic:
    """Make the handle of a topic that was opened, of the kind that the topic is."""
    return (Topic if opened.single else PartitionedTopic)(opened, store)


class Topic(_core.Topic[T], AnyTopic[T]):
    """An open topic of one partition, or one partition of a topic.

    `Store.topic` makes it, and `partition(p)` of a partitioned topic.

    Offsets are positions in history, not list indexes: `topic[i]` is the record with offset i for
    as long as it is kept. An offset that is gone or not written yet raises `OffsetOutOfRange`, an
    `IndexError`. A negative number counts records that are there, from the end: `topic[-1]` is the
    last one, also where compaction left gaps. `len(topic)` is `end_offset - start_offset`, which
    counts offsets; `count` counts records. So `topic[len(topic) - 1]` is not the last record once
    some were trimmed, and `random.choice`, which asks for such, takes `topic[:]`, or `list(topic)`
    where compaction left gaps.
    `reversed(topic)` is newest first; `in` raises.

    A plain `for` sees what was visible when it began; `follow` goes on. A handle that was opened
    with `visibility="durable"` sees only what is on disk, in all that it does.

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

    __slots__ = ()

    def read(self, start: int, n: int) -> list[Record[T]]:
        """Read up to `n` records from an offset on.

        Records that compaction removed do not count.

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
            raise InvalidArgument(f"n is how many records to read, from 0 on, not {shown(n)}")
        if start < 0:
            start = self._absolute(start)
        if not self.start_offset <= start <= end:
            raise self._out_of_range(start)
        return list(islice(self._records(start, end), min(n, end - start)))

    def last(self, n: int = 1) -> list[Record[T]]:
        """Read the last `n` records, oldest first; fewer where there are fewer."""
        n = number(n, "how many to read")
        if n < 0:
            raise InvalidArgument(f"n is how many records to read, from 0 on, not {shown(n)}")
        end = self.end_offset
        return list(self._records(self._start_of_last(min(n, _FAR), end), end))

    def count(self, start: int | None = None, end: int | None = None) -> int:
        """Count the records that are there, without reading them.

        In a compacted topic offsets have gaps, so there are fewer records than `len(topic)`. Their
        number is looked up in the headers of compacted files, once for each file; elsewhere it is a
        subtraction. Records that corruption hides count.

        Args:
            start: Count from this offset on; the first by default. A negative one stands for the
                record so many from the end.
            end: Count records before this offset; the end by default.

        Returns:
            How many records have such an offset.

        Example:
            >>> prices = store.topic("prices", compacted=True)
            >>> _ = prices.extend([(b"tea", b"3"), (b"coffee", b"4"), (b"tea", b"5")])
            >>> _ = prices.compact(seal=True)
            >>> prices.count(), len(prices)
            (2, 3)
        """
        if start is None and end is None:
            return self._count(0)
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
        return self._slice(slice(self._edge(start, "start"), self._edge(end, "end")))

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
        return self._offset_at(_time.expect_ns(time_ns, "time_ns"))

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

    def trim(
        self,
        *,
        before_offset: int | None = None,
        before_time: Time | None = None,
        dry_run: bool = False,
    ) -> TrimReport:
        """Delete the oldest records, for all readers.

        They are gone for every reader when this returns, also after a power failure. Reading them
        raises `OffsetOutOfRange`, also for a reader that stands before them. Records and batches
        that were read before stay valid, also those that an Arrow reader has read ahead. A file is
        removed once all of its records are gone; the newest one stays. Offsets go on as before.

        Give exactly one of `before_offset` and `before_time`.

        Args:
            before_offset: The first offset to keep. -10 keeps the last ten records that are there.
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
        if before_time is not None:
            return super().trim(before_time=before_time, dry_run=dry_run)
        flag(dry_run, "dry_run")
        keep = self._kept_from(number(before_offset, "an offset"))
        return self._trimmed({self.partitions[0]: keep}, dry_run)

    def latest(self, key: _Key) -> Record[T] | None:
        """Find the newest record of a key, which may be a tombstone.

        In a compacted topic that record is what the topic says about the key. The search goes from
        the end back, because there is no index of keys. So it reads all records after the found
        one, and the whole topic where no record has the key. A program that asks often keeps a
        dict.

        Args:
            key: Text (taken as UTF-8) or bytes, as for `append`.

        Returns:
            The record, or None where no record has this key.

        Raises:
            TypeError: The key is neither text nor bytes.
            CorruptData: Records that are corrupt may hide a newer one.

        Example:
            >>> prices = store.topic("prices", codec="str", compacted=True)
            >>> _ = prices.extend([("tea", "3"), ("coffee", "4"), ("tea", "5")])
            >>> prices.latest("tea").value, prices.latest("milk")
            ('5', None)
        """
        wanted = _core._text_or_bytes(key, "a key")
        newest_first = reversed(self)
        return next((record for record in newest_first if record.key == wanted), None)

    def _slice(self, wanted: slice) -> Slice[T]:
        return Slice(self, Slice.offsets_of(self, wanted))

    def _kept_from(self, offset: int) -> int:
        if offset > self.visible_offset:
            raise self._out_of_range(offset)
        if offset < 0:
            return self._start_of_last(-offset, self.end_offset)
        return max(self.start_offset, offset)

    def _edge(self, at: int | Time | None, what: str) -> int | None:
        """Turn an edge of a range into one of a slice."""
        place: Any = plain(at)
        if place is None or (isinstance(place, int) and not isinstance(place, bool)):
            return place
        return self._end_or_at(place, what)

    def _end_or_at(self, time: Any, what: str) -> int:
        """The offset of the first record at or after a time; the end if there is none."""
        from falaj import _time  # few need it, and datetime takes its time to import

        offset = self._offset_at(_time.start_ns(time, what, ""))
        return self.end_offset if offset is None else offset

    def _bound(self, at: int) -> int:
        at = max(-_FAR, min(at, _FAR))
        return at if at >= 0 else self._start_of_last(-at)

    def _whole(self, size: int) -> Iterator[Batch[T]]:
        return self._batches(self.start_offset, self.end_offset, size)

    def _start(self, start: Start) -> int:
        place: Any = plain(start)
        if isinstance(place, str) and place in ("earliest", "latest"):
            return self.start_offset if place == "earliest" else self.end_offset
        if isinstance(place, int) and not isinstance(place, bool):
            if place > self.visible_offset:
                raise self._out_of_range(place)
            return self._bound(place)
        from falaj import _time  # few need it, and datetime takes its time to import

        offset = self._offset_at(_time.start_ns(place, "start"))
        return self.end_offset if offset is None else offset

    def _as(self, opened: Opened) -> Topic[T]:
        return Topic(opened, self._store)

    def _parts(self) -> list[Topic[T]]:
        return [self]


class PartitionedTopic(_core.PartitionedTopic[T], AnyTopic[T]):
    """An open topic of several partitions; `Store.partitioned_topic` makes it.

    Each partition has offsets of its own, and keeps its records in order. Keys choose partitions:
    records with the same key stay together. An append returns a `Position`, and `topic[position]`
    is that record. Slices, lookups by time and bounds are those of a partition: `partition(p)` is a
    `Topic`. A loop over the topic merges the partitions by timestamp.

    Example:
        >>> clicks = store.partitioned_topic("clicks", partitions=4)
        >>> home = clicks.append(b"home", key="ann")
        >>> clicks[home].to_bytes(), clicks.partition(home.partition)[home.offset].to_bytes()
        (b'home', b'home')
        >>> [record.to_bytes() for record in clicks]
        [b'home']
    """

    __slots__ = ()

    def _as(self, opened: Opened) -> PartitionedTopic[T]:
        return PartitionedTopic(opened, self._store)
