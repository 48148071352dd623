"""The table of the systems side by side: in the terminal, and on the front page.

Pure: figures in, text out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.peers.measuring import ROWS, Row
from runner.peers.subjects import PEERS
from runner.table import rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.results import Measured

BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"
_CLASSES = {
    False: "survives the death of the process",
    True: "survives a power failure, once the call returned",
}


def figures(
    about: str, versions: Mapping[str, str], measured: Mapping[str, Measured]
) -> dict[str, Any]:
    """Summarise a run for the committed file: nanoseconds per record, by row and system."""
    rows: dict[str, dict[str, float]] = {}
    for name, found in measured.items():
        key, _, peer = name.partition(": ")
        rows.setdefault(key, {})[peer] = float(f"{found.figure:.4g}")
    return {"machine": about, "versions": dict(versions), "rows": rows}


def _peers(summary: Mapping[str, Any]) -> list[str]:
    return [name for name in PEERS if any(name in row for row in summary["rows"].values())]


def _cell(row: Row, peer: str, summary: Mapping[str, Any]) -> str:
    ns = summary["rows"].get(row.key, {}).get(peer)
    return "–" if ns is None else rate(ns)


def _lines(summary: Mapping[str, Any]) -> list[list[str]]:
    peers, lines, durable = _peers(summary), [], None
    for row in ROWS:
        if row.durable != durable:
            durable = row.durable
            lines.append([_CLASSES[durable], *[""] * len(peers)])
        lines.append([row.title, *[_cell(row, peer, summary) for peer in peers]])
    return lines


def text(summary: Mapping[str, Any]) -> str:
    """Lay the table out for a terminal."""
    table = [["", *_peers(summary)], *_lines(summary)]
    widths = [max(len(line[i]) for line in table if any(line[1:])) for i in range(len(table[0]))]
    laid = []
    for line in table:
        if not any(line[1:]):
            laid += ["", f"{line[0]}:"]
            continue
        first, *rest = line
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        laid.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(laid)


def markdown(summary: Mapping[str, Any]) -> str:
    """Lay the table out for a page."""
    peers = _peers(summary)
    named = [f"{name} {summary['versions'].get(name, '')}".strip() for name in peers]
    lines = [
        f"On {summary['machine']}; records a second, 100 bytes each, from Python:",
        "",
        f"| | {' | '.join(named)} |",
        f"|---|{'---:|' * len(peers)}",
    ]
    for first, *cells in _lines(summary):
        title = first if any(cells) else f"*{first}*"
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)
