"""Members of consumer groups over HTTP, beside native ones."""

import contextlib
import json
import select
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from server.doors import PATIENCE_S, Reply, Server
from server.members import Member, values
from server.test_door import TOKENS, principals

if TYPE_CHECKING:
    import socket

WAIT = f"{int(PATIENCE_S)}s"


SMALL = (
    *("--limits-body", "1MiB", "--limits-decoded-body", "1MiB"),
    *("--limits-record", "1MiB", "--limits-bytes-in-flight", "4MiB"),
)


def orders(tmp_path: Path, records: int, partitions: int = 1) -> None:
    """Make a topic with records."""
    with falaj.open(tmp_path / "events") as store:
        topic = store.partitioned_topic("orders", partitions=partitions, codec="str")
        for i in range(records):
            topic.append(str(i), partition=i % partitions)


def test_a_poll_gives_the_next_records_and_its_number_again_gives_the_same(tmp_path: Path) -> None:
    orders(tmp_path, 10)
    with Server(tmp_path / "events") as server:
        member = Member(server, "billing", "m1", topics=["orders"])
        first = member.poll(limit=4)
        assert values(first) == ["0", "1", "2", "3"]
        assert [(one["topic"], one["partition"], one["offset"]) for one in first[:2]] == [
            ("orders", 0, 0),
            ("orders", 0, 1),
        ]
        assert member.assigned == [("orders", 0)]
        for _ in range(3):
            assert member.poll_again(limit=9).json["records"] == first
        assert values(member.poll()) == ["4", "5", "6", "7", "8", "9"]
        assert values(member.poll()) == []
        assert values(member.poll_again().json["records"]) == []


def test_a_poll_with_another_number_is_refused_with_the_last_one(tmp_path: Path) -> None:
    orders(tmp_path, 10)
    with Server(tmp_path / "events") as server:
        member = Member(server, "billing", "m1", topics=["orders"])
        member.poll(limit=1)
        member.poll(limit=1)
        for number in (4, 9, 2**64 - 1):
            refused = member.ask("poll", number=number)
            assert (refused.status, refused.problem) == (409, "poll-number"), number
            assert refused.json["last"] == 2
        other = member.ask("poll", number=3, topics=["others"])
        assert (other.status, other.problem) == (409, "subscription-differs")
        assert values(member.poll(limit=1)) == ["2"]


def test_committed_records_are_not_delivered_again_and_others_are(tmp_path: Path) -> None:
    orders(tmp_path, 10)
    with Server(tmp_path / "events") as server:
        member = Member(server, "billing", "m1", topics=["orders"])
        assert len(member.poll()) == 10
        done = member.commit(("orders", 0, 4), durable=True)
        assert done.json == {"committed": [{"topic": "orders", "partition": 0, "offset": 4}]}
        # The client began again.
        again = Member(server, "billing", "m1", topics=["orders"])
        assert values(again.poll(limit=2)) == ["4", "5"]
        server.stop()
    with Server(tmp_path / "events") as server:
        lost = Member(server, "billing", "m1")
        lost.number = 2
        for reply in (lost.poll_again(), lost.commit(("orders", 0, 6))):
            assert (reply.status, reply.problem) == (409, "session-ended")
        again = Member(server, "billing", "m2", topics=["orders"])
        assert values(again.poll()) == ["4", "5", "6", "7", "8", "9"]
        assert again.ask("leave").status == 204
        assert again.ask("leave").status == 204
        with (
            falaj.open(tmp_path / "events") as store,
            store.consumer("billing", "orders") as native,
        ):
            assert [one.value for one in native] == ["4", "5", "6", "7", "8", "9"]


def test_a_commit_with_one_partition_that_is_not_the_members_commits_nothing(
    tmp_path: Path,
) -> None:
    orders(tmp_path, 4, partitions=2)
    with (
        Server(tmp_path / "events") as server,
        falaj.open(tmp_path / "events") as store,
        store.consumer("billing", "orders") as native,
    ):
        member = Member(server, "billing", "m1", topics=["orders"])
        member.poll()
        # The native member releases one of its partitions when it looks.
        while len(member.assigned) < 1:
            native.poll(1, timeout=0)
            native.commit()
            member.poll(wait="1s")
        (mine,) = member.assigned
        other = ("orders", 1 - mine[1])
        refused = member.commit((*mine, 1), (*other, 1))
        assert (refused.status, refused.problem) == (409, "partition-lost")
        assert (refused.json["topic"], refused.json["partition"]) == other
        beyond = member.commit((*mine, 99))
        assert (beyond.status, beyond.problem) == (416, "offset-out-of-range")
        before = {part["partition"]: part for part in described(server)["partitions"]}
        assert before[mine[1]]["committed"] == 0
        assert member.commit((*mine, 1), metadata="x").status == 400
        assert member.commit((*mine, 1)).status == 200


