"""Many followers, and large records: neither takes more memory than was set aside for it."""

import selectors
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import falaj
from server.doors import Reply, Server
from server.test_limits import gauge, wait

FOLLOWERS = 500
# The benchmark holds a release build to 16 KiB. This build is not optimized, and its buffers count.
BYTES_MAX = 32 << 10


def budget(most: str, body: str) -> tuple[str, ...]:
    """Flags of a server with so much memory for bodies and answers."""
    bodies = ("--limits-body", body, "--limits-decoded-body", body, "--limits-record", body)
    return ("--limits-bytes-in-flight", most, *bodies)


def ask(server: Server, path: str, *lines: str) -> bytes:
    """Write a GET by hand."""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
    return (head + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("/v1/topics/idle/records?from=0&wait=60s", ()),
        ("/v1/topics/idle/records", ("Accept: text/event-stream",)),
    ],
)
def test_followers_that_wait_cost_little_memory_and_no_part_of_the_budget(
    tmp_path: Path, path: str, lines: tuple[str, ...]
) -> None:
    flags = budget("16MiB", body="8MiB")
    with falaj.open(tmp_path / "events") as store, ExitStack() as held:
        topic = store.topic("idle")
        server = held.enter_context(Server(tmp_path / "events", *flags))
        ready = held.enter_context(selectors.DefaultSelector())
        used = []
        for followers in (FOLLOWERS // 2, FOLLOWERS):
            while len(ready.get_map()) < followers:
                client = held.enter_context(server.socket())
                client.sendall(ask(server, path, *lines))
                ready.register(client, selectors.EVENT_READ)
            wait(lambda many=followers: gauge(server, "followers") == many)  # type: ignore[misc]
            used.append(server.anonymous())
        assert gauge(server, "bytes_in_flight") == 0
        # The first half brought the threads of the pool with it.
        assert (used[1] - used[0]) / (FOLLOWERS // 2) < BYTES_MAX
        topic.append(b"news")
        answered = 0
        while answered < FOLLOWERS:
            for key, _ in ready.select():
                answering = key.fileobj
                assert isinstance(answering, socket.socket)
                if b'"news"' in answering.recv(1 << 16):
                    ready.unregister(answering)
                    answered += 1


def test_a_record_that_grows_as_json_waits_for_its_share_of_the_budget(tmp_path: Path) -> None:
    size = 3 << 20
    with falaj.open(tmp_path / "events") as store:
        store.topic("large").append(b"\x01" * size)  # six bytes of JSON each
    with Server(tmp_path / "events", *budget("24MiB", body="8MiB")) as server:
        lengths: list[int] = []

        def read() -> None:
            answer = server.get("/v1/topics/large/records?bytes=1024").json
            lengths.append(len(answer["records"][0]["value"]))

        reading = [threading.Thread(target=read) for _ in range(4)]
        for thread in reading:
            thread.start()
        for thread in reading:
            thread.join()
        assert lengths == [size] * 4
        assert server.peak_rss() < 80 << 20


def test_a_record_that_is_larger_as_json_than_the_whole_budget_is_refused(tmp_path: Path) -> None:
    flags = budget("1MiB", body="64KiB")
    with falaj.open(tmp_path / "events") as store:
        store.topic("large").extend([b"small", b"\x01" * (1 << 20)])
    with Server(tmp_path / "events", *flags) as server:
        path = "/v1/topics/large/records"
        assert server.get(path).json["next_offset"] == 1
        refused = server.get(f"{path}?from=1")
        assert (refused.status, refused.problem) == (406, "record-too-large")
        assert (refused.json["offset"], refused.json["remedy"]) == (
            1,
            "raise limits.bytes_in_flight",
        )
        assert gauge(server, "bytes_in_flight") == 0


def test_a_wait_that_can_bring_nothing_ends_at_once(tmp_path: Path) -> None:
    path = "/v1/topics/orders/records"
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        store.topic("orders").append(b"last")
        begun = time.monotonic()
        nothing = server.get(f"{path}?limit=0", Accept="text/event-stream")
        assert (nothing.status, nothing.body) == (200, b"")
        assert server.get(f"{path}?limit=0&wait=60s").json["records"] == []
        answers: list[Reply] = []
        reading = threading.Thread(
            target=lambda: answers.append(server.get(f"{path}?from=1&wait=60s"))
        )
        reading.start()
        wait(lambda: gauge(server, "followers") == 1)
        store.topic("orders").finish()
        reading.join()
        answers.append(server.get(f"{path}?from=1&wait=60s"))
        assert [(one.status, one.json["next_offset"]) for one in answers] == [(200, 1)] * 2
        assert time.monotonic() - begun < 30


@pytest.mark.parametrize(("log", "again"), [("shop", False), ("orders", False), ("orders", True)])
def test_a_wait_for_records_of_a_topic_ends_when_the_topic_is_deleted(
    tmp_path: Path, log: str, again: bool
) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        store.topic("orders", log=log).append(b"x")
        store.topic("paid", log="shop")
        answers: list[Reply] = []
        path = "/v1/topics/orders/records?from=1&wait=60s"
        reading = threading.Thread(target=lambda: answers.append(server.get(path)))
        begun = time.monotonic()
        reading.start()
        wait(lambda: gauge(server, "followers") == 1)
        store.delete_topic("orders")
        if again:
            store.topic("orders")
        reading.join()
        assert (answers[0].status, answers[0].problem) == (410, "topic-deleted")
        assert time.monotonic() - begun < 30


def test_a_kind_of_answer_with_no_weight_is_not_sent(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        store.topic("orders").append(b"x")
        for accept, kind in (
            ("application/json, text/event-stream;q=0", "application/json"),
            ("text/event-stream; Q=0.0, application/octet-stream", "application/octet-stream"),
            ("application/json;q=0.5, text/event-stream;q=0.9", "text/event-stream"),
        ):
            answer = server.get("/v1/topics/orders/records?limit=1", Accept=accept)
            assert answer.headers["content-type"] == kind, accept
