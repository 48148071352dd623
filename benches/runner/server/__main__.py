"""Measure the server and print the table: `python -m runner.server SERVER DOORS [PART]…`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runner import machine, table
from runner.server import idle, posting, starting, streaming
from runner.server.programs import Programs
from runner.server.rows import REFERENCES, ROWS
from runner.sizes import FULL

if TYPE_CHECKING:
    from runner.results import Measured

PARTS = {
    "posting": posting.measure,
    "streaming": streaming.measure,
    "idle": idle.measure,
    "starting": starting.measure,
}
MISSING = (
    "chukcha is not here, so nothing is beside it. `go install "
    "github.com/YuriyNasretdinov/chukcha@latest` builds it where Go finds it; "
    "CHUKCHA=… names the program.\n"
)


def main() -> None:
    """Run the parts, all unless some are named."""
    parser = argparse.ArgumentParser(prog="python -m runner.server", description=__doc__)
    parser.add_argument("server", type=Path, help="the program falaj-server")
    parser.add_argument("doors", type=Path, help="the program of rust/server/benches/doors")
    parser.add_argument("part", nargs="*", help=f"{', '.join(PARTS)}; all")
    parser.add_argument("--chukcha", default="", help="the program, or where it may be")
    parser.add_argument("--place", type=Path, help="on which disk to work")
    asked = parser.parse_args()
    found = shutil.which(asked.chukcha) if asked.chukcha else None
    programs = Programs(asked.server, asked.doors, Path(found) if found else None)
    begin, neighbours = time.monotonic(), machine.neighbours()
    machine.warm(FULL.warm_bytes)
    measured: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory(dir=asked.place) as scratch:
        about = machine.describe(Path(scratch)) + neighbours
        for part in asked.part or PARTS:
            place = Path(scratch, part)
            place.mkdir()
            measured |= {one.name: one for one in PARTS[part](programs, place, FULL)}
            shutil.rmtree(place, ignore_errors=True)
    rows = [row for row in ROWS if row.key in measured or not asked.part]
    references = [row for row in REFERENCES if row.key in measured]
    sys.stdout.write(f"{about}; {time.monotonic() - begin:.0f} s\n\n")
    sys.stdout.write(table.text(table.lines(measured, tuple(rows)), tuple(rows)) + "\n")
    sys.stdout.writelines(f"{table.aside(row, measured[row.key])}\n" for row in references)
    if programs.chukcha is None:
        sys.stdout.write(MISSING)


if __name__ == "__main__":
    main()
