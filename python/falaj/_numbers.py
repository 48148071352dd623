"""Whole numbers as arguments: offsets, partitions and counts.

An object that Python can use as an index counts, such as a number of NumPy; a bool, a float and
text do not.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from falaj.errors import InvalidArgument, named, shown

if TYPE_CHECKING:
    from falaj._time import Duration

__all__ = ["number", "plain", "seconds"]


def plain(value: Any) -> Any:
    """Convert a whole number to one of Python's own; anything else stays as it is.

    Example:
        >>> plain(5), plain(True), plain("latest")
        (5, True, 'latest')
    """
    if isinstance(value, bool):
        return value
    try:
        return index(value)
    except TypeError:
        return value


def number(value: Any, what: str) -> int:
    """Convert a whole number; anything else is an error.

    Raises:
        TypeError: It is no whole number.
    """
    found = plain(value)
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError(f"{what} is a whole number, not {named(value)}")
    return found


def seconds(timeout: Duration | None, what: str = "a timeout") -> float | None:
    """Turn a timeout or another span into seconds; None has no limit.

    Raises:
        InvalidArgument: It is negative, or not finite.
        TypeError: It is neither a number, nor a timedelta, nor text such as "5m".
    """
    if timeout is None:
        return None
    import math  # a program that only appends needs none of it

    from falaj._time import seconds  # rarely given, and datetime takes its time to import

    found = seconds(timeout, what)
    if math.isfinite(found) and found >= 0:
        return found
    raise InvalidArgument(f"{what} is a number of seconds from 0 on, not {shown(timeout)}")
