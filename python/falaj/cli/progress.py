"""The bars of long work, on stderr and only where a person looks at it."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from falaj.cli.paint import Paint, is_terminal
from falaj.cli.units import count, size

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Advance", "bar", "no_bar"]


class Advance(Protocol):
    """Tell how far the work is."""

    def __call__(self, done: int, records: int = 0, total: int | None = None) -> None:
        """Set bytes done in all, records in all, and of how many bytes where that is new."""


@contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Advance]:
    """Show a bar of bytes; without a total, only how much and how fast."""
    if not is_terminal(sys.stderr):
        yield no_bar
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    plain = not Paint.of(sys.stderr).colours
    console = Console(stderr=True, color_system=None if plain else "auto", highlight=False)
    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}")]
    columns.append(TimeRemainingColumn(compact=True))
    began = time.monotonic()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total, said="")

        def advance(done: int, records: int = 0, total: int | None = None) -> None:
            seconds = max(time.monotonic() - began, 1e-3)
            said = f"{size(done)}, {size(done / seconds)}/s"
            if records:
                said = f"{count(records, 'record')}, {records / seconds:,.0f}/s, {said}"
            progress.update(task, completed=done, total=total, said=said)

        yield advance


def no_bar(done: int, records: int = 0, total: int | None = None) -> None:
    """Show nothing."""
