"""Measure Spark, Polars and DuckDB and print the table: `python -m runner.tables`.

Results go to benches/results/tables, one file for each part.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from runner import analysing, machine, results, sparking, table
from runner.rows import SPARK_REFERENCES, SPARK_ROWS
from runner.sizes import FULL, Sizes

RESULTS = Path(__file__).resolve().parent.parent / "results/tables"

Measure = Callable[[Path, Sizes], list[results.Measured]]
PARTS: dict[str, Measure] = {"analysing": analysing.measure, "sparking": sparking.measure}


def main() -> None:
    """Run the requested parts."""
    parser = argparse.ArgumentParser(prog="python -m runner.tables", description=__doc__)
    parser.add_argument("--place", type=Path, default=RESULTS, help="on which disk to work")
    parser.add_argument("only", nargs="*", help=f"{', '.join(PARTS)}; all of them")
    asked = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    if not asked.only:
        for old in RESULTS.glob("*.json"):
            old.unlink()
    begin, neighbours = time.monotonic(), machine.neighbours()
    machine.warm(FULL.warm_bytes)
    for name, measure in PARTS.items():
        if asked.only and name not in asked.only:
            continue
        place, since = asked.place / f"scratch-{name}", time.monotonic()
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            results.save(RESULTS / f"{name}.json", measure(place, FULL))
        finally:
            shutil.rmtree(place, ignore_errors=True)
        print(f"bench: {name}: {time.monotonic() - since:.0f} s", file=sys.stderr, flush=True)
    about = machine.describe(RESULTS) + neighbours
    (RESULTS / "machine.txt").write_text(about + "\n")
    measured = results.load(sorted(RESULTS.glob("*.json")))
    print(f"{about}; {time.monotonic() - begin:.0f} s\n")
    print(table.text(table.lines(measured, SPARK_ROWS), SPARK_ROWS))
    print()
    for row in SPARK_REFERENCES:
        if row.key in measured:
            print(table.aside(row, measured[row.key]))


if __name__ == "__main__":
    main()
