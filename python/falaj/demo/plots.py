"""The report's plots: matplotlib draws, the page colours.

Each plot is an SVG for inlining. matplotlib knows no CSS, so it draws with stand-in colours, each
used for one role only, and those become variables of the page afterwards: one drawing serves light
and dark. Text stays text, in the font of the page.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from falaj.demo.flights import ORIGINS
from falaj.demo.units import duration, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from falaj.demo.figures import Interruption, Streamed, Table, Tally

__all__ = ["delays_by_hour", "latencies", "progress", "rain"]

WIDTH = 10.4
_INK, _SOFT, _GRID, _CARD = "#010101", "#020202", "#030303", "#040404"
_SERIES = ("#0a0101", "#0a0202", "#0a0303")
# Minutes of mean delay at which the shade of a cell changes.
BOUNDS = (0, 5, 10, 15, 20, 30, 45)
_HEAT = tuple(f"#0b01{shade:02x}" for shade in range(len(BOUNDS) + 1))
_VARIABLES = (
    {_INK: "--ink", _SOFT: "--soft", _GRID: "--grid", _CARD: "--card"}
    | {color: f"--series-{number}" for number, color in enumerate(_SERIES, 1)}
    | {color: f"--heat-{shade}" for shade, color in enumerate(_HEAT)}
)
_STYLE: dict[Any, object] = {
    "svg.fonttype": "none",
    "font.size": 10,
    "text.color": _SOFT,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _SOFT,
    "ytick.labelcolor": _SOFT,
    "legend.frameon": False,
    "legend.labelcolor": _SOFT,
}
# A cell of fewer flights is left out: its mean says little.
FLIGHTS_MIN = 5


def progress(streamed: Streamed, airports: Mapping[str, str]) -> str:
    """Flights that the follower saw over time, a line for each producer."""
    with mpl.rc_context(_STYLE):
        figure, axes = _figure(3.3)
        axes.grid(visible=False, axis="x")
        for origin, color in zip(ORIGINS, _SERIES, strict=True):
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
        return _svg(figure, "Flights in the log over time, by producer")


def _label_ends(axes: Axes, streamed: Streamed, airports: Mapping[str, str], apart: float) -> None:
    """Name each line at its end, from the lowest up, so that no two names touch."""
    colors = dict(zip(ORIGINS, _SERIES, strict=True))
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
    axes.axvspan(interruption.killed_at, interruption.resumed_at, color=_GRID, alpha=0.6, lw=0)
    axes.annotate(
        f"{interruption.producer} killed,\nfinds {interruption.found:,} in the log",
        (interruption.killed_at, top),
        xytext=(-8, -4),
        textcoords="offset points",
        ha="right",
        va="top",
        color=_INK,
    )


def latencies(streamed: Streamed) -> str:
    """How long records took to the follower, on a logarithmic axis."""
    with mpl.rc_context(_STYLE):
        figure, axes = _figure(3.0)
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
            color=_SERIES[0],
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
            axes.axvline(at, color=_INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.annotate(
                f"{label}\n{duration(at)}",
                (at, top * 1.2),
                xytext=(4 if side == "left" else -4, -2),
                ha=side,
                textcoords="offset points",
                va="top",
                color=_INK,
            )
        return _svg(figure, "Latency of the follower")


def delays_by_hour(delays: Table, airlines: Mapping[str, str], order: Sequence[str]) -> str:
    """Mean departure delay by carrier and scheduled hour, as shades."""
    some = [hour for (_, hour), tally in delays.items() if tally.departed >= FLIGHTS_MIN]
    hours = list(range(min(some, default=0), max(some, default=0) + 1))
    cells = [[_mean(delays.get((carrier, hour))) for hour in hours] for carrier in order]
    with mpl.rc_context(_STYLE | {"axes.grid": False}):
        figure, axes = _figure(0.27 * len(order) + 1.5)
        mesh = axes.pcolormesh(
            [hour - 0.5 for hour in [*hours, hours[-1] + 1]],
            [row - 0.5 for row in range(len(order) + 1)],
            [[float("nan") if cell is None else cell for cell in row] for row in cells],
            cmap=ListedColormap(_HEAT),
            norm=BoundaryNorm(BOUNDS, len(_HEAT), extend="both"),
            edgecolor=_CARD,
            linewidth=1.5,
        )
        axes.invert_yaxis()
        axes.set_yticks(range(len(order)), [short(airlines.get(c, c)) for c in order])
        axes.set_xticks(hours, [f"{hour:02d}" for hour in hours])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("scheduled hour of departure")
        bar = figure.colorbar(mesh, ax=axes, pad=0.02, aspect=30)
        bar.set_label("mean delay, minutes")
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0)
        return _svg(figure, "Mean departure delay by carrier and scheduled hour")


def rain(carriers: Mapping[str, Tally], airlines: Mapping[str, str], order: Sequence[str]) -> str:
    """Mean delay of each carrier when it is dry and when it rains or snows."""
    shown = [c for c in order if carriers[c].wet >= FLIGHTS_MIN]
    if not shown:
        return "<p>Hardly any of these flights left in rain or snow.</p>"
    with mpl.rc_context(_STYLE):
        figure, axes = _figure(0.27 * len(shown) + 1.3)
        axes.grid(visible=False, axis="y")
        dry = [carriers[c].dry_mean or 0.0 for c in shown]
        wet = [carriers[c].wet_mean or 0.0 for c in shown]
        rows = range(len(shown))
        axes.hlines(rows, dry, wet, color=_GRID, linewidth=3)
        axes.scatter(dry, rows, color=_SERIES[1], s=42, label="dry", zorder=3)
        axes.scatter(wet, rows, color=_SERIES[0], s=42, label="rain or snow", zorder=3)
        axes.set_yticks(rows, [short(airlines.get(c, c)) for c in shown])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlim(min([0.0, *dry, *wet]))
        axes.set_xlabel("mean departure delay, minutes")
        axes.legend(loc="lower right", ncols=2)
        return _svg(figure, "Mean departure delay by carrier, dry and in rain or snow")


def _mean(tally: Tally | None) -> float | None:
    return tally.mean if tally and tally.departed >= FLIGHTS_MIN else None


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _svg(figure: Figure, title: str) -> str:
    """Write the drawing for inlining: colours as variables, no ids that two drawings share."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": title}):
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r' id="[\w.]+_\d+"', "", drawing)
    drawing = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", drawing)
    for color, variable in _VARIABLES.items():
        drawing = drawing.replace(color, f"var({variable})")
    width, height = (float(size) for size in re.findall(r'(?:width|height)="([\d.]+)pt"', drawing))
    return drawing.replace(
        "<svg ", f'<svg role="img" aria-label="{title}" style="aspect-ratio: {width}/{height}" ', 1
    )
