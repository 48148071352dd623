"""One append to several topics of a log: all parts or nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

import falaj
from server.doors import Reply, Server
from server.test_door import TOKENS, principals


def shop(tmp_path: Path) -> None:
    """Make a store with two topics of one log, and a third one with a log of its own."""
    with falaj.open(tmp_path / "events") as store:
        store.topic("paid", log="shop")
        store.partitioned_topic("orders", partitions=3, log="shop")
        store.topic("alone")


def append(server: Server, *parts: Any, query: str = "", **headers: str) -> Reply:
    """Append parts."""
    return server.post(f"/v1/append{query}", json.dumps({"parts": parts}).encode(), **headers)


def ends(server: Server) -> dict[str, int]:
    """Count the records of each topic."""
    names = server.get("/v1/topics").json["topics"]
    found = {name: server.get(f"/v1/topics/{name}").json["partitions"] for name in names}
    return {name: sum(one["end_offset"] for one in every) for name, every in found.items()}


def test_parts_are_appended_together_and_the_answer_says_where(tmp_path: Path) -> None:
    shop(tmp_path)
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        reply = append(
            server,
            {"topic": "paid", "if_next": 0, "records": [{"key": "17", "value": "paid"}]},
            {
                "topic": "orders",
                "partition": 2,
                "records": [{"value": "a"}, {"value_base64": "/w=="}],
            },
            query="?sync=durable",
        )
        assert (reply.status, reply.json) == (
            201,
            {
                "durable": True,
                "parts": [
                    {"topic": "paid", "partition": 0, "first": 0, "next": 1},
                    {"topic": "orders", "partition": 2, "first": 0, "next": 2},
                ],
            },
        )
        (paid,) = store.topic("paid")
        assert (bytes(paid.key or b""), bytes(paid.raw or b"")) == (b"17", b"paid")
        assert [bytes(one.raw or b"") for one in store.partitioned_topic("orders")] == [
            b"a",
            b"\xff",
        ]


def test_a_condition_of_one_part_that_fails_refuses_all_and_names_topic_and_partition(
    tmp_path: Path,
) -> None:
    shop(tmp_path)
    with Server(tmp_path / "events") as server:
        record = [{"value": "x"}]
        server.post("/v1/topics/orders/records?partition=1", b"first")
        refused = append(
            server,
            {"topic": "paid", "records": record},
            {"topic": "orders", "partition": 1, "if_next": 0, "records": record},
        )
        assert (refused.status, refused.problem) == (412, "offset-conflict")
        found = refused.json
        assert (found["topic"], found["partition"], found["next"]) == ("orders", 1, 1)
        assert ends(server) == {"alone": 0, "orders": 1, "paid": 0}


def test_an_append_of_several_parts_with_a_sequence_happens_once(tmp_path: Path) -> None:
    shop(tmp_path)
    named = {"Falaj_Producer": "till", "Falaj_Sequence": "1"}
    parts = (
        {"topic": "paid", "records": [{"value": "x"}]},
        {"topic": "orders", "records": [{"value": "y"}, {"value": "z"}]},
    )
    with Server(tmp_path / "events") as server:
        first = append(server, *parts, **named)
        assert first.status == 201
        server.stop()
    with Server(tmp_path / "events") as server:
        assert append(server, *parts, **named).json == first.json
        assert ends(server) == {"alone": 0, "orders": 2, "paid": 1}
        gap = append(server, *parts, **named | {"Falaj_Sequence": "9"})
        assert (gap.status, gap.problem) == (409, "out-of-order-sequence")


def test_a_topic_can_be_finished_behind_the_last_records_of_another(tmp_path: Path) -> None:
    shop(tmp_path)
    with Server(tmp_path / "events") as server:
        last = {"topic": "paid", "records": [{"value": "last"}], "finish": True}
        other = {"topic": "orders", "partition": 0, "records": [{"value": "x"}]}
        assert append(server, last, other).status == 201
        assert server.get("/v1/topics/paid").json["finished"] is True
        again = append(server, other, last)
        assert (again.status, again.problem, again.json["topic"]) == (409, "topic-finished", "paid")
        assert ends(server) == {"alone": 0, "orders": 1, "paid": 1}


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        (b"", 400, "JSON object"),
        (b"[]", 400, "JSON object"),
        (b'{"parts": []}', 400, "needs a part"),
        (b'{"parts": {}}', 400, "an array"),
        (b'{"parts": [5]}', 400, "part 0"),
        (b'{"parts": [{"topic": "paid"}]}', 400, "records"),
        (b'{"parts": [{"topic": "paid", "records": [], "colour": 1}]}', 400, "colour"),
        (b'{"parts": [{"topic": "paid", "records": [{"value": 1}]}]}', 400, "record 0"),
        (b'{"parts": [{"topic": "paid", "partition": 1, "records": []}]}', 400, "partition"),
        (b'{"parts": [{"topic": "none", "records": []}]}', 404, "none"),
        (b'{"parts": [{"topic": "../x", "records": []}]}', 400, "name"),
        (
            b'{"parts": [{"topic": "paid", "records": [{"value": "x"}]},'
            b' {"topic": "alone", "records": [{"value": "x"}]}]}',
            400,
            "log",
        ),
        (b'{"parts": [%s]}' % b",".join([b'{"topic": "paid", "records": []}'] * 1001), 400, "1000"),
    ],
)
def test_an_append_of_several_parts_with_a_mistake_appends_nothing(
    tmp_path: Path, body: bytes, status: int, part: str
) -> None:
    shop(tmp_path)
    with Server(tmp_path / "events") as server:
        refused = server.post("/v1/append", body)
        assert (refused.status, bool(refused.problem)) == (status, True), refused
        assert part in refused.json["detail"]
        assert ends(server) == {"alone": 0, "orders": 0, "paid": 0}


def test_each_part_needs_its_grant(tmp_path: Path) -> None:
    shop(tmp_path)
    file = principals(tmp_path / "principals.toml")
    token = TOKENS["ingest"]
    mine = {"topic": "orders", "partition": 0, "records": [{"value": "x"}]}
    with Server(tmp_path / "events", "--access-principals", str(file)) as server:
        for other in ({"topic": "paid", "records": []}, {**mine, "finish": True}):
            body = json.dumps({"parts": [mine, other]}).encode()
            refused = server.post("/v1/append", body, token=token)
            assert (refused.status, refused.problem, refused.json["part"]) == (403, "forbidden", 1)
        assert (
            server.post("/v1/append", json.dumps({"parts": [mine]}).encode(), token=token).status
            == 201
        )


def test_cursors_that_list_their_members_without_names_are_refused(tmp_path: Path) -> None:
    shop(tmp_path)
    with Server(tmp_path / "events") as server:
        parts = [{"topic": "paid", "records": [{"value": "x"}]}]
        body = {"parts": parts, "cursors": [["group", None, "orders", 0, 0, ""]]}
        refused = server.post("/v1/append", json.dumps(body).encode())
        assert (refused.status, refused.problem) == (400, "bad-request"), refused
        assert "a JSON object" in refused.json["detail"]
        assert ends(server)["paid"] == 0
