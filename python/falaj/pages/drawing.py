"""Plots for a page: matplotlib draws, the page colours.

Each plot is an SVG for inlining. matplotlib knows no CSS, so it draws with stand-in colours, each
used for one role only. Afterwards these become variables of the page, so that one drawing serves
light and dark. Text stays text, in the font of the page. Draw like this:

    with drawing.style():
        figure, axes = drawing.figure(3.0)
        axes.plot(…, color=drawing.SERIES[0])
        return drawing.svg(figure, "What is shown")
"""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from matplotlib.axes import Axes

__all__ = [
    "CARD",
    "GRID",
    "INK",
    "SERIES",
    "SHADES",
    "SOFT",
    "WIDTH",
    "figure",
    "pair",
    "shaded",
    "style",
    "svg",
]

WIDTH = 10.4
"""Inches."""
SHADES = 8
"""How many shades `shaded` has, from low to high."""

INK, SOFT, GRID, CARD = "#010101", "#020202", "#030303", "#040404"
SERIES = ("#0a0101", "#0a0202", "#0a0303")
_HEAT = tuple(f"#0b01{shade:02x}" for shade in range(SHADES))
_FLOW = tuple(f"#0c01{shade:02x}" for shade in range(SHADES))
_VARIABLES = (
    {INK: "--ink", SOFT: "--soft", GRID: "--grid", CARD: "--card"}
    | {color: f"--series-{number}" for number, color in enumerate(SERIES, 1)}
    | {color: f"--heat-{shade}" for shade, color in enumerate(_HEAT)}
    | {color: f"--flow-{shade}" for shade, color in enumerate(_FLOW)}
)
_STYLE: dict[Any, object] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # text from data may have dollars in it
    "font.size": 10,
    "text.color": SOFT,
    "axes.edgecolor": GRID,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "legend.frameon": False,
    "legend.labelcolor": SOFT,
}


def style(**settings: object) -> AbstractContextManager[None]:
    """Draw in the page's style within the block; settings of matplotlib's with `_` for `.`."""
    more: dict[Any, object] = {name.replace("_", "."): each for name, each in settings.items()}
    return mpl.rc_context(_STYLE | more)


def figure(height: float) -> tuple[Figure, Axes]:
    """Make a drawing as wide as the page, and so many inches high."""
    made = Figure(figsize=(WIDTH, height), layout="constrained")
    return made, made.subplots()


def pair(height: float, widths: tuple[float, float]) -> tuple[Figure, tuple[Axes, Axes]]:
    """Make a drawing of two, side by side."""
    made = Figure(figsize=(WIDTH, height), layout="constrained")
    left, right = made.subplots(1, 2, width_ratios=widths)
    return made, (left, right)


def shaded(
    drawn: Figure,
    axes: Axes,
    cells: Sequence[Sequence[float | None]],
    columns: Sequence[float],
    bounds: Sequence[float],
    label: str,
    *,
    flow: bool = False,
) -> None:
    """Fill a table of cells with shades, the first row on top, and say what they mean beside it.

    Args:
        drawn: The drawing.
        axes: Its axes; the caller sets the ticks.
        cells: Rows of figures; None for a cell that is left out.
        columns: Where each column begins, and where the last one ends.
        bounds: Figures at which the shade changes, one fewer than `SHADES`.
        label: Name of the figures.
        flow: Shades from little to much of one colour, in place of good to bad.
    """
    mesh = axes.pcolormesh(
        list(columns),
        [row - 0.5 for row in range(len(cells) + 1)],
        [[float("nan") if cell is None else cell for cell in row] for row in cells],
        cmap=ListedColormap(_FLOW if flow else _HEAT),
        norm=BoundaryNorm(bounds, SHADES, extend="both"),
        edgecolor=CARD,
        linewidth=1.5,
    )
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = drawn.colorbar(mesh, ax=axes, pad=0.02, aspect=30)
    bar.set_label(label)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)


def svg(drawn: Figure, title: str) -> str:
    """Write the drawing for inlining: colours as variables, no ids that two drawings share."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": title}):
        drawn.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r' id="[\w.]+_\d+"', "", drawing)
    drawing = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", drawing)
    drawing = re.sub(r"<[^>]+>", _with_variables, drawing)
    width, height = (float(size) for size in re.findall(r'(?:width|height)="([\d.]+)pt"', drawing))
    labelled = f'<svg role="img" aria-label="{escape(title)}" '
    return drawing.replace("<svg ", f'{labelled}style="aspect-ratio: {width}/{height}" ', 1)


def _with_variables(tag: re.Match[str]) -> str:
    return re.sub(
        r"#[0-9a-f]{6}",
        lambda found: f"var({_VARIABLES[found[0]]})" if found[0] in _VARIABLES else found[0],
        tag[0],
    )
