"""The demo's checks notice errors: each gets a log or figures that are wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import falaj
from falaj.demo import check, flights
from falaj.demo.failed import Failed
from falaj.demo.figures import Tally, by_carrier
from falaj.demo.producer import next_of, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 60


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[falaj.Topic[memoryview]]:
    """A topic with all flights, each producer's in order."""
    with falaj.open(tmp_path / "store") as store, store.topic("flights", codec="raw") as topic:
        for origin in flights.ORIGINS:
            for value, key, headers in rows(origin, LIMIT):
                topic.append(value, key, headers=headers)
        yield topic


def count(topic: falaj.Topic[memoryview], limit: int = LIMIT) -> tuple[int, int]:
    return check.exactly_once(topic.store.path, topic.name, limit)


def test_a_log_with_every_flight_once_is_right(topic: falaj.Topic[memoryview]) -> None:
    size = sum(len(record) for record in topic)
    assert count(topic) == (LIMIT, size)


def test_a_flight_that_is_there_twice_is_seen(topic: falaj.Topic[memoryview]) -> None:
    topic.extend([topic[3]])
    with pytest.raises(Failed, match=f"offset {LIMIT} of topic flights is number 3 of EWR, which"):
        count(topic)


def test_a_flight_that_is_missing_is_seen(topic: falaj.Topic[memoryview]) -> None:
    with pytest.raises(Failed, match="1 of 61 flights are not in the topic flights, the first is"):
        count(topic, LIMIT + 1)


def test_a_flight_that_is_not_as_the_file_has_it_is_seen(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store, store.topic("flights") as topic:
        for value, key, headers in rows("EWR", LIMIT):
            topic.append(bytes(value).replace(b"UA", b"XX"), key, headers=headers)
    with pytest.raises(Failed, match="at offset 0 of topic flights is not number 0 of EWR as the"):
        check.exactly_once(tmp_path / "store", "flights", LIMIT)


def test_a_producer_finds_in_the_log_what_comes_next(topic: falaj.Topic[memoryview]) -> None:
    totals = flights.count(LIMIT)
    assert {origin: next_of(topic, origin) for origin in totals} == totals
    assert next_of(topic, "BOS") == 0


ROWS = [
    {"carrier": "AA", "hour": 7, "origin": "JFK", "time_hour": "x", "dep_delay": -3},
    {"carrier": "AA", "hour": 7, "origin": "JFK", "time_hour": "x", "dep_delay": None},
    {"carrier": "AA", "hour": 8, "origin": "LGA", "time_hour": "x", "dep_delay": 15},
    {"carrier": "UA", "hour": 7, "origin": "JFK", "time_hour": "y", "dep_delay": 14},
]
RAIN = {("JFK", "x"): 0.1, ("LGA", "x"): 0.0}
SUMS = {
    ("AA", 7): Tally(flights=2, departed=1, minutes=-3, late=0, wet=1, wet_minutes=-3),
    ("AA", 8): Tally(flights=1, departed=1, minutes=15, late=1, wet=0, wet_minutes=0),
    ("UA", 7): Tally(flights=1, departed=1, minutes=14, late=0, wet=0, wet_minutes=0),
}


def test_delays_are_summed_up_by_carrier_and_hour() -> None:
    assert check.tally(ROWS, RAIN) == SUMS
    assert by_carrier(SUMS)["AA"] == Tally(3, 2, 12, 1, 1, -3)


def test_equal_figures_pass_and_any_other_is_told_with_both() -> None:
    summary = by_carrier(SUMS)
    check.same_delays(SUMS, dict(SUMS), summary)
    wrong = SUMS | {("AA", 8): Tally(1, 1, 16, 1)}
    with pytest.raises(Failed, match=r"1 figures in the Parquet files .*\('AA', 8\): expected"):
        check.same_delays(SUMS, wrong, summary)
    with pytest.raises(Failed, match=r"1 figures in the topic delays .*UA: expected .* found None"):
        check.same_delays(SUMS, SUMS, {"AA": summary["AA"]})
    with pytest.raises(Failed, match=r"\('B6', 1\): expected None, found"):
        check.same_delays(SUMS, SUMS | {("B6", 1): Tally(1)}, summary)
