"""When a record is due that is replayed: times of the past on the clock of now.

Invariant: what is due is counted from one beginning, never from the record before, so errors of
waiting do not add up; a record whose time lies before that of one that went is due at once.
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["WALL", "Clock", "Pace"]

_NS = 1_000_000_000
_NAP_NS = 500_000
"""A record that is due within this time is not worth going to sleep for."""


class Clock(Protocol):
    """A clock that can be waited for."""

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
        time.sleep(span_ns / _NS)


WALL: Clock = _Wall()
"""The clock of the machine."""


class Pace:
    """The pace of one replay.

    Args:
        speed: How many seconds of the past go by in one; None for as fast as it goes.
        longest_ns: Longest pause that is waited for; None for as long as they are.
        clock: By what it is waited.
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
        """Tell when a record is due; call it once for each, in their order.

        Args:
            time_ns: The record's time.

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
        """Tell where a time comes to lie: nanoseconds since the first record."""
        past = time_ns - self._first - self._cut
        return round(past / self.speed) if self.speed is not None else 0

    def is_due(self, due_ns: int) -> bool:
        """Whether what is due then can go now."""
        return self._left(due_ns) <= _NAP_NS

    def wait(self, due_ns: int) -> None:
        """Wait until then."""
        left = self._left(due_ns)
        if left > _NAP_NS:
            self._clock.wait_ns(left)
        elif self.speed is not None:
            self.behind_ns = max(self.behind_ns, -left)

    def _left(self, due_ns: int) -> int:
        gone = self._clock.now_ns() - (self._began or 0)
        return due_ns - gone if self.speed is not None else 0
