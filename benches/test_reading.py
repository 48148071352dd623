"""Reading from Python: iteration, batches, copies, random lookups.

Every round opens the store again, so that every block is verified in it: a map remembers what it
has verified.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj
from runner.beside import Beside

HOW = ("single", "batched")


class Fresh:
    """A topic that is opened again for every round."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store: falaj.Store | None = None

    def open(self) -> None:
        self.close()
        self.store = falaj.open(self.path, read_only=True)
        self.topic = self.store.topic("t", codec="raw")

    def close(self) -> None:
        if self.store is not None:
            self.store.close()


@pytest.fixture(params=HOW)
def fresh(request: pytest.FixtureRequest, beside: Beside, tmp_path: Path) -> Iterator[Fresh]:
    sizes = beside.sizes
    value = b"v" * sizes.value_bytes
    with falaj.open(tmp_path / "store", sync="none") as store:
        topic = store.topic("t", codec="raw")
        if request.param == "single":
            for _ in range(sizes.read_records):
                topic.append(value)
        else:
            for _ in range(sizes.read_records // sizes.batch):
                topic.extend([value] * sizes.batch)
        assert len(topic) == sizes.read_records
    opened = Fresh(tmp_path / "store")
    yield opened
    opened.close()


def test_python_iterate(beside: Beside, fresh: Fresh) -> None:
    values = [b"v" * beside.sizes.value_bytes] * beside.sizes.read_records

    def ours() -> None:
        for record in fresh.topic:
            record.value[0]

    def floor() -> None:
        for value in values:
            value[0]

    beside(ours, floor, beside.sizes.read_records, prepare=fresh.open)


def test_python_batches(beside: Beside, fresh: Fresh) -> None:
    values = [b"v" * beside.sizes.value_bytes] * beside.sizes.read_records

    def ours() -> None:
        for batch in fresh.topic.batches():
            values: Any = batch.values  # none of them is a tombstone
            for value in values:
                value[0]

    def floor() -> None:
        for value in values:
            value[0]

    beside(ours, floor, beside.sizes.read_records, prepare=fresh.open)


def test_python_to_list(beside: Beside, fresh: Fresh) -> None:
    step = beside.sizes.value_bytes
    end = beside.sizes.batch * step
    whole = b"v" * end

    def ours() -> None:
        for batch in fresh.topic.batches():
            batch.to_list()

    def floor() -> None:
        for _ in range(beside.sizes.read_records // beside.sizes.batch):
            [whole[at : at + step] for at in range(0, end, step)]

    beside(ours, floor, beside.sizes.read_records, prepare=fresh.open)


def test_python_lookup(beside: Beside, fresh: Fresh) -> None:
    sizes = beside.sizes
    chance = random.Random(sizes.seed)
    offsets = [chance.randrange(sizes.read_records) for _ in range(sizes.lookups)]
    values = [b"v"] * sizes.read_records

    def ours() -> None:
        topic = fresh.topic
        for offset in offsets:
            topic[offset]

    def floor() -> None:
        for offset in offsets:
            values[offset]

    beside(ours, floor, sizes.lookups, prepare=fresh.open)
