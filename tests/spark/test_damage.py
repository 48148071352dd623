"""Real Spark meets a corrupt block in the midst of a topic: it fails with the remedy, or skips."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import falaj
from falaj.spark.streaming.stream import HAS_LIMITS
from spark.conftest import limited

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Start = Callable[..., StreamingQuery]

GOOD = [*range(100), *range(200, 300)]
DAMAGED = "topic t, partition 0, offsets 100 to 199: "
REMEDY = "go on behind what is corrupt with .option('onCorrupt', 'skip')"


@pytest.fixture
def damaged(path: Path) -> Path:
    """A topic of three blocks, a hundred numbers in each; of the second no record can be read."""
    with falaj.open(path) as store, store.topic("t") as topic:
        for first in (0, 100, 200):
            topic.extend([b"number %03d" % n for n in range(first, first + 100)])
    [log] = path.glob("logs/t@*/*0.log")
    whole = log.read_bytes()
    assert whole.count(b"number 150") == 1, "a record is stored as it is"
    log.write_bytes(whole.replace(b"number 150", b"Number 150"))
    return path


def reported(store: Path) -> str:
    [log] = store.glob("logs/t@*/*0.log")
    return f"topic t, partition 0: offsets (100, 200) are corrupt, in {log}, and left out"


def test_a_batch_fails_with_the_offsets_and_the_remedy(spark: SparkSession, damaged: Path) -> None:
    reader = spark.read.format("falaj").options(store=str(damaged), subscribe="t")
    with pytest.raises(PySparkException) as raised:
        reader.load().count()
    said = str(raised.value)
    assert DAMAGED in said
    assert "is corrupt at byte" in said
    assert REMEDY in said


def test_a_batch_that_skips_has_all_other_records_and_says_which_it_left_out(
    spark: SparkSession, damaged: Path, told_users: Callable[[str], str]
) -> None:
    given = {"store": str(damaged), "subscribe": "t", "onCorrupt": "skip", "minPartitions": "1"}
    rows = spark.read.format("falaj").options(**given).load().select("offset", "value").collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [
        (n, b"number %03d" % n) for n in GOOD
    ]
    assert told_users(reported(damaged)).count("are corrupt") == 1


@pytest.fixture
def start(spark: SparkSession, damaged: Path, tmp_path: Path) -> Start:
    """Start a query from the corrupt topic to files, with the one checkpoint of the test."""

    def start(**options: str) -> StreamingQuery:
        given = {"store": str(damaged), "subscribe": "t", "startingOffsets": "earliest", **options}
        frame = spark.readStream.format("falaj").options(**given).load()
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    return start


def ended(query: StreamingQuery) -> list[int]:
    """Wait for its end; how many records each batch had."""
    assert query.awaitTermination(100)
    assert query.exception() is None
    return [progress.numInputRows for progress in query.recentProgress]


def test_a_stream_fails_with_the_remedy_and_goes_on_from_its_checkpoint_with_it(
    spark: SparkSession,
    damaged: Path,
    tmp_path: Path,
    start: Start,
    told_users: Callable[[str], str],
) -> None:
    # Where batches are bounded, one ends in the midst of what is corrupt.
    failing = start(**limited(150))
    with pytest.raises(StreamingQueryException) as raised:
        failing.awaitTermination(100)
    said = str(raised.value)
    assert DAMAGED in said
    assert "is corrupt at byte" in said
    assert REMEDY in said
    assert not list((tmp_path / "out").glob("*.parquet"))
    skipping = start(onCorrupt="skip", **limited(150))
    assert ended(skipping) == ([100, 100] if HAS_LIMITS else [200])
    assert "are corrupt, in " in told_users(f"are corrupt, in {damaged}")
    with falaj.open(damaged) as store, store.topic("t") as topic:
        topic.append(b"number 300", sync="durable")
    assert sum(ended(start(onCorrupt="skip"))) == 1
    rows = spark.read.parquet(str(tmp_path / "out")).select("offset", "value").collect()
    assert sorted((row.offset, bytes(row.value)) for row in rows) == [
        (n, b"number %03d" % n) for n in [*GOOD, 300]
    ]
