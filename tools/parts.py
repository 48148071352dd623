#!/usr/bin/env python3
"""`make test`, `lint`, `test-proof`: their parts some at a time, and one table of what they did.

A part is a target of the Makefile, which can also be made alone. Its words go to a file; they are
shown when it failed. The lines below the table repeat what a part could not run. Nothing of a part
outlives this program (tools/soak/keeper.py). `make check` makes the parts of all three in one pool,
so that no core waits for the last of one suite.

Usage: `parts.py test|lint|proof|all|services DIRECTORY [PART …]`
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEEPER = ROOT / "tools/soak/keeper.py"
LOOK_S = 0.2
PART_S_MAX = 5400.0
"""Longest time of a part; each takes minutes, but for one that waits upon all others."""


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
    """Count the bugs that were planted, and those that the harness noticed."""
    rows = re.findall(r"^(\S+) +\| .*$", words, re.MULTILINE)
    bad = words.count("NOT GOOD:")
    loose = [row for row in rows if row not in ("canary", "none")]
    return f"{len(loose)} planted bugs, {len(loose) - bad} noticed"


TESTS = counted((r"^test result: ok\. (\d+) passed", "tests"))

PASSED = told(r"(\d+ passed[^\n]*?) in ", "{}")

MODELS = counted((r"^test result: ok\. (\d+) passed", "models"))

# In this order, so that the lanes end at about the same time.
TEST: dict[str, Callable[[str], str]] = {
    "venv": lambda _: "what is tested with",
    "build": told(r"(Installed falaj|Nothing to be done)", "the module"),
    "test-rust": TESTS,
    "test-loom": MODELS,
    "test-python": PASSED,
    "test-spark": PASSED,
    "test-shuttle": MODELS,
}
LINT: dict[str, Callable[[str], str]] = {
    "lint-rust": told(r"Generated \S+ and (\d+) other files", "clippy, rustdoc"),
    "lint-python": told(r"no issues found in (\d+ source files)", "{}"),
}
PROOF: dict[str, Callable[[str], str]] = {
    "proof-programs": told(r"Finished `release` profile", "three harnesses"),
    "proof-canaries": canaries,
    "proof-outside": counted((r"(\d+) passed", "passed"), (r"(\d+) skipped", "skipped")),
    "proof-together": PASSED,
    "proof-hostile": counted(
        (r"^flips\S*: (\d+) cases", "flips"),
        (r"^bytes-\S+: (\d+) cases", "batches of rubbish"),
        (r"^faults\S*: (\d+) cases", "failed calls"),
    ),
    "proof-explore": told(r"^explore: (\d+) different states", "{} different states"),
    "proof-storm": told(
        r'"acknowledged":(\d+).*?"kills":(\d+)', "{1} kills, {0} acknowledged records"
    ),
    "proof-models": MODELS,
    "proof-power": told(r'"cuts":(\d+)', "{} power cuts"),
    "proof-guest": told(r'"cuts":(\d+)', "{} power cuts in a guest"),
}
SERVICES: dict[str, Callable[[str], str]] = {
    "check-server": PASSED,
    "bucket-servers": lambda _: "what the place is tested on",
    "check-bucket": PASSED,
}
"""Each suite keeps one core half busy, so they run beside each other."""
FIGURES = {**TEST, **LINT, **PROOF, **SERVICES}
TEST_ENDS = re.compile(r"^(?:test result: .*|=+ .* in \d[\d.:]*s.*)$", re.MULTILINE)
SKIPS = re.compile(r"^(?:(?:\*\*\* )?NOT RUN|SKIPPED \[).*$", re.MULTILINE)

BEHIND = {
    "build": ["venv"],
    "test-rust": ["venv"],
    # The storm's time is for test-rust to build: the examples of test-python would wait for that.
    "test-python": ["build", "proof-storm"],
    "test-spark": ["build"],
    "lint-rust": ["venv"],
    "lint-python": ["build"],
    # They build in one directory, and cargo lets one at a time do so.
    "proof-programs": ["build"],
    "proof-outside": ["build"],
    "proof-together": ["build"],
    "proof-hostile": ["proof-programs"],
    "proof-explore": ["proof-programs"],
    "proof-storm": ["build", "proof-programs"],
    "proof-power": ["proof-programs"],
    "proof-guest": ["build", "proof-programs"],
    "check-bucket": ["bucket-servers"],
}
"""These parts begin only when others have ended, if those are made too; mostly they need them."""
APART = (
    {"test-spark", "proof-outside"},  # gigabytes of Javas
    {"test-python", "proof-storm", "proof-power", "proof-guest"},  # deadlines, disks
    {"test-rust", "lint-rust"},  # cargo's lock: one would wait for the other to build, in its lane
)
"""One part of each group runs at a time. So two parts at most have deadlines."""
URGENT = {
    *("venv", "build", "test-python"),
    *("proof-programs", "proof-outside", "proof-storm", "proof-power", "proof-guest"),
}
"""One behind the other they take longest, or have deadlines: on few cores others make way."""
NICE = 5
"""How much way: about a third of what the urgent ones get, where both want a core."""
TIMED = {"proof-hostile"}
"""They end when their time is over, and do what they can until then, so they make more way. One of
them goes on beside the lanes, so that its time passes while others work."""
TIMED_NICE = 10
PATIENT_NICE = 15
"""How much way those make that only fill gaps: a thirtieth."""


@dataclass(frozen=True)
class Suite:
    """Parts that are made together."""

    parts: Collection[str]
    """The first one begins first."""
    lanes: int
    """How many parts at a time. All tests wait for a third of their time."""
    urgent: Collection[str]
    patient: Collection[str] = ()
    """Parts without deadlines that keep all cores busy. One of them runs beside the lanes and takes
    what the others leave, so that no core idles. It is the last to end."""

    def nice(self, name: str) -> int:
        """Say how much way a part makes."""
        if name in self.patient:
            return PATIENT_NICE
        if name in TIMED:
            return TIMED_NICE
        return 0 if name in self.urgent else NICE

    def _kind(self, name: str) -> tuple[bool, bool]:
        return name in self.patient, name in TIMED

    def next(self, waiting: list[str], working: Collection[str]) -> str | None:
        """Say what begins now, beside those that are at work."""
        undone = {*waiting, *working}
        others = [name for name in undone if name not in self.patient]
        for name in waiting:
            alone = name in TIMED or (others and name in self.patient)
            lanes = 1 if alone else self.lanes
            beside = [w for w in working if self._kind(w) == self._kind(name)]
            apart = any(name in group and not group.isdisjoint(working) for group in APART)
            if len(beside) < lanes and not apart and undone.isdisjoint(BEHIND.get(name, ())):
                return name
        return None


LESS = {"test-loom", "test-shuttle", "test-spark"}
"""Parts of the reliability suite do the same, and more: `proof-models`, `proof-outside`.
`BESIDE_PROOF` makes the Makefile leave such things out of `test-rust` and `test-python` as well."""
# In this order the long chains begin early, and what ends last has a thread for each core.
ALL = (
    *("venv", "build", "proof-outside", "proof-canaries", "proof-models", "proof-programs"),
    *(
        "test-rust",
        "proof-storm",
        "test-python",
        "proof-hostile",
        "proof-together",
        "proof-guest",
        "proof-power",
    ),
    *("lint-rust", "lint-python"),
    "proof-explore",
)
SUITES = {
    "test": Suite(TEST, 3, URGENT),
    "lint": Suite(LINT, 2, LINT),
    "proof": Suite(PROOF, 3, URGENT),
    "services": Suite(SERVICES, 2, SERVICES),
    "all": Suite(ALL, 3, URGENT, {"proof-explore"}),
}


def make_way(session: int, nice: int) -> None:
    """Let others go before a session's processes, also where the kernel shares out by session."""
    os.setpriority(os.PRIO_PGRP, session, nice)
    with contextlib.suppress(OSError):  # a kernel that does not
        Path(f"/proc/{session}/autogroup").write_text(str(nice))


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
        environment["BESIDE_PROOF"] = "1" if suite == "all" else ""
        if not (folder.parent / "debug/incremental").is_dir():
            # This is the first build here. Two fifths of it would go into files that only make the
            # next build of a changed crate quicker.
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
        if nice := SUITES[suite].nice(name):
            make_way(process.pid, nice)
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
        figure = FIGURES[self.name](words) if self.name in FIGURES else ""
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
        while name := SUITES[suite].next(waiting, [part.name for part in working]):
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


def tally(done: list[Part]) -> str:
    """Add up all parts' tests; a part that failed without a word of one that did counts as one."""
    passed = failed = 0
    for part in done:
        lines = "\n".join(TEST_ENDS.findall(part.words()))
        passed += sum(map(int, re.findall(r"(\d+) passed", lines)))
        wrong = sum(map(int, re.findall(r"(\d+) (?:failed|errors?)", lines)))
        failed += wrong or bool(part.code)
    return f"{passed} passed, {failed} failed"


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
    done = work(suite, sys.argv[3:] or list(SUITES[suite].parts), folder)
    rows = [("part", "how much", "how long", "processor", "found"), *(part.row() for part in done)]
    took, processor = time.monotonic() - began, sum(part.processor for part in done)
    print(f"\n{table(rows)}\nall of it: {took:.0f} s, {processor:.0f} s of processors")
    for part in done:
        for line in dict.fromkeys(SKIPS.findall(part.words())):
            print(f"{part.name}: {line.strip()}")
    if suite != "lint":
        print(tally(done))
    return 1 if any(part.code for part in done) else 0


if __name__ == "__main__":
    sys.exit(main())
