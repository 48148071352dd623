"""The page of a report: heading, tiles with the main figures, sections, tables.

Invariant: this module escapes all text, once. An argument that is markup already has `markup` in
its name. The page names no address, so it can be sent by mail and opened offline.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Tile", "code", "page", "section", "table", "wide"]


class Tile(NamedTuple):
    """A main figure, large, and a few words below it."""

    figure: str
    words: str
    good: bool = False


def page(
    *,
    title: str,
    heading: str,
    intro: str,
    tiles: Sequence[Tile],
    sections_markup: Sequence[str],
    footer: str,
) -> str:
    """Put a page together.

    Args:
        title: Title in the browser.
        heading: Heading of the page.
        intro: A sentence or two below that.
        tiles: The main figures.
        sections_markup: Sections, as `section` makes them; an empty one is left out.
        footer: What made it, from what, and when.

    Returns:
        HTML.
    """
    return Template(files("falaj.pages").joinpath("page.html").read_text("utf-8")).substitute(
        title=escape(title),
        heading=escape(heading),
        intro=escape(intro),
        tiles=_tiles(tiles),
        sections="\n".join(part for part in sections_markup if part),
        footer=escape(footer),
    )


def section(heading: str, text: str, body_markup: str = "") -> str:
    """Make a section: a heading, a paragraph, and what it shows.

    Example:
        >>> print(section("Keys", "A & B."))
        <section>
        <h2>Keys</h2>
        <p>A &amp; B.</p>
        </section>
    """
    lines = ["<section>", f"<h2>{escape(heading)}</h2>", f"<p>{escape(text)}</p>"]
    return "\n".join([*lines, *([body_markup] if body_markup else []), "</section>"])


def wide(body_markup: str) -> str:
    """Let a part scroll by itself where the screen is narrower."""
    return f'<div class="wide">{body_markup}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a table: the first column is text, the others are figures.

    Example:
        >>> table(("key", "records"), [("<a>", "2")]).count("&lt;a&gt;")
        1
    """

    def cells(kind: str, row: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in row) + "</tr>"

    body = "\n".join(cells("td", row) for row in rows)
    return wide(f"<table><thead>{cells('th', head)}</thead>\n<tbody>{body}</tbody></table>")


def code(lines: Iterable[str]) -> str:
    """Show lines to type."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _tiles(tiles: Sequence[Tile]) -> str:
    shown = "".join(
        f'<div class="tile {"good" if tile.good else ""}">'
        f"<b>{escape(tile.figure)}</b><span>{escape(tile.words)}</span></div>"
        for tile in tiles
    )
    return f'<div class="tiles">{shown}</div>'
