"""Whole numbers as arguments: offsets, partitions and counts.

What Python can use as an index is one, such as a number of NumPy; a bool, a float and text are not.
"""

from __future__ import annotations

import math
from operator import index
from typing import Any

from falaj.errors import InvalidArgument, shown

__all__ = ["number", "plain", "seconds"]


def plain(value: Any) -> Any:
    """Make a whole number one of Python's own; anything else stays as it is.

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
    """Take a whole number where nothing else will do.

    Raises:
        TypeError: It is none.
    """
    found = plain(value)
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError(f"{what} is a whole number, not {type(value).__name__}")
    return found


def seconds(timeout: float | None) -> float | None:
    """Check a timeout in seconds; None waits as long as it takes.

    Raises:
        InvalidArgument: It is negative, or not a finite number.
        TypeError: It is of another type.
    """
    if timeout is None:
        return None
    try:
        if math.isfinite(timeout) and timeout >= 0:
            return float(timeout)
    except OverflowError:
        pass
    raise InvalidArgument(f"{shown(timeout)} is no timeout in seconds")
