"""When a replayed record is due: its time in the past, on the clock of today.

Invariant: a due time counts from one beginning, never from the record before. So errors of waiting
do not add up. A record whose time is earlier than that of a record before it is due at once.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["WALL", "Clock", "Pace"]

_NS = 1_000_000_000
_SLEEP_MAX = 10**9
"""Most seconds of a sleep, some 30 years: Python takes few more."""
_NAP_NS = 500_000
"""A record that is due within this time is not worth going to sleep for."""


class Clock(Protocol):
    """A clock that can wait."""

    def now_ns(self) -> int:
        """Nanoseconds since some moment, never set back."""

    def wait_ns(self, span_ns: int) -> None:
        """Sleep so long."""


class _Wall:
    def now_ns(self) -> int:
        """Nanoseconds since some moment."""
        return time.monotonic_ns()

    def wait_ns(self, span_ns: int) -> None:
        """Sleep so long, taking no processor time."""
        time.sleep(min(span_ns / _NS, _SLEEP_MAX))


WALL: Clock = _Wall()
"""The clock of the machine."""


class Pace:
    """The pace of one replay.

    Args:
        speed: How many seconds of the past pass in one second; None for as fast as possible.
        longest_ns: The longest pause, in nanoseconds; longer ones are shortened to it. None keeps
            all.
        clock: The clock that waits.
    """

    def __init__(self, speed: float | None, longest_ns: int | None, clock: Clock = WALL) -> None:
        self.speed = speed
        # In time of the past, as pauses are.
        self._longest = None if longest_ns is None else round(longest_ns * (speed or 1))
        self._clock = clock
        self._began: int | None = None
        self._first = self._newest = 0
        self._cut = 0
        self.behind_ns = 0
        """How late the latest record was."""

    def due(self, time_ns: int) -> int:
        """Return when a record is due; call it once for each record, in their order.

        Args:
            time_ns: The time of the record.

        Returns:
            Nanoseconds since the first record, which is due at once.
        """
        if self._began is None:
            self._began = self._clock.now_ns()
            self._first = self._newest = time_ns
        pause = time_ns - self._newest
        if pause > 0:
            self._newest = time_ns
            if self._longest is not None:
                self._cut += max(pause - self._longest, 0)
        return self.moved(self._newest)

    def moved(self, time_ns: int) -> int:
        """Convert a time of the past into nanoseconds since the first record was due."""
        past = time_ns - self._first - self._cut
        return round(past / self.speed) if self.speed is not None else 0

    def is_due(self, due_ns: int) -> bool:
        """Tell whether a record with this due time can be appended now."""
        return self._left(due_ns) <= _NAP_NS

    def wait(self, due_ns: int) -> None:
        """Wait until a due time."""
        left = self._left(due_ns)
        if left > _NAP_NS:
            self._clock.wait_ns(left)
        elif self.speed is not None:
            self.behind_ns = max(self.behind_ns, -left)

    def _left(self, due_ns: int) -> int:
        gone = self._clock.now_ns() - (self._began or 0)
        return due_ns - gone if self.speed is not None else 0
