"""Real Spark writes to topics: batches, streams that start again, tasks and drivers that die."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, StreamingQueryException

import falaj
from falaj import arrow
from falaj.spark.source import FalajSource
from falaj.spark.streaming.stream import HAS_LIMITS
from falaj.spark.writing.options import WriteOptions
from falaj.spark.writing.sink import FalajStreamWriter, FalajWriter
from spark.conftest import limited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Start = Callable[..., StreamingQuery]


@pytest.fixture(autouse=True, scope="module")
def by_value() -> Iterator[None]:
    """Let functions of this module travel: processes of Spark's cannot import it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def save(frame: DataFrame, store: Path, source: str = "falaj", **options: str) -> None:
    given = {"store": str(store), "topic": "out"} | options
    frame.write.format(source).mode("append").options(**given).save()


def written(store: Path, topic: str = "out") -> Counter[bytes | None]:
    with falaj.open(store, read_only=True) as opened:
        return Counter(opened.any_topic(topic).to_arrow(columns=["value"])["value"].to_pylist())


def once(numbers: range) -> Counter[bytes | None]:
    return Counter(b"%d" % n for n in numbers)


def staged(store: Path) -> list[Path]:
    """List files of parts."""
    return [file for file in store.rglob("*") if file.suffix in (".part", ".tmp")]


def numbers(spark: SparkSession, end: int, pieces: int = 3) -> DataFrame:
    return spark.range(0, end, 1, pieces).selectExpr("CAST(id AS STRING) AS value")


# --- Batches --------------------------------------------------------------------------------------


