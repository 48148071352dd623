"""Real Spark follows real topics: batches, restarts, losses, a driver that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import falaj
from falaj.spark.streaming.stream import HAS_LIMITS
from spark.conftest import limited
from spark.drivers import environment, topic_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Start = Callable[..., StreamingQuery]


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Start:
    """Start a query from the store to files, with the one checkpoint of the test."""

    def start(trigger: dict[str, Any] | None = None, **options: str) -> StreamingQuery:
        given = {"store": str(tmp_path / "store"), "startingOffsets": "earliest", **options}
        if "subscribePattern" not in given:
            given.setdefault("subscribe", "t")
        frame = spark.readStream.format("falaj").options(**given).load()
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    return start


@pytest.fixture
def written(spark: SparkSession, tmp_path: Path) -> Callable[[], Counter[tuple[str, bytes]]]:
    def written() -> Counter[tuple[str, bytes]]:
        rows = spark.read.parquet(str(tmp_path / "out")).select("topic", "value").collect()
        return Counter((row.topic, bytes(row.value)) for row in rows)

    return written


def put(path: Path, numbers: range, topic: str = "t", partitions: int | None = None) -> None:
    with falaj.open(path) as store:
        opened = topic_of(store, topic, partitions)
        for n in numbers:
            opened.append(b"%d" % n, key=b"k" if n % 2 else None, partition=n % 3)
        opened.flush()


def once(numbers: range, topic: str = "t") -> Counter[tuple[str, bytes]]:
    return Counter((topic, b"%d" % n) for n in numbers)


def ended(query: StreamingQuery) -> list[int]:
    """Wait for its end; how many records each batch had."""
    assert query.awaitTermination(100)
    assert query.exception() is None
    return [progress.numInputRows for progress in query.recentProgress]


def test_a_stream_in_bounded_batches_goes_on_after_a_restart_and_its_lag_is_seen(
    tmp_path: Path, start: Start, written: Callable[[], Any]
) -> None:
    store = tmp_path / "store"
    put(store, range(0), partitions=3)
    assert sum(ended(start())) == 0  # an empty topic, with nothing to wait for
    put(store, range(700))
    options = {**limited(300), "consumer": "spark", "kafka.group.id": "x"}
    assert ended(start(**options)) == ([300, 300, 100] if HAS_LIMITS else [700])
    assert written() == once(range(700))
    with falaj.open(store, read_only=True) as opened:
        [consumer] = opened.info()["groups"]
    assert consumer["name"] == "spark"
    if HAS_LIMITS:  # with PySpark 4.1 cursors are a batch behind, and this was the first
        assert {c["partition"]: c["lag"] for c in consumer["partitions"]} == {0: 0, 1: 0, 2: 0}
    put(store, range(700, 900))
    assert sum(ended(start())) == 200
    assert written() == once(range(900))


def test_what_is_gone_ends_the_query_or_is_passed_over_and_told(
    tmp_path: Path, start: Start, written: Callable[[], Any]
) -> None:
    store = tmp_path / "store"
    put(store, range(30), partitions=3)
    ended(start())
    put(store, range(30, 60))
    with falaj.open(store) as opened:
        opened.any_topic("t").partition(0).trim(before_offset=15)
    query = start()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(100)
    assert "topic t, partition 0: records 10 to 15 were trimmed" in str(raised.value)
    assert "new checkpointLocation" in str(raised.value)
    assert written() == once(range(30))
    ended(start(failOnDataLoss="false"))
    assert written() == once(range(30)) + once(range(30, 60)) - once(range(30, 45, 3))
    with falaj.open(store) as opened:
        opened.delete_topic("t")
    put(store, range(100, 190), partitions=3)
    query = start()
    with pytest.raises(StreamingQueryException, match="topic t was deleted and created again"):
        query.awaitTermination(100)
    ended(start(failOnDataLoss="false"))
    assert written()[("t", b"100")] == 1
    assert written().total() == 55 + 90


@contextmanager
def writing(path: Path) -> Iterator[Callable[[], range]]:
    """Append while the body runs; called, it ends that and says what was appended."""
    stop, count = threading.Event(), 0

    def append() -> None:
        nonlocal count
        with falaj.open(path) as store:
            topic = store.any_topic("t")
            while not stop.is_set():
                topic.append(b"%d" % count, partition=count % 3)
                count += 1
                if count % 20 == 0:
                    time.sleep(0.02)  # sleep: so that the query meets the writer again and again
            topic.flush()

    thread = threading.Thread(target=append)
    thread.start()

    def end() -> range:
        stop.set()
        thread.join()
        return range(count)

    try:
        yield end
    finally:
        end()


def test_a_query_that_goes_on_reads_a_writer_and_new_topics(
    tmp_path: Path, start: Start, written: Callable[[], Any]
) -> None:
    store = tmp_path / "store"
    put(store, range(0), partitions=3)
    with writing(store) as end:
        query = start({"processingTime": "0 seconds"}, subscribePattern="t|new-.*")
        try:
            wait_for(lambda: len(query.recentProgress) > 3, query)
            put(store, range(50), topic="new-one", partitions=3)
            numbers = end()
            query.processAllAvailable()
        finally:
            query.stop()
    assert written() == once(numbers) + once(range(50), "new-one")


DRIVER = """
import sys
import falaj.spark.session
store, checkpoint, out = sys.argv[1:]
spark = falaj.spark.session.local("killed", cores=2)
from falaj.spark.streaming.stream import HAS_LIMITS
given = dict(store=store, subscribe="t", startingOffsets="earliest")
if HAS_LIMITS:
    given["maxOffsetsPerTrigger"] = "100"
