"""Retention by limits in Python: settings, maintenance, and killed processes."""

import json
import random
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import (
    InvalidArgument,
    NotWritable,
    OffsetOutOfRange,
    SettingsMismatch,
    TopicDeleted,
)

SEGMENT = 1 << 16
VALUE = bytes(500)
NO_LIMITS = {"bytes": None, "age_ms": None, "records": None, "waits": False, "protected": False}


def filled(store: falaj.Store, name: str = "orders", **limits: Any) -> falaj.Topic[memoryview]:
    topic = store.topic(name, codec="raw", segment_bytes=SEGMENT, sync="none", **limits)
    topic.extend([VALUE] * 10)
    for _ in range(60):
        topic.extend([VALUE] * 10)
    topic.append(VALUE, sync="durable")
    return topic


def test_limits_are_set_when_a_topic_is_made_or_any_day_and_shown(store: falaj.Store) -> None:
    orders = store.topic("orders", retention_age=timedelta(days=7), retention_bytes=1 << 30)
    assert orders.configure() == {**NO_LIMITS, "bytes": 1 << 30, "age_ms": 604_800_000}
    changed = orders.configure(retention_bytes=None, retention_records=5, retention_waits=True)
    assert changed == {**NO_LIMITS, "age_ms": 604_800_000, "records": 5, "waits": True}
    assert store.info()["topics"][0]["retention"] == changed
    assert orders.configure(retention_age=0.25)["age_ms"] == 250
    store.configure(retention_bytes=10 << 30)
    assert store.info()["retention_bytes"] == 10 << 30
    store.configure(retention_bytes=None)
    assert store.info()["retention_bytes"] is None
    store.topic("orders", retention_records=5, retention_age=None)
    store.topic("orders")
    with pytest.raises(SettingsMismatch, match="retention_records = 5, not 6"):
        store.topic("orders", retention_records=6)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"retention_bytes": 0}, InvalidArgument),
        ({"retention_bytes": -1}, InvalidArgument),
        ({"retention_records": 2**63}, InvalidArgument),
        ({"retention_records": 1.5}, TypeError),
        ({"retention_records": True}, TypeError),
        ({"retention_age": 0}, InvalidArgument),
        ({"retention_age": float("nan")}, InvalidArgument),
        ({"retention_age": float("inf")}, InvalidArgument),
        ({"retention_age": 1e300}, InvalidArgument),
        ({"retention_age": timedelta(-1)}, InvalidArgument),
        ({"retention_age": b"7d"}, TypeError),
        ({"retention_waits": 1}, TypeError),
        ({"retention": 1}, TypeError),
    ],
)
def test_what_is_no_limit_is_refused_and_changes_nothing(
    store: falaj.Store, wrong: dict[str, Any], error: type[Exception]
) -> None:
    orders = store.topic("orders")
    with pytest.raises(error, match=next(iter(wrong))):
        orders.configure(**wrong)
    with pytest.raises(error):
        store.topic("new", **wrong)
    assert orders.configure() == NO_LIMITS
    assert list(store.topics) == ["orders"]


def test_configuring_is_for_who_may_write_and_for_the_topic_that_was_opened(
    store: falaj.Store,
) -> None:
    orders = store.topic("orders")
    with falaj.open(store.path, read_only=True) as reader:
        with pytest.raises(NotWritable):
            reader.topic("orders").configure(retention_records=1)
        with pytest.raises(NotWritable):
            reader.configure(retention_bytes=1)
        with pytest.raises(NotWritable):
            reader.maintain()
        assert reader.maintain(dry_run=True)["dry_run"]
    store.delete_topic("orders")
    anew = store.topic("orders")
    with pytest.raises(TopicDeleted):
        orders.configure(retention_records=1)
    assert anew.configure() == NO_LIMITS


FILLER = """
store = falaj.open(path)
orders = store.topic("orders", codec="raw", segment_bytes=1 << 16, sync="none")
for _ in range(61):
    orders.extend([bytes(500)] * 10)
orders.append(bytes(500), sync="durable")
say("filled")
"""


def test_maintenance_says_what_went_and_of_a_dry_run_what_would(store: falaj.Store) -> None:
    # In another process: a process that has rolled a log deletes by itself, sooner or later.
    with child(store.path, FILLER) as filler:
        assert filler.hear() == "filled"
    orders = store.topic("orders", codec="raw")
    orders.configure(retention_records=20)
    planned = store.maintain(dry_run=True)
    assert orders.start_offset == 0
    view = orders[0].value
    done = store.maintain()
    assert [log["cuts"] for log in planned["logs"]] == [log["cuts"] for log in done["logs"]]
    (log,) = done["logs"]
    end = 611
    told = {"topic": "orders", "partition": 0, "first_before": 0, "limit": "records"}
    assert log["cuts"] == [{**told, "first": end - 20, "wanted": end - 20, "needed": 0}]
    assert log["segments"] >= 3
    assert (log["problem"], done["problems"]) == (None, [])
    assert (orders.start_offset, len(orders), bytes(view)) == (end - 20, 20, VALUE)
    with pytest.raises(OffsetOutOfRange):
        orders[0]
    assert store.maintain()["logs"][0]["cuts"] == []
    assert json.loads(json.dumps(done)) == done


