"""Backoff: the delay before a failed job is delivered again."""

from __future__ import annotations

from random import getrandbits
from typing import TYPE_CHECKING, Any, Union

from falaj import _core
from falaj._numbers import seconds
from falaj.errors import InvalidArgument, named, shown

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Backoff", "delay_of"]

Backoff = Union[tuple[float, float], "Callable[[int], float]"]
"""The delay of the first retry and the longest; or a function of the attempts so far."""


def delay_of(backoff: Backoff, attempt: int) -> float:
    """Return the seconds before a job that failed its attempt is delivered again.

    Example:
        >>> all(30 <= delay_of((1, 60), attempt) <= 60 for attempt in range(7, 20))
        True
    """
    if callable(backoff):
        return _checked(backoff(attempt))
    pair: Any = backoff
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(
            "backoff is a pair of seconds, the first delay and the longest, or a function of the "
            f"attempts, not {named(backoff)}"
        )
    first, longest = map(_checked, pair)
    return _core._backoff(first, longest, attempt, getrandbits(64))


def _checked(delay: float) -> float:
    found = seconds(delay, "a delay")
    if found is None or found >= 2**32:
        raise InvalidArgument(f"a delay is a number of seconds from 0 on, not {shown(delay)}")
    return found
