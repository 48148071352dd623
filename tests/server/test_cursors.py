"""Committed offsets of a group that ride along with an append: both or neither."""

import contextlib
import http.client
import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import falaj
from server.doors import Reply, Server
from server.lossy import Lossy
from server.members import Member, values
from server.test_groups import described

SEED = 20261127
BEGINS: dict[str, Any] = {"topics": ["orders"], "offsets_in": "copies"}


def shop(tmp_path: Path, records: int) -> None:
    """Make a topic with records, and one of another log for their copies."""
    with falaj.open(tmp_path / "events") as store:
        store.topic("copies", codec="str")
        orders = store.topic("orders", codec="str")
        for i in range(records):
            orders.append(str(i))


def copy(
    server: Server, copied: list[str], offset: int, *, part: Any = None, **named: str
) -> Reply:
    """Append copies together with the offset of their group."""
    member = named.pop("member", "m1")
    cursor = {"group": "copier", "topic": "orders", "partition": 0, "offset": offset}
    if member:
        cursor["member"] = member
    records = [{"value": value} for value in copied]
    parts = [{"topic": "copies", "records": records, **(part or {})}]
    body = json.dumps({"parts": parts, "cursors": [cursor]}).encode()
    return server.post("/v1/append", body, **named)


def copies(server: Server) -> list[str]:
    """Read all copies."""
    return values(server.get("/v1/topics/copies/records").json["records"])


def committed(server: Server) -> int:
    """Return how far the group has come."""
    (part,) = described(server, "copier")["partitions"]
    offset: int = part["committed"]
    return offset


def test_records_and_offsets_of_an_append_count_together_or_not_at_all(tmp_path: Path) -> None:
    shop(tmp_path, 9)
    with Server(tmp_path / "events") as server:
        member = Member(server, "copier", "m1", **BEGINS)
        assert len(member.poll(limit=4)) == 4
        assert described(server, "copier")["log"] == "copies"
        refused = copy(server, ["0"], 1, part={"if_next": 7})
        assert (refused.status, refused.problem) == (412, "offset-conflict")
        refused = copy(server, ["0"], 99)
        assert (refused.status, refused.problem) == (416, "offset-out-of-range")
        assert (copies(server), committed(server)) == ([], 0)
        done = copy(server, ["0", "1"], 2)
        assert (done.status, done.json["parts"][0]["next"]) == (201, 2)
        assert (copies(server), committed(server)) == (["0", "1"], 2)
        # The member reads on behind what was delivered, and its own commits count as before.
        assert values(member.poll(limit=1)) == ["4"]
        assert member.commit(("orders", 0, 5)).status == 200
        assert committed(server) == 5
        server.post("/v1/groups/copier/leave", b'{"member": "m1"}')
        for status, problem, named in (
            (409, "session-ended", "m1"),
            (409, "session-ended", "m2"),
        ):
            refused = copy(server, ["5"], 6, member=named)
            assert (refused.status, refused.problem) == (status, problem)
        assert (copies(server), committed(server)) == (["0", "1"], 5)
        # An array of its members in their order is no cursor.
        parts = '[{"topic": "copies", "records": [{"value": "5"}]}]'
        cursors = '[["copier", null, "orders", 0, 6, ""]]'
        body = f'{{"parts": {parts}, "cursors": {cursors}}}'.encode()
        assert server.post("/v1/append", body).problem == "bad-request"
        assert (copies(server), committed(server)) == (["0", "1"], 5)


def test_an_append_with_offsets_that_is_repeated_gets_its_first_answer_also_without_its_member(
    tmp_path: Path,
) -> None:
    shop(tmp_path, 9)
    named = {"Falaj_Producer": "copier", "Falaj_Sequence": "0"}
    with Server(tmp_path / "events") as server:
        member = Member(server, "copier", "m1", **BEGINS)
        member.poll()
        first = copy(server, ["0", "1"], 2, **named)
        assert first.status == 201
        for _ in range(2):
            assert copy(server, ["0", "1"], 2, **named).json == first.json
        # A repeat moved nothing, so the member can go on.
        second = copy(server, ["2"], 3, **named | {"Falaj_Sequence": "1"})
        assert (second.status, committed(server)) == (201, 3)
        server.stop(signal.SIGKILL)
    with Server(tmp_path / "events") as server:
        again = copy(server, ["2"], 3, **named | {"Falaj_Sequence": "1"})
        assert (again.status, again.json) == (201, second.json)
        # This one never happened.
        refused = copy(server, ["3"], 4, **named | {"Falaj_Sequence": "2"})
        assert (refused.status, refused.problem) == (409, "session-ended")
        assert (copies(server), committed(server)) == (["0", "1", "2"], 3)
        assert values(Member(server, "copier", "m2", **BEGINS).poll(limit=1)) == ["3"]


