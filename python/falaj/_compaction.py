"""Compaction: the arguments and the result of `Topic.compact`.

Owns how its arguments are passed to the engine: a time is seconds or a timedelta, and is passed as
microseconds. Offsets are passed as buffers of unsigned 64-bit numbers. docs/guide/compaction.md
explains compaction.
"""

from __future__ import annotations

from array import array
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from falaj import _core
from falaj._checks import flag, mapping
from falaj._functions import callback
from falaj._numbers import number
from falaj._time import Duration, seconds
from falaj.errors import InvalidArgument, named, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from falaj._admin import Progress
    from falaj._any_topic import AnyTopic

__all__ = ["CompactReport", "Last", "compact"]

_MICROSECOND = timedelta(microseconds=1)
_MOST = 2**63 - 1


class CompactReport(TypedDict):
    """The result of a compaction.

    The numbers of examined and removed records and files, and of removed `tombstones` whose time
    was over. Also the bytes of those files before and after.
    """

    records: int
    removed: int
    tombstones: int
    segments: int
    segments_removed: int
    bytes_before: int
    bytes_after: int


class Last(NamedTuple):
    """The last record of each key in a partition, for `Topic.compact`.

    `offsets` are their offsets below `end`, rising; a record with a key that is not among them is
    removed. `alone` are those of them, rising, that are also the first of their key: only such a
    tombstone may be removed. Both are buffers of unsigned 64-bit numbers, as `array("Q")` or an
    array of numpy's. Records from `end` on stay.
    """

    end: int
    offsets: Any
    alone: Any = array("Q")


def compact(
    topic: AnyTopic[Any],
    delete_retention: Duration,
    memory: int,
    seal: bool,
    last: Mapping[int, Last] | None,
    progress: Progress | None,
) -> CompactReport:
    """Compact a topic; see `Topic.compact`."""
    progress = callback(progress, "progress")
    told = None
    if last is not None:
        told = [
            (number(partition, "a partition in last"), *_last(of))
            for partition, of in mapping(last, "last", "partitions and falaj.Last").items()
        ]
    memory = number(memory, "memory")
    if memory < 1:
        raise InvalidArgument(f"compaction takes at least a byte of memory, not {shown(memory)}")
    flag(seal, "seal")
    return _core._compact(topic, _microseconds(delete_retention), memory, seal, told, progress)


def _last(of: Any) -> tuple[int, memoryview, memoryview]:
    if not isinstance(of, Last):
        raise TypeError(f"last has a falaj.Last for each partition, not {named(of)}")
    return of.end, _numbers(of.offsets), _numbers(of.alone)


def _numbers(given: Any) -> memoryview:
    """Return address and length of a buffer of numbers; an empty one may lie anywhere."""
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
        raise InvalidArgument(
            f"delete_retention is a number of seconds from 0 on, not {shown(span)}"
        )
    return min(told // _MICROSECOND, _MOST)
