"""A request that names the generation of a topic never reaches another topic of its name."""

import json
from pathlib import Path

import pytest

import falaj
from server.doors import Reply, Server

TOPIC = "/v1/topics/orders"


def again(server: Server) -> tuple[str, str]:
    """Make a topic twice; return the generations of both."""
    found = []
    for value in (b"old", b"new"):
        server.request("DELETE", TOPIC)
        assert server.post(f"{TOPIC}/records?sync=durable", value).status == 201
        found.append(server.get(TOPIC).json["generation"])
    return found[0], found[1]


def requests(server: Server, generation: str) -> dict[str, Reply]:
    """Send each request that is about one topic, the one that deletes it last."""
    found = {}
    for method, path, body in (
        ("GET", TOPIC, None),
        ("GET", f"{TOPIC}/count", None),
        ("GET", f"{TOPIC}/records", None),
        ("PUT", TOPIC, b"{}"),
        ("POST", f"{TOPIC}/records", b"x"),
        ("PATCH", TOPIC, b'{"compacted": true}'),
        ("POST", f"{TOPIC}:trim", b'{"before": 1}'),
        ("POST", f"{TOPIC}:compact", None),
        ("POST", f"{TOPIC}:finish", None),
        ("DELETE", TOPIC, None),
    ):
        reply = server.request(method, path, body, Falaj_Generation=generation)
        found[f"{method} {path}"] = reply
    stream = server.get(
        f"{TOPIC}/records?limit=1", Accept="text/event-stream", Falaj_Generation=generation
    )
    return {"stream": stream, **found}


def test_a_request_to_a_deleted_topic_does_nothing_to_the_new_one_of_its_name(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        old, new = again(server)
        before = server.get(TOPIC).json
        for request, reply in requests(server, old).items():
            assert (reply.status, reply.problem) == (410, "topic-deleted"), request
            assert "orders" in reply.json["detail"], reply
            assert "open the topic again" in reply.json["remedy"], reply
        assert server.get(TOPIC).json == before
        assert [bytes(record.raw or b"") for record in store.topic("orders")] == [b"new"]
        parts = {"parts": [{"topic": "orders", "generation": old, "records": [{"value": "x"}]}]}
        reply = server.post("/v1/append", json.dumps(parts).encode())
        assert (reply.status, reply.problem, reply.json["part"]) == (410, "topic-deleted", 0)
        parts["parts"][0]["generation"] = new
        assert server.post("/v1/append", json.dumps(parts).encode()).status == 201


def test_a_request_to_the_topic_that_there_is_is_answered_as_without_a_generation(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server:
        _, new = again(server)
        for method, path, body in (
            ("GET", f"{TOPIC}/records", None),
            ("POST", f"{TOPIC}/records", b"x"),
            ("PATCH", TOPIC, b'{"compacted": true}'),
            ("POST", f"{TOPIC}:trim", b'{"before": 1}'),
            ("POST", f"{TOPIC}:compact", None),
            ("POST", f"{TOPIC}:finish", None),
            ("PUT", TOPIC, b"{}"),
            ("GET", TOPIC, None),
            ("DELETE", TOPIC, None),
        ):
            reply = server.request(method, path, body, Falaj_Generation=new)
            assert reply.status < 300, (method, path, reply)


def test_a_request_with_a_generation_creates_no_topic(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        old, _ = again(server)
        server.request("DELETE", TOPIC)
        for request, reply in requests(server, old).items():
            assert (reply.status, reply.problem) == (410, "topic-deleted"), request
        assert server.get("/v1/topics").json == {"topics": []}


@pytest.mark.parametrize("wrong", ["", "5f1c22d0", "+5f1c22d09a3be41", "g" * 16, "0" * 17])
def test_a_text_that_is_no_generation_is_refused(tmp_path: Path, wrong: str) -> None:
    with Server(tmp_path / "events") as server:
        again(server)
        for request, reply in requests(server, wrong).items():
            assert (reply.status, reply.problem) == (400, "bad-request"), request
        parts = {"parts": [{"topic": "orders", "generation": wrong, "records": []}]}
        assert server.post("/v1/append", json.dumps(parts).encode()).status == 400
        assert server.get(f"{TOPIC}/count").json["count"] == 1