frame = spark.readStream.format("falaj").options(consumer="killed", **given).load()
writer = frame.writeStream.format("parquet").option("path", out)
writer.option("checkpointLocation", checkpoint).start().awaitTermination()
"""


@pytest.mark.proof
@pytest.mark.timeout(300)  # it starts a second Spark, on a machine that may be busy
def test_a_killed_driver_leaves_a_checkpoint_from_which_every_record_comes_once(
    tmp_path: Path, start: Start, written: Callable[[], Any]
) -> None:
    store, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    put(store, range(0), partitions=3)
    with writing(store) as end:
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, store, checkpoint, tmp_path / "out"],
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            # In the midst of a batch: its end is kept, and that it is done is not.
            wait_for(lambda: (checkpoint / "offsets" / "2").exists(), driver)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        done = len(list((checkpoint / "commits").glob("[0-9]*")))
        assert done < len(list((checkpoint / "offsets").glob("[0-9]*")))
        numbers = end()
    sizes = ended(start(consumer="killed"))
    if not HAS_LIMITS:  # with PySpark 4.1 such a query ends with the batch that it repeats
        ended(start(consumer="killed"))
    assert written() == once(numbers)
    assert sum(sizes) < len(numbers)  # it went on, and did not begin again
    with falaj.open(store, read_only=True) as opened:
        [consumer] = opened.info()["groups"]
    if HAS_LIMITS:
        assert sum(c["lag"] or 0 for c in consumer["partitions"]) == 0


def wait_for(happened: Callable[[], bool], of: StreamingQuery | subprocess.Popen[bytes]) -> None:
    while not happened():
        if isinstance(of, subprocess.Popen):
            assert of.poll() is None
        else:
            assert of.isActive, of.exception()
        time.sleep(0.002)  # sleep: Spark does not announce its files and batches


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets is for spark.read: leave it away here"),
        ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger"),
        ({"subscribe": "nobody"}, "nobody"),
    ],
)
def test_a_mistake_ends_in_a_sentence_that_helps(
    tmp_path: Path, start: Start, options: dict[str, str], sentence: str
) -> None:
    put(tmp_path / "store", range(3), partitions=3)
    with pytest.raises(Exception, match=sentence):  # one of several of Spark's
        start(**options).awaitTermination(100)
