#!/usr/bin/env python3
"""`make test`, `lint`, `test-proof`: their parts some at a time, and one table of what they did.

A part is a target of the Makefile, which can also be made alone. Its words go to a file; they are
shown when it failed. What a part could not run is repeated below the table. Nothing of a part
outlives this program (tools/soak/keeper.py). Usage: parts.py test|lint|proof DIRECTORY [PART …]
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEEPER = ROOT / "tools/soak/keeper.py"
LANES = {"test": 3, "lint": 2, "proof": 3}
"""How many parts at a time. Tests, also the proof's own, wait for a third of their time."""
LOOK_S = 0.2
PART_S_MAX = 3600.0
"""Longest time of a part; each takes minutes."""


def told(pattern: str, shape: str) -> Callable[[str], str]:
    """Find the last place where a part tells its figures."""

    def find(words: str) -> str:
        found = list(re.finditer(pattern, words, re.MULTILINE | re.DOTALL))
        return shape.format(*found[-1].groups()) if found else ""

    return find


def counted(*patterns: tuple[str, str]) -> Callable[[str], str]:
    """Add up the numbers that match, for each of several things."""

    def find(words: str) -> str:
        sums = [
            (sum(map(int, re.findall(pattern, words, re.MULTILINE))), what)
            for pattern, what in patterns
        ]
        return ", ".join(f"{amount:,} {what}" for amount, what in sums if amount)

    return find


def canaries(words: str) -> str:
    """Count the canaries that were let loose, and those that nobody noticed."""
    rows = re.findall(r"^(\S+) +\| .*$", words, re.MULTILINE)
    bad = words.count("NOT GOOD:")
    loose = [row for row in rows if row not in ("canary", "none")]
    return f"{len(loose)} planted bugs, {len(loose) - bad} noticed"


TESTS = counted((r"^test result: ok\. (\d+) passed", "tests"))

MODELS = counted((r"^test result: ok\. (\d+) passed", "models"))

# In this order, so that the lanes end at about the same time.
TEST: dict[str, Callable[[str], str]] = {
    "venv": lambda _: "what is tested with",
    "build": told(r"(Installed falaj|Nothing to be done)", "the module"),
    "test-rust": TESTS,
    "test-loom": MODELS,
    "test-python": told(r"(\d+ passed[^\n]*?) in ", "{}"),
    "test-spark": told(r"(\d+ passed[^\n]*?) in ", "{}"),
    "test-shuttle": MODELS,
}
BEHIND = {
    "build": "venv",
    "test-rust": "venv",
    "test-python": "build",
    "test-spark": "build",
    "proof-outside": "proof-programs",
    "proof-hostile": "proof-programs",
    "proof-explore": "proof-programs",
    "proof-storm": "proof-programs",
    "proof-power": "proof-programs",
    "proof-guest": "proof-programs",
}
"""What begins only when something else has ended, as it needs that."""
URGENT = {
    *("venv", "build", "test-python"),
    *("proof-programs", "proof-outside", "proof-storm", "proof-power", "proof-guest"),
}
"""One behind the other they take longest, or have deadlines: on few cores others make way."""
NICE = 5
"""How much way: about a third of what the urgent ones get, where both want a core."""
LINT: dict[str, Callable[[str], str]] = {
    "lint-rust": told(r"Generated \S+ and (\d+) other files", "clippy, rustdoc"),
    "lint-python": told(r"no issues found in (\d+ source files)", "{}"),
}
PROOF: dict[str, Callable[[str], str]] = {
    "proof-programs": told(r"Finished `release` profile", "three harnesses"),
    "proof-canaries": canaries,
    "proof-outside": counted((r"(\d+) passed", "passed"), (r"(\d+) skipped", "skipped")),
    "proof-hostile": counted(
        (r"^flips\S*: (\d+) cases", "flips"),
        (r"^bytes-\S+: (\d+) cases", "batches of rubbish"),
        (r"^faults\S*: (\d+) cases", "failed calls"),
    ),
    "proof-explore": told(r"^explore: (\d+) different states", "{} different states"),
    "proof-sanitizers": TESTS,
    "proof-storm": told(
        r'"acknowledged":(\d+).*?"kills":(\d+)', "{1} kills, {0} acknowledged records"
    ),
    "proof-models": MODELS,
    "proof-power": told(r'"cuts":(\d+)', "{} power cuts"),
    "proof-guest": told(r'"cuts":(\d+)', "{} power cuts in a guest"),
}
SUITES = {"test": TEST, "lint": LINT, "proof": PROOF}
SKIPS = re.compile(r"^(?:(?:\*\*\* )?NOT RUN|SKIPPED \[).*$", re.MULTILINE)


