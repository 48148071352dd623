"""A consumer group forgets one topic: its committed offsets there go, in all partitions."""

import os
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import InvalidArgument, NotWritable, UnknownGroup


def filled(store: falaj.Store, name: str) -> Any:
    topic = store.partitioned_topic(name, codec="raw", partitions=3, segment_bytes=1 << 16)
    for partition in range(3):
        more(topic, partition, 200)
    return topic


def more(topic: Any, partition: int, records: int) -> None:
    for _ in range(records // 20):
        topic.extend([bytes(500)] * 20, partition=partition, sync="none")
    topic.flush()


def read_some(store: falaj.Store, names: list[str], **where: Any) -> None:
    with store.consumer("billing", names, **where) as billing:
        billing.poll(900, timeout=0)
        billing.commit(sync="durable")


def topics_of(store: falaj.Store) -> set[str]:
    (group,) = store.info()["groups"]
    return {cursor["topic"] for cursor in group["partitions"]}


@pytest.mark.parametrize("kept", ["file", "log"])
def test_retention_waits_no_more_for_a_topic_that_the_group_forgot(path: Path, kept: str) -> None:
    with falaj.open(path) as store:
        filled(store, "orders")
        refunds = filled(store, "refunds")
        where: dict[str, Any] = {"cursor_in": store.topic("totals")} if kept == "log" else {}
        read_some(store, ["orders", "refunds"], **where)
        more(refunds, 0, 300)
        refunds.configure(retention_records=1, retention_waits=True)
        store.maintain()
        held_back = [refunds.partition(partition).start_offset for partition in range(3)]
        store.forget_topic("billing", "refunds")
        assert topics_of(store) == {"orders"}
        store.maintain()
        freed = [refunds.partition(partition).start_offset for partition in range(3)]
        assert freed > held_back
        with store.consumer("billing", ["orders", "refunds"], start="latest", **where) as billing:
            for p in range(3):
                assert (
                    billing.committed(topic="refunds", partition=p)
                    == refunds.partition(p).end_offset
                )


READER = """
store = falaj.open(path)
billing = store.consumer("billing", hear().split())
say(os.getpid())
hear()
"""


def test_a_topic_is_forgotten_beside_members_that_read_others_and_never_under_one_that_reads_it(
    path: Path,
) -> None:
    with falaj.open(path) as store:
        filled(store, "orders")
        refunds = filled(store, "refunds")
        read_some(store, ["orders", "refunds"])
        with child(path, READER) as reader:
            reader.tell("orders refunds")
            pid = reader.hear()
            with pytest.raises(InvalidArgument, match=rf"process {pid}\b.*reads topic"):
                store.forget_topic("billing", "refunds")
            reader.kill()
        with child(path, READER) as reader:
            reader.tell("orders")
            reader.hear()
            store.forget_topic("billing", refunds)
            assert topics_of(store) == {"orders"}
            with pytest.raises(InvalidArgument, match="reads topic"):
                store.forget_topic("billing", "orders")
        with pytest.raises(InvalidArgument, match="no committed offset"):
            store.forget_topic("billing", "refunds")
        with pytest.raises(UnknownGroup):
            store.forget_topic("nobody", "orders")
    with falaj.open(path, read_only=True) as store, pytest.raises(NotWritable):
        store.forget_topic("billing", "orders")


FORGETTER = """
store = falaj.open(path)
while True:
    say("begin")
    store.forget_topic("billing", "refunds")
    store.consumer("billing", ["orders", "refunds"], start=7).close()
"""


def test_processes_killed_while_they_forget_leave_all_partitions_or_none(path: Path) -> None:
    with falaj.open(path) as store:
        filled(store, "orders")
        filled(store, "refunds")
        read_some(store, ["orders", "refunds"])
        orders = [c for c in store.info()["groups"][0]["partitions"] if c["topic"] == "orders"]
        for _ in range(15):
            with child(path, FORGETTER) as forgetter:
                for _ in range(int.from_bytes(os.urandom(1)) % 20 + 1):
                    forgetter.hear()
                forgetter.kill()
            (group,) = store.info()["groups"]
            left = [c for c in group["partitions"] if c["topic"] == "refunds"]
            assert len(left) in (0, 3)
            kept = [c for c in group["partitions"] if c["topic"] == "orders"]
            assert [c["committed"] for c in kept] == [c["committed"] for c in orders]
            store.consumer("billing", ["orders", "refunds"], start=7).close()
    assert falaj.verify(path)["sound"]
