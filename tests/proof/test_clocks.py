"""Wall clocks that jump far in both directions: order, offsets and lookups by time stay right.

clock.c, compiled here and preloaded, moves the wall clock of a process by the offset in a file,
from one call to the next. The machine's own clock is not changed.
"""

import random
import shutil
import struct
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from children import Child, child

import falaj
from proof import reader

SOURCE = Path(__file__).with_name("clock.c")
COMPILER = shutil.which("cc")
S = 10**9
DAY = 86_400 * S
JUMPS = [0, -1, 1, -5 * S, 5 * S, -DAY, DAY, -400 * DAY, 400 * DAY, -4000 * DAY, 4000 * DAY]
"""Offsets from the true clock, in ns. Ten years exceed the times of one segment."""

needs_compiler = pytest.mark.skipif(
    COMPILER is None or sys.platform != "linux" or struct.calcsize("P") != 8,
    reason="needs a C compiler to build a settable clock",
)

OBEYS = """
import time
store = falaj.open(path, sync="interval")
topic = store.topic("t", codec="raw", segment_bytes=1 << 16, sync_interval_ms=5)
while line := hear():
    command, n, size = line.split()
    n = int(n)
    if command == "append":
        topic.append(b"%d" % n + bytes(int(size)))
    elif command == "extend":
        topic.extend([b"%d" % i + bytes(int(size)) for i in range(n, n + 3)])
    elif command == "follow":
        say(sum(1 for _ in topic.follow(n, timeout=0.05)))
    elif command == "wait":
        say(topic.wait_durable(timeout=60))
    elif command == "now":
        say(time.time_ns())
    else:
        topic.close(); store.close()
        store = falaj.open(path, sync="interval")
        topic = store.topic("t", codec="raw")
    say("done")
"""


class Clock:
    """A process with a settable wall clock."""

    def __init__(self, process: Child, file: Path) -> None:
        self.process, self.file = process, file

    def set(self, ahead_ns: int) -> None:
        with self.file.open("r+b") as file:
            file.write(struct.pack("<q", ahead_ns))

    def do(self, command: str, n: int = 0, size: int = 0) -> str:
        self.process.tell(f"{command} {n} {size}")
        said = self.process.hear()
        if said != "done":
            assert self.process.hear() == "done"
        return said


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clock") / "clock.so"
    command = [COMPILER or "cc", "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"]
    subprocess.run(list(map(str, command)), check=True)
    return made


@pytest.fixture
def clock(library: Path, path: Path, tmp_path: Path) -> Iterator[Clock]:
    file = tmp_path / "ahead"
    file.write_bytes(bytes(8))
    environment = {"LD_PRELOAD": str(library), "FALAJ_CLOCK": str(file)}
    with child(path, OBEYS, **environment) as process:
        yield Clock(process, file)


@needs_compiler
def test_the_clock_that_is_set_is_the_one_that_falaj_reads(clock: Clock, path: Path) -> None:
    """Otherwise the tests below would show nothing."""
    clock.set(-1000 * DAY)
    clock.do("append")
    clock.do("extend", 1)
    now = int(clock.do("now"))
    with falaj.open(path, read_only=True) as store:
        for record in store.topic("t"):
            assert abs(record.timestamp_ns - now) < 600 * S
    assert time.time_ns() - now > 900 * DAY


@needs_compiler
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2))
def test_jumping_clocks_lose_nothing_and_times_lead_to_the_right_record(
    clock: Clock, path: Path, seed: int, budget: Callable[[int, int], int], first_seed: int
) -> None:
    draw = random.Random(first_seed + seed)
    count, ahead = 0, 0
    for _ in range(budget(150, 1500)):
        if draw.random() < 0.3:
            ahead = draw.choice(JUMPS)
            clock.set(ahead)
        command = draw.choices(["append", "extend", "reopen", "follow", "wait"], [60, 30, 4, 2, 2])
        match command[0]:
            case "follow":
                assert clock.do("follow", 0) == str(count)
            case "wait":
                assert clock.do("wait") == "True"
            case move:
                clock.do(move, count, draw.choice([0, 0, 50, 3000]))
                count += {"append": 1, "extend": 3}.get(move, 0)
    clock.process.tell()
    assert clock.process.end()[0] == 0
    is_right(path, count)


def is_right(path: Path, count: int) -> None:
    other = reader.read_store(path)
    with falaj.open(path, read_only=True) as store:
        topic = store.topic("t")
        records = list(topic)
        times = [record.timestamp_ns for record in records]
        assert [int(r.to_bytes().rstrip(b"\0")) for r in records] == list(range(count))
        # The first record at or after a time is the first in the log, however the times jump.
        highest = list(accumulate(times, max))
        for time in {*times, *(t + 1 for t in times), min(times) - S, max(times) + S}:
            found = topic.offset_at(time_ns=time)
            first = bisect_left(highest, time)
            assert found == (first if first < count else None)
    assert [r.timestamp_ns for r in other.topics["t"].partitions[0].records] == times
    newest = other.logs[0].chain
    assert len({segment.header.time_base for segment in newest}) > 1
    for segment in newest:
        block_times = [b.time for b in segment.blocks if b.kind == 1]
        assert block_times == sorted(block_times)


@needs_compiler
def test_two_writers_whose_clocks_differ_by_years_share_a_log(
    library: Path, path: Path, tmp_path: Path
) -> None:
    clocks = []
    for n, ahead in enumerate([-4000 * DAY, 4000 * DAY]):
        (tmp_path / str(n)).write_bytes(struct.pack("<q", ahead))
        clocks.append({"LD_PRELOAD": str(library), "FALAJ_CLOCK": str(tmp_path / str(n))})
    with child(path, OBEYS, **clocks[0]) as a, child(path, OBEYS, **clocks[1]) as b:
        writers = [Clock(a, tmp_path / "0"), Clock(b, tmp_path / "1")]
        for n in range(200):
            writers[n % 2].do("append", n, 500)
        for writer in writers:
            assert writer.do("follow") == "200"
            writer.process.tell()
            assert writer.process.end()[0] == 0
    is_right(path, 200)
