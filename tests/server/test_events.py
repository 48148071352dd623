"""Streams of server-sent events: what comes, where a stream resumes, and how it ends."""

import http.client
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import falaj
from server.doors import Server
from server.test_door import TOKENS, principals
from server.test_limits import gauge, wait

PATH = "/v1/topics/orders/records"


class Event(NamedTuple):
    """An event of a stream; its id is empty where it has none, its kind where it is a comment."""

    kind: str
    id: str
    data: Any


@contextmanager
def follow(
    server: Server, path: str, last: str | None = None, token: str = ""
) -> Iterator[Iterator[Event]]:
    """Open a stream, and read its events."""
    connection = server.connect()
    authorization = f"Bearer {token or server.token}"
    headers = {"Accept": "text/event-stream", "Authorization": authorization}
    connection.request("GET", path, None, headers | ({"Last-Event-ID": last} if last else {}))
    answer = connection.getresponse()
    try:
        assert answer.status == 200, answer.read()
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["X-Accel-Buffering"] == "no"
        yield events(answer)
    finally:
        connection.close()
        answer.close()


def events(answer: http.client.HTTPResponse) -> Iterator[Event]:
    """Read events as a browser does."""
    found: dict[str, str] = {}
    while line := answer.readline().decode():
        if line != "\n":
            name, _, value = line.rstrip("\n").partition(": ")
            found[name] = value
            continue
        data = json.loads(found["data"]) if "data" in found else None
        kind = "" if data is None else found.get("event", "message")
        yield Event(kind, found.get("id", ""), data)
        found = {}


