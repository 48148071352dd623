"""Progress of a soak: a table that changes on a terminal, a line a minute elsewhere."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from soak.driver import Soak

REDRAW_S = 2.0
LINE_S = 60.0


class Progress:
    """Reports a soak's progress at intervals."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.live = Live(console=self.console, auto_refresh=False)
        self.told = 0.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.live.stop()

    def say(self, what: str) -> None:
        """Print a line that stays on the screen."""
        self.console.print(what, markup=False, soft_wrap=True)

    def __call__(self, soak: Soak) -> None:
        """Show the progress, if it is time again."""
        now = time.monotonic()
        every = REDRAW_S if self.console.is_terminal else LINE_S
        if now - self.told < every:
            return
        self.told = now
        if self.console.is_terminal:
            self.live.update(table(soak), refresh=True)
        else:
            self.say(line(soak))


def rows(soak: Soak) -> list[tuple[str, int, int]]:
    """List the figures: name, number, target (0: more is better)."""
    done = soak.done()
    return [(t.name, done[t.name], t.of(done)) for t in soak.harnesses.targets]


def working(soak: Soak) -> str:
    """Say what is running, and the number of findings."""
    at_work = [f"{piece.job} {clock(piece.lasted)}" for piece in soak.lanes if piece]
    found = len(soak.state.found)
    return f"{clock(soak.state.left)} left; now {', '.join(at_work)}; {found} found"


def line(soak: Soak) -> str:
    """Format the progress as a line."""
    figures = [f"{name} {so_far:,}" for name, so_far, _ in rows(soak)]
    return f"soak {clock(soak.state.seconds)}: {', '.join(figures)}; {working(soak)}"


def table(soak: Soak) -> Table:
    """Format the progress as a table."""
    shown = Table(title=f"soak {soak.state.seed} of {soak.state.version}", caption=working(soak))
    for head in ("what", "so far", "target", "%"):
        shown.add_column(head, justify="left" if head == "what" else "right")
    for name, so_far, enough in rows(soak):
        part = f"{min(100.0, 100 * so_far / enough):.1f}" if enough else ""
        shown.add_row(name, f"{so_far:,}", f"{enough:,}" if enough else "", part)
    return shown


def clock(seconds: float) -> str:
    """Format a time."""
    whole = max(0, int(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
