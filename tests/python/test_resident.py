"""Memory: pages behind a reader are released, whichever way it reads, wherever it stops."""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj

MIB = 1 << 20
SEGMENTS = 32

WAYS: dict[str, Callable[[falaj.Topic[Any]], Iterator[object]]] = {
    "iteration": lambda topic: (record.value for record in topic),
    "slices": lambda topic: (
        record.value
        for start in range(0, topic.end_offset, 130)
        for record in topic[start : start + 130]
    ),
    "pages": lambda topic: (
        record.value
        for start in range(0, topic.end_offset, 130)
        for record in topic.read(start, 130)
    ),
    "batches": lambda topic: (len(batch) for batch in topic.batches()),
    "arrow": lambda topic: (batch.num_rows for batch in topic.to_reader()),
    "following": lambda topic: (record.value for record in topic.follow(timeout=0)),
    "two readers": lambda topic: zip(iter(topic), iter(topic), strict=True),
}


def resident(store: falaj.Store) -> int:
    """Bytes of the store's segments in the resident memory of this process."""
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.M)
    ours = [each for each in maps if f"{store.path}/logs" in each.partition("\n")[0]]
    return sum(int(re.findall(r"^Rss: +(\d+) kB$", each, re.M)[0]) << 10 for each in ours)


@pytest.mark.parametrize("way", WAYS)
def test_resident_memory_falls_behind_a_reader(store: falaj.Store, way: str) -> None:
    topic = store.topic("large", codec="bytes", segment_bytes=MIB)
    value = b"x" * 10_000
    for _ in range(SEGMENTS):
        topic.extend([value] * 25)
        topic.extend([value] * 25)
        topic.extend([value] * 25)
        topic.extend([value] * 25)
    topic.close()
    with falaj.open(store.path, read_only=True) as again:
        read = again.topic("large", codec="bytes")
        most = max(resident(again) for n, _ in enumerate(WAYS[way](read)) if n % 100 == 0)
    assert len(value) * 100 * SEGMENTS > 20 * MIB
    assert most <= 8 * MIB


LARGE = 32 * MIB
#: Memory that may stay of a log: of a segment, of what is read ahead, and of a batch that is held.
MOST = 40 * MIB


def stopping_at_ends(topic: falaj.Topic[Any]) -> Iterator[object]:
    """Read each segment by a slice that ends with it."""
    per_segment = topic.end_offset // 3
    for start in range(0, topic.end_offset, per_segment):
        yield [len(record.value) for record in topic[start : start + per_segment]]


def kept_open(topic: falaj.Topic[Any]) -> Iterator[object]:
    """Leave each iterator in the middle of a segment, alive."""
    alive = []
    for start in range(0, topic.end_offset, 2000):
        alive.append(iter(topic[start:]))
        for record in itertools.islice(alive[-1], 1800):
            yield len(record.value)


def polling(topic: falaj.Topic[Any]) -> Iterator[object]:
    with topic.store.consumer("g", topic.name) as consumer:
        while records := consumer.poll(max_records=1000, timeout=0):
            yield sum(len(record.value) for record in records)


STOPS: dict[str, Callable[[falaj.Topic[Any]], Iterator[object]]] = {
    "iteration": WAYS["iteration"],
    "slices that end with their segments": stopping_at_ends,
    "iterators that stay alive": kept_open,
    "batches": lambda topic: ([len(batch)] for batch in topic.batches(500)),
    "arrow": lambda topic: ([b.num_rows] for b in topic.to_reader(batch_rows=500)),
    "a scan": lambda topic: ([batch.num_rows] for batch in topic.scan().to_batches()),
    "following": WAYS["following"],
    "consuming": polling,
    "single slices": lambda topic: (
        [len(record.value) for record in topic[start : start + 100]]
        for start in range(0, topic.end_offset, 100)
    ),
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "store"
    with falaj.open(path) as store:
        topic = store.topic("large", segment_bytes=LARGE)
        for _ in range(90):
            topic.extend([b"x" * 10_000] * 100)
    return path


@pytest.mark.parametrize("way", STOPS)
def test_the_pages_of_a_large_segment_are_released_behind_a_reader(large: Path, way: str) -> None:
    with falaj.open(large) as store:
        topic = store.topic("large", codec="bytes", create=False)
        assert 3 * LARGE > topic.end_offset * 10_000 > 2 * MOST
        most, rest = 0, STOPS[way](topic)
        for n, found in enumerate(rest):
            if n % 300 == 0 or isinstance(found, list):
                most = max(most, resident(store))
        assert max(most, resident(store)) <= MOST
