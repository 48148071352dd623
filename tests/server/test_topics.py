"""Topics over HTTP: created, changed, finished, trimmed, compacted and deleted."""

import json
from pathlib import Path
from typing import Any

import pytest

import falaj
from server.doors import Reply, Server
from server.test_door import TOKENS, principals

TOPIC = "/v1/topics/orders"


def send(server: Server, method: str, path: str, body: Any = None) -> Reply:
    """Send a JSON document, or no body."""
    return server.request(method, path, None if body is None else json.dumps(body).encode())


def test_a_topic_has_the_settings_that_it_was_created_with(tmp_path: Path) -> None:
    asked = {
        "partitions": 3,
        "codec": "json",
        "compacted": True,
        "sync_interval": "50ms",
        "retention": {"age": "7d", "bytes": 1 << 30, "waits": True},
    }
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        made = send(server, "PUT", TOPIC, asked)
        assert made.status == 201
        assert len(made.json["partitions"]) == 3
        assert made.json["retention"]["age"] == "7d"
        assert (made.json["sync_interval"], made.json["finished"]) == ("50ms", False)
        again = send(server, "PUT", TOPIC, asked)
        assert (again.status, again.json) == (200, made.json)
        other = send(server, "PUT", TOPIC, {"partitions": 4})
        assert (other.status, other.problem) == (409, "settings-mismatch")
        topic = store.any_topic("orders")
        assert (topic.codec, len(topic.partitions)) == ("json", 3)


