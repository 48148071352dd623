"""The time of a new process before its first append, and how much of it a long topic adds.

Each process clocks itself, from after the interpreter's start.
"""

import os
import subprocess
import sys
from pathlib import Path

import falaj
from runner.results import Measured
from runner.sizes import SMALL_SEGMENT_BYTES, Sizes

_PROGRAM = """
import sys
from time import perf_counter_ns as now
begin = now()
import falaj
imported = now()
store = falaj.open(sys.argv[1])
topic = store.topic("t")
opened = now()
topic.append(b"v" * 100)
print(imported - begin, opened - imported, now() - opened)
"""


def _start(path: Path) -> list[int]:
    """Import, open and append in a new process; return the nanoseconds of each."""
    command = [sys.executable, "-c", _PROGRAM, str(path)]
    # As after an installation: modules that were compiled once are not compiled again.
    env = {name: word for name, word in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, check=True, capture_output=True, env=env)
    return [int(word) for word in done.stdout.split()]


def _fill(path: Path, segments: int, value: bytes) -> None:
    """Make a topic of so many segments."""
    with falaj.open(path, sync="none") as store:
        topic = store.topic("t", segment_bytes=SMALL_SEGMENT_BYTES)
        # One append takes at most a quarter of a segment: use half of that.
        values = [value] * (SMALL_SEGMENT_BYTES // 8 // len(value))
        (log,) = (path / "logs").iterdir()
        while len(list(log.glob("[0-9]*.log"))) < segments:
            for _ in range(6):
                topic.extend(values)


def measure(place: Path, sizes: Sizes) -> list[Measured]:
    """Measure processes of both kinds, in turns."""
    short, long = place / "short", place / "long"
    value = b"v" * sizes.value_bytes
    _fill(short, 1, value)
    _fill(long, sizes.segments, value)
    _start(short), _start(long)  # the first round is thrown away
    rounds = [(_start(short), _start(long)) for _ in range(sizes.starts)]
    parts = {
        f"{name}_ns": [few[i] for few, _ in rounds]
        for i, name in enumerate(("import", "open", "append"))
    }
    return [
        Measured("start", [sum(few) for few, _ in rounds], extra=parts),
        # Without the import, which is the same and varies by more than the difference.
        Measured("start_many_segments", [sum(many[1:]) - sum(few[1:]) for few, many in rounds]),
    ]
