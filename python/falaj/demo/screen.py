"""The demo's output on a terminal: five steps, live bars and a live table, tables at the end.

In a pipe it prints a line a step and the tables, without colours or anything that moves.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live as Display
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from falaj.demo.figures import by_carrier
from falaj.demo.follower import LATE_MINUTES
from falaj.demo.units import minutes, short, tenths
from falaj.pages.units import bytes_text, duration, percent, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from falaj.demo.figures import Figures, Live, Timed

__all__ = ["Screen"]

STEPS = 5
CARRIERS_SHOWN = 10
FRAMES_PER_SECOND = 10
# Hours of the day in the columns of the table, as many as fit on a terminal.
PARTS_OF_DAY = {"5-8": range(5, 9), "9-12": range(9, 13), "13-16": range(13, 17)} | {
    "17-20": range(17, 21),
    "21-23": range(21, 24),
}


class Screen:
    """The terminal."""

    def __init__(self, airlines: Mapping[str, str], console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.airlines = {carrier: short(name) for carrier, name in airlines.items()}

    def say(self, *lines: RenderableType) -> None:
        """Print lines that stay."""
        for line in lines:
            self.console.print(line)

    def title(self, number: int, text: str) -> None:
        """Begin a step."""
        self.say("", Text.assemble((f"{number}/{STEPS}  ", "bold cyan"), (text, "bold")))

    @contextmanager
    def doing(self, now: str, then: str) -> Iterator[None]:
        """Show that something runs, and how long it took once it is done."""
        begun = time.perf_counter()
        with self.console.status(Text(f"{now} …")):
            yield
        self.done(then, time.perf_counter() - begun)

    def done(self, text: str, seconds: float | None = None) -> None:
        """Tick something off."""
        took = "" if seconds is None else f"  {seconds:.1f} s"
        self.say(Text.assemble(("     ✓ ", "green"), text, (took, "dim")))

    @contextmanager
    def following(self, live: Live) -> Iterator[Callable[[], None]]:
        """Show bars and table while the first step runs; yields a function to call on a change."""
        if not self.console.is_terminal:
            yield lambda: None
            return
        with Display(
            self._picture(live), console=self.console, refresh_per_second=FRAMES_PER_SECOND
        ) as display:
            yield lambda: display.update(self._picture(live))

    def _picture(self, live: Live) -> Group:
        if not live.carriers:
            return Group(self._bars(live))
        behind = Text(f"     the follower is {duration(live.median_us)} behind and sees", "dim")
        return Group(self._bars(live), Text(), behind, _indented(self._carriers(live)))

    def _bars(self, live: Live) -> Grid:
        grid = Grid.grid(padding=(0, 2, 0, 0))
        for origin, total in live.totals.items():
            seen, state = live.seen.get(origin, 0), live.states.get(origin, "")
            grid.add_row(
                Text(f"     {origin}", style="bold"),
                ProgressBar(total=max(total, 1), completed=seen, width=24),
                Text(f"{seen:>7,} of {total:,}"),
                Text(state, style="bold red" if "killed" in state else "dim", no_wrap=True),
            )
        return grid

    def _carriers(self, live: Live) -> Grid:
        grid = _grid("carrier", "flights", "mean delay", f"late (≥ {LATE_MINUTES} min)")
        largest = sorted(live.carriers.items(), key=lambda item: -item[1][0])
        for carrier, (flights, departed, delay, late) in largest[:CARRIERS_SHOWN]:
            grid.add_row(
                self.airlines.get(carrier, carrier),
                f"{flights:,}",
                minutes(delay / departed if departed else None),
                percent(late / departed if departed else None),
            )
        return grid

    def figures(self, figures: Figures) -> None:
        """Print the tables at the end."""
        quantiles = figures.streamed.percentiles
        self.say("", _indented(self._rates(figures.rates)))
        self.say("", _indented(self._delays(figures)))
        latencies = Text.assemble("     follower: ", style="dim")
        for name, label in (("p50", "median"), ("p99", "99 %"), ("p999", "99.9 %"), ("max", "max")):
            latencies.append(f"{label} {duration(quantiles[name])}   ")
        self.say("", _indented(self._histogram(figures.streamed.histogram)), latencies)

    def commands(self, text: str, commands: Sequence[str]) -> None:
        """Print commands to type next; never wrapped, so that they can be copied."""
        self.say("", Text(text, style="bold"))
        for command in commands:
            self.console.print(Text(f"    {command}", style="cyan"), soft_wrap=True)

    def _rates(self, rates: Sequence[Timed]) -> Grid:
        grid = _grid("at full speed", "flights", "bytes", "time", "rate", "payload")
        for timed in rates:
            grid.add_row(
                timed.what,
                f"{timed.records:,}",
                bytes_text(timed.payload_bytes),
                f"{timed.seconds:.2f} s",
                rate(timed.records_per_second),
                f"{bytes_text(timed.bytes_per_second)}/s",
            )
        return grid

    def _delays(self, figures: Figures) -> Grid:
        grid = _grid("delay, minutes", "flights", "late", *PARTS_OF_DAY, "all day")
        for carrier, tally in by_carrier(figures.delays).items():
            row = [self.airlines.get(carrier, carrier), f"{tally.flights:,}"]
            row.append(percent(tally.late_share))
            for hours in PARTS_OF_DAY.values():
                part = by_carrier(
                    {k: t for k, t in figures.delays.items() if k[0] == carrier and k[1] in hours}
                )
                mean = part[carrier].mean if part else None
                row.append(tenths(mean))
            grid.add_row(*row, tenths(tally.mean))
        return grid

    def _histogram(self, bars: Sequence[tuple[float, int]]) -> Grid:
        grid = _grid("follower, from", "flights", "")
        doublings: dict[int, int] = {}
        for edge, count in bars:
            low = 1 << max(0, int(edge).bit_length() - 1)
            doublings[low] = doublings.get(low, 0) + count
        top = max(doublings.values())
        for low, count in doublings.items():
            grid.add_row(
                duration(low), f"{count:,}", Text("█" * round(36 * count / top), style="cyan")
            )
        grid.columns[-1].justify = "left"
        return grid


def _indented(grid: Grid) -> Padding:
    """Put a table below the words of its step."""
    return Padding(grid, (0, 0, 0, 4))


def _grid(*head: str) -> Grid:
    grid = Grid(box=None, padding=(0, 1))
    grid.add_column(head[0], justify="left", header_style="bold", no_wrap=True)
    for name in head[1:]:
        grid.add_column(name, justify="right", header_style="bold", no_wrap=True)
    return grid
