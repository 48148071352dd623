"""The flights as topics: all of 2013, and January, which does where no more is needed.

Both are made once and only read. A record's value is the flight as JSON, its key the tail number
(none where that is missing), its partition the airport, its time the scheduled hour of departure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import falaj
from falaj import _time
from falaj.demo import flights as data

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


ALL, JANUARY = 336_776, 27_004
TOPIC = "flights"


@dataclass(frozen=True)
class Flown:
    """A store with the topic `flights`."""

    store: Path
    records: int


def fill(path: Path, wanted: Iterable[data.Flight], topic: str = TOPIC) -> Flown:
    """Append flights as one job; make store and topic where they are not."""
    hours: dict[str, int] = {}
    with (
        falaj.open(path) as store,
        store.partitioned_topic(topic, partitions=len(data.ORIGINS)) as opened,
        opened.bulk_load("flights") as job,
    ):
        for flight in wanted:
            hour = flight["time_hour"]
            if hour not in hours:
                hours[hour] = _time.to_ns(hour)
            job.append(
                data.encode(flight),
                key=flight["tailnum"].encode() if flight["tailnum"] else None,
                timestamp_ns=hours[hour],
                partition=data.ORIGINS.index(flight["origin"]),
            )
    return Flown(path, job.records)


@pytest.fixture(scope="session")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Flown:
    """All flights of 2013: takes seconds, so most tests take `january`."""
    flown = fill(tmp_path_factory.mktemp("year") / "store", data.flights())
    assert flown.records == ALL
    return flown


@pytest.fixture(scope="session")
def january_flights() -> list[data.Flight]:
    """The flights of January, in the order of the file."""
    found = list(data.flights(limit=JANUARY))
    assert {flight["month"] for flight in found} == {1}
    return found


@pytest.fixture(scope="session")
def january(tmp_path_factory: pytest.TempPathFactory, january_flights: list[data.Flight]) -> Flown:
    """The flights of January, only to be read."""
    return fill(tmp_path_factory.mktemp("january") / "store", january_flights)


class Told:
    """A progress that remembers its calls."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.totals: list[int] = []
        self.done = 0

    def say(self, text: str) -> None:
        self.said.append(text)

    def total(self, steps: int) -> None:
        self.totals.append(steps)

    def advance(self, steps: int) -> None:
        self.done += steps


@pytest.fixture
def told() -> Told:
    return Told()
