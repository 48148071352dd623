"""Keep the figures of the last run: `python -m runner.keep`.

Writes benches/figures.json, the tables in benches/README.md and README.md between their markers,
and the plots in docs/images, all from the same results.
"""

import json
import sys
from pathlib import Path
from typing import Any

from runner import front, plots, results, table
from runner.results import Measured

BENCHES = Path(__file__).resolve().parent.parent
IMAGES = BENCHES.parent / "docs/images"
FIGURES = BENCHES / "figures.json"
FRONT = BENCHES.parent / "README.md"


def curves(measured: dict[str, Measured]) -> dict[str, list[float]]:
    """Take the latency curves of the follower and of its floor."""
    followed = measured.get("follow_p50")
    if followed is None:
        return {}
    return {"follower": followed.extra["curve"], "pipe": followed.extra["floor_curve"]}


def main() -> None:
    """Write them all."""
    kept = sorted((BENCHES / "results").glob("*.json"))
    if not kept:
        sys.exit("there are no results to keep: run `make bench` first")
    measured = results.load(kept)
    found = table.lines(measured)
    lacking = [of.key for of in found if of.verdict == "not measured"]
    if lacking:
        sys.exit(f"the last run measured only a part; these are missing: {', '.join(lacking)}")
    machine = (BENCHES / "results/machine.txt").read_text().strip()
    summary: dict[str, Any] = table.figures(machine, found, curves(measured))
    FIGURES.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    page = BENCHES / "README.md"
    with_machine = f"{machine}\n\n{table.markdown(found)}"
    page.write_text(table.between_markers(page.read_text(), with_machine))
    small, markers = front.markdown(summary), (front.BEGIN, front.END)
    FRONT.write_text(table.between_markers(FRONT.read_text(), small, markers))
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, svg in plots.draw(summary).items():
        (IMAGES / f"bench-{name}.svg").write_text(svg)


if __name__ == "__main__":
    main()