def make_way(session: int) -> None:
    """Let others go before a session's processes, also where the kernel shares out by session."""
    os.setpriority(os.PRIO_PGRP, session, NICE)
    with contextlib.suppress(OSError):  # a kernel that does not
        Path(f"/proc/{session}/autogroup").write_text(str(NICE))


@dataclass
class Part:
    """A part at work, or done."""

    suite: str
    name: str
    log: Path
    process: "subprocess.Popen[bytes]"
    begun: float
    seconds: float = 0.0
    processor: float = 0.0
    """Seconds of all cores, of all its processes."""
    code: int | None = None

    @classmethod
    def begin(cls, suite: str, name: str, folder: Path) -> "Part":
        """Start making it."""
        log = folder / f"{name}.log"
        environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
        if not (folder.parent / "debug/incremental").is_dir():
            # Nobody has edited and built here yet: what would make the next build of a changed
            # crate quicker takes two fifths of the first.
            environment.setdefault("CARGO_INCREMENTAL", "0")
        with log.open("wb") as words:
            process = subprocess.Popen(
                [sys.executable, "-I", str(KEEPER), "make", "--no-print-directory", name],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
        if suite != "lint" and name not in URGENT:
            make_way(process.pid)
        print(f"{suite}: {name} begins; its words: {log}", flush=True)
        return cls(suite, name, log, process, time.monotonic())

    def look(self) -> bool:
        """See whether it is over; end it when it takes too long."""
        self.seconds = time.monotonic() - self.begun
        assert self.process.stdin is not None
        if self.seconds > PART_S_MAX and not self.process.stdin.closed:
            with self.log.open("a") as words:
                words.write(f"\nit did not end within {PART_S_MAX:.0f} s\n")
            self.process.stdin.close()
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if not pid:
            return False
        self.code = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.processor = usage.ru_utime + usage.ru_stime
        return True

    def words(self) -> str:
        """Read what it said."""
        return self.log.read_text(errors="replace")

    def row(self) -> tuple[str, ...]:
        """Say what ran, how much, how long, on how much of the processor, and what was found."""
        words = self.words()
        find = SUITES[self.suite].get(self.name)
        figure = find(words) if find else ""
        figure = re.sub(r"\d{4,}", lambda number: f"{int(number[0]):,}", figure)
        skipped = SKIPS.search(words)
        if not figure:
            figure = "not run, see below" if skipped and not self.code else "?"
        found = "nothing" if self.code == 0 else f"FAILED ({self.code})"
        return self.name, figure, f"{self.seconds:.0f} s", f"{self.processor:.0f} s", found


def work(suite: str, names: list[str], folder: Path) -> list[Part]:
    """Make all parts, some at a time, in this order."""
    waiting, working, done = list(names), list[Part](), list[Part]()
    while waiting or working:
        undone = {*waiting, *(part.name for part in working)}
        ready = [name for name in waiting if BEHIND.get(name) not in undone]
        for name in ready[: LANES[suite] - len(working)]:
            waiting.remove(name)
            working.append(Part.begin(suite, name, folder))
        time.sleep(LOOK_S)
        for part in [part for part in working if part.look()]:
            working.remove(part)
            done.append(part)
            if part.code:
                print(f"{part.words()}\n{suite}: {part.name} FAILED", flush=True)
            else:
                print(f"{suite}: {part.name} ended after {part.seconds:.0f} s", flush=True)
    return done


def table(rows: list[tuple[str, ...]]) -> str:
    """Lay rows out in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def main() -> int:
    """Run the parts of the command line, or all; 1 if one of them failed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    suite, folder = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    done = work(suite, sys.argv[3:] or list(SUITES[suite]), folder)
    rows = [("part", "how much", "how long", "processor", "found"), *(part.row() for part in done)]
    print(f"\n{table(rows)}\nall of it: {time.monotonic() - began:.0f} s")
    for part in done:
        for line in dict.fromkeys(SKIPS.findall(part.words())):
            print(f"{part.name}: {line.strip()}")
    return 1 if any(part.code for part in done) else 0


if __name__ == "__main__":
    sys.exit(main())
