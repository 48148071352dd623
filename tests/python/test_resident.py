"""Memory: pages of segments that a reader went on from are given up, whichever way it reads."""

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