def described(server: Server, group: str = "billing") -> Any:
    """Look at a group."""
    reply = server.get(f"/v1/groups/{group}")
    assert reply.status == 200, reply
    return reply.json


def test_a_poll_waits_for_a_record_and_is_answered_when_it_comes(tmp_path: Path) -> None:
    orders(tmp_path, 0, partitions=3)
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        member = Member(server, "billing", "m1", topics=["orders"])
        assert member.poll() == []
        got: list[list[str]] = []
        for i in range(5):
            waiting = threading.Thread(target=lambda: got.append(values(member.poll(wait=WAIT))))
            waiting.start()
            store.partitioned_topic("orders", partitions=3, codec="str").append(str(i))
            waiting.join()
        assert got == [[str(i)] for i in range(5)]


def test_polls_with_one_number_at_the_same_time_get_the_same_records(tmp_path: Path) -> None:
    orders(tmp_path, 0)
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        member = Member(server, "billing", "m1", topics=["orders"])
        member.poll()
        member.number = 2
        replies: list[Reply] = []
        polls = [
            threading.Thread(target=lambda: replies.append(member.poll_again(wait=WAIT)))
            for _ in range(4)
        ]
        for poll in polls:
            poll.start()
        while "falaj_server_followers 4\n" not in server.get("/metrics").body.decode():
            pass
        store.topic("orders").extend(["x", "y"])
        for poll in polls:
            poll.join()
        assert [values(reply.json["records"]) for reply in replies] == [["x", "y"]] * 4


def test_the_records_of_a_poll_whose_reply_was_lost_come_again_by_its_number(
    tmp_path: Path,
) -> None:
    orders(tmp_path, 100)
    seen: list[str] = []
    with Server(tmp_path / "events") as server:
        member = Member(server, "billing", "m1", topics=["orders"])
        while len(seen) < 100:
            member.number += 1
            begins = member.begins if member.number == 1 else {}
            asked = {"member": "m1", "number": member.number, "limit": 7, **begins}
            body = json.dumps(asked).encode()
            head = server.head(f"{member.path}/poll") + f"Content-Length: {len(body)}\r\n\r\n"
            with server.socket() as lost:
                lost.sendall(head.encode() + body)
                if member.number % 2:
                    # The server answered, and the client reads no more of it than this.
                    assert lost.recv(5) == b"HTTP/"
            reply = member.poll_again(limit=7)
            assert reply.status == 200, reply
            seen += values(reply.json["records"])
    assert seen == [str(i) for i in range(100)]


def test_a_member_that_stops_polling_loses_its_partitions_and_commits_no_more(
    tmp_path: Path,
) -> None:
    orders(tmp_path, 10)
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        slow = Member(server, "billing", "slow", topics=["orders"], session="300ms")
        assert len(slow.poll()) == 10
        with store.consumer("billing", "orders") as native:
            # It gets them when the session of the other one has ended.
            assert native.poll(10, timeout=PATIENCE_S)[0].value == "0"
            for reply in (slow.commit(("orders", 0, 10)), slow.ask("poll", number=2)):
                assert (reply.status, reply.problem) == (409, "session-ended")
            native.commit()
        assert described(server)["partitions"][0]["committed"] == 10


def test_a_poll_that_waits_keeps_its_session_alive(tmp_path: Path) -> None:
    orders(tmp_path, 0)
    with Server(tmp_path / "events") as server:
        member = Member(server, "billing", "m1", topics=["orders"], session="100ms")
        assert member.poll(wait="700ms") == []
        assert member.poll() == []


