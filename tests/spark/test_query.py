"""Real Spark reads real topics."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

import falaj
from spark.conftest import ORDERS, TIME_NS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark.conftest import Load


def test_every_column_is_what_was_appended(load: Load) -> None:
    first, second, third = load("plain", includeHeaders="true").orderBy("offset").collect()
    assert list(first.asDict()) == (
        ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    )
    assert (first.key, first.value, first.topic) == (None, b"\xff\x00", "plain")
    assert (first.partition, first.offset, first.timestampType) == (0, 0, 0)
    assert first.headers is None
    assert (second.key, second.value) == (b"", b"")
    assert [tuple(h) for h in second.headers] == [("a", b"1"), ("a", None), ("é", b"\xff")]
    assert (third.key, third.value, third.offset) == (b"k", b"third", 2)
    when = first.timestamp.astimezone(UTC)
    assert when == datetime.fromtimestamp(TIME_NS // 1_000_000_000, UTC).replace(microsecond=123456)


def test_all_records_of_all_partitions_are_read_once(load: Load, orders: Path) -> None:
    rows = load().select("partition", "offset", "key", "value").collect()
    assert len(rows) == ORDERS
    assert {row.value for row in rows} == {f"order {i}".encode() for i in range(ORDERS)}
    with falaj.open(orders, read_only=True) as store, store.any_topic("orders") as topic:
        expected = Counter(record.partition for record in topic)
        assert Counter(row.partition for row in rows) == expected
        for row in rows[:: ORDERS // 50]:
            assert topic.partition(row.partition)[row.offset].to_bytes() == row.value


def test_several_topics_are_one_table(load: Load) -> None:
    counts = load("plain,orders,empty").groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in counts} == {"plain": 3, "orders": ORDERS}


def test_min_partitions_makes_as_many_tasks(load: Load) -> None:
    frame = load(minPartitions="7")
    assert frame.rdd.getNumPartitions() >= 7
    assert frame.count() == ORDERS


def test_a_schema_of_the_user_chooses_columns_and_their_order(load: Load) -> None:
    frame = load(schema="offset BIGINT, key BINARY")
    assert frame.columns == ["offset", "key"]
    keys = frame.groupBy(F.col("key").cast("string").alias("key")).count().collect()
    assert {row.key for row in keys} == {f"key {i}" for i in range(11)}
    assert sum(row["count"] for row in keys) == ORDERS


def test_offsets_bound_what_is_read(load: Load) -> None:
    frame = load(
        startingOffsets='{"orders": {"0": 100, "1": -2, "2": 5}}',
        endingOffsets='{"orders": {"0": 110, "1": 3, "2": -1}}',
    )
    bounds = frame.groupBy("partition").agg(F.min("offset"), F.max("offset"), F.count("*"))
    found = {row[0]: tuple(row[1:]) for row in bounds.collect()}
    assert found[0] == (100, 109, 10)
    assert found[1] == (0, 2, 3)
    assert found[2][0] == 5
    assert found[2][1] - found[2][0] + 1 == found[2][2]


def test_times_and_patterns_and_filters_choose_what_is_read(
    load: Load, spark: SparkSession, orders: Path
) -> None:
    reader = spark.read.format("falaj").options(store=str(orders), subscribePattern="(pl|em).*")
    when = str(TIME_NS // 1_000_000 + 1)
    late = reader.option("startingTimestamp", when)
    late = late.option("startingOffsetsByTimestampStrategy", "latest")
    assert [row.offset for row in late.load().orderBy("offset").collect()] == [1, 2]
    wanted = "key = X'6B' and offset >= 1 and timestamp > '2020'"
    with pytest.raises(AnalysisException, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        load("plain", pushdown="true").where(wanted).collect()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows = load("plain", pushdown="true").where(wanted).collect()
        assert [row.offset for row in rows] == [2]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_values_are_text_or_json_and_what_is_neither_is_left_out_where_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    with falaj.open(tmp_path / "store") as store, store.topic("t") as topic:
        topic.extend(b'{"id": %d, "at": "2026-11-20T08:00:00Z"}' % i for i in range(2000))
        topic.extend([b"\xff", b'{"id": "x"}', b'{"id": 7}'])
    given = {"store": str(tmp_path / "store"), "subscribe": "t", "onCorrupt": "skip"}
    text = spark.read.format("falaj").options(values="string", **given).load()
    assert dict(text.dtypes)["value"] == "string"
    assert text.where("value like '{%'").count() == 2002
    parsed = (
        spark.read.format("falaj")
        .options(values="json", **given)
        .schema("offset BIGINT, value STRUCT<id: BIGINT, at: TIMESTAMP>")
        .load()
    )
    found = parsed.agg(F.count("*"), F.count("value"), F.sum("value.id"), F.max("value.at"))
    [(rows, values, total, latest)] = found.collect()
    assert (rows, values, total) == (2001, 2001, sum(range(2000)) + 7)
    assert latest.astimezone(UTC) == datetime(2026, 11, 20, 8, tzinfo=UTC)


@pytest.mark.proof
def test_a_topic_of_a_thousand_segments_is_read_whole(spark: SparkSession, path: Path) -> None:
    with (
        falaj.open(path) as store,
        store.topic("t", segment_bytes=65_536, sync="none") as topic,
    ):
        for n in range(4_000):
            topic.append(bytes(14_000), key=b"%d" % n)
    assert len(list(path.glob("logs/t@*/*.log"))) >= 1_000
    whole = spark.read.format("falaj").options(store=str(path), subscribe="t").load()
    told = whole.selectExpr("sum(CAST(CAST(key AS STRING) AS INT))", "sum(length(value))").first()
    assert told == (sum(range(4_000)), 4_000 * 14_000)


def test_huge_records_are_read_in_a_time_zone_whose_clocks_change(
    spark: SparkSession, path: Path
) -> None:
    huge = bytes(range(256)) * (15 << 12)
    with falaj.open(path) as store, store.topic("t") as topic:
        topic.append(huge, timestamp="2026-03-08T06:59:59.999999Z")
        topic.append(huge[::-1], timestamp="2026-03-08T07:00:00.000001Z")
    settings = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    before = {name: spark.conf.get(name) or "" for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        reader = spark.read.format("falaj").options(store=str(path), pushdown="true")
        frame = reader.option("subscribe", "t").load()
        chosen = "timestamp >= '2026-03-08 01:59:59.999999' AND timestamp <= '2026-03-08 03:00:00'"
        [row] = frame.where(chosen).selectExpr("*", "CAST(timestamp AS STRING) AS told").collect()
        assert (row.offset, row.value == huge) == (0, True)
        assert row.told == "2026-03-08 01:59:59.999999"
    finally:
        for name, kept in before.items():
            spark.conf.set(name, kept)


def test_an_empty_topic_is_an_empty_table(load: Load) -> None:
    assert load("empty").count() == 0


def test_a_mistake_ends_in_a_sentence_that_helps(load: Load) -> None:
    for options, sentence in (
        ({"maxRows": "1"}, "falaj.errors.InvalidArgument: there is no option 'maxrows'"),
        ({"values": "json"}, "values=json needs a schema that says what is in it"),
        ({"consumer": "billing"}, "option consumer is for spark.readStream: leave it away here"),
        ({"subscribe": "bills"}, "bills"),
    ):
        with pytest.raises(AnalysisException) as raised:
            load(**options).count()
        assert sentence in str(raised.value)


def test_records_appended_meanwhile_are_in_the_next_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    with falaj.open(tmp_path / "store") as store, store.topic("t") as topic:
        topic.append(b"a")
        reader = spark.read.format("falaj").options(store=str(store.path), subscribe="t")
        assert reader.load().count() == 1
        topic.append(b"b")
        assert reader.load().count() == 2
