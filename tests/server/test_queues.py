"""Queues over HTTP: each job goes to one worker, whatever becomes of the server and of answers."""

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import falaj
from server.doors import Reply, Server

SMALL = tuple(
    f"--limits-{name}={size}MiB"
    for name, size in (("record", 8), ("body", 8), ("decoded-body", 8), ("bytes-in-flight", 64))
)


def ask(server: Server, path: str, **members: Any) -> Reply:
    """Send a JSON object to a queue."""
    return server.post(f"/v1/queues/{path}", json.dumps(members).encode())


def take(server: Server, number: int, worker: str = "w", **members: Any) -> Any:
    """Take jobs, and return them."""
    reply = ask(server, "emails/take", worker=worker, number=number, **members)
    assert reply.status == 200, reply
    assert (reply.json["worker"], reply.json["number"]) == (worker, number)
    return reply.json["jobs"]


def ids(jobs: Any) -> list[str]:
    return [job["job"] for job in jobs]


def numbers(server: Server) -> tuple[int, ...]:
    """Count the jobs that are ready, delayed, in flight, done and dead."""
    told = server.get("/v1/queues/emails").json
    return tuple(told[name] for name in ("ready", "delayed", "in_flight", "done", "dead"))


def test_a_job_is_delivered_once_and_done_when_it_is_acked(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        put = server.post("/v1/queues/emails/put", b"welcome ann", Falaj_Key="ann")
        assert (put.status, put.json["first"], put.json["next"]) == (201, 0, 1)
        kind = "application/vnd.falaj.records+ndjson"
        lines = b'{"key":"bob","value":"hello"}\n{"value_base64":"/w==","headers":[{"name":"a"}]}\n'
        assert server.post("/v1/queues/emails/put", lines, Content_Type=kind).json["next"] == 3
        jobs = take(server, 1, limit=2)
        assert [(job["offset"], job["attempt"], job["value"]) for job in jobs] == [
            (0, 1, "welcome ann"),
            (1, 1, "hello"),
        ]
        assert (jobs[0]["key"], jobs[0]["topic"], jobs[0]["partition"]) == ("ann", "emails", 0)
        assert numbers(server) == (1, 0, 2, 0, 0)
        (last,) = take(server, 1, worker="other", limit=9)
        assert (last["offset"], last["value_base64"]) == (2, "/w==")
        assert take(server, 2, worker="other") == []
        for _ in range(2):  # a repeated ack succeeds
            acked = ask(server, "emails/ack", worker="w", jobs=ids([*jobs, last]))
            assert (acked.status, acked.json) == (200, {"acked": 3})
        assert numbers(server) == (0, 0, 0, 3, 0)
        assert server.get("/v1/queues").json["queues"] == [server.get("/v1/queues/emails").json]
        assert server.request("DELETE", "/v1/queues/emails").status == 204
        gone = server.get("/v1/queues/emails")
        assert (gone.status, gone.problem) == (404, "unknown-queue")
        assert ask(server, "emails/ack", jobs=[]).status == 404
        assert [job["offset"] for job in take(server, 2, limit=9)] == [0, 1, 2]


def test_a_put_that_is_repeated_by_its_producer_makes_no_second_job(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        named = {"Falaj_Producer": "till", "Falaj_Sequence": "1"}
        first = server.post("/v1/queues/emails/put", b"a", **named)
        assert first.status == 201
        assert server.post("/v1/queues/emails/put?delay=1h", b"a", **named).json == first.json
        assert numbers(server) == (1, 0, 0, 0, 0)


def test_a_repeated_take_has_the_same_jobs_and_only_the_next_number_has_others(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server:
        server.post("/v1/queues/emails/put", b"a\nb\nc", Content_Type="text/plain")
        first = take(server, 1, limit=2)
        assert take(server, 1, limit=9) == first
        for number in (3, 2**63):
            refused = ask(server, "emails/take", worker="w", number=number)
            assert (refused.status, refused.problem) == (409, "take-number")
            assert refused.json["last"] == 1
        assert [job["offset"] for job in take(server, 2)] == [2]
        assert take(server, 3) == []
        server.post("/v1/queues/emails/put", b"d", Content_Type="text/plain")
        assert take(server, 3) == [], "the answer to this number was that there is no job"
        (fourth,) = take(server, 4)
        ask(server, "emails/ack", jobs=ids([fourth]))
        assert take(server, 4) == [], "a job that is done is no one's any more"
        unknown = ask(server, "emails/take", worker="new", number=2)
        assert (unknown.status, unknown.problem) == (409, "session-ended")


def test_jobs_of_workers_outlive_the_server_and_no_other_worker_gets_them(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        server.post("/v1/queues/emails/put", b"a\nb\nc", Content_Type="text/plain")
        jobs = take(server, 1, limit=3)
        server.stop()
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        assert numbers(server) == (0, 0, 3, 0, 0)
        assert take(server, 1, worker="other", limit=9) == []
        assert store.queue("emails").take(9, timeout=0) == []
        ended = ask(server, "emails/take", worker="w", number=2)
        assert (ended.status, ended.problem) == (409, "session-ended")
        assert ask(server, "emails/extend", worker="w", jobs=ids(jobs), lease="5m").status == 200
        assert ask(server, "emails/ack", worker="w", jobs=ids(jobs[:1])).json == {"acked": 1}
        assert ask(server, "emails/nack", jobs=ids(jobs[1:2])).json == {"nacked": 1}
        (again,) = take(server, 1, worker="third", limit=9)
        assert (again["offset"], again["attempt"]) == (1, 2)
        mixed = ask(server, "emails/ack", jobs=ids(jobs))
        assert (mixed.status, mixed.problem) == (409, "lease-expired")
        assert (mixed.json["jobs"], mixed.json["settled"]) == ([jobs[1]["job"]], 2)
        assert numbers(server) == (0, 0, 1, 2, 0)


def test_a_lease_that_ends_gives_the_job_to_another_worker_and_refuses_the_late_one(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server:
        server.post("/v1/queues/emails/put", b"a")
        (late,) = take(server, 1, lease="50ms")
        (again,) = take(server, 1, worker="other", wait="30s")
        assert (again["offset"], again["attempt"]) == (0, 2)
        assert take(server, 1) == [], "the repeated take has no job that another worker has"
        for verb in ("ack", "nack", "extend"):
            refused = ask(server, f"emails/{verb}", worker="w", jobs=ids([late]))
            assert (refused.status, refused.problem) == (409, "lease-expired")
            assert refused.json["jobs"] == ids([late])
        assert ask(server, "emails/ack", jobs=ids([again])).status == 200


def test_a_job_that_is_done_can_be_acked_again_and_neither_fail_nor_take_longer(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server:
        for value in (b"a", b"b"):
            server.post("/v1/queues/emails/put", value)
        done, other = take(server, 1, limit=2)
        for _ in range(2):
            assert ask(server, "emails/ack", jobs=ids([done])).json == {"acked": 1}
        for verb in ("extend", "nack"):
            refused = ask(server, f"emails/{verb}", jobs=ids([done, other]))
            assert (refused.status, refused.problem) == (409, "lease-expired")
            assert (refused.json["jobs"], refused.json["settled"]) == (ids([done]), 1)
            assert "it is done already" in refused.json["detail"]
        assert numbers(server)[3:] == (1, 0)


def test_a_take_that_is_refused_makes_neither_queue_nor_topic(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        for status, members in (
            (409, {"number": 2}),
            (400, {"number": 1, "max_attempts": 0}),
            (400, {"number": 1, "dead_letter": "lost"}),
            (400, {"number": 1, "max_attempts": 2, "dead_letter": "emails"}),
            (400, {"number": 1, "max_attempts": 2, "dead_letter": "/"}),
            (400, {"number": 1, "lease": "213503982334d"}),
        ):
            refused = ask(server, "emails/take", worker="w", **members)
            assert (refused.status, bool(refused.problem)) == (status, True), members
        server.request("PUT", "/v1/topics/news", b'{"codec": "json"}')
        assert (
            server.post("/v1/queues/news/put", b"{", Content_Type="application/json").status == 400
        )
        assert server.get("/v1/queues").json == {"queues": []}
        assert server.get("/v1/topics").json == {"topics": ["news"]}


def test_a_job_that_fails_comes_again_later_and_at_last_is_a_dead_letter(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_attempts": 2, "dead_letter": "lost"}
    with Server(tmp_path / "events") as server:
        server.post("/v1/queues/late/put?delay=1h", b"later")
        late = ask(server, "late/take", worker="w", number=1)
        assert (late.status, late.json["jobs"]) == (200, [])
        assert server.get("/v1/queues/late").json["delayed"] == 1
        server.post("/v1/queues/emails/put?delay=50ms", b"poison")
        (job,) = take(server, 1, wait="30s", **limits)
        assert ask(server, "emails/nack", jobs=ids([job]), delay="50ms").status == 200
        (job,) = take(server, 2, wait="30s", **limits)
        assert job["attempt"] == 2
        nacked = ask(server, "emails/nack", jobs=ids([job]), reason="no such user", **limits)
        assert (nacked.status, nacked.json) == (200, {"nacked": 1})
        assert numbers(server) == (0, 0, 0, 1, 1)
        (letter,) = server.get("/v1/topics/lost/records").json["records"]
        headers = {header["name"]: header["value"] for header in letter["headers"]}
        assert (letter["value"], headers["falaj-reason"]) == ("poison", "no such user")
        for redriven in (1, 0):
            reply = ask(server, "emails/redrive", dead_letter="lost")
            assert (reply.status, reply.json) == (200, {"redriven": redriven})
        (again,) = take(server, 3)
        assert (again["offset"], again["attempt"], again["value"]) == (1, 1, "poison")


def test_takes_that_wait_hold_no_thread_and_each_gets_one_of_the_next_jobs(tmp_path: Path) -> None:
    waiting = 150  # more than the pool has threads
    with (
        Server(tmp_path / "events") as server,
        ThreadPoolExecutor(waiting) as pool,
        falaj.open(tmp_path / "events") as store,
    ):
        server.post("/v1/topics/other/records", b"x")
        queue = store.queue("emails")
        queue.put(b"y")
        (job,) = queue.take(timeout=0)
        takes = [pool.submit(take, server, 1, worker=f"w{n}", wait="50s") for n in range(waiting)]
        while True:
            text = server.get("/metrics").body.decode()
            if f"falaj_server_followers {waiting}\n" in text:
                break
        assert server.get("/v1/topics/other/records").json["next_offset"] == 1
        queue.put_many([b"x"] * (waiting - 1))
        # A job that a native worker gives back wakes a waiting one as well.
        job.nack()
        got = sorted(one["offset"] for done in takes for one in done.result())
        assert len(got) == len(set(got)) == waiting


def test_a_server_that_ends_answers_takes_that_wait(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, server, 1, wait="60s")
        while b"falaj_server_followers 1\n" not in server.get("/metrics").body:
            pass
        server.process.terminate()
        assert waiting.result() == []


def test_a_queue_in_order_delivers_the_next_of_a_key_when_the_first_is_done(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        queue = store.queue("emails", store.topic("letters"), order="key")
        queue.put_many([("ann", b"1"), ("ann", b"2"), ("bob", b"3")])
        jobs = take(server, 1, limit=9)
        assert [job["offset"] for job in jobs] == [0, 2]
        assert {job["topic"] for job in jobs} == {"letters"}
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(take, server, 1, worker="other", wait="50s")
            while b"falaj_server_followers 1\n" not in server.get("/metrics").body:
                pass
            ask(server, "emails/ack", jobs=ids(jobs[:1]))
            assert [job["offset"] for job in waiting.result()] == [1]
        assert server.get("/v1/queues/emails").json["order"] == "key"


def test_no_more_workers_are_known_than_the_limit_allows(tmp_path: Path) -> None:
    with Server(tmp_path / "events", "--limits-workers", "2") as server:
        server.post("/v1/queues/emails/put", b"a\nb\nc", Content_Type="text/plain")
        take(server, 1, worker="a", lease="1h")
        (short,) = take(server, 1, worker="b", lease="20ms")
        over = time.time() + 0.02
        deadline = time.monotonic() + 30
        while True:
            reply = ask(server, "emails/take", worker="c", number=1)
            if reply.status == 200 or time.monotonic() > deadline:
                break
            assert (reply.status, reply.problem) == (503, "busy")
            assert "limits.workers" in reply.json["detail"]
        assert reply.status == 200, "a worker whose lease is over is forgotten for another"
        assert ask(server, "emails/take", worker="b", number=2).problem == "session-ended"
        # sleep: a job's lease begins after its worker's, and ends so much later
        time.sleep(max(over - time.time(), 0))
        assert ask(server, "emails/ack", jobs=ids([short])).problem == "lease-expired"


def test_a_worker_needs_grants_for_the_queue_and_its_topic(tmp_path: Path) -> None:
    (tmp_path / "principals").write_text(f"""
[[principal]]
name = "worker"
tokens = ["{hashlib.sha256(b"worker").hexdigest()}"]
[[principal.grants]]
topic = "emails*"
allow = ["read", "append"]

[[principal.grants]]
group = "emails"
allow = ["read"]
""")
    with falaj.open(tmp_path / "events") as store:
        store.queue("emails").put(b"a")
        store.queue("secret").put(b"a")
        store.queue("emails2", store.topic("secret"))
    flags = ("--access-principals", str(tmp_path / "principals"))
    with Server(tmp_path / "events", *flags) as server:

        def status(path: str, method: str = "POST", **members: Any) -> int:
            body = json.dumps(members).encode() if method == "POST" else None
            return server.request(method, f"/v1/queues{path}", body, token="worker").status

        number: dict[str, Any] = {"worker": "w", "number": 1}
        assert status("/emails/take", **number) == 200
        assert status("/emails/put") == 201
        assert status("/emails", "GET") == 200
        assert status("/emails", "DELETE") == 403
        for path in (
            "/secret/take",
            "/secret/put",
            "/secret/ack",
            "/emails2/take",
            "/secret/redrive",
        ):
            assert status(path, **number if "take" in path else {}) == 403, path
        assert status("/secret", "GET") == 403
        told = server.get("/v1/queues", token="worker").json["queues"]
        assert [one["queue"] for one in told] == ["emails"]
        # Dead letters go to a topic that the worker may append to.
        assert status("/emails/take", **number, max_attempts=3, dead_letter="secret") == 403
        assert status("/emails/take", **number, max_attempts=3) == 404, "it may not create it"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("emails/take", b"", 400),
        ("emails/take", b"[]", 400),
        ("emails/take", b'{"worker": "w"}', 400),
        ("emails/take", b'{"worker": "", "number": 1}', 400),
        ("emails/take", b'{"worker": "%s", "number": 1}' % (b"w" * 250), 400),
        ("emails/take", b'{"worker": "w", "number": -1}', 400),
        ("emails/take", b'{"worker": "w", "number": 1, "limit": 0}', 400),
        ("emails/take", b'{"worker": "w", "number": 1, "lease": "0s"}', 400),
        ("emails/take", b'{"worker": "w", "number": 1, "lease": "9999999d"}', 400),
        ("emails/take", b'{"worker": "w", "number": 1, "wait": 5}', 400),
        ("emails/take", b'{"worker": "w", "number": 1, "colour": 5}', 400),
        ("emails/take", b'{"worker": "w", "number": 1, "max_attempts": 0}', 400),
        ("emails/take", b'{"worker": "w", "number": 1, "dead_letter": "x"}', 400),
        (
            "emails/take",
            b'{"worker": "w", "number": 1, "max_attempts": 1, "dead_letter": "emails"}',
            400,
        ),
        (
            "emails/take",
            b'{"worker": "w", "number": 1, "max_attempts": 1, "dead_letter": "/"}',
            400,
        ),
        ("emails/ack", b'{"jobs": ["x"]}', 400),
        ("emails/ack", b'{"jobs": [1]}', 400),
        ("emails/ack", b'{"jobs": ["0-1-0000000000000000-0000000000000000"]}', 409),
        ("emails/ack", b'{"jobs": [%s]}' % b",".join([b'"0-1-0-0"'] * 1001), 400),
        ("emails/nack", b'{"jobs": [], "delay": "5"}', 400),
        ("emails/nack", b'{"jobs": [], "reason": 5}', 400),
        ("emails/extend", b'{"jobs": [], "lease": "0s"}', 400),
        ("emails/extend", b'{"jobs": [], "lease": "99999999999999d"}', 400),
        ("emails/extend", b'{"jobs": [], "lease": "213503982334d"}', 400),
        ("emails/nack", b'{"jobs": [], "delay": "213503982334d"}', 400),
        ("emails/ack", b'["w", []]', 400),
        ("emails/put?delay=99999d", b"x", 400),
        ("emails/put?partition=0", b"x", 400),
        ("emails/redrive", b"{}", 404),
        ("emails/redrive", b'{"limit": -1}', 400),
        ("none/ack", b'{"jobs": []}', 404),
        ("none/put?create=false", b"x", 404),
        ("..%2fx/take", b'{"worker": "w", "number": 1}', 400),
        ("many/take", b'{"worker": "w", "number": 1}', 400),
        ("many/put", b"x", 400),
    ],
)
def test_a_request_with_a_mistake_is_refused_and_changes_no_job(
    tmp_path: Path, path: str, body: bytes, status: int
) -> None:
    with falaj.open(tmp_path / "events") as store:
        store.queue("emails").put(b"a")
        store.partitioned_topic("many", partitions=2)
    with Server(tmp_path / "events") as server:
        reply = server.post(f"/v1/queues/{path}", body)
        assert reply.status == status, reply
        if status >= 400:
            assert reply.problem
        assert numbers(server)[3:] == (0, 0)
        (job,) = take(server, 1, worker="good", wait="30s")
        assert ask(server, "emails/ack", jobs=ids([job])).status == 200
        assert server.get("/v1/topics/many").json["partitions"][0]["end_offset"] == 0


def test_jobs_that_do_not_fit_into_an_answer_stay_in_the_queue(tmp_path: Path) -> None:
    with Server(tmp_path / "events", *SMALL) as server:
        value = b"x" * (1 << 20)
        for _ in range(9):
            assert server.post("/v1/queues/emails/put", value).status == 201
        jobs = take(server, 1, limit=9)
        assert 1 <= len(jobs) < 9
        assert numbers(server)[:3] == (9 - len(jobs), 0, len(jobs))
        got, number = len(jobs), 1
        while got < 9:
            number += 1
            jobs = take(server, number, limit=9)
            assert {job["attempt"] for job in jobs} == {1}
            got += len(jobs)
        # Six bytes stand for each of these, more than a usual answer has.
        assert server.post("/v1/queues/emails/put", b"\0" * (1 << 20)).status == 201
        (large,) = take(server, number + 1)
        assert len(large["value"]) == 1 << 20
