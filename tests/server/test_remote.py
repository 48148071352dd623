"""Appends that wait for another machine, and reads of what has left this one, over HTTP."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import falaj
import falaj_client
from falaj.errors import InvalidArgument, NoShipper, RemoteTimeout
from falaj.ship.place import open_place
from falaj.ship.shipper import Options, Shipper
from house import ROOT
from server.doors import Reply, Server
from server.lossy import Lossy
from server.test_client import connect

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


def test_without_a_shipper_other_errors_of_an_append_that_may_be_a_repeat_are_told(
    tmp_path: Path,
) -> None:
    def alone(sequence: int, sync: str) -> Reply:
        sent = {"Falaj-Producer": "p", "Falaj-Sequence": str(sequence)}
        return server.post(f"{PATH}?sync={sync}", b"paid", Content_Type="text/plain", **sent)

    def together(sequence: int, sync: str) -> Reply:
        sent = {"Falaj-Producer": "q", "Falaj-Sequence": str(sequence)}
        parts = {"parts": [{"topic": "orders", "records": [{"value": "both"}]}]}
        return server.post(f"/v1/append?sync={sync}", json.dumps(parts).encode(), **sent)

    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        topic = store.topic("orders", codec="str")
        for append_one in (alone, together):
            assert [append_one(n, "none").status for n in range(7)] == [201] * 7
            # A repeat is appended already; whether it left the machine is unknown.
            again = append_one(6, "remote")
            assert (again.problem, again.json["offset"]) == ("no-shipper", len(topic) - 1)
            for new in (7, 9):
                refused = append_one(new, "remote")
                assert refused.problem == "no-shipper"
                assert "offset" not in refused.json
            old = append_one(1, "remote")
            assert (old.problem, old.json["highest_sequence"]) == ("duplicate-sequence", 6)
        assert len(topic) == 14


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
    assert (reply.status, reply.problem, reply.json["offset"]) == (409, "no-shipper", 1)
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


# --- The client -----------------------------------------------------------------------------------


def test_the_client_waits_for_the_place_and_reads_what_it_has(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as native, Server(tmp_path / "events") as server:
        native.topic("orders", codec="str").append("first")
        with connect(server) as store:
            orders = store.topic("orders")
            far = store.topic("orders", visibility="remote")
            with shipped(native, tmp_path / "place"):
                assert orders.append("second", sync="remote", timeout=30) == 1
                assert orders.extend(["a", "b"], sync="remote") == range(2, 4)
                with store.transaction(sync="remote") as together:
                    together.append(orders, "c")
                assert native.topic("orders").wait_remote(4, timeout=0)
            orders.append("late")
            assert [record.value for record in far] == ["first", "second", "a", "b", "c"]
            assert (far.end_offset, far[-1].value, orders[-1].value) == (5, "c", "late")
            assert [record.value for record in far[-2:]] == ["b", "c"]
            assert list(far.follow(5, timeout=0)) == []
            with shipped(native, tmp_path / "place"):
                assert next(iter(far.follow(5, timeout=30))).value == "late"


def test_the_client_raises_what_the_native_call_raises(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as native, Server(tmp_path / "events") as server:
        topic = native.topic("orders", codec="str")
        with connect(server, timeout=20) as store:
            orders = store.topic("orders")
            both: list[Any] = [topic, orders]
            for each in both:
                with pytest.raises(NoShipper, match="nothing was appended") as none:
                    each.append("x", sync="remote")
                assert none.value.offset is None
            assert len(topic) == 0
            with native._shipping():
                for offset, each in enumerate(both):
                    with pytest.raises(RemoteTimeout, match="do not append it again") as late:
                        each.append("x", sync="remote", timeout=0.5)
                    assert late.value.offset == offset
            assert len(topic) == 2
            with pytest.raises(InvalidArgument, match="timeout="):
                orders.append("x", timeout=1)
            with pytest.raises(InvalidArgument, match="visibility"):
                store.topic("orders", visibility="far")


def test_the_client_of_asyncio_waits_too(tmp_path: Path) -> None:
    async def run(url: str, token: str) -> list[str]:
        async with falaj_client.aconnect(url, token=token) as store:
            orders = await store.topic("orders", visibility="remote")
            assert await orders.append("second", sync="remote", timeout=30) == 1
            return [record.value async for record in orders]

    with falaj.open(tmp_path / "events") as native, Server(tmp_path / "events") as server:
        native.topic("orders", codec="str").append("first")
        with shipped(native, tmp_path / "place"):
            got = asyncio.run(run(f"http://127.0.0.1:{server.port}", server.token))
    assert got == ["first", "second"]


def test_lines_are_appended_over_a_url_once_the_place_has_them(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as native, Server(tmp_path / "events") as server:
        topic = native.topic("orders", codec="str")
        topic.append("first")

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            url = f"http://127.0.0.1:{server.port}"
            command = [sys.executable, "-m", "falaj", "append", "-s", url, "orders", *words]
            env = {**os.environ, "FALAJ_TOKEN": server.token, "PYTHONPATH": str(ROOT / "client")}
            return subprocess.run(
                command, input="a\nb\n", capture_output=True, text=True, env=env, check=False
            )

        refused = run("--sync", "remote")
        assert refused.returncode != 0
        assert "nothing was appended" in refused.stderr
        assert len(topic) == 1
        with shipped(native, tmp_path / "place"):
            done = run("--sync", "remote", "--timeout", "30")
            assert done.returncode == 0, done.stderr
            assert topic.wait_remote(2, timeout=0)
        with native._shipping():
            late = run("--sync", "remote", "--timeout", "0.5")
        assert late.returncode != 0
        assert "do not append it again" in late.stderr
        assert len(topic) == 5


def test_a_repeat_without_a_shipper_names_the_records_that_the_first_try_appended(
    tmp_path: Path,
) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        topic = store.topic("orders", codec="str")
        parts = store.partitioned_topic("parts", partitions=3, codec="str")
        topic.append("first")
        both = {"parts": [{"topic": "orders", "records": [{"value": "both"}]}]}
        body = json.dumps(both).encode()

        def tries(sequence: int) -> Iterator[Reply]:
            named = {"Falaj_Producer": "client", "Falaj_Sequence": str(sequence)}
            as_text = {**named, "Content_Type": "text/plain"}
            for path in (PATH, "/v1/topics/parts/records"):
                yield server.post(f"{path}?sync=remote&timeout=2s", b"paid", **as_text)
            again = {**named, "Falaj_Producer": "together"}
            yield server.post("/v1/append?sync=remote&timeout=2s", body, **again)

        with store._shipping():  # it ships nothing, so each of them waits in vain
            first = [*tries(0)]
        assert {(reply.status, reply.problem) for reply in first} == {(500, "remote-timeout")}
        for before, reply in zip(first, tries(0), strict=True):
            assert (reply.status, reply.problem) == (409, "no-shipper")
            for member in ("partitions", "parts", "offset"):
                assert reply.json.get(member) == before.json.get(member)
            assert "whether it left the machine is unknown" in reply.json["detail"]
        for reply in tries(1):
            assert (reply.status, reply.problem) == (409, "no-shipper")
            assert "nothing was appended" in reply.json["detail"]
        with shipped(store, tmp_path / "place"):
            done = [*tries(0)]
        assert {reply.status for reply in done} == {201}
        assert [reply.json for reply in tries(0)] == [reply.json for reply in done]
        assert (len(topic), sum(map(len, parts.offsets.values()))) == (3, 1)


def test_a_client_that_lost_the_answer_hears_where_its_record_is_though_the_shipper_ended(
    tmp_path: Path,
) -> None:
    store = falaj.open(tmp_path / "events")
    with store, Server(tmp_path / "events") as server, Lossy(1, 0.0) as proxy:
        proxy.behind, url = server.port, f"http://127.0.0.1:{proxy.port}"
        topic = store.topic("orders", codec="str")
        topic.append("first")
        with (
            falaj.connect(url, token=server.token, timeout=60) as client,
            ThreadPoolExecutor(1) as pool,
        ):
            orders = client.topic("orders")
            proxy.only, proxy.always = b"POST", "reply"
            with store._shipping() as shipping:
                append = pool.submit(orders.append, "paid", sync="remote", timeout=30)
                while len(topic) < 2:
                    time.sleep(0.01)  # sleep: the server is another process
                shipping.close()
                while not proxy.lost["reply"]:
                    time.sleep(0.01)  # sleep: the proxy does not tell what it loses
            proxy.always = ""
            with pytest.raises(falaj_client.errors.NoShipper) as raised:
                append.result()
            assert raised.value.offset == 1
        assert len(topic) == 2
