"""Changes and looks of the client: limits, compaction, groups and queues, as native ones."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj_client.protocols import StoreLike
from server.doors import Server
from server.test_client import connect


@pytest.fixture(params=["native", "client"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLike]:
    """A store of each kind."""
    if request.param == "native":
        with falaj.open(tmp_path / "events") as native:
            yield native
        return
    with Server(tmp_path / "events") as server, connect(server) as client:
        yield client


def test_limits_change_and_old_records_of_keys_go_alike(both: StoreLike) -> None:
    topic = both.topic("orders", codec="str")
    topic.extend([(f"k{i % 3}", f"{i}") for i in range(30)])
    with pytest.raises(falaj.errors.InvalidArgument):
        topic.compact(seal=True)
    none = {"bytes": None, "age_ms": None, "records": None, "waits": False, "protected": False}
    assert topic.configure() == none
    changed = topic.configure(compacted=True, retention_age="90m", retention_bytes=10**9)
    assert changed == {**none, "age_ms": 5_400_000, "bytes": 10**9}
    changed = topic.configure(retention_age=None, retention_records=2**60, retention_waits=True)
    assert changed == {**none, "bytes": 10**9, "records": 2**60, "waits": True}
    kept = topic.configure(retention_bytes=None, retention_records=None, retention_age=1_080_000)
    assert kept == {**none, "age_ms": 1_080_000_000, "waits": True}
    done = topic.compact(delete_retention="12h", seal=True)
    assert (done["records"], done["removed"], done["segments"]) == (30, 27, 1)
    assert done["bytes_after"] < done["bytes_before"]
    assert [record.value for record in topic] == ["27", "28", "29"]
    assert topic.compact(delete_retention=0)["removed"] == 0
    parts = both.partitioned_topic("parts", partitions=2, codec="str")
    parts.partition(1).configure(compacted=True)
    parts.extend([("k", "old"), ("k", "new")])
    assert parts.compact(seal=True)["removed"] == 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"retention_bytes": 0}, falaj.errors.InvalidArgument),
        ({"retention_records": 2**63}, falaj.errors.InvalidArgument),
        ({"retention_age": 0}, falaj.errors.InvalidArgument),
        ({"retention_age": "soon"}, falaj.errors.InvalidArgument),
        ({"retention_waits": None}, TypeError),
        ({"retention_bytes": "1G"}, TypeError),
        ({"compacted": 1}, TypeError),
        ({"colour": "red"}, TypeError),
    ],
)
def test_a_limit_that_is_none_is_refused_alike(
    both: StoreLike, change: dict[str, Any], error: type[Exception]
) -> None:
    topic = both.topic("orders", retention_records=5)  # type: ignore[call-arg]
    with pytest.raises(error):
        topic.configure(**change)
    assert topic.configure()["records"] == 5
    with pytest.raises(falaj.errors.InvalidArgument):
        topic.compact(delete_retention=-1)
    both.delete_topic("orders")
    both.topic("orders")
    with pytest.raises(falaj.errors.TopicDeleted):
        topic.configure(retention_records=9)


def test_properties_change_alike_and_all_of_a_change_or_none(both: StoreLike) -> None:
    topic = both.partitioned_topic("orders", partitions=2)
    assert topic.properties == {}
    topic.configure(properties={"content-type": "text/csv", "owner": "shop ü", "empty": ""})
    topic.partition(1).configure(properties={"owner": None, "nothing": None})
    assert topic.properties == {"content-type": "text/csv", "empty": ""}
    topic.configure(retention_records=5)
    topic.configure(properties={})
    too_large = {"content-type": None, "large": "x" * 16_384}
    with pytest.raises(falaj.errors.InvalidArgument):
        topic.configure(properties=too_large, retention_records=7)
    for wrong in ({"": "x"}, {"x" * 129: "x"}, {"a": "\ud800"}):
        with pytest.raises(falaj.errors.InvalidArgument):
            topic.configure(properties=wrong)
    for strange in ({1: "x"}, {"a": 1}, [("a", "b")]):
        with pytest.raises(TypeError):
            topic.configure(properties=strange)  # type: ignore[arg-type]
    assert topic.configure()["records"] == 5
    assert topic.properties == {"content-type": "text/csv", "empty": ""}
    both.delete_topic("orders")
    both.topic("orders")
    with pytest.raises(falaj.errors.TopicDeleted):
        _ = topic.properties


def test_records_are_counted_alike_also_where_compaction_left_gaps(both: StoreLike) -> None:
    topic = both.partitioned_topic("orders", partitions=2, codec="str")
    assert topic.count() == 0
    topic.extend([(f"k{i % 3}", f"{i}") for i in range(30)])
    topic.partition(1).extend(["x", "y"])
    ends = topic.partition(0).end_offset
    assert (topic.count(), topic.partition(0).count(), len(topic)) == (32, ends, 32)
    topic.configure(compacted=True)
    topic.compact(seal=True)
    assert topic.count() == len(list(topic)) < len(topic)
    assert topic.count() == topic.partition(0).count() + topic.partition(1).count()
    topic.partition(1).trim(before_offset=topic.partition(1).end_offset)
    assert topic.partition(1).count() == 0
    both.delete_topic("orders")
    both.topic("orders")
    with pytest.raises(falaj.errors.TopicDeleted):
        topic.count()


def test_groups_and_queues_are_looked_at_and_deleted_alike(both: StoreLike) -> None:
    assert (list(both.groups), list(both.queues)) == ([], [])
    both.topic("orders", codec="str").extend(["a", "b", "c"])
    both.topic("paid")
    member = both.consumer("billing", "orders", cursor_in="paid")
    assert len(member.poll(2)) == 2
    member.commit(metadata="two")
    with pytest.raises(falaj.errors.InvalidArgument):
        both.delete_group("billing")
    (part,) = both.groups["billing"]["partitions"]
    assert part["owner"] in both.groups["billing"]["members"]
    member.close()
    assert (list(both.groups), "billing" in both.groups) == (["billing"], True)
    billing = both.groups["billing"]
    assert (billing["name"], billing["cursor_in"], billing["members"]) == ("billing", "paid", [])
    (part,) = billing["partitions"]
    expected = {"topic": "orders", "partition": 0, "committed": 2, "lag": 1, "metadata": "two"}
    assert {name: part[name] for name in expected} == expected
    assert part["owner"] is None
    queue = both.queue("jobs", codec="str")
    queue.put_many(["x", "y"])
    queue.put("later", delay=3600)
    queue.take()[0].ack()
    (jobs,) = both.queues.values()
    counts = {"name": "jobs", "topic": "jobs", "order": None, "done": 1, "in_flight": 0, "dead": 0}
    assert {name: jobs[name] for name in counts} == counts
    assert jobs["ready"] + jobs["delayed"] == 2
    both.delete_group("billing")
    both.delete_queue("jobs")
    assert (len(both.groups), len(both.queues)) == (0, 0)
    for names, delete, error in (
        (both.groups, both.delete_group, falaj.errors.UnknownGroup),
        (both.queues, both.delete_queue, falaj.errors.UnknownQueue),
    ):
        assert "nothing" not in names
        assert "a/b" not in names
        with pytest.raises(error):
            names["nothing"]
        with pytest.raises(error):
            delete("nothing")
        for name in ("a/b", "..", ""):
            with pytest.raises(falaj.errors.InvalidName):
                delete(name)
        with pytest.raises(KeyError):
            names[5]  # type: ignore[index]


def test_limits_groups_and_queues_from_asyncio_are_the_same(tmp_path: Path) -> None:
    async def use(url: str, token: str) -> None:
        async with falaj.aconnect(url, token=token) as store:
            topic = await store.topic("orders", codec="str")
            await topic.extend([("k", "old"), ("k", "new")])
            limits = await topic.configure(retention_records=700, compacted=True)
            assert limits["records"] == 700
            assert (await topic.compact(seal=True))["removed"] == 1
            assert await topic.count() == 1
            await topic.configure(properties={"owner": "shop"})
            assert await topic.properties() == {"owner": "shop"}
            async with await store.consumer("billing", topic) as member:
                assert [record.value for record in await member.poll(1)] == ["new"]
                await member.commit()
            assert (await store.groups())["billing"]["partitions"][0]["committed"] == 2
            await (await store.queue("jobs")).put(b"x")
            assert (await store.queues())["jobs"]["ready"] == 1
            await store.delete_group("billing")
            await store.delete_queue("jobs")
            assert (await store.groups(), await store.queues()) == ({}, {})

    with Server(tmp_path / "events") as server:
        asyncio.run(use(f"http://127.0.0.1:{server.port}", server.token))
