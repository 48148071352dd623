"""Backoff: the delay before a failed job is delivered again."""

from __future__ import annotations

import sys
from random import getrandbits
from typing import TYPE_CHECKING, Any, Union

from falaj import _core
from falaj._functions import finished
from falaj._numbers import seconds
from falaj.errors import InvalidArgument, named, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from falaj._time import Duration

__all__ = ["USUAL", "Backoff", "delay_after", "delay_of"]

Backoff = Union["tuple[Duration, Duration]", "Callable[[int], Duration]"]
"""The delay of the first retry and the longest; or a function of the attempts so far."""


#: The backoff of `Queue.work`, and where another cannot be used.
USUAL: Backoff = (1.0, 300.0)


def delay_of(backoff: Backoff, attempt: int) -> float:
    """Return the seconds before a job that failed its attempt is delivered again.

    Example:
        >>> all(30 <= delay_of((1, 60), attempt) <= 60 for attempt in range(7, 20))
        True
    """
    if callable(backoff):
        return _checked(finished(backoff(attempt), "backoff"), "what a backoff returns")
    pair: Any = backoff
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(
            "backoff is a pair of seconds, the first delay and the longest, or a function of the "
            f"attempts, not {named(backoff)}"
        )
    first, longest = (_checked(delay, "each delay of a backoff") for delay in pair)
    if longest < first:
        raise InvalidArgument(
            f"the longest delay of a backoff is not below the first, as in {shown(tuple(pair))}: "
            f"give (first, longest), such as ({longest:g}, {first:g})"
        )
    return _core._backoff(first, longest, attempt, getrandbits(64))


def _checked(delay: Any, what: str) -> float:
    found = seconds(delay, what)
    if found is None or found >= 2**32:
        raise InvalidArgument(f"{what} is a number of seconds from 0 on, not {shown(delay)}")
    return found


def delay_after(backoff: Backoff, attempt: int, queue: str) -> float:
    """Return the delay of a job that has just failed, whatever the function does.

    Its error must not keep the job, nor hide why the job failed. So it becomes a note of that
    exception and a line in the log of the program, and the usual delay counts.
    """
    failure = sys.exception()
    try:
        return delay_of(backoff, attempt)
    except Exception as error:  # it is a function of the program
        from logging import getLogger  # rarely needed

        delay = delay_of(USUAL, attempt)
        told = (
            f"backoff= of queue {queue!r} failed for attempt {attempt} of a job, which waits "
            f"{delay:.1f} s instead: mend the function ({type(error).__name__}: {error})"
        )
        getLogger("falaj.queue").error(told, exc_info=error)
        if failure is not None:
            failure.add_note(told)
        return delay
