"""The small table on the front page: a few rows of benches/figures.json, in a newcomer's words.

Owns which rows a newcomer wants to see. Pure: a summary in, text out; `keep` writes it.
"""

from collections.abc import Mapping
from typing import Any

from runner.rows import ROWS, Row
from runner.table import percent, rate, time

BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"
SHOWN = {
    "python_append": "Python, `append`",
    "python_extend": "Python, `extend` of 1,000",
    "rust_append": "Rust, `append`",
    "python_iterate_batched": "Python, `for record in topic`",
    "python_batches_batched": "Python, `batches()`",
    "rust_scan_verified": "Rust, scan with checksums",
    "python_durable": "durable `append`, one thread",
    "python_durable_together": "durable `append`, 8 processes together",
    "follow_p50": "from an append to a follower in another process, median",
    "take_over": "until a killed writer is replaced",
    "disk_batched": "bytes on the disk per byte of payload, `extend`",
}
_ROWS = {row.key: row for row in ROWS}


def _figure(row: Row, ours: float) -> str:
    if row.kind == "number":
        return f"{ours:.2f}"
    return rate(ours) if row.kind == "rate" else time(ours)


def _share(row: Row, ratio: float | None) -> str:
    # Eight together are held against one of them, which is no floor.
    if ratio is None or (row.bar.ratio_min or 0) > 1:
        return "–"
    return percent(ratio)


def markdown(summary: Mapping[str, Any]) -> str:
    """Write the table of a run that was kept."""
    found = {row["key"]: row for row in summary["rows"]}
    lines = [f"On {summary['machine']}:", "", "| | | of the lower bound |", "|---|---:|---:|"]
    for key, title in SHOWN.items():
        row, kept = _ROWS[key], found[key]
        lines.append(f"| {title} | {_figure(row, kept['ours'])} | {_share(row, kept['ratio'])} |")
    return "\n".join(lines)
