"""The modules whose coverage and mutants are measured: they decide what is believed.

Owns: which files they are, and which tests are run against a changed one. Invariant: what is
measured under one name is the same for `cover.py` and `mutants.py`, and .cargo/mutants.toml has
no list of its own. See docs/RELIABILITY.md, "Coverage and mutants".
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGINE = "rust/log/src/"


@dataclass(frozen=True)
class Room:
    """Files as patterns below the engine, and the tests that a changed one is tried with."""

    files: tuple[str, ...]
    # In rounds: the first is quick, and what survives it meets the next. A round is what is built,
    # `lib` or a program in rust/log/tests, and behind a colon which of its tests are run.
    rounds: tuple[str, ...]

    def paths(self) -> list[str]:
        """Name the files, from the root; tests that stand in files of their own are none."""
        found = [path for pattern in self.files for path in (ROOT / ENGINE).glob(pattern)]
        names = sorted(str(path.relative_to(ROOT)) for path in found)
        return [name for name in names if not name.endswith("tests.rs")]


# In the order in which they are tried.
ROOMS: dict[str, Room] = {
    "lock": Room(
        ("lock.rs", "log/guard.rs"),
        ("log: lock_words:: locks::", "log: latch:: lock_stress:: deaths::", "lib"),
    ),
    "recover": Room(
        (
            *("log/recover/*.rs", "log/chain.rs", "log/lost_offsets.rs"),
            *("log/header_repair.rs", "log/supersede.rs"),
        ),
        (
            "lib: log::chain::",
            "log: recovery:: damage:: doubt:: latch:: torn_header:: trim:: trimmed::",
            "log: ahead:: cursor:: engine:: heavy:: pread:: promises:: roll:: snapshots::",
            "store: admin:: compaction:: damaged_appends::",
        ),
    ),
    "segment": Room(
        ("segment/*.rs",),
        (
            "lib: segment::",
            "log: segments:: engine:: damage:: seek::",
            "log: cursor:: doubt:: format_doc:: heavy:: pread:: promises:: recovery:: roll::",
            "lib",
            "store: compaction:: damaged_appends::",
        ),
    ),
    "format": Room(
        ("format/*.rs", "format/record/*.rs"),
        (
            "lib: format::",
            "lib",
            "log: engine:: format_doc:: snapshots:: segments::",
            "store: consumers:: sinks:: retention:: sharing::",
        ),
    ),
}

SAMPLE, SEED = 200, 22
"""How many changes to the modules below are tried, and which number chooses them."""
SAMPLED: dict[str, Room] = {
    "retention": Room(
        ("store/retention/*.rs",),
        ("store: retention::", "lib: store::retention::", "store: admin::"),
    ),
    "queue": Room(
        ("queue/*.rs",),
        (
            "lib: queue::",
            "store: dead_letters:: facade::",
            "store: retention::limits admin:: sharing::",
        ),
    ),
    "consumer": Room(
        ("consumer/*.rs", "consumer/assignment/*.rs"),
        (
            "lib: consumer::",
            "store: facade:: consumers:: --skip ::forgetting --skip ::crashes --skip ::log_cursors",
            "store: consumers::log_cursors consumers::crashes admin::",
            "store: consumers::forgetting retention::",
        ),
    ),
    "sink": Room(("sink/*.rs",), ("store: sinks::", "lib: sink::", "store: admin::")),
    "compact": Room(
        ("log/compact/*.rs", "topic/compact.rs"),
        ("store: compaction::left damaged_appends::", "store: compaction:: admin::"),
    ),
    "topic": Room(
        ("topic/*.rs",),
        (
            "lib: topic::",
            "store: facade:: conditional:: transactions:: reading:: record_batches:: visibility::",
            "store: sharing:: compaction::left compaction::given",
            "log: preconditions:: engine:: append_errors:: trim::",
            "store: admin::trimmed consumers:: retention:: sinks:: --skip ::forgetting",
        ),
    ),
    "sync": Room(
        ("log/sync.rs",),
        (
            "log: promises:: latch::",
            "log: engine:: cursor:: roll:: deaths:: append_errors:: ahead::",
            "store: visibility::",
            "lib: log::",
        ),
    ),
}
"""Modules where a sample is tried, and no coverage is measured."""


def first_test_line(text: str) -> int:
    """Number of the line where a file's own tests begin; one past the end if it has none."""
    lines = text.splitlines()
    starts = (
        i for i, line in enumerate(lines, 1) if line.startswith(("#[cfg(test)]", "#[cfg(all(test"))
    )
    return next(starts, len(lines) + 1)


def install(tool: str) -> None:
    """Get a subcommand of cargo if it is not there."""
    if shutil.which(tool) is None:
        print(f"installing {tool}, once", file=sys.stderr)
        subprocess.run(["cargo", "install", "--locked", tool], check=True)
