"""Measure falaj beside its alternatives and print the table: `python -m runner.peers`.

Results go to benches/results/peers; `python -m runner.keep` puts them on the front page.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from runner import machine, results
from runner.peers import page
from runner.peers.measuring import ROWS, measure
from runner.peers.subjects import PEERS, installed, versions
from runner.sizes import FULL

RESULTS = Path(__file__).resolve().parent.parent.parent / "results/peers"


def main() -> None:
    """Run the requested rows."""
    parser = argparse.ArgumentParser(prog="python -m runner.peers", description=__doc__)
    parser.add_argument("--place", type=Path, default=RESULTS, help="on which disk to work")
    parser.add_argument("only", nargs="*", help=f"{', '.join(row.key for row in ROWS)}; all")
    asked = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    names = installed()
    for name in PEERS:
        if name not in names:
            print(f"bench-peers: {name} is not installed here: left out", file=sys.stderr)
    begin, neighbours = time.monotonic(), machine.neighbours()
    machine.warm(FULL.warm_bytes)
    found: dict[str, results.Measured] = {}
    for row in ROWS:
        if asked.only and row.key not in asked.only:
            continue
        place, since = asked.place / "scratch", time.monotonic()
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            found |= {one.name: one for one in measure(row, names, place, FULL)}
        finally:
            shutil.rmtree(place, ignore_errors=True)
        print(f"bench-peers: {row.key}: {time.monotonic() - since:.0f} s", file=sys.stderr)
    about = machine.describe(RESULTS) + neighbours
    summary = page.figures(about, versions(), found)
    (RESULTS / "figures.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{about}; {time.monotonic() - begin:.0f} s\n")
    print(page.text(summary))


if __name__ == "__main__":
    main()
