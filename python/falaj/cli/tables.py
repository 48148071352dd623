"""Rows for people and for programs: a table on a terminal, tabs between values in a pipe.

A table that is wider than the terminal would be torn; its rows are then lists of names and values.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from falaj.cli.paint import Paint, width_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Column", "facts", "objects", "rows_of", "table"]


class Column(NamedTuple):
    """A member of the rows, and how a person sees it."""

    member: str
    title: str
    number: bool = False
    human: Callable[[Any], str] | None = None

    def cell(self, row: Mapping[str, Any]) -> str:
        """Format the cell for a person."""
        value = row[self.member]
        if value is None:
            return "-"
        if self.human:
            return self.human(value)
        return f"{value:,}" if self.number else str(value)


def objects(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as JSON, one object a line."""
    for row in rows:
        print(json.dumps(row))


def table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows to stdout; on a terminal with a heading, in a pipe without."""
    paint = Paint.of(sys.stdout)
    if not paint.terminal:
        rows_of(None, columns, rows)
        return
    cells = [[paint.harmless(column.cell(row)) for column in columns] for row in rows]
    if not cells:
        return
    widths = [
        max(len(column.title), *(len(line[at]) for line in cells))
        for at, column in enumerate(columns)
    ]
    if sum(widths) + 2 * (len(widths) - 1) > width_of(sys.stdout):
        for at, line in enumerate(cells):
            print(end="\n" if at else "")
            facts([(column.title, text) for column, text in zip(columns, line, strict=True)])
        return

    def padded(line: list[str]) -> list[str]:
        return [
            text.rjust(width) if column.number else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        ]

    print("  ".join(paint(text, "bold") for text in padded([c.title for c in columns])).rstrip())
    for line in cells:
        first, *rest = padded(line)
        print("  ".join([paint(first, "cyan"), *rest]).rstrip())


def rows_of(kind: str | None, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows for programs, with tabs between; `kind` is the first cell of each."""
    for row in rows:
        values = (row[column.member] for column in columns)
        cells = ["" if value is None else str(value) for value in values]
        print(*([] if kind is None else [kind]), *cells, sep="\t")


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values below each other."""
    paint = Paint.of(sys.stdout)
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"{paint(name.ljust(width), 'bold')}  {paint.harmless(value)}")
