"""The plots of the page of `profile`; `falaj.pages.drawing` owns their look."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from falaj.pages import drawing
from falaj.pages.units import bytes_text, span

if TYPE_CHECKING:
    from datetime import datetime

    from matplotlib.axes import Axes

    from falaj.pipeline.profiling.figures import Sizes
    from falaj.pipeline.profiling.run import ProfileResult

__all__ = ["by_hour", "keys", "over_time", "partitions", "sizes"]

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def over_time(found: ProfileResult) -> str:
    """Plot the records in each span of time."""
    with drawing.style():
        figure, axes = drawing.figure(3.2)
        axes.grid(visible=False, axis="x")
        starts, counts = _filled(found)
        edges = [float(edge) for edge in date2num(starts)]  # type: ignore[no-untyped-call]
        axes.stairs(counts, edges, fill=True, color=drawing.SERIES[0], linewidth=0)
        axes.xaxis_date()
        axes.set_xlim(edges[0], edges[-1])
        locator = AutoDateLocator(minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        form = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(form)
        axes.set_ylim(0)
        _whole(axes, "y")
        axes.set_ylabel(f"records in {span(found.slot_seconds)}")
        return drawing.svg(figure, "Records over time")


def _filled(found: ProfileResult) -> tuple[list[datetime], list[int]]:
    """Return the edges of all bars, and their numbers of records, including 0."""
    width = timedelta(seconds=found.slot_seconds)
    counts = {slot.start: slot.records for slot in found.slots}
    edges = [found.slots[0].start]
    while edges[-1] <= found.slots[-1].start:
        edges.append(edges[-1] + width)
    return edges, [counts.get(edge, 0) for edge in edges[:-1]]


def by_hour(found: ProfileResult) -> str:
    """Plot the average number of records in each hour of the week."""
    sums = [[0] * 24 for _ in _DAYS]
    for hour in found.hours:
        sums[hour.start.weekday()][hour.start.hour] += hour.records
    covered = _hours_covered(found.hours[0].start, found.hours[-1].start)
    means = [
        [sums[day][hour] / covered[day][hour] if covered[day][hour] else None for hour in range(24)]
        for day in range(7)
    ]
    most = max(mean for row in means for mean in row if mean is not None)
    with drawing.style(axes_grid=False):
        figure, axes = drawing.figure(3.1)
        columns = [hour - 0.5 for hour in range(25)]
        drawing.shaded(figure, axes, means, columns, _bounds(most), "records in an hour", flow=True)
        axes.set_yticks(range(7), _DAYS)
        axes.set_xticks(range(24), [f"{hour:02d}" for hour in range(24)])
        axes.set_xlabel("hour of the day, UTC")
        return drawing.svg(figure, "Records by weekday and hour")


def _hours_covered(first: datetime, last: datetime) -> list[list[int]]:
    """Count how often each hour of the week occurs from one hour to another, inclusive."""
    found = [[0] * 24 for _ in _DAYS]
    weeks, rest = divmod(round((last - first).total_seconds() / 3_600) + 1, 168)
    for n in range(168):
        at = first + timedelta(hours=n)
        found[at.weekday()][at.hour] = weeks + (n < rest)
    return found


def _bounds(most: float) -> list[float]:
    """Choose the seven figures at which shades change: equal steps of a round width."""
    step = most / drawing.SHADES
    size = 10 ** math.floor(math.log10(step))
    width = next(nice * size for nice in (1, 2, 2.5, 5, 10) if nice * size >= step)
    return [width * n for n in range(1, drawing.SHADES)]


def keys(found: ProfileResult) -> str:
    """Plot the keys with most records, and the Lorenz curve of all keys."""
    with drawing.style():
        top = found.keys.top
        figure, (bars, curve) = drawing.pair(max(0.27 * len(top) + 1.0, 3.4), (1.9, 1))
        bars.grid(visible=False, axis="y")
        rows = range(len(top))
        bars.barh(rows, [key.records for key in top], height=0.62, color=drawing.SERIES[0])
        bars.set_yticks(rows, [_short(key.key) for key in top])
        bars.invert_yaxis()
        bars.tick_params(axis="y", length=0)
        bars.spines["left"].set_visible(False)
        bars.set_xlabel("records")
        _whole(bars, "x")
        _lorenz(curve, found)
        return drawing.svg(figure, "Keys with most records, and the Lorenz curve of keys")


def _lorenz(axes: Axes, found: ProfileResult) -> None:
    xs, ys = zip(*found.keys.lorenz, strict=True)
    axes.plot([0, 1], [0, 1], color=drawing.SOFT, linewidth=1, linestyle=(0, (2, 2)))
    axes.fill_between(xs, xs, ys, color=drawing.SERIES[1], alpha=0.18, linewidth=0)
    axes.plot(xs, ys, color=drawing.SERIES[1], linewidth=2)
    axes.annotate(
        "all alike",
        (0.48, 0.52),
        rotation=45,
        ha="center",
        va="center",
        rotation_mode="anchor",
        transform_rotates_text=True,
        color=drawing.SOFT,
    )
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
        axis.set_major_locator(MaxNLocator(4))
    axes.set_xlabel("of keys, rarest first")
    axes.set_ylabel("of records")


def sizes(found: Sizes) -> str:
    """Plot the sizes of values on a logarithmic axis."""
    with drawing.style():
        figure, axes = drawing.figure(3.0)
        axes.grid(visible=False, axis="x")
        total = sum(count for *_, count in found.histogram)
        share = [count / total for *_, count in found.histogram]
        lows = [low for low, *_ in found.histogram]
        highs = [high for _, high, _ in found.histogram]
        logarithmic = len({round(high - low, 6) for low, high in zip(lows, highs, strict=True)}) > 1
        if logarithmic:  # nothing has no logarithm: empty values get a bar before the others
            lows = [low or high / 2**0.25 for low, high in zip(lows, highs, strict=True)]
            axes.set_xscale("log", base=2)
            axes.minorticks_off()
        else:
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        widths = [0.9 * (high - low) for low, high in zip(lows, highs, strict=True)]
        axes.bar(lows, share, width=widths, align="edge", color=drawing.SERIES[0])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: bytes_text(size)))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
        axes.set_xlabel("size of the value")
        axes.set_ylabel("share of values")
        _marks(axes, found, max(share))
        return drawing.svg(figure, "Sizes of values")


def _marks(axes: Axes, found: Sizes, top: float) -> None:
    axes.set_ylim(0, top * 1.25)
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= 1])
    for name, size, side in (("median", found.median, "right"), ("99 %", found.p99, "left")):
        if not size:
            continue
        axes.axvline(size, color=drawing.INK, linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(
            f"{name}\n{bytes_text(size)}",
            (size, top * 1.25),
            xytext=(4 if side == "left" else -4, -2),
            ha=side,
            textcoords="offset points",
            va="top",
            color=drawing.INK,
        )


def partitions(found: ProfileResult) -> str:
    """Plot how many records each partition has, and mark an even distribution."""
    with drawing.style():
        figure, axes = drawing.figure(2.6)
        axes.grid(visible=False, axis="x")
        at = [each.partition for each in found.partitions]
        counts = [each.records for each in found.partitions]
        axes.bar(at, counts, width=0.62, color=drawing.SERIES[0])
        even = sum(counts) / len(counts)
        axes.axhline(even, color=drawing.INK, linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(
            "even",
            (1, even),
            xycoords=("axes fraction", "data"),
            xytext=(-4, 3),
            textcoords="offset points",
            ha="right",
            color=drawing.INK,
        )
        axes.xaxis.set_major_locator(MaxNLocator(min(len(at), 24), integer=True))
        axes.set_xlim(at[0] - 0.6, at[-1] + 0.6)
        axes.set_xlabel("partition")
        axes.set_ylabel("records")
        _whole(axes, "y")
        return drawing.svg(figure, "Records of partitions")


def _whole(axes: Axes, which: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(6, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _short(key: str) -> str:
    return key if len(key) <= 28 else key[:27] + "…"
