"""What goes into a topic and comes out of it."""

from __future__ import annotations

from typing import NamedTuple

from falaj._core import Batch, NewRecord, Record

__all__ = ["Batch", "NewRecord", "Position", "Receipt", "Record"]


class Position(NamedTuple):
    """Where a record stands in a topic of several partitions.

    Example:
        >>> Position(partition=2, offset=17).offset
        17
    """

    partition: int
    offset: int


class Receipt(NamedTuple):
    """Records that one call appended to a partition of a topic; `falaj.Receipts` has them.

    Example:
        >>> Receipt("orders", partition=0, offsets=range(17, 18)).offsets[0]
        17
    """

    topic: str
    partition: int
    offsets: range