def test_a_batch_is_appended_in_the_order_of_the_frame_and_read_back(
    spark: SparkSession, path: Path
) -> None:
    frame = spark.range(2_000).selectExpr(
        "CAST(id AS STRING) AS key",
        "CASE WHEN id % 7 = 0 THEN NULL ELSE repeat('x', CAST(id AS INT)) END AS value",
        "timestamp_micros(id) AS timestamp",
        "array(named_struct('key', 'n', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )
    # In another zone the same moments are other texts.
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        save(frame.repartition(5).orderBy("timestamp", ascending=False), path, partitions="1")
        save(frame.limit(0), path)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    with falaj.open(path, read_only=True) as store:
        records = list(store.any_topic("out"))
    assert [record.key for record in records] == [b"%d" % n for n in reversed(range(2_000))]
    one = records[-12]
    assert (one.to_bytes(), one.headers) == (b"x" * 11, (("n", b"11"),))
    assert one.timestamp == datetime(1970, 1, 1, 0, 0, 0, 11, UTC)
    assert records[-8].raw is None
    back = spark.read.format("falaj").options(store=str(path), subscribe="out").load()
    save(back, path, topic="copy", partitions="2")
    assert written(path, "copy") == written(path)


def test_a_stream_of_a_topic_is_written_as_it_comes(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    with falaj.open(path) as store:
        whole = store.partitioned_topic("in", partitions=2)
        whole.append(b"1", key=b"k", timestamp_ns=1_500_000_000, headers=[("h", b"x")])
        whole.append(b"2", key=b"other", timestamp_ns=2_500_000_000)
        whole.flush()
    reader = spark.readStream.format("falaj").options(store=str(path), subscribe="in")
    records = reader.options(startingOffsets="earliest", includeHeaders="true").load()
    assert {"offset", "timestampType", "topic"} <= set(records.columns)
    writer = records.writeStream.format("falaj").options(store=str(path), topic="out")
    writer = writer.options(partitions="2", checkpointLocation=str(tmp_path / "checkpoint"))
    ended(writer.trigger(availableNow=True).start())
    with falaj.open(path, read_only=True) as store:
        both = [
            store.any_topic(name).to_arrow(columns=list(arrow.COLUMNS)) for name in ("in", "out")
        ]
    assert both[0].drop(["topic"]) == both[1].drop(["topic"])


def test_a_dataframe_keeps_the_offsets_of_its_first_action_and_says_so_when_they_are_gone(
    spark: SparkSession, path: Path
) -> None:
    reader = spark.read.format("falaj").options(store=str(path), subscribe="out")
    with falaj.open(path) as store, store.topic("out") as out:
        out.extend([b"1", b"2", b"3"])
        frame = reader.load()
        frame.createOrReplaceTempView("kept")
        assert frame.count() == 3
        out.append(b"4")
        # Where this changes, Spark asks for each action: say so in the guide.
        assert frame.count() == spark.table("kept").count() == 3
        assert reader.load().count() == 4
        out.trim(before_offset=3)
        for again in (frame, spark.table("kept")):
            with pytest.raises(Exception, match=r"load the topic again with spark\.read"):
                again.collect()
        assert reader.load().count() == 1


def test_topics_that_a_column_names_are_created_where_that_is_asked_for(
    spark: SparkSession, path: Path
) -> None:
    frame = spark.range(60).selectExpr("concat('t', id % 3) topic", "CAST(id AS STRING) value")
    writer = frame.repartition(3).write.format("falaj").mode("append")
    given = {"store": str(path), "txnAppId": "a", "txnVersion": "1"}
    with pytest.raises(Exception, match="create it first"):
        writer.options(**given).save()
    with falaj.open(path) as store:
        store.partitioned_topic("t0", partitions=2)
    writer.options(**given, createTopics="true", partitions="3").save()
    with falaj.open(path, read_only=True) as store:
        found = {name: len(store.any_topic(name).partitions) for name in store.topics}
    assert found == {"t0": 2, "t1": 3, "t2": 3}  # one that was there stays as it is
    assert sum((written(path, name) for name in found), Counter()) == once(range(60))


@pytest.mark.parametrize(
    ("mode", "columns", "options", "sentence"),
    [
        ("overwrite", "'a' AS value", {}, "nothing in it is written over: use .mode('append')"),
        ("append", "'a' AS vaule", {}, "the column value is missing, did you mean 'vaule'?"),
        ("append", "'a' AS value", {"topc": "x"}, "no option 'topc': did you mean topic"),
        ("append", "'a' AS value", {"topic": "nobody"}, "create it first, with .topic('nobody')"),
        ("append", "'a' AS value, 9 AS partition", {}, "partition"),
    ],
)
def test_a_mistake_ends_in_a_sentence_that_helps(
    spark: SparkSession,
    path: Path,
    mode: str,
    columns: str,
    options: dict[str, str],
    sentence: str,
) -> None:
    with falaj.open(path) as store:
        store.topic("out")
    writer = spark.range(1).selectExpr(*columns.split(", ")).write.format("falaj").mode(mode)
    with pytest.raises(Exception, match=re.escape(sentence)):  # one of several of Spark's
        writer.options(store=str(path), topic="out").options(**options).save()
    assert written(path) == Counter()
    assert staged(path) == []


def test_the_default_mode_is_refused_by_spark_with_the_remedy(
    spark: SparkSession, path: Path
) -> None:
    with pytest.raises(AnalysisException, match='"Append" or "Overwrite"'):
        spark.range(1).write.format("falaj").options(store=str(path), topic="out").save()


def test_a_job_as_one_writes_it_for_kafka_runs_with_another_format_a_store_and_a_mode(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    with falaj.open(path) as store:
        store.topic("topic1").extend([(b"k1", b"one"), (b"k2", b"two")])
        store.topic("topic2"), store.topic("topic3")
    brokers = ("kafka.bootstrap.servers", "host1:port1,host2:port2")
    frame = (
        spark.readStream.format("falaj")
        .option("store", str(path))
        .option(*brokers)
        .option("subscribe", "topic1")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "false")
        .option("kafka.group.id", "group")
        .option("groupIdPrefix", "group")
        .load()
    )
    query = (
        frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        .writeStream.format("falaj")
        .option("store", str(path))
        .option(*brokers)
        .option("topic", "topic2")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)
    (
        spark.read.format("falaj")
        .option("store", str(path))
        .option(*brokers)
        .option("subscribe", "topic1,topic2")
        .option("startingOffsets", '{"topic1": {"0": 1}, "topic2": {"0": -2}}')
        .option("endingOffsets", "latest")
        .load()
        .selectExpr("'topic3' AS topic", "key", "value")
        .write.format("falaj")
        .mode("append")
        .option("store", str(path))
        .option(*brokers)
        .save()
    )
    with falaj.open(path, read_only=True) as store:
        found = Counter((record.key, record.to_bytes()) for record in store.any_topic("topic3"))
    assert found == {(b"k1", b"one"): 1, (b"k2", b"two"): 2}


@pytest.mark.parametrize("kind", ["batch read", "batch write", "stream read", "stream write"])
def test_options_of_kafkas_get_one_warning_that_names_them(
    spark: SparkSession,
    path: Path,
    tmp_path: Path,
    kind: str,
    told_users: Callable[[str], str],
) -> None:
    put(path, range(250))
    kafkas = {"kafka.bootstrap.servers": "host1:port1", "kafka.group.id": "group"}
    given = {"store": str(path), "subscribe": "in", "startingOffsets": "earliest"}
    if kind == "batch read":
        reader = spark.read.format("falaj").options(**given, **kafkas)
        assert reader.load().count() == 250
    elif kind == "batch write":
        save(numbers(spark, 250), path, **kafkas)
    elif kind == "stream read":
        frame = spark.readStream.format("falaj").options(**given, **kafkas, **limited(100)).load()
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "files"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert ended(writer.trigger(availableNow=True).start()) == (3 if HAS_LIMITS else 1)
    else:
        query = begin(spark, path, tmp_path / "checkpoint", **kafkas)
        assert ended(query) == (3 if HAS_LIMITS else 1)
    said = told_users("these options do nothing: kafka.bootstrap.servers, kafka.group.id\n")
    assert said.count("these options do nothing") == 1


def unlucky(name: str, happens: Callable[[], None], *, late: bool = False) -> Any:
    """Make a source in whose writer something happens: in the midst of a task or after a commit."""

    def meeting(iterator: Iterator[Any]) -> Iterator[Any]:
        for batch in iterator:
            yield batch
            happens()

    class Batch(FalajWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            return super().write(iterator if late else meeting(iterator))

        def commit(self, messages: list[Any]) -> None:
            super().commit(messages)
            if late:
                happens()

    class Stream(FalajStreamWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            return super().write(iterator if late else meeting(iterator))

        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            super().commit(messages, batchId)
            if late:
                happens()

    class Unlucky(FalajSource):
        @classmethod
        def name(cls) -> str:
            return name

        def writer(self, schema: Any, overwrite: bool) -> FalajWriter:
            return Batch(WriteOptions.parse(self.options, "batch"), schema)

        def streamWriter(self, schema: Any, overwrite: bool) -> FalajStreamWriter:  # noqa: N802
            return Stream(WriteOptions.parse(self.options, "stream"), schema)

    return Unlucky


def fail() -> None:
    raise OSError("the test's own")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def first(flag: Path, happens: Callable[[], None]) -> Callable[[], None]:
    """Let it happen once."""

    def happen() -> None:
        if not flag.exists():
            flag.touch()
            happens()

    return happen


@pytest.mark.parametrize("happens", [fail, die])
def test_a_task_that_fails_or_is_killed_is_tried_again_and_every_record_is_there_once(
    spark: SparkSession, path: Path, tmp_path: Path, happens: Callable[[], None]
) -> None:
    happen = first(tmp_path / "flag", happens)
    spark.dataSource.register(unlucky(f"falaj-{happens.__name__}", happen))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        save(numbers(spark, 3_000), path, f"falaj-{happens.__name__}", partitions="2")
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
    assert (tmp_path / "flag").exists()
    assert written(path) == once(range(3_000))
    assert staged(path) == []


def test_a_job_that_fails_leaves_nothing_and_its_repeat_is_written_once(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    frame, version = numbers(spark, 500), {"txnAppId": "nightly", "txnVersion": "1"}
    broken = frame.selectExpr("CASE WHEN value = '490' THEN raise_error('no') ELSE value END value")
    with pytest.raises(Exception, match="no"):  # Spark's
        save(broken, path, partitions="2", **version)
    assert (written(path), staged(path)) == (Counter(), [])
    spark.dataSource.register(unlucky("falaj-late", first(tmp_path / "flag", fail), late=True))
    with pytest.raises(Exception, match="the test's own"):  # after the commit; Spark aborts then
        save(frame, path, "falaj-late", **version)
    save(frame, path, **version)
    assert (written(path), staged(path)) == (once(range(500)), [])


# --- Streams --------------------------------------------------------------------------------------


@pytest.fixture
def start(spark: SparkSession, path: Path, tmp_path: Path) -> Start:
    """Start a query with the one checkpoint of the test."""
    return partial(begin, spark, path, tmp_path / "checkpoint")


def begin(
    spark: SparkSession, store: Path, checkpoint: Path, source: str = "falaj", **options: str
) -> StreamingQuery:
    """Start a query from the topic `in` to the topic `out`."""
    given = {"store": str(store), "subscribe": "in", "startingOffsets": "earliest"}
    frame = spark.readStream.format("falaj").options(**given, **limited(100)).load()
    writer = frame.select("key", "value").writeStream.format(source)
    writer = writer.options(store=str(store), topic="out", **options)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def put(path: Path, numbers: range) -> None:
    with falaj.open(path) as store:
        topic = store.partitioned_topic("in", partitions=2)
        for n in numbers:
            topic.append(b"%d" % n, key=b"%d" % (n % 5))
        topic.flush()
        store.partitioned_topic("out", partitions=3)


def ended(query: StreamingQuery) -> int:
    """Wait for its end; how many batches it had."""
    assert query.awaitTermination(100)
    assert query.exception() is None
    return len(query.recentProgress)


def test_a_stream_is_written_once_also_when_what_spark_knows_of_its_end_is_lost(
    path: Path, tmp_path: Path, start: Start
) -> None:
    put(path, range(250))
    assert ended(start(**{"kafka.bootstrap.servers": "x"})) == (3 if HAS_LIMITS else 1)
    assert written(path) == once(range(250))
    commits = tmp_path / "checkpoint" / "commits"
    last = 2 if HAS_LIMITS else 0
    for kept in (commits / f"{last}", commits / f".{last}.crc"):
        kept.unlink()
    put(path, range(250, 300))
    if HAS_LIMITS:
        assert ended(start()) == 2
    else:  # `availableNow` is one batch there, and the batch that was under way comes first
        assert [ended(start()), ended(start())] == [1, 1]
    assert written(path) == once(range(300))
    assert staged(path) == []
    with falaj.open(path, read_only=True) as store:
        for part in range(3):
            found = [int(record.to_bytes()) for record in store.any_topic("out").partition(part)]
            assert all(
                [n for n in found if n % 5 == key] == sorted(n for n in found if n % 5 == key)
                for key in range(5)
            )


@pytest.mark.parametrize("late", [pytest.param(False, marks=pytest.mark.proof), True])
def test_a_query_that_fails_before_or_after_a_commit_goes_on_and_writes_once(
    spark: SparkSession, path: Path, tmp_path: Path, start: Start, late: bool
) -> None:
    def fail_at_first() -> None:
        if not (tmp_path / "mended").exists():
            fail()

    put(path, range(150))
    name = f"falaj-stream-{late}"
    spark.dataSource.register(unlucky(name, fail_at_first, late=late))
    with pytest.raises(StreamingQueryException, match="the test's own"):
        start(name).awaitTermination(100)
    assert written(path).total() == ((100 if HAS_LIMITS else 150) if late else 0)
    assert staged(path) == []
    (tmp_path / "mended").touch()
    ended(start(name))
    assert written(path) == once(range(150))


def test_a_batch_that_foreach_batch_repeats_is_written_once(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    fails = [True]

    def write(frame: DataFrame, batch: int) -> None:
        out = frame.select("key", "value").persist()
        for topic in ("out", "audit"):
            save(out, path, topic=topic, txnAppId="copy", txnVersion=str(batch), partitions="3")
        if fails.pop() if fails else False:
            raise OSError("the test's own")

    put(path, range(120))
    given = {"store": str(path), "subscribe": "in", "startingOffsets": "earliest"}
    for fails_now in (True, False):
        query = (
            spark.readStream.format("falaj")
            .options(**given)
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if fails_now:
            with pytest.raises(StreamingQueryException, match="the test's own"):
                query.awaitTermination(100)
        else:
            ended(query)
    assert written(path) == written(path, "audit") == once(range(120))


def test_modes_are_those_of_a_log(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    given = {"store": str(path), "subscribe": "in", "startingOffsets": "earliest"}
    put(path, range(10))
    records = spark.readStream.format("falaj").options(**given).load().select("key", "value")
    counts = records.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")

    def start(frame: DataFrame, mode: str, **options: str) -> StreamingQuery:
        writer = frame.writeStream.format("falaj").options(store=str(path), topic="out", **options)
        writer = writer.option("checkpointLocation", str(tmp_path / mode)).outputMode(mode)
        return writer.trigger(**TRIGGERS[mode]).start()

    ended(start(counts, "complete"))
    put(path, range(10, 20))
    ended(start(counts, "complete"))
    assert written(path) == Counter({b"2": 5, b"4": 5})  # the whole result, each time
    with pytest.raises(Exception, match="does not support Update mode"):
        start(counts, "update").awaitTermination(100)
    with pytest.raises(Exception, match="async progress tracking"):
        start(records, "append", asyncProgressTrackingEnabled="true").awaitTermination(100)


TRIGGERS: dict[str, dict[str, Any]] = {
    "complete": {"availableNow": True},
    "update": {"availableNow": True},
    "append": {"processingTime": "0 seconds"},
}
