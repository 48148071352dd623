"""The small classes of records: positions, receipts, and restoring pickles."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, NamedTuple

from falaj._core import Batch, NewRecord, Record
from falaj.codecs import resolver

__all__ = ["Batch", "NewRecord", "Position", "Receipt", "Record"]


class Position(NamedTuple):
    """The place of a record in a topic of several partitions.

    Example:
        >>> Position(partition=2, offset=17).offset
        17
    """

    partition: int
    offset: int


def restored(
    value: Any,
    is_tombstone: bool,
    key: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp_ns: int | None,
) -> NewRecord:
    """Make a `NewRecord` from its pickled parts."""
    if is_tombstone:
        return NewRecord.tombstone(key or b"", headers=headers, timestamp_ns=timestamp_ns)
    return NewRecord(value, key, headers=headers, timestamp_ns=timestamp_ns)


def portable(decode: Any) -> Any:
    """Return what a pickle names in place of a function that decodes: its class, or it."""
    typed = sys.modules.get("falaj._typed")  # without it, no topic has a class
    return (typed and typed.class_of(decode)) or decode


@cache
def _decoder(kind: type[Any]) -> Any:
    return resolver(kind)[1]("json")[1]


def restored_record(topic: tuple[str, bytes, str], decode: Any, *parts: Any) -> Record[Any]:
    """Make a detached `Record` from its pickled parts."""
    if isinstance(decode, type) and decode is not bytes:
        decode = _decoder(decode)
    return Record._restored(topic, decode, *parts)


class Receipt(NamedTuple):
    """Records that one call appended to a partition of a topic; `falaj.Receipts` has them.

    Example:
        >>> Receipt("orders", partition=0, offsets=range(17, 18)).offsets[0]
        17
    """

    topic: str
    partition: int
    offsets: range
