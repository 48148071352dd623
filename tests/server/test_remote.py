"""Appends that wait for another machine, and reads of what has left this one, over HTTP."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import falaj
from falaj.ship.place import open_place
from falaj.ship.shipper import Options, Shipper
from server.doors import Reply, Server

PATH = "/v1/topics/orders/records"


def append(server: Server, body: bytes = b"paid", query: str = "&timeout=30s") -> Reply:
    return server.post(f"{PATH}?sync=remote{query}", body, Content_Type="text/plain")


@contextmanager
def shipped(store: falaj.Store, place: Path) -> Iterator[Callable[[], None]]:
    """Ship a store in a thread of this process; yields what stops it."""
    begun = threading.Event()
    shipper = Shipper(store, open_place(place), Options())
    thread = threading.Thread(target=shipper.run, kwargs={"told": lambda _: begun.set()})
    thread.start()
    assert begun.wait(60)

    def stop() -> None:
        shipper.stop.set()
        thread.join()

    try:
        yield stop
    finally:
        stop()


def test_an_append_is_answered_once_the_place_has_it(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        store.topic("orders", codec="str").append("first")
        with shipped(store, tmp_path / "place"):
            reply = append(server)
            assert (reply.status, reply.json["remote"], reply.json["durable"]) == (201, True, True)
            assert reply.json["next"] == 2
            with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache") as reader:
                assert [record.value for record in reader.topic("orders")] == ["first", "paid"]
            together = {"parts": [{"topic": "orders", "records": [{"value": "both"}]}]}
            placed = server.post(
                "/v1/append?sync=remote&timeout=30s", json.dumps(together).encode()
            )
            assert (placed.status, placed.json["remote"]) == (201, True)
            assert store.topic("orders").wait_remote(2, timeout=0)


def test_without_a_shipper_nothing_is_appended_and_it_says_so_at_once(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        topic = store.topic("orders", codec="str")
        begun = time.monotonic()
        reply = append(server)
        assert time.monotonic() - begun < 20
        assert (reply.status, reply.problem) == (409, "no-shipper")
        assert "nothing was appended" in reply.json["detail"]
        assert not {"partitions", "offset"} & reply.json.keys()
        parts = {"parts": [{"topic": "orders", "records": [{"value": "both"}]}]}
        assert (
            server.post("/v1/append?sync=remote", json.dumps(parts).encode()).problem
            == "no-shipper"
        )
        assert len(topic) == 0


def test_a_wait_that_takes_too_long_names_the_offsets_and_stalls_no_other_append(
    tmp_path: Path,
) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        topic = store.topic("orders", codec="str")
        topic.append("first")
        # It says that it ships, and ships nothing.
        with store._shipping(), ThreadPoolExecutor(40) as pool:
            waits = [pool.submit(append, server, b"%d" % n, "&timeout=4s") for n in range(40)]
            while len(topic) < 41:
                time.sleep(0.01)  # sleep: the server is another process
            begun = time.monotonic()
            assert server.post(PATH, b"quick", Content_Type="text/plain").status == 201
            assert server.get(f"{PATH}?from=0&limit=5").status == 200
            assert not any(wait.done() for wait in waits) or time.monotonic() - begun > 3
            replies = [wait.result() for wait in waits]
    assert {(each.status, each.problem) for each in replies} == {(500, "remote-timeout")}
    offsets = sorted(each.json["offset"] for each in replies)
    assert offsets == list(range(1, 41))
    for each in replies:
        (part,) = each.json["partitions"]
        assert part == {"partition": 0, "first": each.json["offset"], "next": part["first"] + 1}
        assert "do not append it again" in each.json["detail"]
    with falaj.open(tmp_path / "events", read_only=True) as store:
        assert len(store.topic("orders")) == 42


def test_a_wait_ends_when_the_shipper_does(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        topic = store.topic("orders", codec="str")
        topic.append("first")
        with ThreadPoolExecutor(1) as pool, store._shipping() as shipping:
            wait = pool.submit(append, server)
            while len(topic) < 2:
                time.sleep(0.01)  # sleep: the server is another process
            begun = time.monotonic()
            shipping.close()
            reply = wait.result()
            assert time.monotonic() - begun < 20
    assert (reply.status, reply.problem, reply.json["offset"]) == (500, "no-shipper", 1)
    assert reply.json["partitions"] == [{"partition": 0, "first": 1, "next": 2}]


def test_a_reader_of_what_left_the_machine_sees_no_more(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        topic = store.topic("orders", codec="str")
        topic.append("first")
        with shipped(store, tmp_path / "place"):
            assert append(server, b"second").status == 201
        topic.append("third")
        seen = {
            far: server.get(f"{PATH}?visibility={far}").json["next_offset"]
            for far in ("visible", "durable", "remote")
        }
        assert seen["visible"] == 3
        assert seen["remote"] == 2
        assert server.get(f"{PATH}?visibility=far").status == 400
        with ThreadPoolExecutor(1) as pool:
            query = f"{PATH}?visibility=remote&from=2&wait=30s"
            wait = pool.submit(server.get, query)
            time.sleep(0.2)  # sleep: what it must not see is there already
            assert not wait.done()
            with shipped(store, tmp_path / "place"):
                records = wait.result().json["records"]
        assert [each["value"] for each in records] == ["third"]


def test_a_server_that_stops_ends_a_wait_and_says_what_is_there(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        topic = store.topic("orders", codec="str")
        topic.append("first")
        with store._shipping(), ThreadPoolExecutor(1) as pool:
            wait = pool.submit(append, server)
            while len(topic) < 2:
                time.sleep(0.01)  # sleep: the server is another process
            server.process.terminate()
            reply = wait.result()
    assert (reply.problem, reply.json["offset"]) == ("remote-timeout", 1)


@pytest.mark.parametrize("query", ["sync=far", "sync=remote&timeout=soon"])
def test_a_mode_or_a_time_that_there_is_not_is_refused(tmp_path: Path, query: str) -> None:
    with Server(tmp_path / "events") as server:
        assert server.post(f"{PATH}?{query}", b"x").status == 400
