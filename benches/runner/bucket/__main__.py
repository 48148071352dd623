"""Measure places and print the table: `python -m runner.bucket [PART]…`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runner import machine, table
from runner.bucket import keeping, moving, waiting
from runner.bucket.places import places
from runner.bucket.rows import REFERENCES, ROWS
from runner.sizes import FULL

if TYPE_CHECKING:
    from runner.results import Measured

PARTS = {"moving": moving.measure, "waiting": waiting.measure, "keeping": keeping.measure}


def main() -> None:
    """Run the parts, all unless some are named."""
    parser = argparse.ArgumentParser(prog="python -m runner.bucket", description=__doc__)
    parser.add_argument("part", nargs="*", help=f"{', '.join(PARTS)}; all")
    parser.add_argument("--place", type=Path, help="on which disk to work")
    asked = parser.parse_args()
    begin, neighbours = time.monotonic(), machine.neighbours()
    machine.warm(FULL.warm_bytes)
    measured: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory(dir=asked.place) as scratch:
        about = machine.describe(Path(scratch)) + neighbours
        with places(Path(scratch)) as found:
            about += f"; {found.name} on loopback"
            for part in asked.part or PARTS:
                place = Path(scratch, part)
                place.mkdir()
                measured |= {one.name: one for one in PARTS[part](found, place, FULL)}
                shutil.rmtree(place, ignore_errors=True)
    rows = [row for row in ROWS if row.key in measured or not asked.part]
    references = [row for row in REFERENCES if row.key in measured]
    sys.stdout.write(f"{about}; {time.monotonic() - begin:.0f} s\n\n")
    sys.stdout.write(table.text(table.lines(measured, tuple(rows)), tuple(rows)) + "\n")
    sys.stdout.writelines(f"{table.aside(row, measured[row.key])}\n" for row in references)


if __name__ == "__main__":
    main()
