"""Whole numbers as arguments: offsets, partitions and counts, also those of NumPy; and words.

An object that Python can use as an index counts; a bool, a float and text do not.
"""

from __future__ import annotations

from operator import index
from typing import Any

from falaj_client._own_errors import named
from falaj_client.errors import InvalidArgument

__all__ = ["LARGEST", "is_word", "natural", "plain", "whole"]

#: The largest offset that the API takes.
LARGEST = 2**64 - 1


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


def is_word(value: Any, *words: str) -> bool:
    """Say whether it is one of some words; an array compares as none.

    Example:
        >>> is_word("key", "key"), is_word(["key"], "key")
        (True, False)
    """
    return isinstance(value, str) and value in words


def whole(value: Any, what: str) -> int:
    """Convert a whole number; `what` is the subject of an error.

    Raises:
        TypeError: It is none.
    """
    found = plain(value)
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError(f"{what} is a whole number, not {named(value)}")
    return found


def natural(value: Any, what: str) -> int:
    """Convert a whole number from 0 on, as the API takes offsets and sequences.

    Raises:
        TypeError: It is no whole number.
        InvalidArgument: It is negative or too large.
    """
    found = whole(value, what)
    if 0 <= found <= LARGEST:
        return found
    raise InvalidArgument(f"{what} is a number from 0 to {LARGEST}, not {named(found)}")