def test_members_of_the_server_and_native_ones_share_a_group_and_each_record_is_done_once(
    tmp_path: Path,
) -> None:
    count, parts = 600, 6
    orders(tmp_path, count, parts)
    done: Counter[str] = Counter()
    lock = threading.Lock()
    workers: set[str] = set()

    def note(name: str, all_of: list[str]) -> bool:
        with lock:
            done.update(all_of)
            if all_of:
                workers.add(name)
            return done.total() >= count

    def over_http(server: Server, name: str) -> None:
        member = Member(server, "billing", name, topics=["orders"])
        ended = False
        while not ended:
            records = member.poll(limit=10, wait="200ms")
            # Exactly once: what it could commit, it did.
            assert member.commit_all(records).status == 200
            ended = note(name, values(records))
        member.ask("leave")

    def natively(store: falaj.Store) -> None:
        with store.consumer("billing", "orders") as native:
            ended = False
            while not ended:
                records = native.poll(10, timeout=0.2)
                native.commit()
                ended = note("native", [one.value for one in records])

    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        threads = [threading.Thread(target=over_http, args=(server, f"m{i}")) for i in range(2)]
        threads.append(threading.Thread(target=natively, args=(store,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done == Counter(str(i) for i in range(count))
        partitions = described(server)["partitions"]
        assert sum(part["committed"] for part in partitions) == count
        assert [part["lag"] for part in partitions] == [0] * parts
    assert workers >= {"native"}


def test_no_committed_record_comes_again_and_no_other_is_lost_when_the_server_is_killed(
    tmp_path: Path,
) -> None:
    orders(tmp_path, 200)
    done: list[str] = []
    for life in range(6):
        with Server(tmp_path / "events") as server:
            member = Member(server, "billing", f"m{life}", topics=["orders"])
            for _ in range(life + 1):
                records = member.poll(limit=9)
                half = records[: len(records) // 2]
                assert member.commit_all(half).status == 200
                done += values(half)
                if half != records:
                    rest = (records[0]["topic"], 0, half[-1]["offset"] + 1)
                    assert member.ask("seek", **seek(*rest)).json == {"offset": rest[2]}
            # These are delivered, and never committed.
            member.poll(limit=9)
            server.stop(signal.SIGKILL)
    with Server(tmp_path / "events") as server:
        done += values(Member(server, "billing", "last", topics=["orders"]).poll())
    assert done == [str(i) for i in range(200)]


def seek(topic: str, partition: int, to: Any) -> dict[str, Any]:
    """The members of a seek."""
    return {"topic": topic, "partition": partition, "to": to}


def test_a_member_reads_on_from_where_it_seeks_and_commits_no_less(tmp_path: Path) -> None:
    orders(tmp_path, 10)
    with Server(tmp_path / "events") as server:
        member = Member(server, "billing", "m1", topics=["orders"], start="latest")
        assert member.poll() == []
        for to, offset in (
            ("earliest", 0),
            (7, 7),
            ("latest", 10),
            ({"time": "1999-12-31T00:00:00Z"}, 0),
        ):
            assert member.ask("seek", **seek("orders", 0, to)).json == {"offset": offset}
            assert values(member.poll()) == [str(i) for i in range(offset, 10)]
        refused = member.ask("seek", **seek("orders", 0, 11))
        assert (refused.status, refused.problem) == (416, "offset-out-of-range")
        refused = member.ask("seek", **seek("orders", 1, 0))
        assert (refused.status, refused.problem) == (409, "partition-lost")


def test_an_answer_of_few_bytes_has_a_record_and_the_next_ones_come_later(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as store:
        topic = store.partitioned_topic("orders", partitions=2, codec="str")
        for i in range(20):
            topic.append(f"{i} " + "x" * 5_000, partition=i % 2)
        topic.append("\1" * 200_000, partition=0)
    with Server(tmp_path / "events", *SMALL) as server:
        member = Member(server, "billing", "m1", topics=["orders"])
        seen: list[dict[str, Any]] = []
        while records := member.poll(bytes=12_000):
            assert len(records) <= 2
            assert member.poll_again(bytes=12_000).json["records"] == records
            seen += records
        parts: dict[int, list[int]] = {0: [], 1: []}
        for one in seen:
            parts[one["partition"]].append(one["offset"])
        assert parts == {0: list(range(11)), 1: list(range(10))}


def test_a_topic_that_is_created_later_joins_a_pattern(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        member = Member(server, "audit", "m1", pattern="eu.*")
        assert member.poll() == []
        store.topic("us.orders", codec="str").append("no")
        store.topic("eu.orders", codec="str").append("two coffees")
        assert values(member.poll(wait=WAIT)) == ["two coffees"]
        assert member.assigned == [("eu.orders", 0)]


def test_more_members_may_wait_than_the_server_has_threads(tmp_path: Path) -> None:
    orders(tmp_path, 0)
    # The pool for calls that block has 64 threads at most.
    groups, members = 10, 10
    count = groups * members
    with (
        Server(tmp_path / "events") as server,
        falaj.open(tmp_path / "events") as store,
        contextlib.ExitStack() as opened,
    ):
        waiting: list[socket.socket] = []
        for i in range(count):
            asked = {"member": f"m{i}", "number": 1, "topics": ["orders"], "wait": WAIT}
            body = json.dumps(asked).encode()
            head = server.head(f"/v1/groups/g{i % groups}/poll")
            waiting.append(opened.enter_context(server.socket()))
            waiting[-1].sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        while f"falaj_server_followers {count}\n" not in server.get("/metrics").body.decode():
            pass
        assert f"falaj_server_members {count}\n" in server.get("/metrics").body.decode()
        # This one needs a thread.
        assert server.get("/v1/topics/orders").status == 200
        store.topic("orders", codec="str").append("x")
        # One member of each group has the partition.
        got = 0
        while got < groups:
            for one in select.select(waiting, [], [], PATIENCE_S)[0]:
                waiting.remove(one)
                got += b'"value":"x"' in one.recv(1 << 16)


def test_a_member_beyond_the_limit_is_refused_and_others_go_on(tmp_path: Path) -> None:
    orders(tmp_path, 3)
    with Server(tmp_path / "events", "--limits-members", "2") as server:
        a, b, c = (Member(server, "billing", name, topics=["orders"]) for name in "abc")
        a.poll()
        b.poll()
        c.number = 1
        refused = c.poll_again()
        assert (refused.status, refused.problem) == (503, "busy")
        assert "limits.members" in refused.json["detail"]
        a.poll()
        assert b.ask("leave").status == 204
        assert c.poll_again().status == 200


def test_a_server_that_ends_answers_what_waits_and_its_members_leave_their_group(
    tmp_path: Path,
) -> None:
    orders(tmp_path, 4)
    with Server(tmp_path / "events") as server, falaj.open(tmp_path / "events") as store:
        member = Member(server, "billing", "m1", topics=["orders"])
        assert len(member.poll()) == 4
        replies = []
        waiting = threading.Thread(target=lambda: replies.append(member.poll(wait=WAIT)))
        waiting.start()
        while "falaj_server_followers 1\n" not in server.get("/metrics").body.decode():
            pass
        assert server.stop(signal.SIGTERM)[0] == 0
        waiting.join()
        assert replies == [[]]
        with store.consumer("billing", "orders") as native:
            assert len(native.poll(4, timeout=0)) == 4


def test_groups_are_listed_described_and_deleted(tmp_path: Path) -> None:
    orders(tmp_path, 10, partitions=2)
    with Server(tmp_path / "events") as server:
        assert server.get("/v1/groups").json == {"groups": []}
        member = Member(server, "billing", "m1", topics=["orders"])
        member.poll()
        offsets = [{"topic": "orders", "partition": 1, "offset": 3, "metadata": "invoice 17"}]
        assert member.ask("commit", offsets=offsets).status == 200
        listed = server.get("/v1/groups").json
        assert listed == {"groups": [{"name": "billing", "members": 1, "lag": 7}]}
        found = described(server)
        assert (found["name"], found["sessions"], found["log"]) == ("billing", ["m1"], None)
        (one,) = found["members"]
        assert one["process"] == server.process.pid
        assert found["partitions"] == [
            {
                "topic": "orders",
                "partition": partition,
                "committed": committed,
                "metadata": metadata,
                "end_offset": 5,
                "lag": 5 - committed,
                "owner": one,
            }
            for partition, committed, metadata in ((0, 0, ""), (1, 3, "invoice 17"))
        ]
        refused = server.request("DELETE", "/v1/groups/billing")
        assert (refused.status, refused.problem) == (409, "group-in-use")
        member.ask("leave")
        assert server.request("DELETE", "/v1/groups/billing").status == 204
        for method in ("GET", "DELETE"):
            refused = server.request(method, "/v1/groups/billing")
            assert (refused.status, refused.problem) == (404, "unknown-group")


def test_a_member_needs_the_grants_of_its_group_and_of_all_its_topics(tmp_path: Path) -> None:
    file = principals(tmp_path / "principals.toml")
    text = file.read_text()
    grants = '[[principal.grants]]\ngroup = "mine*"\nallow = ["read"]\n'
    grants += '[[principal.grants]]\ntopic = "eu.*"\nallow = ["read"]\n'
    grants += '[[principal.grants]]\ntopic = "us.orders"\nallow = ["read"]\n'
    name = 'name = "ingest"'
    assert name in text
    at = text.index("[[principal.grants]]", text.index(name))
    file.write_text(text[:at] + grants + text[at:])
    with falaj.open(tmp_path / "events") as store:
        for topic in ("eu.orders", "us.orders", "us.paid"):
            store.topic(topic)
    with Server(tmp_path / "events", "--access-principals", str(file)) as server:

        def ask(group: str, verb: str, **members: Any) -> int:
            body = json.dumps({"member": "m", **members}).encode()
            path = f"/v1/groups/{group}/{verb}"
            return server.post(path, body, token=TOKENS["ingest"]).status

        for status, reads in (
            (403, {"topics": ["us.paid"]}),
            (403, {"topics": ["eu.orders", "us.paid"]}),
            (403, {"pattern": "*"}),
            (403, {"pattern": "e*"}),
            (403, {"pattern": "us.orders*"}),
            (403, {"topics": ["eu.orders"], "offsets_in": "us.paid"}),
            (200, {"pattern": "eu.*"}),
        ):
            assert ask("mine", "poll", number=1, **reads) == status, reads
        assert ask("mine", "leave") == 204
        for verb, members in (
            ("poll", {"number": 1, "topics": ["eu.orders"]}),
            ("commit", {"offsets": []}),
            ("seek", seek("eu.orders", 0, 0)),
            ("leave", {}),
        ):
            assert ask("other", verb, **members) == 403, verb
        # A member belongs to its principal.
        member = Member(server, "mine", "m", topics=["eu.orders"])
        member.poll()
        assert ask("mine", "poll", number=2) == 409
        token = TOKENS["ingest"]
        assert server.get("/v1/groups", token=token).json["groups"][0]["name"] == "mine"
        assert server.request("DELETE", "/v1/groups/mine", token=token).status == 403


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("poll", b""),
        ("poll", b"[]"),
        ("poll", b'["m", 1]'),
        ("poll", b"{}"),
        ("poll", b'{"member": "m", "number": 0, "topics": ["orders"]}'),
        ("poll", b'{"member": "m", "number": -1, "topics": ["orders"]}'),
        ("poll", b'{"member": "", "number": 1, "topics": ["orders"]}'),
        ("poll", b'{"member": "%s", "number": 1, "topics": ["orders"]}' % (b"x" * 201)),
        ("poll", b'{"member": "m", "number": 1}'),
        ("poll", b'{"member": "m", "number": 1, "topics": []}'),
        ("poll", b'{"member": "m", "number": 1, "topics": ["orders", "orders"]}'),
        ("poll", b'{"member": "m", "number": 1, "topics": ["../x"]}'),
        ("poll", b'{"member": "m", "number": 1, "topics": ["orders"], "pattern": "*"}'),
        ("poll", b'{"member": "m", "number": 1, "pattern": "^a|b"}'),
        ("poll", b'{"member": "m", "number": 1, "topics": ["orders"], "limit": 0}'),
        ("poll", b'{"member": "m", "number": 1, "topics": ["orders"], "start": "soon"}'),
        ("poll", b'{"member": "m", "number": 1, "topics": ["orders"], "start": {"time": "x"}}'),
        ("poll", b'{"member": "m", "number": 1, "topics": ["orders"], "session": "0s"}'),
        ("poll", b'{"member": "m", "number": 1, "topics": ["orders"], "session": "2h"}'),
        ("poll", b'{"member": "m", "number": 1, "topics": ["orders"], "colour": 1}'),
        ("commit", b'{"member": "m"}'),
        ("commit", b'{"member": "m", "offsets": [[]]}'),
        ("commit", b'{"member": "m", "offsets": [["orders", 0, 1]]}'),
        ("commit", b'{"member": "m", "offsets": [{"topic": "orders"}]}'),
        ("seek", b'{"member": "m", "topic": "orders", "partition": 0, "to": -1}'),
        ("seek", b'{"member": "m", "topic": "orders", "partition": 0, "to": null}'),
        ("leave", b'{"member": 5}'),
    ],
)
def test_a_mistake_in_a_request_of_a_member_is_refused_and_no_member_is_left(
    tmp_path: Path, verb: str, body: bytes
) -> None:
    orders(tmp_path, 1)
    with Server(tmp_path / "events") as server:
        refused = server.post(f"/v1/groups/billing/{verb}", body)
        assert (refused.status, bool(refused.problem)) == (400, True), refused
        assert "falaj_server_members 0\n" in server.get("/metrics").body.decode()


def test_a_group_of_topics_that_are_not_there_is_not_made(tmp_path: Path) -> None:
    orders(tmp_path, 1)
    with Server(tmp_path / "events") as server:
        for group, topics, status in (
            ("a", ["none"], 404),
            ("..", ["orders"], 400),
            ("a:b", ["orders"], 400),
        ):
            body = json.dumps({"member": "m", "number": 1, "topics": topics}).encode()
            assert server.post(f"/v1/groups/{group}/poll", body).status == status, group
        assert server.get("/v1/groups").json == {"groups": []}
        assert server.get("/v1/topics").json == {"topics": ["orders"]}
