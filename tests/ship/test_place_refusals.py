"""Nothing is written through a place: each call that writes refuses, and leaves all as it was."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import NotWritable

MARCH = "2026-03-01T00:00:00Z"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A place that has something of everything."""
    with falaj.open(tmp_path / "store") as store:
        orders = store.topic("orders", codec="bytes")
        orders.append(b"one")
        orders.append(b"two", producer="p", sequence=0)
        store.topic("latest", compacted=True, codec="bytes").append(b"x", key=b"k")
        store.partitioned_topic("parts", partitions=2, codec="bytes").append(b"p")
        store.queue("jobs", codec="bytes").put(b"job")
        with store.consumer("readers", [orders]) as group:
            group.poll(timeout=0)
            group.commit()
        store.ship(tmp_path / "place", once=True)
    return tmp_path / "place"


@pytest.fixture
def reader(tmp_path: Path, place: Path) -> Iterator[falaj.PlaceStore]:
    """A store that reads it."""
    with falaj.open_place(place, cache=tmp_path / "cache") as opened:
        yield opened


def _files(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def _transact(store: falaj.Store) -> None:
    with store.transaction() as transaction:
        transaction.append("orders", b"three")


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda store, orders: orders.append(b"three"),
    "append, durable": lambda store, orders: orders.append(b"three", sync="durable"),
    "append, remote": lambda store, orders: orders.append(b"three", sync="remote"),
    "append of a producer": lambda store, orders: orders.append(b"x", producer="p", sequence=0),
    "append if": lambda store, orders: orders.append(b"three", expect=2),
    "extend": lambda store, orders: orders.extend([b"three"]),
    "extend_arrow": lambda store, orders: orders.extend_arrow(orders.to_arrow().select(["value"])),
    "tombstone": lambda store, orders: orders.tombstone(b"k"),
    "flush": lambda store, orders: orders.flush(),
    "trim": lambda store, orders: orders.trim(before_offset=1),
    "finish": lambda store, orders: orders.finish(),
    "compact": lambda store, orders: store.topic("latest").compact(),
    "delete": lambda store, orders: orders.delete(),
    "topic.configure": lambda store, orders: orders.configure(retention_records=5),
    "forget_producer": lambda store, orders: orders.forget_producer("p"),
    "bulk_load": lambda store, orders: orders.bulk_load("load").__enter__(),
    "stage": lambda store, orders: orders.stage("load", "part"),
    "sweep_bulk_loads": lambda store, orders: orders.sweep_bulk_loads(older_than=0),
    "append to a partition": lambda store, orders: store.partitioned_topic("parts").append(b"q"),
    "trim of partitions": lambda store, orders: store.any_topic("parts").trim(before_time=MARCH),
    "delete_topic": lambda store, orders: store.delete_topic("orders"),
    "consumer": lambda store, orders: store.consumer("readers", [orders]),
    "consumer of a new group": lambda store, orders: store.consumer("others", [orders]),
    "seek_group": lambda store, orders: store.seek_group("readers", "orders", 0),
    "delete_group": lambda store, orders: store.delete_group("readers"),
    "forget_topic": lambda store, orders: store.forget_topic("readers", "orders"),
    "queue": lambda store, orders: store.queue("jobs", codec="bytes"),
    "delete_queue": lambda store, orders: store.delete_queue("jobs"),
    "transaction": lambda store, orders: _transact(store),
    "maintain": lambda store, orders: store.maintain(),
    "store.configure": lambda store, orders: store.configure(ship_backlog_bytes=1 << 30),
    "ship": lambda store, orders: store.ship("memory://refusals", once=True),
}


@pytest.mark.parametrize("write", WRITES)
def test_each_call_that_writes_is_refused_through_a_place(
    reader: falaj.PlaceStore, place: Path, write: str
) -> None:
    orders = reader.topic("orders", codec="bytes")
    before = _files(place)
    with pytest.raises(NotWritable, match="shipped there"):
        WRITES[write](reader, orders)
    assert [record.value for record in orders] == [b"one", b"two"]
    assert _files(place) == before


COMMANDS = [
    "append orders",
    "topic create new",
    "topic config orders --retention-records 5",
    "topic trim orders --before 1",
    "topic finish orders --yes",
    "topic delete orders --yes",
    "topic compact latest",
    "group seek readers orders --to earliest",
    "group delete readers --yes",
    "queue put jobs",
    "queue take jobs",
    "queue reset jobs --yes",
    "tail orders --group readers",
    "producer forget orders p",
    "config --ship-min-sync 2",
    "maintain",
    "repair",
    "ship other --once",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_each_command_that_writes_is_refused_on_a_place(
    tmp_path: Path, place: Path, words: str
) -> None:
    before = _files(place)
    command = [sys.executable, "-m", "falaj", *words.split(), "-s", place.as_uri()]
    environment = os.environ | {"FALAJ_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        command, input="three\n", capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1
    wanted = "`falaj place verify" if words == "repair" else "it is a place that is read"
    assert wanted in done.stderr
    assert _files(place) == before
