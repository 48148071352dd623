"""The part of a batch that Spark's filters want: fewer ranges, later beginnings, or only some keys.

This module only prunes. Spark evaluates every filter again, so a filter that is not understood here
costs time, but never a record. The driver cuts ranges by filters on offset, partition and topic,
and by the earliest timestamp. Tasks leave out records by filters on keys and timestamps, before
they copy anything of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from falaj import _time
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from falaj import Topic

__all__ = ["Pruning"]

_BEYOND = 2**63
_US = 1000


@dataclass
class Pruning:
    """The limits that Spark's filters set for the records that they want.

    Attributes:
        first: Lowest offset.
        end: The offset after the highest.
        since_ns: The earliest wanted time, in nanoseconds since 1970, or None.
        until_ns: The latest wanted time, in nanoseconds since 1970, or None.
        topics: Names of topics, or None for all.
        partitions: Numbers of partitions, or None for all.
        keys: Keys, or None for all.
    """

    first: int = 0
    end: int = _BEYOND
    since_ns: int | None = None
    until_ns: int | None = None
    topics: frozenset[Any] | None = None
    partitions: frozenset[Any] | None = None
    keys: frozenset[Any] | None = field(default=None)

    @property
    def times(self) -> tuple[int, int] | None:
        """The earliest and the latest wanted time, in microseconds; None for all."""
        if self.since_ns is None and self.until_ns is None:
            return None
        lowest, highest = -_BEYOND, _BEYOND - 1
        first = lowest if self.since_ns is None else max(lowest, self.since_ns // _US)
        return first, highest if self.until_ns is None else min(highest, self.until_ns // _US)

    def take(self, wanted: Filter) -> None:
        """Add one filter; all filters must hold."""
        match wanted:
            case EqualTo((column,), value) | EqualNullSafe((column,), value):
                self._one_of(column, [value])
                self._at_least(column, value)
                self._at_most(column, value)
            case In((column,), values):
                self._one_of(column, list(values))
            case GreaterThan((column,), value) | GreaterThanOrEqual((column,), value):
                self._at_least(column, value, isinstance(wanted, GreaterThan))
            case LessThan((column,), value) | LessThanOrEqual((column,), value):
                self._at_most(column, value, isinstance(wanted, LessThan))
            case _:
                pass

    def cut(self, part: Topic[Any], start: int, end: int) -> tuple[int, int]:
        """Cut the range [start, end) of a partition to the records that may be wanted.

        Args:
            part: The partition.
            start: First offset.
            end: The offset after the last.

        Returns:
            The range that is left.
        """
        elsewhere = self.topics is not None and part.name not in self.topics
        if elsewhere or (self.partitions is not None and part.partitions[0] not in self.partitions):
            return start, start
        first = max(start, self.first)
        if self.since_ns is not None:
            found = part.offset_at(time_ns=self.since_ns)
            first = max(first, end if found is None else found)
        first = min(first, end)
        return first, max(first, min(end, self.end))

    def _one_of(self, column: str, values: list[Any]) -> None:
        if column == "key":
            # Null is no key: `key <=> null` is left to Spark.
            if all(isinstance(value, bytes | bytearray) for value in values):
                keys = frozenset(map(bytes, values))
                self.keys = keys if self.keys is None else self.keys & keys
        elif column == "topic":
            names = frozenset(values)
            self.topics = names if self.topics is None else self.topics & names
        elif column == "partition":
            numbers = frozenset(values)
            self.partitions = numbers if self.partitions is None else self.partitions & numbers

    def _at_least(self, column: str, value: Any, strictly: bool = False) -> None:
        if column == "offset" and isinstance(value, int):
            self.first = max(self.first, value + strictly)
        elif column == "timestamp" and (ns := _ns(value)) is not None:
            # The column is cut to microseconds: one more is looked at on that account.
            ns -= _US
            self.since_ns = ns if self.since_ns is None else max(self.since_ns, ns)

    def _at_most(self, column: str, value: Any, strictly: bool = False) -> None:
        if column == "offset" and isinstance(value, int):
            self.end = max(0, min(self.end, value + (not strictly)))
        elif column == "timestamp" and (ns := _ns(value)) is not None:
            # Times of events go up and down, so a latest one says nothing about where to end: it
            # only leaves records out.
            self.until_ns = ns if self.until_ns is None else min(self.until_ns, ns)


def _ns(value: Any) -> int | None:
    """Turn a time into nanoseconds since 1970; None if that is not possible."""
    if not isinstance(value, datetime):
        return None
    try:
        return _time.to_ns(value if value.tzinfo else value.replace(tzinfo=UTC))
    except InvalidArgument:
        return None