def test_a_stream_has_what_is_there_and_then_what_natives_append(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        topic = store.topic("orders")
        topic.extend([b"0", b"1"])
        with follow(server, PATH) as stream:
            assert [next(stream).data["value"] for _ in range(2)] == ["0", "1"]
            for i in range(2, 50):
                topic.append(f"{i}".encode(), "k")
                event = next(stream)
                assert (event.kind, event.data["value"], event.data["key"]) == (
                    "message",
                    f"{i}",
                    "k",
                )
                assert event.data["offset"] == i
        wait(lambda: gauge(server, "followers") == 0)
        assert gauge(server, "bytes_in_flight") == 0


@pytest.mark.parametrize(
    ("query", "first"), [("from=3", 3), ("last=2", 8), ("", 0), ("at=1970-01-01T00:00:05Z", 0)]
)
def test_a_stream_begins_where_it_is_asked_to_and_ends_after_its_limit(
    tmp_path: Path, query: str, first: int
) -> None:
    with falaj.open(tmp_path / "events") as store:
        store.topic("orders").extend(f"{i}".encode() for i in range(10))
    with (
        Server(tmp_path / "events") as server,
        follow(server, f"{PATH}?{query}&limit=2".replace("?&", "?")) as stream,
    ):
        assert [event.data["offset"] for event in stream] == [first, first + 1]


def test_a_stream_of_all_partitions_resumes_behind_the_last_event_that_was_seen(
    tmp_path: Path,
) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        topic = store.partitioned_topic("orders", partitions=3)
        places = [topic.append(b"x", f"{i}") for i in range(30)]
        every = {(place.partition, place.offset) for place in places}
        assert len({partition for partition, _ in every}) == 3
        seen: list[tuple[int, int]] = []
        last = None
        while len(seen) < len(every):
            # A connection that breaks after each fourth event, wherever that is.
            with follow(server, PATH, last) as stream:
                for event in (next(stream) for _ in range(min(4, len(every) - len(seen)))):
                    seen.append((event.data["partition"], event.data["offset"]))
                    last = event.id
        assert len(seen) == len(every)
        assert set(seen) == every
        for partition in range(3):
            offsets = [offset for its, offset in seen if its == partition]
            assert offsets == sorted(offsets)
        with follow(server, PATH, last) as stream:
            place = topic.append(b"new", "1")
            event = next(stream)
            assert (event.data["partition"], event.data["offset"]) == place


def test_an_id_of_a_topic_that_was_deleted_resumes_nothing(tmp_path: Path) -> None:
    flags = ("--limits-ping", "50ms")
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events", *flags) as server:
        store.topic("orders").append(b"old")
        with follow(server, PATH) as stream:
            last = next(stream).id
            store.delete_topic("orders")
            # Deleting a topic wakes no follower: the stream looks when it shows that it lives.
            (event,) = [event for event in stream if event.kind]
            problem = "urn:falaj:problem:topic-deleted"
            assert (event.kind, event.data["type"]) == ("problem", problem)
        store.topic("orders").extend([b"new", b"newer"])
        refused = server.get(PATH, Accept="text/event-stream", Last_Event_ID=last)
        assert (refused.status, refused.problem) == (410, "topic-recreated")


def test_a_stream_ends_with_its_topic(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        topic = store.topic("orders")
        topic.append(b"last")
        with follow(server, PATH) as stream:
            assert next(stream).data["value"] == "last"
            topic.finish()
            assert [event.kind for event in stream] == ["finished"]
        with follow(server, PATH) as stream:
            assert [event.kind for event in stream] == ["message", "finished"]


def test_a_stream_does_not_end_with_its_topic_before_it_has_shown_the_last_record(
    tmp_path: Path,
) -> None:
    flags = ("--limits-ping", "20ms")
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events", *flags) as server:
        topic = store.topic("orders")
        topic.append(b"never shipped")
        topic.finish()
        with follow(server, f"{PATH}?visibility=remote") as stream:
            assert [next(stream).kind for _ in range(3)] == ["", "", ""]


def test_a_stream_without_news_shows_that_it_lives(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store:
        store.topic("orders")
        with (
            Server(tmp_path / "events", "--limits-ping", "20ms") as server,
            follow(server, PATH) as stream,
        ):
            assert [next(stream).kind for _ in range(3)] == ["", "", ""]
            store.topic("orders").append(b"x")
            assert next(event for event in stream if event.kind).data["value"] == "x"


def test_a_server_that_ends_ends_its_streams(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events") as server:
        store.topic("orders").append(b"x")
        with follow(server, PATH) as stream:
            next(stream)
            code, _ = server.stop(signal.SIGTERM)
            assert (code, list(stream)) == (0, [])


@pytest.mark.parametrize(
    ("query", "last", "status", "kind"),
    [
        ("?wait=1s", None, 400, "bad-request"),
        ("?from=0&last=1", None, 400, "bad-request"),
        ("?at=yesterday", None, 400, "bad-request"),
        ("?from=7", None, 416, "offset-out-of-range"),
        ("?partition=1", None, 400, "invalid-argument"),
        ("", "nonsense", 400, "bad-request"),
        ("", "0000000000000000-0:0", 410, "topic-recreated"),
        ("", "0000000000000000-0:0,1:0", 400, "bad-request"),
    ],
)
def test_a_stream_that_cannot_begin_is_refused_with_the_reason(
    tmp_path: Path, query: str, last: str | None, status: int, kind: str
) -> None:
    with falaj.open(tmp_path / "events") as store:
        store.topic("orders")
    with Server(tmp_path / "events") as server:
        seen = {} if last is None else {"Last_Event_ID": last}
        refused = server.get(PATH + query, Accept="text/event-stream", **seen)
        assert (refused.status, refused.problem) == (status, kind)
        assert gauge(server, "followers") == 0


def test_one_stream_too_many_is_refused_and_one_that_ends_makes_space(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store:
        store.topic("orders").append(b"x")
    with Server(tmp_path / "events", "--limits-followers", "1") as server:
        with follow(server, PATH) as stream:
            next(stream)
            refused = server.get(PATH, Accept="text/event-stream")
            assert (refused.status, refused.problem) == (503, "busy")
        wait(lambda: gauge(server, "followers") == 0)
        with follow(server, PATH) as stream:
            assert next(stream).data["value"] == "x"


def test_a_topic_of_several_partitions_is_read_one_at_a_time(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store:
        store.partitioned_topic("orders", partitions=2).append(b"x", "k")
    with Server(tmp_path / "events") as server:
        refused = server.get(PATH)
        assert (refused.status, refused.problem) == (400, "bad-request")
        assert "partition=0" in refused.json["detail"]
        found = [server.get(f"{PATH}?partition={i}").json["records"] for i in range(2)]
        assert sorted(len(records) for records in found) == [0, 1]


@pytest.mark.parametrize("keeps", ["its token", "nothing"])
def test_a_stream_ends_once_its_principal_may_no_longer_read(tmp_path: Path, keeps: str) -> None:
    file = principals(tmp_path / "principals.toml")
    flags = ("--access-principals", str(file), "--limits-ping", "50ms")
    with falaj.open(tmp_path / "events") as store, Server(tmp_path / "events", *flags) as server:
        topic = store.topic("orders")
        topic.append(b"old")
        with follow(server, PATH, token=TOKENS["viewer"]) as stream:
            assert next(stream).data["value"] == "old"
            whole = file.read_text()
            kind = "forbidden" if keeps == "its token" else "unauthenticated"
            ends = ("problem", f"urn:falaj:problem:{kind}")
            for text in (whole + "\n", whole.replace('"read"', "") if keeps == "its token" else ""):
                file.write_text(text)
                server.process.send_signal(signal.SIGHUP)
                server.until_said("read again")
                topic.append(b"new")
                event = next(event for event in stream if event.kind)
                if text == whole + "\n":
                    assert event.data["value"] == "new"
                else:
                    assert (event.kind, event.data["type"]) == ends
            assert list(stream) == []
