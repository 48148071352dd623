"""Python rows of the table, in one process; 100-byte records.

Floors (P): `_core.Floor` takes bytes, does a compare-and-swap, copies, checksums and stores a
commit word in a mapped file whose pages were touched before. Ours writes to fresh pages all the
time, as a log must. Reading verifies checksums, each block once per map: every round opens the
topic anew.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from python_rows import BATCH, RECORDS, VALUE, row

import falaj
from falaj._core import Floor

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

LOOKED_UP = 20_000
SEED = 7
HISTORY = 1_000_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def store(place: Path) -> Iterator[falaj.Store]:
    with falaj.open(place / "store", sync="none") as opened:
        yield opened


@pytest.fixture(scope="module")
def floor(place: Path) -> Floor:
    return Floor(place / "floor")


@pytest.fixture(scope="module", params=["singly", "batched"])
def history(request: pytest.FixtureRequest, store: falaj.Store) -> str:
    """Fill a topic; return its name."""
    name = f"history-{request.param}"
    topic = store.topic(name, codec="bytes")
    if request.param == "singly":
        for _ in range(HISTORY):
            topic.append(VALUE)
    else:
        for _ in range(HISTORY // BATCH):
            topic.extend([VALUE] * BATCH)
    return name


def test_append_one_per_call(
    benchmark: "BenchmarkFixture", store: falaj.Store, floor: Floor
) -> None:
    topic = store.topic("appends", codec="bytes")

    def ours() -> None:
        append, value = topic.append, VALUE
        for _ in range(RECORDS):
            append(value)

    def least() -> None:
        append, value = floor.append, VALUE
        for _ in range(RECORDS):
            append(value)

    row(benchmark, RECORDS, ours, least)
    assert topic.last()[0].bytes() == VALUE


def test_extend_by_a_thousand(
    benchmark: "BenchmarkFixture", store: falaj.Store, floor: Floor
) -> None:
    topic, values = store.topic("extends", codec="bytes"), [VALUE] * BATCH

    def ours() -> None:
        for _ in range(RECORDS // BATCH):
            topic.extend(values)

    def least() -> None:
        for _ in range(RECORDS // BATCH):
            floor.extend(values)

    row(benchmark, RECORDS, ours, least)
    assert topic.last()[0].bytes() == VALUE


def test_iteration_first_byte_of_every_value(
    benchmark: "BenchmarkFixture", place: Path, history: str
) -> None:
    def ours() -> None:
        with falaj.open(place / "store", "r") as reader:
            for record in reader.topic(history, codec="bytes"):
                record.value[0]

    row(benchmark, HISTORY, ours)


def test_batches_lazily_viewed(benchmark: "BenchmarkFixture", place: Path, history: str) -> None:
    def ours() -> None:
        with falaj.open(place / "store", "r") as reader:
            for batch in reader.topic(history, codec="bytes").batches():
                for view in batch.values:
                    view[0]

    row(benchmark, HISTORY, ours)


def test_batches_to_lists(benchmark: "BenchmarkFixture", place: Path, history: str) -> None:
    def ours() -> None:
        with falaj.open(place / "store", "r") as reader:
            for batch in reader.topic(history, codec="bytes").batches():
                batch.to_list()

    row(benchmark, HISTORY, ours)


def test_random_lookups(benchmark: "BenchmarkFixture", store: falaj.Store, history: str) -> None:
    topic = store.topic(history, codec="bytes")
    offsets = random.Random(SEED).sample(range(HISTORY), LOOKED_UP)

    def ours() -> None:
        for offset in offsets:
            topic[offset]

    row(benchmark, LOOKED_UP, ours)
