"""Keep the figures of the last runs: `python -m runner.keep`.

Writes benches/figures.json, the tables in benches/README.md and README.md between their markers,
and the plots in docs/images, all from the same results. It takes those of `make bench`, `make
bench-spark` and `make bench-peers` that exist.
"""

import json
import sys
from pathlib import Path
from typing import Any

from runner import plots, results, table
from runner.peers import page as peers
from runner.peers.measuring import ROWS as PEER_ROWS
from runner.results import Measured
from runner.rows import ROWS, SPARK_REFERENCES, SPARK_ROWS, Row
from runner.table import Line

BENCHES = Path(__file__).resolve().parent.parent
IMAGES = BENCHES.parent / "docs/images"
FIGURES = BENCHES / "figures.json"
TABLES_FIGURES = BENCHES / "figures-tables.json"
PEERS_FIGURES = BENCHES / "figures-peers.json"
TABLES_MARKERS = "<!-- spark: begin -->", "<!-- spark: end -->"
FRONT = BENCHES.parent / "README.md"


def curves(measured: dict[str, Measured]) -> dict[str, list[float]]:
    """Take the latency curves of the follower and of its lower bound."""
    followed = measured.get("follow_p50")
    if followed is None:
        return {}
    return {"follower": followed.extra["curve"], "pipe": followed.extra["floor_curve"]}


def main() -> None:
    """Write them all."""
    core, tables = BENCHES / "results", BENCHES / "results/tables"
    beside = BENCHES / "results/peers/figures.json"
    if not any(core.glob("*.json")) and not any(tables.glob("*.json")) and not beside.exists():
        sys.exit("there are no results to keep: run `make bench` first")
    if beside.exists():
        keep_peers(json.loads(beside.read_text()))
    if any(core.glob("*.json")):
        keep_core(core)
    if any(tables.glob("*.json")):
        keep_tables(tables)


def _found(folder: Path, rows: tuple[Row, ...]) -> tuple[str, dict[str, Measured], list[Line]]:
    """Read the results of a run, which must be complete."""
    measured = results.load(sorted(folder.glob("*.json")))
    found = table.lines(measured, rows)
    lacking = [of.key for of in found if of.verdict == "not measured"]
    if lacking:
        sys.exit(f"the last run measured only a part; these are missing: {', '.join(lacking)}")
    return (folder / "machine.txt").read_text().strip(), measured, found


def keep_tables(folder: Path) -> None:
    """Write the results of `make bench-spark`."""
    machine, measured, found = _found(folder, SPARK_ROWS)
    asides = table.lines(measured, SPARK_REFERENCES)
    summary = table.figures(machine, [*found, *asides], {})
    TABLES_FIGURES.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    page = BENCHES / "README.md"
    lines = [f"- {table.aside(row, measured[row.key])}" for row in SPARK_REFERENCES]
    plot = "![Share of Parquet's speed, and the target](../docs/images/bench-tables.svg)"
    text = "\n\n".join([machine, table.markdown(found, SPARK_ROWS), "\n".join(lines), plot])
    page.write_text(table.between_markers(page.read_text(), text, TABLES_MARKERS))
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / "bench-tables.svg").write_text(plots.draw_tables(summary))


def keep_peers(summary: dict[str, Any]) -> None:
    """Write the results of `make bench-peers`."""
    lacking = [row.key for row in PEER_ROWS if row.key not in summary["rows"]]
    if lacking:
        sys.exit(f"the last run measured only a part; these are missing: {', '.join(lacking)}")
    PEERS_FIGURES.write_text(json.dumps(summary, indent=1) + "\n")
    markers = peers.BEGIN, peers.END
    FRONT.write_text(table.between_markers(FRONT.read_text(), peers.markdown(summary), markers))
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / "bench-peers.svg").write_text(plots.draw_peers(summary))


def keep_core(folder: Path) -> None:
    """Write the results of `make bench`."""
    machine, measured, found = _found(folder, ROWS)
    summary: dict[str, Any] = table.figures(machine, found, curves(measured))
    FIGURES.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    page = BENCHES / "README.md"
    with_machine = f"{machine}\n\n{table.markdown(found)}"
    page.write_text(table.between_markers(page.read_text(), with_machine))
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, svg in plots.draw(summary).items():
        (IMAGES / f"bench-{name}.svg").write_text(svg)


if __name__ == "__main__":
    main()
