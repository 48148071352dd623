"""Offsets of groups that are moved and forgotten: what is refused, and in which words."""

import json
from pathlib import Path
from typing import Any

import falaj
from server.doors import Server
from server.members import Member
from server.test_groups import described, orders


def test_a_group_moves_no_partition_that_is_not_there_and_says_so_while_members_live_too(
    tmp_path: Path,
) -> None:
    orders(tmp_path, 2)
    with falaj.open(tmp_path / "events") as store:
        store.topic("refunds")
    with Server(tmp_path / "events") as server:
        member = Member(server, "billing", "m1", topics=["orders"])
        member.commit_all(member.poll())

        def told(verb: str, **members: Any) -> tuple[int, str]:
            reply = server.post(f"/v1/groups/billing/{verb}", json.dumps(members).encode())
            assert str(tmp_path) not in reply.json["detail"]
            return reply.status, reply.problem

        wrong, in_use = (400, "invalid-argument"), (409, "group-in-use")
        for has_member in (True, False):
            for partition in (1, 7, 2**32 - 1):
                for to in ("earliest", 0):
                    assert told("seek", topic="orders", partition=partition, to=to) == wrong
            assert told("forget", topic="refunds") == wrong
            if has_member:
                assert told("seek", topic="orders", partition=0, to="earliest") == in_use
                assert told("forget", topic="orders") == in_use
                assert described(server)["partitions"][0]["committed"] == 2
                member.ask("leave")
        assert told("seek", topic="refunds", partition=0, to="earliest") == wrong


def test_a_refusal_says_what_a_request_can_do_and_names_no_call_of_a_library(
    tmp_path: Path,
) -> None:
    orders(tmp_path, 2, partitions=2)
    with Server(tmp_path / "events") as server:
        Member(server, "billing", "m1", topics=["orders"]).poll()
        Member(server, "together", "m1", topics=["orders"], offsets_in="orders").poll()
        for path, members, part in (
            ("topics/orders:trim", {"before": 1}, "say which, with partition"),
            ("topics/orders:compact", {}, "send PATCH with"),
            (
                "groups/billing/poll",
                {"member": "m2", "number": 1, "topics": ["orders"], "offsets_in": "orders"},
                "poll without offsets_in",
            ),
            (
                "groups/together/poll",
                {"member": "m2", "number": 1, "topics": ["orders"]},
                'poll with offsets_in, a topic of the log "orders"',
            ),
        ):
            refused = server.post(f"/v1/{path}", json.dumps(members).encode())
            assert refused.status == 400, refused
            assert part in refused.json["detail"], refused
        for settings, part in (
            ({"segment_bytes": 1 << 20}, "leave that setting out, or send the stored one"),
            ({"compacted": True}, "leave that setting out, and change it with PATCH"),
        ):
            body = json.dumps({"partitions": 2, **settings}).encode()
            refused = server.request("PUT", "/v1/topics/orders", body)
            assert (refused.status, refused.problem) == (409, "settings-mismatch")
            assert part in refused.json["detail"], refused
