"""Writing with `format("falaj")`: options and frames, and what it says about the rest."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from falaj.errors import InvalidArgument
from falaj.spark.source import FalajSource
from falaj.spark.writing import columns as sink_columns
from falaj.spark.writing.options import WriteOptions

if TYPE_CHECKING:
    from falaj.spark.reading.options import Kind

GIVEN = {"store": "events", "topic": "orders"}


def test_store_and_topic_are_enough() -> None:
    options = WriteOptions.parse({"STORE": "events", "Topic": " orders "}, "batch")
    assert options.store == Path(os.getcwd()) / "events"
    assert options.topic == "orders"
    assert (options.partitions, options.transaction, options.ignored) == (None, None, ())


def test_what_spark_hands_over_of_its_own_is_passed_over() -> None:
    its_own = {"checkpointLocation": "c", "queryName": "q", "asyncProgressTrackingEnabled": "false"}
    assert WriteOptions.parse(GIVEN | its_own, "stream").topic == "orders"


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"topic": "a"}, "batch", "option store is missing: add .option('store', 'events')"),
        (GIVEN | {"topic": " "}, "batch", "option topic is missing"),
        (GIVEN | {"store": "hdfs://n/s"}, "batch", "option store is a path on this machine or"),
        (GIVEN | {"txnAppID2": "x"}, "batch", "option 'txnappid2': did you mean txnAppId"),
        (GIVEN | {"ack": "1"}, "batch", "takes store, topic, partitions, createTopics, txnAppId, "),
        (GIVEN | {"path": "x"}, "batch", "save() and start() take no path: name the store"),
        (GIVEN | {"subscribe": "a"}, "batch", "name what to write to with .option('topic'"),
        (GIVEN | {"minPartitions": "2"}, "batch", "option minPartitions is for reading"),
        (GIVEN | {"values": "json"}, "batch", "to_json('value')"),
        (GIVEN | {"partitions": "0"}, "batch", "partitions is a whole number from 1 up, not '0'"),
        ({"store": "s", "partitions": "2"}, "batch", "partitions is for topics that are created"),
        (
            GIVEN | {"partitions": "2", "createTopics": "false"},
            "batch",
            "partitions is for topics that are created",
        ),
        (GIVEN | {"createTopics": "maybe"}, "batch", "createTopics is true or false, not 'maybe'"),
        (GIVEN | {"txnAppId": "a"}, "batch", "option txnVersion is missing"),
        (GIVEN | {"txnVersion": "1"}, "batch", "option txnAppId is missing"),
        (GIVEN | {"txnAppId": "a", "txnVersion": "-1"}, "batch", "from 0 up, not '-1'"),
        (GIVEN | {"txnAppId": "a", "txnVersion": "1"}, "stream", "txnAppId is for df.write"),
        (GIVEN | {"asyncProgressTrackingEnabled": "true"}, "stream", "exactly once. Leave it away"),
        (GIVEN | {"checkpointLocation": "c"}, "batch", "no option 'checkpointlocation'"),
    ],
)
def test_a_mistake_ends_in_a_sentence_that_helps(
    options: dict[str, str], kind: Kind, sentence: str
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        WriteOptions.parse(options, kind)
    assert sentence in str(raised.value)


def test_options_of_brokers_do_nothing_and_are_told_once() -> None:
    brokers = {"kafka.bootstrap.servers": "x", "kafka.acks": "1"}
    options = WriteOptions.parse(GIVEN | brokers, "batch")
    with pytest.warns(UserWarning, match=r"kafka\.acks, kafka\.bootstrap\.servers"):
        options.warn_of_ignored()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WriteOptions.parse(GIVEN, "batch").warn_of_ignored()


def test_nothing_in_a_log_is_written_over() -> None:
    with pytest.raises(
        InvalidArgument, match=r"nothing in it is written over: use \.mode\('append'\)"
    ):
        FalajSource(GIVEN).writer(frame(value=BinaryType()), overwrite=True)


# --- Columns --------------------------------------------------------------------------------------

HEADERS = ArrayType(
    StructType([StructField("key", StringType(), False), StructField("value", BinaryType())]), False
)


def frame(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    "schema",
    [
        frame(value=BinaryType()),
        frame(value=StringType(), key=StringType()),
        frame(
            topic=StringType(),
            timestamp=TimestampType(),
            partition=IntegerType(),
            headers=HEADERS,
            key=BinaryType(),
            value=BinaryType(),
        ),
    ],
)
def test_columns_may_come_in_any_order_and_most_may_be_left_away(schema: StructType) -> None:
    sink_columns.check(schema, WriteOptions.parse(GIVEN, "batch"))


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (frame(key=BinaryType()), "the column value is missing"),
        (
            frame(vaule=BinaryType(), offset=LongType()),
            "the column value is missing, did you mean 'vaule'? it is what is written",
        ),
        (frame(Value=BinaryType()), "the column value is missing, did you mean 'Value'?"),
        (frame(offset=LongType(), timestampType=IntegerType()), "value is missing: it is what"),
        (frame(value=LongType()), "value is binary or string, not bigint: .withColumn('value', "),
        (frame(value=frame(a=LongType())), "to_json('value')"),
        (frame(value=StringType(), partition=LongType()), "partition is int, not bigint"),
        (frame(value=StringType(), timestamp=TimestampNTZType()), "timestamp is timestamp, not "),
        (frame(value=StringType(), headers=StringType()), "headers is array<struct<key:string,"),
        (
            StructType([StructField("value", StringType())] * 2),
            "the frame has the column value twice",
        ),
    ],
)
def test_a_frame_that_holds_no_records_is_refused(schema: StructType, sentence: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        sink_columns.check(schema, WriteOptions.parse(GIVEN, "batch"))
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    "others",
    [
        {"offset": LongType(), "timestampType": IntegerType()},
        {"id": LongType(), "topic": LongType()},  # the option goes before the column
        {"tags": ArrayType(LongType()), "nested": frame(value=LongType())},
    ],
)
def test_columns_that_the_sink_does_not_write_are_passed_over(others: dict[str, DataType]) -> None:
    schema = frame(value=StringType(), **others)
    sink_columns.check(schema, WriteOptions.parse(GIVEN, "batch"))
    assert sink_columns.passed_over(schema.names) is None
    twice = StructType([*schema.fields, *[StructField("twice", LongType())] * 2])
    sink_columns.check(twice, WriteOptions.parse(GIVEN, "batch"))


@pytest.mark.parametrize(
    ("name", "written"),
    [("keys", "key"), ("Key", "key"), ("header", "headers"), ("partitions", "partition")],
)
def test_a_column_that_is_passed_over_is_told_where_its_name_is_near(
    name: str, written: str
) -> None:
    said = sink_columns.passed_over(["value", name])
    assert said == f"columns are not written to the topic: {name!r}, which is near {written}"
    assert sink_columns.passed_over(["value", name, written]) is None


def test_without_a_topic_the_frame_must_name_it() -> None:
    options = WriteOptions.parse({"store": "s"}, "batch")
    with pytest.raises(InvalidArgument, match="option topic is missing"):
        sink_columns.check(frame(value=StringType()), options)
    sink_columns.check(frame(value=StringType(), topic=StringType()), options)


def test_a_directory_that_is_a_place_is_only_read(tmp_path: Path) -> None:
    (tmp_path / "place" / ("0" * 32) / "o").mkdir(parents=True)
    with pytest.raises(InvalidArgument, match="where a place is, and a place is only read"):
        WriteOptions.parse({"store": str(tmp_path / "place"), "topic": "orders"}, "batch")