def test_offsets_without_a_member_move_unless_a_member_has_the_partition(tmp_path: Path) -> None:
    shop(tmp_path, 9)
    with Server(tmp_path / "events") as server:
        assert copy(server, ["0"], 1, member="").status == 201
        assert copy(server, ["1"], 2, member="").status == 201
        assert (copies(server), committed(server)) == (["0", "1"], 2)
        member = Member(server, "copier", "m1", **BEGINS)
        assert values(member.poll(limit=1)) == ["2"]
        refused = copy(server, ["2"], 3, member="")
        assert (refused.status, refused.problem) == (409, "partition-lost")
        assert (copies(server), committed(server)) == (["0", "1"], 2)


def test_offsets_that_cannot_ride_along_are_refused_and_nothing_is_appended(tmp_path: Path) -> None:
    shop(tmp_path, 3)
    with Server(tmp_path / "events") as server:
        Member(server, "own-file", "m1", topics=["orders"]).poll()
        one = {"group": "own-file", "topic": "orders", "partition": 0, "offset": 1, "member": "m1"}
        for status, cursors in (
            (400, [one]),
            (400, [{**one, "group": "a"}, {**one, "group": "b"}]),
            (400, [one, one]),
            (400, [{**one, "colour": 1}]),
            (400, [[]]),
            (400, [{**one, "member": ""}]),
            (404, [{**one, "group": "new", "topic": "none", "member": None}]),
            (400, [one] * 1001),
        ):
            parts = [{"topic": "copies", "records": [{"value": "x"}]}]
            body = json.dumps({"parts": parts, "cursors": cursors}).encode()
            refused = server.post("/v1/append", body)
            assert (refused.status, bool(refused.problem)) == (status, True), (cursors[0], refused)
        assert copies(server) == []


class Repeating(Server):
    """A server behind a proxy that loses requests: each is sent until it is answered."""

    def __init__(self, door: Lossy, token: str) -> None:  # it starts no process
        self.port, self.token = door.port, token

    def request(self, *arguments: Any, **named: Any) -> Reply:
        """Send a request until it is answered."""
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                reply = super().request(*arguments, **named)
                # Without its length the head was cut off.
                if "content-length" in reply.headers:
                    return reply
            # sleep: nothing says when a server listens again, and a try costs the proxy a thread.
            time.sleep(0.005)


def work(door: Repeating, count: int) -> None:
    """Copy all records, whatever happens to the server."""
    sequence = done = life = 0
    while done < count:
        life += 1
        member = Member(door, "copier", f"w{life}", **BEGINS)
        while done < count:
            member.number += 1
            reply = member.poll_again(limit=5, wait="100ms")
            if reply.status == 409:
                break
            assert reply.status == 200, reply
            records = reply.json["records"]
            if not records:
                continue
            done = records[-1]["offset"] + 1
            named = {"Falaj_Producer": "copier", "Falaj_Sequence": str(sequence)}
            reply = copy(door, values(records), done, member=member.name, **named)
            if reply.status == 409:
                # It did not happen.
                assert reply.problem in ("session-ended", "partition-lost"), reply
                done = records[0]["offset"]
                break
            assert reply.status == 201, reply
            sequence += 1


def test_each_record_is_copied_once_through_kills_and_lost_replies(tmp_path: Path) -> None:
    count, lives = 300, 5
    shop(tmp_path, count)
    with Lossy(SEED, 0.3) as door, falaj.open(tmp_path / "events", read_only=True) as store:
        with Server(tmp_path / "events") as server:
            token = server.token
        worker = threading.Thread(target=work, args=(Repeating(door, token), count))
        worker.start()
        copied = store.topic("copies")
        for life in range(lives):
            with Server(tmp_path / "events") as server:
                door.behind = server.port
                aim = count if life == lives - 1 else (life + 1) * count // (lives + 1)
                while len(copied) < aim and worker.is_alive():
                    worker.join(0.001)
                if life == lives - 1:
                    worker.join()
                    assert committed(server) == count
                door.behind = 0
        assert [one.value for one in copied] == [str(i) for i in range(count)]
        assert min(door.lost.values()) > 0, door.lost
