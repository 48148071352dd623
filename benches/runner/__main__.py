"""Measure everything and print the table: `python -m runner --rust target/release`.

Results go to benches/results, one file for each part; `python -m runner.keep` makes the committed
files from them.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from runner import (
    consuming,
    contention,
    durable,
    dying,
    floors,
    following,
    growing,
    machine,
    queueing,
    results,
    rust,
    space,
    starting,
    table,
    transacting,
)
from runner.rows import REFERENCES
from runner.sizes import FULL, Sizes

BENCHES = Path(__file__).resolve().parent.parent
RESULTS = BENCHES / "results"

Measure = Callable[[Path, Sizes], list[results.Measured]]
PARTS: dict[str, Measure] = {
    "memcpy": floors.measure_memcpy,
    "contention": contention.measure,
    "queueing": queueing.measure,
    "following": following.measure,
    "durable": durable.measure,
    "starting": starting.measure,
    "space": space.measure,
    "growing": growing.measure,
    "dying": dying.measure,
    "consuming": consuming.measure,
    "transacting": transacting.measure,
}


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)


def _python(place: Path) -> None:
    """Run benches/test_*.py under pytest-benchmark."""
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(BENCHES)),
        *("--benchmark-enable", "--benchmark-only", "--benchmark-columns=median"),
        f"--benchmark-json={RESULTS / 'python.json'}",
        f"--basetemp={place / 'pytest'}",
    ]
    done = subprocess.run(command, cwd=BENCHES.parent, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


def _each(place: Path, only: set[str], programs: Path | None) -> None:
    def run(name: str, work: Callable[[Path], None]) -> None:
        if only and name not in only:
            return
        begin = time.monotonic()
        within = place / name
        within.mkdir(parents=True)
        work(within)
        shutil.rmtree(within)
        _say(f"{name}: {time.monotonic() - begin:.0f} s")

    run("python", _python)
    if programs is not None:
        run(
            "rust",
            lambda within: results.save(RESULTS / "rust.json", rust.measure(programs, within)),
        )
    for name, measure in PARTS.items():
        run(name, lambda within, n=name, m=measure: results.save(  # type: ignore[misc]
            RESULTS / f"{n}.json", m(within, FULL)
        ))  # fmt: skip


def main() -> None:
    """Run the requested parts."""
    parser = argparse.ArgumentParser(prog="python -m runner", description=__doc__)
    parser.add_argument("--rust", type=Path, metavar="FOLDER", help="where falaj-bench was built")
    parser.add_argument("--place", type=Path, default=RESULTS, help="on which disk to work")
    parser.add_argument("only", nargs="*", help=f"python, rust, {', '.join(PARTS)}; all of them")
    asked = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    place = asked.place / "scratch"
    shutil.rmtree(place, ignore_errors=True)
    if not asked.only:
        for old in RESULTS.glob("*.json"):
            old.unlink()
    begin, neighbours = time.monotonic(), machine.neighbours()
    try:
        machine.warm(FULL.warm_bytes)
        _say(f"memory: {time.monotonic() - begin:.0f} s")
        _each(place, set(asked.only), asked.rust)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    about = machine.describe(RESULTS) + neighbours
    (RESULTS / "machine.txt").write_text(about + "\n")
    measured = results.load(sorted(RESULTS.glob("*.json")))
    print(f"{about}; {time.monotonic() - begin:.0f} s\n")
    print(table.text(table.lines(measured)))
    for row in REFERENCES:
        if row.key in measured:
            print(f"{row.title}: {table.time(measured[row.key].figure)}")


if __name__ == "__main__":
    main()
