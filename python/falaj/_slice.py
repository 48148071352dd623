"""`Slice`: a range of offsets, read when it is iterated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

from falaj._numbers import number
from falaj.errors import CorruptData, InvalidArgument, OffsetOutOfRange, RecordCompacted, shown

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from falaj._any_topic import AnyTopic
    from falaj._core import Batch, Consumer, Record, Records
    from falaj._topic import Topic

T = TypeVar("T")
Each = TypeVar("Each")

__all__ = ["OneByOne", "Slice", "backwards"]

#: Records of the first piece that is read backwards, and of the largest.
_PIECE, _PIECE_MAX = 64, 8192


def backwards(topic: Topic[T], first: int, end: int) -> Generator[Record[T], None, int]:
    """Read one partition newest first, from before an offset down to another.

    Returns:
        How far it came: `first`, or the oldest offset that was left when it got there.
    """
    size = _PIECE
    while end > first:
        begin = max(first, end - size)
        try:
            found, corrupt = _after_corruption(topic._records(begin, end))
        except OffsetOutOfRange:
            if topic.start_offset <= first:
                raise
            first = topic.start_offset  # it was trimmed meanwhile
            continue
        yield from reversed(found)
        if corrupt is not None:
            raise corrupt
        end, size = begin, min(2 * size, _PIECE_MAX)
    return first


class OneByOne(Generic[Each]):
    """An iterator over what a topic or a consumer gives, such as `reversed(topic)`; `in` raises."""

    __slots__ = ("_each", "_topic")

    def __init__(self, topic: AnyTopic[Any] | Consumer[Any], each: Iterator[Each]) -> None:
        self._topic = topic
        self._each = each

    def __iter__(self) -> Iterator[Each]:
        return self._each  # a loop over it costs no frame of this class

    def __next__(self) -> Each:
        return next(self._each)

    def __contains__(self, item: Any) -> NoReturn:
        self._topic.__contains__(item)

    def __reduce__(self) -> NoReturn:
        _refuse_copies("an iterator")


def _refuse_copies(what: str) -> NoReturn:
    from falaj._any_topic import GIVE_THE_PATH  # that module needs this one

    raise TypeError(f"{what} cannot be pickled or copied: {GIVE_THE_PATH}")


def _after_corruption(records: Records[T]) -> tuple[list[Record[T]], CorruptData | None]:
    """Read records to their end, and keep those after the last corruption."""
    found: list[Record[T]] = []
    corrupt = None
    while True:
        try:
            found.extend(records)
        except CorruptData as error:
            found, corrupt = [], error
            records.skip_damage()
        else:
            return found, corrupt


class Slice(Generic[T]):
    """Records of one partition, as `topic[10:20]` gives them, read when they are iterated.

    Its bounds are fixed when it is made: later records are not in it. It can be read repeatedly.
    `len` and `slice[i]` count offsets. Iteration leaves out records that compaction removed, and
    `slice[-1]` is the last record that it gives. By a step other than 1 or -1, negative places
    count offsets too. So `random.choice` takes `list(slice)` of a compacted topic. `in` raises.

    Example:
        >>> orders = store.topic("orders")
        >>> _ = orders.extend([b"a", b"b", b"c", b"d"])
        >>> middle = orders[1:3]
        >>> len(middle), [record.to_bytes() for record in middle]
        (2, [b'b', b'c'])
        >>> [record.offset for record in orders[::-2]]
        [3, 1]
    """

    __slots__ = ("_topic", "offsets")

    def __init__(self, topic: Topic[T], offsets: range) -> None:
        self._topic = topic
        self.offsets = offsets

    @staticmethod
    def offsets_of(topic: Topic[T], wanted: slice) -> range:
        """Turn a slice into existing offsets.

        Raises:
            OffsetOutOfRange: It begins with records that retention deleted.
        """
        first, end = topic.start_offset, topic.end_offset
        start, stop, step = (
            bound if bound is None else number(bound, "each of a slice's bounds")
            for bound in (wanted.start, wanted.stop, wanted.step)
        )
        step = 1 if step is None else step
        # Both count from the same end, though others append meanwhile.
        start, stop = (_from_end(topic, at, step, first, end) for at in (start, stop))
        if step > 0 and start is None:
            start = first
        if step < 0 and stop is None:
            # Down to the first offset that is left; -1 would mean the last one.
            stop = first - 1 if first else None
        offsets = range(*slice(start, stop, step).indices(end))
        if offsets and min(offsets[0], offsets[-1]) < first:
            raise topic._out_of_range(min(offsets[0], offsets[-1]))
        return offsets

    def __len__(self) -> int:
        """How many offsets it spans; in a compacted topic there may be fewer records."""
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record[T]]:
        offsets = self.offsets
        if offsets.step == 1:
            return self._topic._records(offsets.start, offsets.stop)
        return self._backwards() if offsets.step == -1 else self._by_steps()

    def __reversed__(self) -> Iterator[Record[T]]:
        return iter(self[::-1])

    def __contains__(self, item: Any) -> NoReturn:
        self._topic.__contains__(item)

    def __copy__(self) -> Slice[T]:
        return self  # it has no state of its own

    def __reduce__(self) -> NoReturn:
        _refuse_copies("a slice")

    def _backwards(self) -> Iterator[Record[T]]:
        if offsets := self.offsets:
            reached = yield from backwards(self._topic, offsets[-1], offsets[0] + 1)
            if reached > offsets[-1]:
                raise self._topic._out_of_range(offsets[-1])

    def _by_steps(self) -> Iterator[Record[T]]:
        for offset in self.offsets:
            try:
                record = self._topic[offset]
            except RecordCompacted:
                continue
            yield record

    def batches(self, size: int = 8192) -> Iterator[Batch[T]]:
        """Read it thousands of records at a time, see `Topic.batches`; only with a step of 1."""
        offsets = self.offsets
        if offsets.step != 1:
            raise InvalidArgument(
                f"only a slice without a step has batches, not one by {offsets.step}: go through "
                "it record by record"
            )
        return self._topic._batches(offsets.start, offsets.stop, size)

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, at: int) -> Record[T]: ...
        @overload
        def __getitem__(self, at: slice) -> Slice[T]: ...

    def __getitem__(self, at: int | slice) -> Record[T] | Slice[T]:
        """The record at an offset from the slice's first one, or a slice of it.

        A negative place counts records from the end, as in `topic[-1]`.
        """
        offsets = self.offsets
        if isinstance(at, slice):
            start, stop, step = (
                bound if bound is None else number(bound, "each of a slice's bounds")
                for bound in (at.start, at.stop, at.step)
            )
            if offsets.step in (1, -1):
                back = step is not None and step < 0
                start, stop = (self._place(bound, back) for bound in (start, stop))
            return Slice(self._topic, offsets[start:stop:step])
        at = number(at, "a place in a slice")
        if at >= len(offsets):
            raise IndexError(f"the slice has {len(offsets)} places, and none is {shown(at)}")
        if at < 0 and offsets.step in (1, -1) and offsets:
            return self._topic[self._from_end(-at)]
        return self._topic[offsets[at]]

    def _from_end(self, n: int) -> int:
        """The offset of the nth record from the end; in a slice backwards it is among the first."""
        found = self._nth_from_end(n)
        if found is None:
            raise IndexError(f"the slice has fewer than {shown(n)} records")
        return found

    def _nth_from_end(self, n: int) -> int | None:
        first, last = sorted((self.offsets[0], self.offsets[-1]))
        count = self._topic._count(first, last + 1)
        if n > count:
            return None
        if self.offsets.step < 0:
            n = count - n + 1
        return self._topic._start_of_last(n, last + 1)

    def _place(self, at: int | None, back: bool) -> int | None:
        """Turn a negative place, which counts records from the end, into one from the beginning.

        One before the first record is 0, or backwards before 0, as in a list.
        """
        if at is None or at >= 0 or not self.offsets:
            return at
        found = self._nth_from_end(-at)
        if found is None:
            return -len(self.offsets) - 1 if back else 0
        return max((found - self.offsets[0]) * self.offsets.step, 0)

    def __repr__(self) -> str:
        offsets = self.offsets
        step = "" if offsets.step == 1 else f":{offsets.step}"
        return f"<falaj.Slice {self._topic.name}[{offsets.start}:{offsets.stop}{step}]>"


def _from_end(topic: Topic[T], at: int | None, step: int, first: int, end: int) -> int | None:
    """Turn a negative bound, which counts records from the end, into an offset."""
    if at is None or at >= 0:
        return at
    n = min(-at, end + 1)  # no topic has more records than offsets
    found = topic._start_of_last(n, end)
    if step < 0 and found <= first and topic._count(first, end) < n:
        return first - 1 if first else -end - 1  # before the first one, as in a list
    return found
