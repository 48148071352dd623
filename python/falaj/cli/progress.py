"""The bar of long work: one line on stderr, and only where a person looks at it."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from falaj.cli.exits import say
from falaj.cli.paint import Paint, is_terminal, width_of
from falaj.cli.units import count, size

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Advance", "Bar", "bar", "no_bar", "tell"]

_EVERY_S = 0.1
_BAR = 20


class Advance(Protocol):
    """Tell how far the work is."""

    def __call__(self, done: int, records: int = 0, total: int | None = None) -> None:
        """Set bytes done in all, records in all, and of how many bytes where that is new."""


class Bar:
    """One line that is written over and over, at most ten times a second."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._paint = Paint.of(sys.stderr)
        self._drawn = 0.0
        self._length = 0

    def draw(self, done: float, total: float | None, said: str, *, now: bool = False) -> None:
        """Show how far it is: a share where the total is known, and some words."""
        if not now and time.monotonic() < self._drawn + _EVERY_S:
            return
        self._drawn = time.monotonic()
        words = [self._paint.harmless(self.what)]
        if total:
            share = min(done / total, 1.0)
            filled = round(share * _BAR)
            words.append(f"[{'#' * filled}{' ' * (_BAR - filled)}] {share:4.0%}")
        self._write("  ".join([*words, said]))

    def clear(self) -> None:
        """Take the line away."""
        self._write("")
        sys.stderr.write("\r")
        sys.stderr.flush()

    def _write(self, line: str) -> None:
        line = line[: width_of(sys.stderr) - 1]
        # Spaces and not an escape: a terminal that is dumb takes them, too.
        sys.stderr.write(f"\r{line.ljust(self._length)}")
        sys.stderr.flush()
        self._length = len(line)


@contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Advance]:
    """Show a bar of bytes; without a total, only how much and how fast."""
    if not is_terminal(sys.stderr):
        yield no_bar
        return
    shown = Bar(what)
    began = time.monotonic()
    whole = total

    def advance(done: int, records: int = 0, total: int | None = None) -> None:
        nonlocal whole
        whole = total or whole
        seconds = max(time.monotonic() - began, 1e-3)
        said = f"{size(done)}, {size(done / seconds)}/s"
        if records:
            said = f"{count(records, 'record')}, {records / seconds:,.0f}/s, {said}"
        shown.draw(done, whole, said, now=done == whole)

    try:
        yield advance
    finally:
        shown.clear()


def no_bar(done: int, records: int = 0, total: int | None = None) -> None:
    """Show nothing."""


def tell(sentence: str) -> None:
    """Say a sentence while a bar may be shown, which goes on below it."""
    if is_terminal(sys.stderr):
        sys.stderr.write(f"\r{' ' * (width_of(sys.stderr) - 1)}\r")
    say(sentence)
