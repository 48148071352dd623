"""The report's plots: what is drawn; `falaj.pages.drawing` owns how drawings look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from falaj.demo.flights import ORIGINS
from falaj.demo.units import short
from falaj.pages import drawing
from falaj.pages.units import duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from falaj.demo.figures import Interruption, Streamed, Table, Tally

__all__ = ["delays_by_hour", "latencies", "progress", "rain"]

# Minutes of mean delay at which the shade of a cell changes.
BOUNDS = (0, 5, 10, 15, 20, 30, 45)
# A cell of fewer flights is left out: its mean says little.
FLIGHTS_MIN = 5


def progress(streamed: Streamed, airports: Mapping[str, str]) -> str:
    """Flights that the follower saw over time, a line for each producer."""
    with drawing.style():
        figure, axes = drawing.figure(3.3)
        axes.grid(visible=False, axis="x")
        for origin, color in zip(ORIGINS, drawing.SERIES, strict=True):
            seconds = [0.0, *(at for at, _ in streamed.live.history)]
            seen = [0, *(found.get(origin, 0) for _, found in streamed.live.history)]
            axes.plot(seconds, seen, color=color, linewidth=2, label=origin)
        top = max(streamed.live.totals.values())
        _label_ends(axes, streamed, airports, apart=top * 0.075)
        if streamed.interruption:
            _mark(axes, streamed.interruption, top)
        axes.set_xlabel("seconds")
        axes.set_ylabel("flights in the log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_xlim(0, streamed.seconds)
        axes.set_ylim(0, top * 1.05)
        return drawing.svg(figure, "Flights in the log over time, by producer")


def _label_ends(axes: Axes, streamed: Streamed, airports: Mapping[str, str], apart: float) -> None:
    """Name each line at its end, from the lowest up, so that no two names touch."""
    colors = dict(zip(ORIGINS, drawing.SERIES, strict=True))
    least = float("-inf")
    for origin, total in sorted(streamed.live.totals.items(), key=lambda item: item[1]):
        least = max(total, least + apart)
        axes.annotate(
            f"{origin} {airports.get(origin, '')}",
            (streamed.seconds, least),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=colors[origin],
            annotation_clip=False,
        )


def _mark(axes: Axes, interruption: Interruption, top: int) -> None:
    axes.axvspan(
        interruption.killed_at, interruption.resumed_at, color=drawing.GRID, alpha=0.6, lw=0
    )
    axes.annotate(
        f"{interruption.producer} killed,\nfinds {interruption.found:,} in the log",
        (interruption.killed_at, top),
        xytext=(-8, -4),
        textcoords="offset points",
        ha="right",
        va="top",
        color=drawing.INK,
    )


def latencies(streamed: Streamed) -> str:
    """How long records took to the follower, on a logarithmic axis."""
    with drawing.style():
        figure, axes = drawing.figure(3.0)
        axes.grid(visible=False, axis="x")
        edges = [edge for edge, _ in streamed.histogram]
        counts = [count for _, count in streamed.histogram]
        share = [count / sum(counts) for count in counts]
        # Bars are as wide as their range on the axis, less a gap of a tenth.
        axes.bar(
            edges,
            share,
            width=[edge * (2**0.25 - 1) * 0.9 for edge in edges],
            align="edge",
            color=drawing.SERIES[0],
        )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda _value, _: ""))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
        axes.set_xlabel("from append to follower")
        axes.set_ylabel("share of flights")
        top = max(share)
        axes.set_ylim(0, top * 1.2)
        marks = (("p50", "median", "left"), ("p99", "99 %", "right"), ("p999", "99.9 %", "left"))
        for name, label, side in marks:
            at = streamed.percentiles[name]
            axes.axvline(at, color=drawing.INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.annotate(
                f"{label}\n{duration(at)}",
                (at, top * 1.2),
                xytext=(4 if side == "left" else -4, -2),
                ha=side,
                textcoords="offset points",
                va="top",
                color=drawing.INK,
            )
        return drawing.svg(figure, "Latency of the follower")


def delays_by_hour(delays: Table, airlines: Mapping[str, str], order: Sequence[str]) -> str:
    """Mean departure delay by carrier and scheduled hour, as shades."""
    some = [hour for (_, hour), tally in delays.items() if tally.departed >= FLIGHTS_MIN]
    hours = list(range(min(some, default=0), max(some, default=0) + 1))
    cells = [[_mean(delays.get((carrier, hour))) for hour in hours] for carrier in order]
    with drawing.style(axes_grid=False):
        figure, axes = drawing.figure(0.27 * len(order) + 1.5)
        columns = [hour - 0.5 for hour in [*hours, hours[-1] + 1]]
        drawing.shaded(figure, axes, cells, columns, BOUNDS, "mean delay, minutes")
        axes.set_yticks(range(len(order)), [short(airlines.get(c, c)) for c in order])
        axes.set_xticks(hours, [f"{hour:02d}" for hour in hours])
        axes.set_xlabel("scheduled hour of departure")
        return drawing.svg(figure, "Mean departure delay by carrier and scheduled hour")


def rain(carriers: Mapping[str, Tally], airlines: Mapping[str, str], order: Sequence[str]) -> str:
    """Mean delay of each carrier when it is dry and when it rains or snows."""
    shown = [c for c in order if carriers[c].wet >= FLIGHTS_MIN]
    if not shown:
        return "<p>Hardly any of these flights left in rain or snow.</p>"
    with drawing.style():
        figure, axes = drawing.figure(0.27 * len(shown) + 1.3)
        axes.grid(visible=False, axis="y")
        dry = [carriers[c].dry_mean or 0.0 for c in shown]
        wet = [carriers[c].wet_mean or 0.0 for c in shown]
        rows = range(len(shown))
        axes.hlines(rows, dry, wet, color=drawing.GRID, linewidth=3)
        axes.scatter(dry, rows, color=drawing.SERIES[1], s=42, label="dry", zorder=3)
        axes.scatter(wet, rows, color=drawing.SERIES[0], s=42, label="rain or snow", zorder=3)
        axes.set_yticks(rows, [short(airlines.get(c, c)) for c in shown])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlim(min([0.0, *dry, *wet]))
        axes.set_xlabel("mean departure delay, minutes")
        axes.legend(loc="lower right", ncols=2)
        return drawing.svg(figure, "Mean departure delay by carrier, dry and in rain or snow")


def _mean(tally: Tally | None) -> float | None:
    return tally.mean if tally and tally.departed >= FLIGHTS_MIN else None