def test_a_change_keeps_what_it_does_not_name_and_null_lifts_a_limit(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        send(server, "PUT", TOPIC, {"retention": {"age": "1d", "records": 5}})
        changed = send(server, "PATCH", TOPIC, {"retention": {"age": None}, "compacted": True})
        assert changed.status == 200
        assert changed.json["compacted"] is True
        assert changed.json["retention"] == {
            "age": None,
            "bytes": None,
            "records": 5,
            "waits": False,
            "protected": False,
        }


def test_properties_and_counts_over_http_are_those_that_native_programs_see(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        topic = store.partitioned_topic("orders", partitions=2)
        topic.extend([("a", b"1"), ("b", b"2"), ("a", b"3")])
        kept = {"owner": "shop", "gone": None}
        changed = send(server, "PATCH", TOPIC, {"properties": kept})
        assert (changed.status, changed.json["properties"]) == (200, {"owner": "shop"})
        assert topic.properties == {"owner": "shop"}
        for wrong in ({"": "x"}, {"x": 5}, {"x": "y" * 20_000}, ["x"]):
            refused = send(server, "PATCH", TOPIC, {"properties": wrong})
            assert refused.status in (400, 409), refused
        assert server.get(TOPIC).json["properties"] == {"owner": "shop"}
        counts = [server.get(f"{TOPIC}/count?partition={part}").json["count"] for part in (0, 1)]
        assert sum(counts) == server.get(f"{TOPIC}/count").json["count"] == topic.count() == 3
        assert server.get("/v1/topics/nothing/count").problem == "unknown-topic"
        assert server.get(f"{TOPIC}/count?partition=2").status == 400


def test_a_finished_topic_takes_no_more_records_from_any_process(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders")
        topic.append(b"last")
        finished = send(server, "POST", f"{TOPIC}:finish")
        assert (finished.status, finished.json["finished"]) == (200, True)
        assert finished.json["partitions"][0]["durable_offset"] == 1
        with pytest.raises(falaj.errors.TopicFinished):
            topic.append(b"too late")
        refused = server.post(f"{TOPIC}/records", b"too late")
        assert (refused.status, refused.problem) == (409, "topic-finished")
        assert send(server, "POST", f"{TOPIC}:finish").status == 200


def test_a_trim_deletes_what_is_before_an_offset_or_a_time(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders")
        topic.extend(f"{i}".encode() for i in range(10))
        trimmed = send(server, "POST", f"{TOPIC}:trim", {"before": 4})
        assert (trimmed.status, trimmed.json["partitions"][0]["start_offset"]) == (200, 4)
        beyond = send(server, "POST", f"{TOPIC}:trim", {"before": 11})
        assert (beyond.status, beyond.problem) == (416, "offset-out-of-range")
        nothing = send(server, "POST", f"{TOPIC}:trim", {"before_time": "1970-01-01T00:00:00Z"})
        assert nothing.json["partitions"][0]["start_offset"] == 4
        every = send(server, "POST", f"{TOPIC}:trim", {"before_time": "2200-01-01T00:00:00Z"})
        assert every.json["partitions"][0]["start_offset"] == 10
        assert topic.start_offset == 10


def test_a_compaction_keeps_the_last_record_of_each_key(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        send(server, "PUT", TOPIC, {"compacted": True})
        topic = store.topic("orders")
        for i in range(10):
            topic.append(f"{i}".encode(), "k")
        done = send(server, "POST", f"{TOPIC}:compact", {"seal": True})
        assert (done.status, done.json["removed"]) == (200, 9)
        assert [bytes(record.raw or b"") for record in topic] == [b"9"]


def test_a_deleted_topic_is_gone_for_every_process(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        topic = store.topic("orders")
        topic.append(b"x")
        assert send(server, "DELETE", TOPIC).status == 204
        with pytest.raises(falaj.errors.TopicDeleted):
            topic.append(b"y")
        gone = send(server, "DELETE", TOPIC)
        assert (gone.status, gone.problem) == (404, "unknown-topic")
        assert server.post(f"{TOPIC}/records", b"new").json["first"] == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("PUT", TOPIC, {"partition": 3}, 400, "bad-request"),
        ("PUT", TOPIC, {"partitions": 0}, 400, "invalid-argument"),
        ("PUT", TOPIC, {"retention": {"age": 5}}, 400, "bad-request"),
        ("PUT", "/v1/topics/a%20b", {}, 400, "invalid-name"),
        ("PUT", "/v1/topics/a:finish", {}, 405, "method-not-allowed"),
        ("PATCH", TOPIC, {"partitions": 3}, 400, "bad-request"),
        ("PATCH", TOPIC, {"compacted": True}, 404, "unknown-topic"),
        ("POST", TOPIC, None, 405, "method-not-allowed"),
        ("POST", f"{TOPIC}:burn", None, 405, "method-not-allowed"),
        ("POST", f"{TOPIC}:finish", None, 404, "unknown-topic"),
        ("POST", f"{TOPIC}:finish", {"now": True}, 400, "bad-request"),
        ("POST", f"{TOPIC}:trim", {}, 400, "bad-request"),
        ("POST", f"{TOPIC}:trim", {"before": 1, "before_time": "x"}, 400, "bad-request"),
        ("POST", f"{TOPIC}:trim", {"before_time": "yesterday"}, 400, "bad-request"),
        ("POST", f"{TOPIC}:compact", {"seal": 1}, 400, "bad-request"),
    ],
)
def test_a_request_about_a_topic_with_a_mistake_changes_nothing(
    tmp_path: Path, method: str, path: str, body: Any, status: int, kind: str
) -> None:
    with Server(tmp_path / "events") as server:
        refused = send(server, method, path, body)
        assert (refused.status, refused.problem) == (status, kind), refused
        assert server.get("/v1/topics").json == {"topics": []}


def test_each_request_about_a_topic_needs_its_grant(tmp_path: Path) -> None:
    file = principals(tmp_path / "principals.toml")
    with falaj.open(tmp_path / "events") as store:
        store.topic("orders").append(b"x")
    with Server(tmp_path / "events", "--access-principals", str(file)) as server:
        for name, method, path in (
            ("viewer", "PUT", TOPIC),
            ("ingest", "PATCH", TOPIC),
            ("ingest", "DELETE", TOPIC),
            ("ingest", "POST", f"{TOPIC}:finish"),
            ("ingest", "POST", f"{TOPIC}:trim"),
            ("ingest", "POST", f"{TOPIC}:compact"),
        ):
            refused = server.request(method, path, b"{}", token=TOKENS[name])
            assert (refused.status, refused.problem) == (403, "forbidden"), path
        made = server.request("PUT", "/v1/topics/orders-eu", b"", token=TOKENS["ingest"])
        assert made.status == 201
        assert server.get(TOPIC).json["finished"] is False


@pytest.mark.parametrize("retention", [{"records": 0}, {"bytes": 2**63}, {"age": "0s"}])
def test_a_change_of_which_one_part_is_refused_changes_nothing(
    tmp_path: Path, retention: dict[str, Any]
) -> None:
    with Server(tmp_path / "events") as server:
        send(server, "PUT", TOPIC)
        before = server.get(TOPIC).json
        asked = {"properties": {"k": "v"}, "compacted": True, "retention": retention}
        refused = send(server, "PATCH", TOPIC, asked)
        assert (refused.status, refused.problem) == (400, "invalid-argument"), refused
        assert server.get(TOPIC).json == before


def test_a_topic_goes_into_the_log_of_another_only_with_a_grant_to_create_that_one(
    tmp_path: Path,
) -> None:
    file = principals(tmp_path / "principals.toml")
    with Server(tmp_path / "events", "--access-principals", str(file)) as server:
        token = TOKENS["ingest"]
        for log, status in (("secret", 403), ("orders-all", 201), ("orders", 201)):
            body = json.dumps({"log": log}).encode()
            made = server.request("PUT", f"/v1/topics/orders-{status}-{log}", body, token=token)
            assert made.status == status, made
        assert server.get("/v1/topics/orders-403-secret").status == 404


def test_a_create_shows_offsets_only_to_a_principal_that_may_read(tmp_path: Path) -> None:
    file = principals(tmp_path / "principals.toml")
    with falaj.open(tmp_path / "events") as store:
        store.topic("orders").append(b"x")
    with Server(tmp_path / "events", "--access-principals", str(file)) as server:
        shown = server.request("PUT", TOPIC, b"{}", token=TOKENS["ingest"])
        assert (shown.status, shown.json["partitions"]) == (200, [{"partition": 0}])
        assert shown.json["generation"] == server.get(TOPIC).json["generation"]
        assert send(server, "PUT", TOPIC, {}).json["partitions"][0]["end_offset"] == 1


@pytest.mark.parametrize("partition", [1, 2**32 - 2, 2**32 - 1])
def test_a_partition_that_there_is_not_is_refused_whatever_its_number(
    tmp_path: Path, partition: int
) -> None:
    with Server(tmp_path / "events") as server:
        send(server, "PUT", TOPIC)
        for path in (f"{TOPIC}/records", f"{TOPIC}/count"):
            for accept in ("application/json", "text/event-stream"):
                refused = server.get(f"{path}?partition={partition}", Accept=accept)
                assert (refused.status, refused.problem) == (400, "invalid-argument"), refused
