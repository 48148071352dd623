"""The costs of a growing store: lookups and memory over many segments, and new topics."""

import os
import random
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns as now

import falaj
from runner.results import Measured
from runner.sizes import Sizes

_SECTOR = 512  # the unit of st_blocks, whatever the file system

_SCAN = """
import sys
import falaj

def resident():
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("RssFile:"))
    return int(line.split()[1]) << 10

with falaj.open(sys.argv[1], read_only=True) as store:
    topic = store.topic("t")
    before = resident()
    read = sum(len(record.value) for record in topic)
    print(max(resident() - before, 1) / read)
"""


def _fill(path: Path, sizes: Sizes) -> None:
    """Make a topic of many segments, with records appended in batches and singly."""
    value = b"v" * sizes.value_bytes
    with falaj.open(path, sync="none") as store:
        topic = store.topic("t", segment_bytes=sizes.grown_segment_bytes)
        (log,) = (path / "logs").iterdir()
        while len(list(log.glob("[0-9]*.log"))) < sizes.grown_segments:
            topic.extend([value] * (sizes.grown_segment_bytes // 8 // len(value)))
            for _ in range(sizes.batch):
                topic.append(value)


def _lookups(path: Path, sizes: Sizes) -> list[float]:
    """Look records up all over a topic; return nanoseconds per lookup for each round."""
    rounds = []
    draw = random.Random(sizes.seed)
    with falaj.open(path, read_only=True) as store:
        topic = store.topic("t")
        end = len(topic)
        for _ in range(2 + sizes.rounds):
            offsets = [draw.randrange(end) for _ in range(sizes.lookups)]
            begin = now()
            for offset in offsets:
                topic[offset]
            rounds.append((now() - begin) / len(offsets))
    return rounds[2:]  # the first two map and verify


def _resident(path: Path) -> float:
    """Iterate over a topic in a new process; return the share of it that is resident then."""
    command = [sys.executable, "-c", _SCAN, str(path)]
    return float(subprocess.run(command, check=True, capture_output=True).stdout)


def _create(path: Path, sizes: Sizes) -> tuple[int, float]:
    """Create topics in a new store; return nanoseconds, and MiB on disk."""
    with falaj.open(path) as store:
        begin = now()
        for i in range(sizes.new_topics):
            store.topic(f"topic-{i}")
        took = now() - begin
    found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    used = sum(file.lstat().st_blocks * _SECTOR for file in found)
    return took, used / (1 << 20)


def measure(place: Path, sizes: Sizes) -> list[Measured]:
    """Measure one large topic, and many new ones."""
    grown = place / "grown"
    _fill(grown, sizes)
    created = [_create(place / f"new-{i}", sizes) for i in range(min(3, sizes.rounds))]
    return [
        Measured("lookup_grown", _lookups(grown, sizes)),
        Measured("scan_resident", [_resident(grown)], unit="share"),
        Measured("create_topics", [took for took, _ in created]),
        Measured("create_topics_disk", [used for _, used in created], unit="MiB"),
    ]
