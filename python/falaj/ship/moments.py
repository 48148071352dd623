"""`number_at`: the number of an origin that a time means.

Owns what is done about clocks that were wrong. Each flush has the time of its machine's clock, so
one may be later or earlier than those behind it. Two rules follow. A later time than the wanted one
is skipped, and ends nothing. Once there was one, a flush counts only if its time is no earlier than
that of all that counted before. So a clock that was far behind leads to no later state.

Checkpoints save reading: they have the time of their last flush. They are compared from the oldest
on, and so is the first flush. Between two whose times are in order, the flushes are taken to be in
order too. So they are read only if the wanted time lies there. Between two that are not in order
all are read, and so are the numbers behind the newest. A clock that was wrong between two
checkpoints alone is therefore noticed only where its flushes are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.errors import HistoryDeleted
from falaj.ship.driver import is_whole
from falaj.ship.shapes import Flush

if TYPE_CHECKING:
    from collections.abc import Iterator

    from falaj.ship.checkpoints import Outline
    from falaj.ship.objects import Patience
    from falaj.ship.origin import Origin

__all__ = ["number_at"]


def number_at(origin: Origin, time_us: int, wait: Patience) -> int:
    """Find the last flush at or before a time.

    Raises:
        HistoryDeleted: The place has none that is so old.
    """
    search = _Search(origin, time_us, wait)
    is_first = True
    for each in _checkpoints(origin, wait):
        if is_first:
            search.read(each.number, first=True)
            is_first = False
        search.pass_to(each)
    search.read()
    if search.found:
        return search.found
    if search.has_gap:
        raise _deleted(origin)
    raise HistoryDeleted(
        f"{origin.where('')} has no state that is so old; `falaj place list` shows the oldest"
    )


def _checkpoints(origin: Origin, wait: Patience) -> Iterator[Outline]:
    """Read the checkpoints that cover a flush, the oldest first."""
    for each in wait(origin.checkpoints):
        number = int(each.key[2:])
        found = wait(lambda number=number: origin.outline(number))  # type: ignore[misc]
        if found is not None and found.time_us:
            yield found


def _deleted(origin: Origin) -> HistoryDeleted:
    return HistoryDeleted(
        f"{origin.where('')} has deleted the numbers of that moment: choose a later"
        " time; `falaj place list` shows the oldest"
    )


class _Search:
    """Numbers that are passed in order, and the last one that counts."""

    def __init__(self, origin: Origin, time_us: int, wait: Patience) -> None:
        self.found = 0
        self.has_gap = False
        self._origin, self._time_us, self._wait = origin, time_us, wait
        self._at = self._claim = 0
        self._before_us: int | None = None
        """The time of the flush before; None where that one was deleted."""
        self._latest_us: int | None = None
        self._is_past = False

    def pass_to(self, checkpoint: Outline) -> None:
        """Go on behind a checkpoint; read what lies before it if that may matter."""
        before, after = self._before_us, checkpoint.time_us
        is_in_order = before is not None and before <= after
        if before is not None and not (is_in_order and self._is_on_one_side(before, after)):
            self.read(checkpoint.number)
        if self._at < checkpoint.number:
            self._at, self._claim = checkpoint.number, checkpoint.claim
            self._count(checkpoint.number, after)

    def _is_on_one_side(self, first_us: int, last_us: int) -> bool:
        return last_us <= self._time_us or first_us > self._time_us

    def _count(self, number: int, time_us: int) -> None:
        """Let a flush count, if its time allows that."""
        self._before_us = time_us
        if time_us > self._time_us:
            self._is_past = True
        elif not self._is_past or self._latest_us is None or time_us >= self._latest_us:
            self.found = number
            self._latest_us = max(time_us, self._latest_us or time_us)

    def read(self, until: int | None = None, *, first: bool = False) -> None:
        """Read numbers up to one, or to the end; with `first` only up to the first flush.

        Raises:
            HistoryDeleted: The place deletes them meanwhile.
        """
        origin = self._origin
        while (until is None or self._at < until) and not (first and self._before_us is not None):
            number = self._at + 1
            read = self._wait(lambda number=number: origin.number(number))  # type: ignore[misc]
            if read is None:
                self._end(until)
                return
            self._at, body = number, read[0]
            if not isinstance(body, Flush):
                self._claim = body.number
            elif body.claim >= self._claim:
                self._count(number, body.time_us)

    def _end(self, until: int | None) -> None:
        """Stop at a number that is missing: what precedes it cannot be restored, if it is a gap."""
        if self._is_past and self.found:
            return
        if until is None:
            if not is_whole(self._origin, self._at, self._wait):
                raise _deleted(self._origin)
            return
        self.has_gap = True
        self.found, self._latest_us, self._before_us = 0, None, None
