"""Compaction: what `Topic.compact` takes and returns.

Owns how its arguments are told to the engine: a time is seconds or a timedelta, and goes on as
microseconds; offsets go on as buffers of unsigned 64-bit numbers. What compaction means is in
docs/guide/compaction.md.
"""

from __future__ import annotations

from array import array
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from falaj import _core
from falaj._numbers import number
from falaj._time import Duration, seconds
from falaj.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from falaj._admin import Progress
    from falaj._topic import Topic

__all__ = ["CompactReport", "Last", "compact"]

_MICROSECOND = timedelta(microseconds=1)
_MOST = 2**63 - 1


class CompactReport(TypedDict):
    """What a compaction did.

    Records and files that it looked at and that went, `tombstones` of them because their time was
    over, and the bytes that those files took before and after.
    """

    records: int
    removed: int
    tombstones: int
    segments: int
    segments_removed: int
    bytes_before: int
    bytes_after: int


class Last(NamedTuple):
    """Which records of a partition are the last of their keys, for `Topic.compact`.

    `offsets` are theirs, rising, of the records before `end`; a record with a key that is not among
    them goes. `alone` are those of them, rising, before which no record has the key: only such a
    tombstone may go. Both are buffers of unsigned 64-bit numbers, as `array("Q")` or an array of
    numpy's. What lies at or behind `end` stays.
    """

    end: int
    offsets: Any
    alone: Any = array("Q")


def compact(
    topic: Topic[Any],
    delete_retention: Duration,
    memory: int,
    seal: bool,
    last: Mapping[int, Last] | None,
    progress: Progress | None,
) -> CompactReport:
    """Compact a topic; see `Topic.compact`."""
    told = None
    if last is not None:
        told = [
            (partition, of.end, _numbers(of.offsets), _numbers(of.alone))
            for partition, of in last.items()
        ]
    memory = number(memory, "memory")
    if memory < 1:
        raise InvalidArgument(f"compaction takes at least a byte of memory, not {shown(memory)}")
    return _core._compact(topic, _microseconds(delete_retention), memory, seal, told, progress)


def _numbers(given: Any) -> memoryview:
    """Look at a buffer of numbers; an empty one may lie anywhere, and the engine asks where."""
    view = memoryview(given)
    return view if view.nbytes else memoryview(array("Q", [0]))[:0]


def _microseconds(span: Duration) -> int:
    try:
        told = (
            span
            if isinstance(span, timedelta)
            else timedelta(seconds=seconds(span, "delete_retention"))
        )
    except (OverflowError, ValueError):
        raise InvalidArgument(
            f"delete_retention is at most {timedelta.max}, not {shown(span)} seconds"
        ) from None
    if told < timedelta(0):
        raise InvalidArgument(f"delete_retention is not below 0, and {shown(span)} is")
    return min(told // _MICROSECOND, _MOST)
