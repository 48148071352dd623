"""What `format("falaj")` takes, and what it says about the rest."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from falaj.errors import Invalid
from falaj.spark.options import ReadOptions

GIVEN = {"store": "events", "subscribe": "orders"}


def test_store_and_topic_are_enough() -> None:
    options = ReadOptions.parse(GIVEN)
    assert options.topics == ("orders",)
    assert (options.headers, options.partitions_min) == (False, None)
    assert options.starting.resolve("orders", 0, 5, 9) == 5
    assert options.ending.resolve("orders", 0, 5, 9) == 9


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
        (GIVEN | {"subscribePattern": "a.*"}, "option subscribePattern is not supported yet"),
        (GIVEN | {"failOnDataLoss": "false"}, "failOnDataLoss=false is not supported yet"),
        (GIVEN | {"failOnDataLoss": "no"}, "option failOnDataLoss is true or false, not 'no'"),
        (GIVEN | {"includeHeaders": "1"}, "option includeHeaders is true or false, not '1'"),
        (GIVEN | {"minPartitions": "0"}, "option minPartitions is a whole number from 1 up"),
        (GIVEN | {"minPartitions": "ten"}, "option minPartitions is a whole number from 1 up"),
        (GIVEN | {"startingOffsets": "latest"}, "a batch that begins there is always empty"),
        (GIVEN | {"endingOffsets": "earliest"}, "a batch that ends there is always empty"),
        (
            GIVEN | {"startingOffsets": '{"orders": {"0": -1}}'},
            "startingOffsets is latest for topic orders, partition 0, but a batch that begins",
        ),
        (GIVEN | {"startingOffsets": "soon"}, 'is earliest, latest or JSON such as {"orders"'),
        (GIVEN | {"startingOffsets": "[]"}, "is earliest, latest or JSON such as"),
        (GIVEN | {"startingOffsets": '{"orders": 1}'}, "is earliest, latest or JSON such as"),
        (GIVEN | {"startingOffsets": '{"bills": {"0": 1}}'}, "names topic bills, which subscribe"),
        (GIVEN | {"startingOffsets": "{}"}, "must name every topic, and orders is missing"),
        (GIVEN | {"endingOffsets": '{"orders": {"x": 1}}'}, "names partition 'x': it is a number"),
        (GIVEN | {"endingOffsets": '{"orders": {"0": -3}}'}, "says -3 for topic orders"),
        (GIVEN | {"endingOffsets": '{"orders": {"0": 1.5}}'}, "says 1.5 for topic orders"),
        (GIVEN | {"endingOffsets": '{"orders": {"0": true}}'}, "says True for topic orders"),
    ],
)
def test_what_cannot_be_right_is_told_with_the_remedy(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Invalid) as raised:
        ReadOptions.parse(options)
    assert sentence in str(raised.value)


def test_options_for_brokers_get_one_warning_that_names_them() -> None:
    brokers = {"kafka.bootstrap.servers": "x:9092", "Kafka.security.protocol": "SSL"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ReadOptions.parse(GIVEN | brokers)
    (warning,) = caught
    assert "kafka.bootstrap.servers, kafka.security.protocol" in str(warning.message)
