"""Producers that a topic remembers: names given as `producer=`, and their last sequences.

`docs/guide/once.md` explains them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from falaj._core import ExpiringProducer
from falaj._time import from_ns
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Producer"]

_ID = re.compile(r"[0-9a-f]{16}")


class Producer(NamedTuple):
    """A known producer: the last of its appends.

    Example:
        >>> orders = store.topic("orders")
        >>> _ = orders.append(b"2 pears", producer="till-3", sequence=17)
        >>> [(known.id, known.sequence) for known in orders.producers()]
        [('3db5fcda5953eb3e', 17)]
    """

    id: str
    """A hash of its name, 16 hexadecimal digits. The name itself is not kept."""
    sequence: int
    """Its last sequence."""
    partition: int
    """The partition of that sequence; the first of several."""
    offset: int
    """The first offset of that sequence."""
    time: datetime | None
    """When it was appended; None if that record is gone."""
    expiring: bool = False
    """Whether the log forgets it by itself: an `ExpiringProducer`."""


def producer(row: tuple[int, int, int, int, int | None, bool]) -> Producer:
    """Make one from a row of the compiled class."""
    id_, sequence, partition, offset, time_ns, expiring = row
    time = None if time_ns is None else from_ns(time_ns)
    return Producer(f"{id_:016x}", sequence, partition, offset, time, expiring)


def split(producers: tuple[object, ...]) -> tuple[list[str | ExpiringProducer], list[int]]:
    """Separate names from listed producers.

    Returns:
        The names, and the ids of the others.

    Raises:
        InvalidArgument: An item is neither.
    """
    names: list[str | ExpiringProducer] = []
    ids: list[int] = []
    for each in producers:
        if isinstance(each, Producer):
            if not _ID.fullmatch(each.id):
                raise InvalidArgument(
                    f"{each.id!r} is no id of a producer: take one of topic.producers()"
                )
            ids.append(int(each.id, 16))
        elif isinstance(each, (str, ExpiringProducer)):
            names.append(each)
        else:
            kind = type(each).__name__
            raise InvalidArgument(f"a producer is a name, or one of topic.producers(), not {kind}")
    return names, ids
