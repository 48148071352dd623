"""The demo of the server, small: three clients, a follower, a kill, a count."""

import io
from pathlib import Path

import pytest
from rich.console import Console

import falaj
from falaj.demo import Failed, flights, serving
from server.doors import PROGRAM

FLIGHTS = 3_000


def test_the_demo_has_every_flight_once_though_its_server_is_killed(tmp_path: Path) -> None:
    said = Console(file=io.StringIO(), width=100)
    figures = serving.run(tmp_path, str(PROGRAM), limit=FLIGHTS, seconds=1.0, say=said)
    assert 0 < figures.killed_at < FLIGHTS
    assert figures.flights == figures.seen.flights == FLIGHTS
    assert 0 < figures.seen.before_kill < FLIGHTS
    assert {one.origin: one.flights for one in figures.sent} == flights.count(FLIGHTS)
    serving.show(figures, said)
    assert isinstance(said.file, io.StringIO)
    assert "in the store, as the file has them" in said.file.getvalue()


def test_the_demo_fails_where_a_client_appended_a_flight_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_sequence(*_: object) -> None:
        with falaj.open(tmp_path / serving.STORE) as store:
            topic = store.topic(serving.TOPIC, codec="bytes")
            for flight in flights.flights(10, "JFK"):
                headers = {"producer": b"JFK", "seq": b"0"}
                topic.append(flights.encode(flight), headers=headers)

    monkeypatch.setattr(serving, "_by_client", without_sequence)
    monkeypatch.setattr(serving, "_by_curl", without_sequence)
    monkeypatch.setattr(serving, "_follow", lambda *_: None)
    with pytest.raises(Failed):
        serving.run(tmp_path, str(PROGRAM), limit=10, seconds=0, say=Console(quiet=True))
