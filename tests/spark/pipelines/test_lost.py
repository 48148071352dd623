"""Records that were gone before a pipeline read them: none is lost in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.errors import OffsetOutOfRange, TopicDeleted
from falaj.pipeline import (
    AggregateConfig,
    DedupeConfig,
    JoinConfig,
    ReplayConfig,
    aggregate,
    dedupe,
    join,
    replay,
)
from falaj.pipeline.streaming.jobs import Job
from falaj.pipeline.streaming.runs import settings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def filled(path: Path, records: int, partitions: int = 1) -> None:
    with (
        falaj.open(path) as store,
        store.partitioned_topic("t", codec="json", partitions=partitions) as topic,
    ):
        for n in range(records):
            at = (1000 + n) * 10**9
            topic.append({"k": n}, key=b"%d" % n, timestamp_ns=at, partition=n % partitions)
        topic.flush()


def created_again(path: Path, records: int, partitions: int = 1) -> None:
    with falaj.open(path) as store:
        store.delete_topic("t")
    filled(path, records, partitions)


def trimmed(path: Path, offset: int) -> None:
    with falaj.open(path) as store, store.any_topic("t") as topic:
        topic.partition(0).trim(before_offset=offset)


def flow(path: Path, kind: Any, **rest: Any) -> Any:
    usual: dict[str, Any] = {
        "store": path,
        "topic": "t",
        "checkpoint": path.parent / "c",
        "schema": "k INT",
        "into": "o",
    }
    if kind is JoinConfig:
        (path.parent / "t.csv").write_text("k\n1\n")
        usual |= {"table": path.parent / "t.csv", "on": ("k",)}
    return kind(**usual | rest)


@pytest.mark.parametrize("records", [0, 3])
def test_a_topic_that_was_created_again_is_deduped_only_if_that_is_allowed(
    spark: SparkSession, path: Path, records: int
) -> None:
    def config(**rest: Any) -> DedupeConfig:
        return DedupeConfig(store=path, topic="t", into="o", by="value", **rest)

    filled(path, 4, partitions=2)
    assert dedupe(spark, config(end=1)).kept == 2
    created_again(path, records)
    for _ in range(2):
        with pytest.raises(TopicDeleted, match=r'created again.*dedupe.*on_loss="continue"$'):
            dedupe(spark, config())
    done = dedupe(spark, config(on_loss="continue"))
    assert done.records == records
    assert [note for note in done.notes if "deleted and created again" in note]
    assert dedupe(spark, config()).records == 0


def test_a_topic_that_was_created_again_is_replayed_only_if_that_is_allowed(path: Path) -> None:
    def config(**rest: Any) -> ReplayConfig:
        return ReplayConfig(store=path, topic="t", into="o", speed="max", **rest)

    filled(path, 4)
    assert replay(None, config(end=2)).records == 2
    created_again(path, 3)
    for _ in range(2):
        with pytest.raises(TopicDeleted, match=r"created again.*continue.*resume=False"):
            replay(None, config())
    done = replay(None, config(on_loss="continue"))
    assert (done.records, len(done.notes)) == (3, 1)
    assert dict(done.rows())["note"] == done.notes[0]
    assert replay(None, config()).records == 0


def test_a_replay_says_how_to_go_on_behind_trimmed_records(path: Path) -> None:
    config = ReplayConfig(store=path, topic="t", into="o", speed="max")
    filled(path, 9)
    replay(None, ReplayConfig(store=path, topic="t", into="o", speed="max", end=3))
    trimmed(path, 5)
    with pytest.raises(OffsetOutOfRange, match=r'on_loss="continue", or begin again with resume='):
        replay(None, config)
    done = replay(
        None, ReplayConfig(store=path, topic="t", into="o", speed="max", on_loss="continue")
    )
    assert (done.records, done.lost, dict(done.rows())["lost"]) == (4, 2, "2")


@pytest.mark.parametrize(("kind", "run"), [(AggregateConfig, aggregate), (JoinConfig, join)])
def test_a_stream_says_how_to_go_on_and_counts_only_what_it_read(
    spark: SparkSession, path: Path, kind: Any, run: Any
) -> None:
    filled(path, 2)
    assert run(spark, flow(path, kind)).records == 2
    with falaj.open(path) as store, store.any_topic("t") as topic:
        for n in range(4):
            topic.append({"k": n}, timestamp_ns=2000 * 10**9)
    trimmed(path, 4)
    with pytest.raises(OffsetOutOfRange, match=r"trimmed.*another checkpoint.*on_loss=") as error:
        run(spark, flow(path, kind))
    assert "checkpointLocation" not in str(error.value)
    assert "option(" not in str(error.value)
    assert run(spark, flow(path, kind, on_loss="continue")).records == 2


def test_one_batch_counts_only_what_it_read_and_names_settings_of_its_own(
    spark: SparkSession, path: Path
) -> None:
    filled(path, 5)
    config = flow(path, JoinConfig, trigger="batch", start=1)
    Job.begin(path.parent / "c", "join", settings(config), {0: 1})  # killed before it read
    trimmed(path, 3)
    with pytest.raises(OffsetOutOfRange, match=r'run it again, or .*on_loss="continue"') as error:
        join(spark, config)
    assert "spark.read" not in str(error.value)
    assert join(spark, flow(path, JoinConfig, trigger="batch", on_loss="continue")).records == 2
