"""Options that `format("falaj")` takes, and what it says about others."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from falaj.errors import InvalidArgument
from falaj.spark.reading.options import ReadOptions

GIVEN = {"store": "events", "subscribe": "orders"}


def test_store_and_topic_are_enough() -> None:
    options = ReadOptions.parse(GIVEN)
    assert options.topics == ("orders",)
    assert (options.headers, options.partitions_min) == (False, None)
    assert (options.starting.default, options.ending.default) == (-2, -1)
    assert options.visibility == "visible"


def test_a_stream_begins_with_what_is_new_and_reads_what_is_durable() -> None:
    options = ReadOptions.parse(GIVEN, "stream")
    assert options.starting.default == -1
    assert options.visibility == "durable"


def test_the_store_is_named_wholly_because_workers_run_elsewhere() -> None:
    assert ReadOptions.parse(GIVEN).store == Path(os.getcwd()) / "events"


def test_names_may_come_in_any_case_and_topics_with_spaces() -> None:
    options = ReadOptions.parse(
        {"STORE": "s", "Subscribe": " a , b ", "includeheaders": "TRUE", "MINPARTITIONS": "4"}
    )
    assert options.topics == ("a", "b")
    assert options.headers
    assert options.partitions_min == 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "a"}, "option store is missing: add .option('store', 'events')"),
        ({"store": "s", "subscribe": " "}, "option subscribe is missing: add .option("),
        (GIVEN | {"subscribe": "a,,b"}, "topic names with commas between them, not 'a,,b'"),
        (GIVEN | {"subscribe": "a,a"}, "names a topic twice"),
        (GIVEN | {"maxRows": "1"}, "there is no option 'maxrows': format('falaj') takes store, "),
        (GIVEN | {"path": "x"}, "load() takes no path: name the store with .option('store'"),
        (GIVEN | {"startOffsets": "x"}, "option 'startoffsets': did you mean startingOffsets or "),
        (GIVEN | {"assign": '{"a": [0]}'}, "option assign is not there: name the topic with"),
        (GIVEN | {"minOffsetsPerTrigger": "9"}, "minOffsetsPerTrigger is not there, for no batch"),
        (GIVEN | {"maxTriggerDelay": "1m"}, "maxTriggerDelay is not there, for no batch waits"),
        (GIVEN | {"maxRecordsPerPartition": "9"}, "say into how many tasks to cut with minPart"),
        (
            GIVEN | {"store": "http://b/k"},
            "option store is a path on this machine or a URL file:///",
        ),
        (GIVEN | {"store": "file://b/k"}, "option store 'file://b/k' names the machine 'b'"),
        (GIVEN | {"subscribePattern": "a.*"}, "subscribe and subscribePattern exclude each other"),
        ({"store": "s", "subscribePattern": "a("}, "subscribePattern is no expression: missing )"),
        ({"store": "s", "subscribePattern": ""}, "option subscribePattern is missing: add .option"),
        (GIVEN | {"consumer": "billing"}, "option consumer is for spark.readStream: leave it"),
        (GIVEN | {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a whole number from 1 up"),
        (GIVEN | {"values": "text"}, "option values is binary, string or json, not 'text'"),
        (GIVEN | {"visibility": "all"}, "option visibility is visible or durable, not 'all'"),
        (GIVEN | {"onCorrupt": "raise"}, "option onCorrupt is fail or skip, not 'raise'"),
        (GIVEN | {"startingTimestamp": "noon"}, "option startingTimestamp: 'noon' is no ISO time"),
        (GIVEN | {"endingTimestamp": "2026-11-20T08:00:00"}, "has no time zone"),
        (
            GIVEN | {"startingOffsetsByTimestamp": '{"orders": {"0": 1.5}}'},
            "says 1.5: a time is milliseconds since 1970 (topic orders, partition 0)",
        ),
        (GIVEN | {"startingOffsetsByTimestamp": "1"}, 'is {"orders": {"0": 1795161600000}}, not'),
        (GIVEN | {"startingOffsetsByTimestampStrategy": "first"}, "is error or latest, not"),
        (GIVEN | {"failOnDataLoss": "no"}, "option failOnDataLoss is true or false, not 'no'"),
        (GIVEN | {"includeHeaders": "1"}, "option includeHeaders is true or false, not '1'"),
        (GIVEN | {"minPartitions": "0"}, "option minPartitions is a whole number from 1 up"),
        (GIVEN | {"minPartitions": "ten"}, "option minPartitions is a whole number from 1 up"),
        (GIVEN | {"startingOffsets": "latest"}, "a batch that begins there is always empty"),
        (GIVEN | {"endingOffsets": "earliest"}, "a batch that ends there is always empty"),
        (
            GIVEN | {"startingOffsets": '{"orders": {"0": -1}}'},
            "startingOffsets is latest, but a batch that begins there is always empty (topic ord",
        ),
        (GIVEN | {"startingOffsets": "soon"}, 'is earliest, latest or JSON such as {"orders"'),
        (GIVEN | {"startingOffsets": "[]"}, "is earliest, latest or JSON such as"),
        (GIVEN | {"startingOffsets": '{"orders": 1}'}, "is earliest, latest or JSON such as"),
        (GIVEN | {"startingOffsets": '{"bills": {"0": 1}}'}, "names topic bills, which subscribe"),
        (GIVEN | {"startingOffsets": "{}"}, "must name every topic, and orders is missing"),
        (GIVEN | {"endingOffsets": '{"orders": {"x": 1}}'}, "names partition 'x': it is a number"),
        (GIVEN | {"endingOffsets": '{"orders": {"0": -3}}'}, "says -3: an offset is a number"),
        (GIVEN | {"endingOffsets": '{"orders": {"0": 1.5}}'}, "says 1.5: an offset is a number"),
        (GIVEN | {"endingOffsets": '{"orders": {"0": true}}'}, "says True: an offset is a number"),
    ],
)
def test_what_cannot_be_right_is_told_with_the_remedy(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        ReadOptions.parse(options, "batch")
    assert sentence in str(raised.value)


def test_a_time_that_no_record_can_have_is_told_once() -> None:
    with pytest.raises(InvalidArgument) as raised:
        ReadOptions.parse(GIVEN | {"startingTimestamp": "9999999999999"}, "batch")
    said = "option startingTimestamp: 9999999999999000000 lies beyond the years 1677 to 2262"
    assert str(raised.value) == f"{said} that a record can keep"


@pytest.mark.parametrize(
    "given", [{"option.store": "s", "store": "s", "provider": "falaj", "owner": "me"}, {}]
)
def test_a_table_of_the_catalog_is_told_to_be_a_view(given: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match=r"does not pass the options .* TEMPORARY VIEW"):
        ReadOptions.parse(given)


def test_a_store_that_was_forgotten_is_not_taken_for_a_table() -> None:
    with pytest.raises(InvalidArgument, match="option store is missing") as raised:
        ReadOptions.parse({"subscribe": "orders"})
    assert "VIEW" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushdown"]
)
def test_a_stream_refuses_what_is_for_batches(name: str) -> None:
    with pytest.raises(
        InvalidArgument, match=f"option {name} is for spark.read: leave it away here"
    ):
        ReadOptions.parse(GIVEN | {name: "latest"}, "stream")


def test_a_pattern_matches_whole_names() -> None:
    options = ReadOptions.parse({"store": "s", "subscribePattern": "orders-.*|bills"})
    there = ["orders-b", "orders-a", "orders", "bills", "old-bills", "bills2"]
    assert options.chosen(there) == ["bills", "orders-a", "orders-b"]


def test_a_time_is_milliseconds_or_an_iso_time_and_goes_before_offsets() -> None:
    iso = ReadOptions.parse(GIVEN | {"startingTimestamp": "2026-11-20T08:00:00.250Z"}).starting
    assert iso.default == 1_795_161_600_250_000_000
    given = GIVEN | {"startingTimestamp": "1795161600250", "startingOffsets": "latest"}
    assert ReadOptions.parse(given, "batch").starting == iso
    named = {"startingOffsetsByTimestamp": '{"orders": {"0": 1795161600250}}'}
    assert ReadOptions.parse(GIVEN | named).starting.named == {"orders": {0: iso.default}}


def test_options_for_brokers_get_one_warning_that_names_them() -> None:
    brokers = {"kafka.bootstrap.servers": "x:9092", "Kafka.security.protocol": "SSL"}
    asking = {
        "kafkaConsumer.pollTimeoutMs": "1",
        "fetchOffset.numRetries": "1",
        "groupIdPrefix": "g",
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = ReadOptions.parse(
            GIVEN | brokers | asking | {"maxOffsetsPerTrigger": "5"}, "batch"
        )
        assert not caught
        options.warn_of_ignored()
    (warning,) = caught
    assert str(warning.message).endswith(
        "fetchoffset.numretries, groupidprefix, kafka.bootstrap.servers, kafka.security.protocol, "
        "kafkaconsumer.polltimeoutms, maxOffsetsPerTrigger"
    )