def test_a_topic_that_is_written_to_deletes_by_itself(store: falaj.Store) -> None:
    orders = filled(store, retention_records=30)
    deadline = time.monotonic() + 20
    while orders.start_offset == 0:
        assert time.monotonic() < deadline
        # sleep: no event reports that records were deleted
        time.sleep(0.005)
    assert not store.metrics()["logs"]["orders"]["retention_failed"]


WRITER = """
store = falaj.open(path)
orders = store.topic("orders", codec="raw", segment_bytes=1 << 16, sync="none")
say("ready")
n = orders.end_offset
while True:
    orders.extend([b"%d" % (n + i) + bytes(400) for i in range(20)])
    n += 20
"""
MAINTAINER = """
store = falaj.open(path)
say("ready")
while True:
    store.maintain()
"""


def test_a_process_killed_during_retention_leaves_a_whole_topic(tmp_path: Path) -> None:
    path, draw = tmp_path / "store", random.Random(7)
    with falaj.open(path) as store:
        store.topic("orders", codec="raw", segment_bytes=SEGMENT, retention_records=100)
    last = 0
    for _ in range(8):
        with child(path, WRITER) as writer, child(path, MAINTAINER) as maintainer:
            assert (writer.hear(), maintainer.hear()) == ("ready", "ready")
            # sleep: they must be somewhere in the middle when they die
            time.sleep(draw.uniform(0.02, 0.2))
            victims = [writer, maintainer]
            draw.shuffle(victims)
            for victim in victims:
                victim.kill()
        with falaj.open(path, read_only=True) as reader:
            check(reader.topic("orders"))
        with falaj.open(path) as store:
            orders = store.topic("orders")
            first, end = check(orders)
            assert first >= last
            last = first
            assert falaj.verify(path)["sound"]
            # Only durable records count against a limit.
            orders.flush()
            assert store.maintain()["problems"] == []
            assert orders.start_offset == max(first, end - 100)
            segments = len(list(path.glob("logs/orders@*/*.log")))
            assert segments <= 3, "the dead process's leftovers were not removed"
    assert last > 0


def check(orders: falaj.Topic[memoryview]) -> tuple[int, int]:
    """Each record from the first on is there, and is as appended."""
    seen = [(record.offset, int(bytes(record.raw or b"").split(b"\0")[0])) for record in orders]
    first = orders.start_offset
    assert [offset for offset, _ in seen] == list(range(first, first + len(seen)))
    assert all(offset == number for offset, number in seen)
    return first, first + len(seen)


def waiting(store: falaj.Store) -> falaj.Topic[bytes]:
    """A topic of ten records on the disk, which keeps one and what is waited for."""
    orders = store.topic("orders", codec="bytes", sync="none")
    orders.extend([b"old"] * 10)
    orders.flush()
    return orders


def test_a_commit_of_records_that_were_lost_keeps_those_where_the_group_resumes(
    path: Path,
) -> None:
    """The file of a group is newer than the log, as a power failure may leave it."""
    with falaj.open(path) as store:
        orders = waiting(store)
        with store.consumer("billing", "orders", start="earliest") as billing:
            billing.poll(8, timeout=0)
            billing.commit(sync="durable")
            store.backup(path.with_name("copy"))
            orders.extend([b"lost"] * 3)
            list(billing)
            billing.commit()
        cursors = (path / "consumers/billing").read_bytes()
    with falaj.open(path.with_name("copy")) as older:
        (path.with_name("copy") / "consumers/billing").write_bytes(cursors)
        orders = older.topic("orders", codec="bytes", sync="none")
        orders.extend([b"other"] * 5)
        orders.flush()
        orders.configure(retention_records=1, retention_waits=True)
        older.maintain()
        assert orders.start_offset == 8
        billing = older.consumer("billing", "orders")
        assert [record.offset for record in billing.poll(9, timeout=0)] == list(range(8, 15))


def test_an_ack_of_a_record_that_was_lost_keeps_the_one_that_came_in_its_place(
    path: Path,
) -> None:
    """The file of a queue is newer than the log, as a power failure may leave it."""
    with falaj.open(path) as store:
        orders = waiting(store)
        work = store.queue("work", orders)
        for job in work.take(8, timeout=0):
            job.ack()
        store.backup(path.with_name("copy"))
        orders.extend([b"lost"] * 3)
        for job in work.take(9, timeout=0):
            job.ack()
        work.close()
        state = (path / "queues/work").read_bytes()
    with falaj.open(path.with_name("copy")) as older:
        (path.with_name("copy") / "queues/work").write_bytes(state)
        orders = older.topic("orders", codec="bytes", sync="none")
        orders.extend([b"other"] * 5)
        orders.flush()
        orders.configure(retention_records=1, retention_waits=True)
        older.maintain()
        assert orders.start_offset == 10, "the records before were done"
        work = older.queue("work", orders)
        assert [job.offset for job in work.take(9, timeout=0)] == [10, 11, 12, 13, 14]
