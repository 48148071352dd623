"""Plots of benches/figures.json as SVG: the same figures always give the same bytes.

They have a light background of their own, so that they are readable on a dark page too.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from runner.following import CURVE
from runner.peers.measuring import ROWS as PEER_ROWS
from runner.peers.subjects import PEERS
from runner.results import SECOND_NS
from runner.rows import ROWS, SPARK_ROWS, Row
from runner.table import rate as table_rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, CARD = "#1f2a33", "#8a96a0", "#fbfaf7"
OURS, FLOOR, MISSED = "#1b7f8c", "#c9d3d6", "#d98b3a"
OTHERS = ("#9fb3b8", "#7a8f99", "#b9a88f", "#a3787a")
LEAST = "100 % is the least that can be done; a black mark is the target, amber missed it"
PARQUET = "100 % is Parquet, uncompressed; a black mark is the target, amber missed it"
WIDTH = 7.6
STYLE: Any = {
    "svg.hashsalt": "falaj",
    "svg.fonttype": "none",  # text stays text: it can be searched, and scales
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans", "sans-serif"],
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.facecolor": CARD,
    "figure.facecolor": CARD,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
}
RATES = {
    "python_append": "Python append, one per call",
    "python_extend": "Python extend, 1,000 at a time",
    "rust_append": "Rust append, one per call",
    "python_iterate_batched": "Python iteration",
    "python_batches_batched": "Python batches()",
    "python_to_list_batched": "Python batch.to_list()",
    "rust_scan_unverified": "Rust scan, unverified",
    "rust_scan_verified": "Rust scan, verified",
}


def draw(figures: dict[str, Any]) -> dict[str, str]:
    """Draw every plot; returns SVG by name."""
    import matplotlib as mpl

    mpl.use("svg")
    rows = {row["key"]: row for row in figures["rows"]}
    drawn: dict[str, Callable[[], Figure]] = {
        "rates": lambda: _rates(rows),
        "ratios": lambda: _ratios(
            rows,
            [row for row in ROWS if _is_share(row) and rows.get(row.key, {}).get("ratio")],
            "Share of the lower bound's speed, and the target",
            LEAST,
        ),
        "latency": lambda: _latency(figures["curves"]),
    }
    with mpl.rc_context(STYLE):
        return {name: _svg(make()) for name, make in drawn.items()}


def draw_tables(figures: dict[str, Any]) -> str:
    """Draw the plot of `make bench-spark`; returns SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    rows = {row["key"]: row for row in figures["rows"]}
    held = [row for row in SPARK_ROWS if row.floor == "Parquet"]
    with mpl.rc_context(STYLE):
        return _svg(_ratios(rows, held, "Share of Parquet's speed, and the target", PARQUET))


def draw_peers(summary: dict[str, Any]) -> str:
    """Draw the plot of `make bench-peers`; returns SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    with mpl.rc_context(STYLE):
        return _svg(_peers(summary))


def _peers(summary: dict[str, Any]) -> Figure:
    names = [name for name in PEERS if any(name in row for row in summary["rows"].values())]
    figure, axes = _axes(0.2 * len(names) * len(PEER_ROWS) + 1.6, 0.31, "Records a second")
    height = 0.8 / len(names)
    for i, row in enumerate(PEER_ROWS):
        for j, name in enumerate(names):
            ns = summary["rows"].get(row.key, {}).get(name)
            if ns is None:
                continue
            y, rate = i + (j - (len(names) - 1) / 2) * height, SECOND_NS / ns
            axes.barh(y, rate, height=0.86 * height, color=OURS if j == 0 else OTHERS[j - 1])
            _label(axes, rate, y, f"{name}, {table_rate(ns)}")
    titles = [
        row.title.removeprefix("… ") + (", durable" if row.durable else "") for row in PEER_ROWS
    ]
    _bars(axes, titles)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * 30)  # space for the names behind the longest bars
    axes.set_xlabel("100 bytes each, from Python, logarithmic", loc="right")
    return figure


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _axes(height: float, left: float, title: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((left, 0.62 / height, 0.96 - left, 1 - 1.15 / height))
    figure.text(0.025, 1 - 0.3 / height, title, fontsize=12, weight="bold", va="center")
    return figure, axes


def _bars(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.7)


def _label(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), xytext=(5, 0), textcoords="offset points", va="center")


def _rates(rows: dict[str, Any]) -> Figure:
    keys = [key for key in RATES if rows[key]["ours"]]
    figure, axes = _axes(0.42 * len(keys) + 1.3, 0.31, "Records of 100 bytes, a second, one thread")
    millions = [SECOND_NS / rows[key]["ours"] / 1e6 for key in keys]
    axes.barh(range(len(keys)), millions, height=0.62, color=OURS)
    for i, value in enumerate(millions):
        _label(axes, value, i, f"{value:.1f} M")
    _bars(axes, [RATES[key] for key in keys])
    axes.set_xlim(0, max(millions) * 1.12)
    axes.set_xlabel("million a second")
    return figure


def _ratios(rows: dict[str, Any], shown: list[Row], title: str, below: str) -> Figure:
    figure, axes = _axes(0.42 * len(shown) + 1.35, 0.36, title)
    for i, row in enumerate(shown):
        _ratio(axes, i, row, rows[row.key])
    _bars(axes, [row.title for row in shown])
    axes.set_xlim(0, max(1.0, *(rows[row.key]["ratio"] for row in shown)) * 1.12)
    axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    axes.set_xlabel(below, loc="right")  # it is wider than the axes
    return figure


def _is_share(row: Row) -> bool:
    return 0 < (row.bar.ratio_min or 0) < 1


def _ratio(axes: Axes, i: int, row: Row, of: dict[str, Any]) -> None:
    bar = row.bar.ratio_min or 0
    axes.barh(i, 1, height=0.62, color=FLOOR)
    axes.barh(i, of["ratio"], height=0.62, color=OURS if of["verdict"] == "met" else MISSED)
    axes.plot([bar, bar], [i - 0.4, i + 0.4], color=INK, linewidth=2)
    # In a column of their own: beside the bars they would overlap the marks.
    _label(axes, max(1, of["ratio"]), i, f"{100 * of['ratio']:.0f} %")


def _latency(curves: dict[str, list[float]]) -> Figure:
    figure, axes = _axes(
        3.6, 0.1, "A record at 1 kHz until a blocked process has it: share of records"
    )
    for name, color, label in (
        ("pipe", FAINT, "a pipe"), ("follower", OURS, "follower"),
    ):  # fmt: skip
        us = [ns / 1_000 for ns in curves[name]]
        axes.plot(us, CURVE, color=color, linewidth=2.2, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(
        lambda us, _: f"{us:g} µs" if us < 1_000 else f"{us / 1_000:g} ms"
    )
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    axes.axvline(25, color=INK, linewidth=1, linestyle=(0, (3, 3)))
    _label(axes, 25, 0.05, "target of the median")
    axes.axvline(150, color=INK, linewidth=1, linestyle=(0, (3, 3)))
    _label(axes, 150, 0.05, "target of p99")
    axes.grid(color=FAINT, alpha=0.25, linewidth=0.7)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("from before the append until the other process holds the record")
    axes.legend(loc="center right", frameon=False)
    return figure
