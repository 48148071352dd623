#!/usr/bin/env python3
"""Measure which lines and branches of some modules the Rust tests run, and fail below the target.

Owns: running the tests under cargo-llvm-cov, and the table. Lines of tests do not count, neither
as run nor as not run; an instance of a generic function counts with all others of it. Branches on a
planted mistake or an assertion have one side that is compiled away or a bug, and do not count. They
are measured where a nightly compiler is installed, else it is said that they are not. See
docs/RELIABILITY.md, "Coverage and mutants".

Usage: cover.py [--missing] [--report-only] [-- ARGUMENTS OF CARGO TEST]
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rooms import ROOMS, ROOT, first_test_line, install

BAR_PERCENT = 95.0
NOT_MEASURED = "NOT MEASURED: no nightly compiler"
# By default the engine's own tests run. A line that only a harness runs, by chance, is not tested.
TESTS = ("-p", "falaj")


@dataclass
class Counts:
    """How often each line ran, and each side of each branch."""

    lines: Counter[tuple[str, int]] = field(default_factory=Counter)
    branches: Counter[tuple[str, int, int, bool]] = field(default_factory=Counter)

    def of(self, path: str) -> "Counts":
        """Those of one file, without its tests."""
        text = (ROOT / path).read_text()
        source, end = text.splitlines(), first_test_line(text)
        lines = {at: n for at, n in self.lines.items() if at[0] == path and at[1] < end}
        own = {at: n for at, n in self.branches.items() if at[0] == path and at[1] < end}
        branches = {at: n for at, n in own.items() if has_two_sides(source[at[1] - 1], at[2])}
        return Counts(Counter(lines), Counter(branches))


def has_two_sides(line: str, column: int) -> bool:
    """Tell a branch of the program from one on a planted mistake, or in an assertion."""
    planted = line[column - 1 :].startswith(("planted(", "!planted("))
    return not planted and not line.lstrip().startswith("debug_assert")


def share(counts: Iterable[int]) -> float:
    """Percentage of counts that are not zero."""
    ran = [count > 0 for count in counts]
    return 100.0 * sum(ran) / len(ran) if ran else 100.0


def cargo(*arguments: str, nightly: bool) -> list[str]:
    """Name a command of cargo-llvm-cov."""
    return ["cargo", *(["+nightly"] if nightly else []), "llvm-cov", *arguments]


def has_nightly() -> bool:
    """Look for a nightly compiler."""
    try:
        asked = subprocess.run(["rustc", "+nightly", "--version"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return asked.returncode == 0


def relative(path: str) -> str:
    """Name a file from the root of the repository, as the list of modules does."""
    return path.removeprefix(f"{ROOT}/")


def lines_of(lcov: str) -> Counter[tuple[str, int]]:
    """Read counts of lines from lcov's format."""
    lines: Counter[tuple[str, int]] = Counter()
    path = ""
    for line in lcov.splitlines():
        if line.startswith("SF:"):
            path = relative(line.removeprefix("SF:"))
        elif line.startswith("DA:"):
            number, count = line.removeprefix("DA:").split(",")[:2]
            lines[path, int(number)] += int(count)
    return lines


def branches_of(export: dict[str, Any]) -> Counter[tuple[str, int, int, bool]]:
    """Read counts of both sides of each branch from the compiler's own format."""
    branches: Counter[tuple[str, int, int, bool]] = Counter()
    for file in export["data"][0]["files"]:
        path = relative(file["filename"])
        for line, column, _, _, taken, passed, *_ in file.get("branches", []):
            branches[path, line, column, True] += taken
            branches[path, line, column, False] += passed
    return branches


def report(*, nightly: bool) -> Counts:
    """Read what the runs so far left behind."""

    def export(form: str) -> str:
        command = cargo("report", form, *(["--branch"] if nightly else []), nightly=nightly)
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    return Counts(lines_of(export("--lcov")), branches_of(json.loads(export("--json"))))


def print_missing(path: str, counts: Counts) -> None:
    """Name what did not run, a place a line."""
    for (_, line), count in sorted(counts.lines.items()):
        if not count:
            print(f"{path}:{line}: not run")
    for (_, line, column, side), count in sorted(counts.branches.items()):
        if not count:
            print(f"{path}:{line}:{column}: never {str(side).lower()}")


def row(name: str, counts: Counts, *, nightly: bool) -> str:
    """Lay out a line of the table."""
    lines = f"{share(counts.lines.values()):6.2f} % of {len(counts.lines):>5}"
    branches = f"{share(counts.branches.values()):6.2f} % of {len(counts.branches):>5}"
    return f"{name:<40} {lines:>18}   {branches if nightly else NOT_MEASURED:>18}"


def table(counts: Counts, *, nightly: bool, missing: bool) -> bool:
    """Print the table; true when every module reaches the target."""
    good = True
    print(f"{'module':<40} {'lines':>18}   {'branches':>18}")
    for name, room in ROOMS.items():
        parts = {path: counts.of(path) for path in room.paths()}
        whole = Counts()
        for part in parts.values():
            whole.lines.update(part.lines)
            whole.branches.update(part.branches)
        print(row(name, whole, nightly=nightly))
        for path, part in parts.items():
            print(row("  " + path.removeprefix("rust/log/src/"), part, nightly=nightly))
        measured = [share(whole.lines.values())]
        measured += [share(whole.branches.values())] if nightly else []
        # No line at all is no measurement.
        good = good and bool(whole.lines) and min(measured) >= BAR_PERCENT
        if missing:
            for path, part in parts.items():
                print_missing(path, part)
    return good


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--missing", action="store_true", help="name what did not run")
    parser.add_argument("--report-only", action="store_true", help="of the runs before this one")
    parser.add_argument(
        "arguments", nargs="*", help="for cargo test, in place of the engine's tests"
    )
    given = parser.parse_args()
    nightly = has_nightly()
    install("cargo-llvm-cov")
    # The compiler's own tools to read what it counted are fetched without a question.
    os.environ["CARGO_LLVM_COV_SETUP"] = "yes"
    if not given.report_only:
        how = ["--no-report", "--locked", *(["--branch"] if nightly else [])]
        tests = given.arguments or list(TESTS)
        commands = (("clean", "--workspace"), (*how, *tests))
        for command in commands:
            ended = subprocess.run(cargo(*command, nightly=nightly), cwd=ROOT, check=False)
            if ended.returncode:
                print("the tests did not come to their end: nothing was measured", file=sys.stderr)
                return ended.returncode
    good = table(report(nightly=nightly), nightly=nightly, missing=given.missing)
    if not nightly:
        print(f"branches: {NOT_MEASURED}; get one with 'rustup toolchain install nightly'")
    if not good:
        print(f"below {BAR_PERCENT} % in at least one room", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
