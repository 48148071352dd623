"""The server is one more process: natives read its appends, and a stuck one stalls one log."""

import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest
from children import child, stop_in_the_middle_of_an_append

import falaj
from server.doors import Reply, Server
from server.test_door import TOKENS, principals

APPEND = """
import sys, falaj
with falaj.open(sys.argv[1]) as store:
    topic = store.topic("stuck", create=False)
    while True:
        topic.append(b"x" * 1000)
"""


def test_natives_read_what_the_server_appended_and_the_other_way_round(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders")
        topic.append(b"native", "k", headers={"a": b"1"})
        added = server.post(
            "/v1/topics/orders/records?sync=durable", b"http", Falaj_Key="k", Falaj_Header_Trace="7"
        )
        assert added.json == {
            "durable": True,
            "partition": 0,
            "first": 1,
            "next": 2,
            "partitions": [{"partition": 0, "first": 1, "next": 2}],
        }
        record = topic[1]
        assert (bytes(record.raw or b""), bytes(record.key or b"")) == (b"http", b"k")
        assert [(name, bytes(value or b"")) for name, value in record.headers] == [("trace", b"7")]
        assert topic.durable_offset == 2
        read = server.get("/v1/topics/orders/records").json
        assert [one["value"] for one in read["records"]] == ["native", "http"]
        assert read["records"][0]["headers"] == [{"name": "a", "value": "1"}]


def test_a_waiting_read_is_answered_by_a_native_append(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders")
        answers: list[Reply] = []

        def wait() -> None:
            answers.append(server.get("/v1/topics/orders/records?from=0&wait=60s"))

        waiting = [threading.Thread(target=wait) for _ in range(8)]
        for thread in waiting:
            thread.start()
        while "falaj_server_followers 8" not in server.get("/metrics").body.decode():
            pass
        topic.append(b"x")
        for thread in waiting:
            thread.join()
        assert [answer.json["next_offset"] for answer in answers] == [1] * 8


def test_an_append_with_a_condition_or_a_sequence_is_safe_to_repeat(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        path = "/v1/topics/orders/records"
        assert server.post(path, b"x", If_Next="0").status == 201
        again = server.post(path, b"x", If_Next="0")
        assert (again.status, again.problem, again.json["next"]) == (412, "offset-conflict", 1)
        named = {"Falaj_Producer": "p", "Falaj_Sequence": "1"}
        first = server.post(path, b"y", **named)
        assert server.post(path, b"y", **named).json == first.json
        gap = server.post(path, b"z", Falaj_Producer="p", Falaj_Sequence="0")
        assert (gap.status, gap.problem) == (409, "duplicate-sequence")
        assert server.get("/v1/topics/orders").json["partitions"][0]["end_offset"] == 2


def test_being_asked_to_end_finishes_what_is_in_flight(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        server.post("/v1/topics/orders/records", b"x")
        answers: list[Reply] = []

        def wait() -> None:
            answers.append(server.get("/v1/topics/orders/records?from=1&wait=60s"))

        waiting = threading.Thread(target=wait)
        waiting.start()
        while "falaj_server_followers 1" not in server.get("/metrics").body.decode():
            pass
        code, _ = server.stop(signal.SIGTERM)
        waiting.join()
        assert (code, answers[0].status, answers[0].json["records"]) == (0, 200, [])


def test_a_store_that_cannot_be_written_is_served_for_reading(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store:
        store.topic("orders").append(b"x")
    with Server(tmp_path / "events"):
        pass
    with Server(tmp_path / "events", "--read-only") as server:
        assert server.get("/readyz").json == {"status": "ready", "store": "read-only"}
        assert server.get("/v1/topics/orders/records").json["next_offset"] == 1
        refused = server.post("/v1/topics/orders/records", b"x")
        assert (refused.status, refused.problem) == (403, "read-only")


def test_a_native_writer_that_is_stopped_in_an_append_stalls_its_log_alone(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store, child(tmp_path / "events", APPEND) as native:
        topic = store.topic("stuck")
        while not len(topic):
            pass
        stop_in_the_middle_of_an_append(native.process.pid, topic)
        with Server(tmp_path / "events") as server:
            stuck: list[Reply] = []

            def append() -> None:
                stuck.append(server.post("/v1/topics/stuck/records?timeout=1s", b"y"))

            waiting = [threading.Thread(target=append) for _ in range(4)]
            for thread in waiting:
                thread.start()
            for i in range(50):
                assert server.post("/v1/topics/free/records?sync=durable", b"y").json["first"] == i
                assert server.get("/healthz").status == 200
            for thread in waiting:
                thread.join()
            assert {reply.status for reply in stuck} == {503}
            assert {reply.problem for reply in stuck} <= {"busy", "lock-timeout"}
            native.kill()
            last = server.post("/v1/topics/stuck/records?sync=durable", b"z").json["first"]
            assert bytes(topic[last].raw or b"") == b"z"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a server as another user")
def test_a_user_that_may_only_read_the_store_serves_it_for_reading() -> None:
    other = 65534  # a user without rights on every Linux
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with falaj.open(folder / "events", permissions=0o755) as store:
            store.topic("orders").append(b"x")
        with Server(folder / "events"):
            pass
        with pytest.raises(AssertionError, match=r"no client could come in.*access\.principals"):
            Server(folder / "events", user=other)
        file = principals(folder / "principals.toml")
        token = TOKENS["viewer"]
        flags = ("--access-principals", str(file))
        with Server(folder / "events", *flags, user=other) as server:
            server.until_said("the store is served for reading only")
            assert server.get("/readyz").json["store"] == "read-only"
            answer = server.get("/v1/topics/orders/records", token=token)
            assert answer.json["records"][0]["value"] == "x"
            ingest = TOKENS["ingest"]
            refused = server.post("/v1/topics/orders/records", b"y", token=ingest)
            assert (refused.status, refused.problem) == (403, "read-only")
