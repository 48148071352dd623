"""One Spark session for all tests here, and a store with topics to read."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falaj
import falaj.spark.session
from falaj.spark.source import FalajReader, FalajSource
from falaj.spark.streaming.stream import HAS_LIMITS
from ship.servers import VARIABLES
from spark import drivers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from falaj.spark.streaming.stream import FalajStreamReader

    Load = Callable[..., DataFrame]

needs_limits = pytest.mark.skipif(
    not HAS_LIMITS, reason="NOT RUN: this PySpark knows no limits of micro-batches"
)

collect_ignore = ["installed"]  # a name that Python keeps for itself
ORDERS = 25_000
TIME_NS = 1_385_000_000_123_456_789


def limited(most: int) -> dict[str, str]:
    """Bound micro-batches, with a PySpark that can; PySpark 4.1 takes all there is as one."""
    return {"maxOffsetsPerTrigger": str(most)} if HAS_LIMITS else {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which Spark runs: where a relative path leads."""
    return tmp_path_factory.mktemp("desk")


class Words:
    """Words of Spark's processes on standard error: they are kept, and passed on."""

    def __init__(self) -> None:
        self._said = bytearray()
        self._from, self._to = os.pipe()
        threading.Thread(target=self._listen, daemon=True).start()

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Let processes that are started in the body speak to this, and all that they start."""
        before = os.dup(2)
        os.dup2(self._to, 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            os.close(self._to)

    def __len__(self) -> int:
        return len(self._said)

    def since(self, start: int, wanted: str) -> str:
        """Return what was said since then, when that is part of it; Java passes it on later."""
        until = time.monotonic() + 60
        while wanted not in (said := self._said[start:].decode(errors="replace")):
            assert time.monotonic() < until, f"{wanted!r} was not said, but: {said}"
            time.sleep(0.01)  # sleep: Java does not say what it passed on
        return said

    def _listen(self) -> None:
        with open(self._from, "rb", buffering=0) as words:
            while said := words.read(1 << 16):
                self._said += said
                os.write(2, said)


@pytest.fixture(scope="session")
def words() -> Words:
    return Words()


@pytest.fixture
def told_users(words: Words) -> Callable[[str], str]:
    """Wait for a part of what users of Spark see; called, it returns all since the test began."""
    start = len(words)
    return lambda wanted: words.since(start, wanted)


@pytest.fixture(scope="session")
def spark(desk: Path, words: Words) -> Iterator[SparkSession]:
    with contextlib.chdir(desk), words.heard(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", drivers.environment()["PYTHONPATH"])
        patch.setenv("FALAJ_CACHE", str(desk / "cache"))
        for name, value in VARIABLES.items():  # for workers that read a bucket
            patch.setenv(name, value)
        session = falaj.spark.session.local("tests", cores="2,2", spark_sql_shuffle_partitions="1")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with `orders` in three partitions, `plain` in one, and `empty`."""
    path = tmp_path_factory.mktemp("spark") / "store"
    with falaj.open(path) as store:
        store.partitioned_topic("orders", partitions=3).extend(
            (f"key {i % 11}".encode(), f"order {i}".encode()) for i in range(ORDERS)
        )
        plain = store.topic("plain")
        plain.append(b"\xff\x00", timestamp_ns=TIME_NS)
        plain.append(b"", key=b"", headers=[("a", b"1"), ("a", None), ("é", b"\xff")])
        plain.append(b"third", key=b"k")
        store.topic("empty", codec="pickle")
    return path


@pytest.fixture(scope="session")
def load(spark: SparkSession, orders: Path) -> Load:
    def load(subscribe: str = "orders", schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("falaj").options(
            store=str(orders), subscribe=subscribe, **options
        )
        return (reader.schema(schema) if schema else reader).load()

    return load


@pytest.fixture
def reader() -> Callable[..., FalajReader]:
    """Make a reader as Spark's planning process does, without Spark."""

    def make(store: Path, subscribe: str, **options: Any) -> FalajReader:
        source = FalajSource({"store": str(store), "subscribe": subscribe, **options})
        return source.reader(source.schema())

    return make


@pytest.fixture
def streams() -> Callable[..., FalajStreamReader]:
    """Make a reader of a stream as Spark's driver does, without Spark."""

    def make(store: Path, **options: str) -> FalajStreamReader:
        source = FalajSource({"store": str(store), **options})
        return source.streamReader(source.schema())

    return make
