"""Consumer groups of the client: as native ones, and through lost replies and kills."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj
import falaj_client
from falaj_client.protocols import StoreLike
from server.doors import Server
from server.test_client import connect
from server.test_client_lossy import Door


@pytest.fixture(params=["native", "client"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLike]:
    """A store of each kind."""
    if request.param == "native":
        with falaj.open(tmp_path / "events") as native:
            yield native
        return
    with Server(tmp_path / "events") as server, connect(server) as client:
        yield client


def test_a_group_resumes_at_its_commits_and_seeks_alike(both: StoreLike) -> None:
    topic = both.topic("orders", codec="json")
    topic.extend(range(10))
    first: Any = both.consumer("billing", "orders")
    assert [record.value for record in first.poll(3)] == [0, 1, 2]
    first.commit()
    assert [record.value for record in first.poll(2)] == [3, 4]
    first.close()
    store: Any = both
    with store.consumer("billing", ["orders"]) as second:
        assert [record.value for record in second.poll(4)] == [3, 4, 5, 6]
        assert second.partitions == [("orders", 0)]
        second.commit(5)
        second.seek(8)
        assert [record.value for record in second] == [8, 9]
        assert second.poll(timeout=0) == []
        second.seek("earliest")
        assert next(iter(second)).value == 0
        second.seek(5)
        second.commit()
    third: Any = both.consumer("billing", "orders")
    for record in third:
        if record.value == 7:
            break
    third.commit()
    third.close()
    fourth: Any = both.consumer("billing", "orders")
    assert [record.value for record in fourth.follow(timeout=0.05)] == [8, 9]
    fourth.close()
    with pytest.raises(falaj.errors.HandleClosed):
        fourth.poll(timeout=0)
    with pytest.raises(falaj.errors.UnknownTopic):
        both.consumer("billing", "nowhere").poll(timeout=0)
    with pytest.raises(falaj.errors.InvalidArgument):
        both.consumer("billing")
    late: Any = both.consumer("late", "orders", start="latest")
    assert late.poll(timeout=0) == []
    topic.append("news")
    assert [record.value for record in late.poll()] == ["news"]


def test_each_topic_of_a_group_keeps_its_codec(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, connect(server) as store:
        store.topic("a.text", codec="str").append("one")
        store.topic("a.json", codec="json").append({"n": 1.10})
        for topics in ({"pattern": "a.*"}, {"topics": ["a.text", "a.json"]}):
            with store.consumer(f"g{len(topics)}", **topics) as member:
                found = {record.topic: record for record in member}
            assert found["a.text"].value == "one"
            assert found["a.json"].value == {"n": 1.1}
            assert found["a.json"].raw == b'{"n":1.1}'
            assert member.topics == ["a.json", "a.text"]
            server.get("/v1/groups")


def test_members_of_both_kinds_share_a_group(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as native, Server(path) as server, connect(server) as store:
        parts = native.partitioned_topic("parts", partitions=4, codec="json")
        here = native.consumer("billing", "parts")
        there = store.consumer("billing", "parts")
        while not (here.partitions and there.partitions):
            here.poll(timeout=0)
            there.poll(timeout=0)
        parts.extend([(f"{i}", i) for i in range(200)])
        got = list[int]()
        while len(got) < 200:
            for member in (here, there):
                got += [record.value for record in member.poll(timeout=0)]
                member.commit()
        assert sorted(got) == list(range(200))
        there.close()
        here.close()


def test_what_is_committed_is_delivered_once_through_lost_replies_and_kills(
    tmp_path: Path,
) -> None:
    with Door(tmp_path / "events") as door, falaj.open(tmp_path / "events") as native:
        parts = native.partitioned_topic("parts", partitions=2, codec="json")
        parts.extend([(f"{i}", i) for i in range(300)])
        done: list[tuple[int, int]] = []

        def work() -> None:
            with falaj.connect(door.url, token=door.server.token, timeout=60) as store:
                member = store.consumer("billing", "parts")
                while records := member.poll(7, timeout=5):
                    try:
                        member.commit()
                    except falaj.errors.PartitionNotAssigned:
                        continue
                    done.extend((record.partition, record.offset) for record in records)

        door.run(work)
        # A commit that counted, while its answer said that the session ended, may hide records.
        there = sorted((record.partition, record.offset) for record in parts)
        assert len(done) == len(set(done))
        assert set(done) <= set(there)
        with native.consumer("billing", "parts") as rest:
            assert list(rest) == []


def test_offsets_move_with_the_records_of_a_transaction_alike(both: StoreLike) -> None:
    work, results = both.topic("work", codec="json"), both.topic("results", codec="json")
    work.extend(range(6))
    member: Any = both.consumer("adder", "work", cursor_in="results")
    assert [record.value for record in member.poll(2)] == [0, 1]
    with both.transaction() as tx:
        tx.append("results", "one")
        tx.commit_cursor(member, metadata="ü" * 192)
    (part,) = both.groups["adder"]["partitions"]
    assert (part["committed"], part["metadata"]) == (2, "ü" * 192)
    assert [record.value for record in member.poll(2)] == [2, 3]

    def fails(expect: int | None) -> None:
        with both.transaction() as tx:
            tx.append("results", "never", expect=expect)
            tx.commit_cursor(member)
            if expect is None:
                raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        fails(None)
    with pytest.raises(falaj.errors.OffsetConflict):
        fails(7)
    assert both.groups["adder"]["partitions"][0]["committed"] == 2
    with both.transaction() as tx:  # its records are those of before: they still wait for a commit
        tx.commit_cursor(member)
    assert tx.offsets == {}
    assert both.groups["adder"]["partitions"][0]["committed"] == 4
    member.poll(1)
    with both.transaction() as tx:
        tx.commit_cursor(member)
        member.poll(1)  # comes later, so it is not committed
        tx.append("results", "two")
    assert both.groups["adder"]["partitions"][0]["committed"] == 5
    assert [record.value for record in results] == ["one", "two"]
    with pytest.raises(falaj.errors.InvalidArgument, match="transaction is over"):
        tx.commit_cursor(member)
    member.close()
    with both.transaction() as tx, pytest.raises(falaj.errors.HandleClosed):
        tx.commit_cursor(member)
    plain: Any = both.consumer("plain", "work")
    plain.poll(1)
    with both.transaction() as tx:
        with pytest.raises(falaj.errors.InvalidArgument, match="cursor_in="):
            tx.commit_cursor(plain)
        with pytest.raises(TypeError):
            tx.commit_cursor("plain")
    plain.close()


def test_offsets_and_records_of_a_member_that_lost_its_partition_count_both_or_none(
    tmp_path: Path,
) -> None:
    path = tmp_path / "events"
    with falaj.open(path) as native, Server(path) as server, connect(server) as store:
        native.topic("work", codec="json").extend(range(4))
        native.topic("results", codec="json")
        late = store.consumer("adder", "work", cursor_in="results")
        assert len(late.poll(2)) == 2
        server.post("/v1/groups/adder/leave", json.dumps({"member": late._member._member}).encode())

        def ends() -> None:
            with store.transaction() as tx:
                tx.append("results", "never")
                tx.commit_cursor(late)

        with pytest.raises(falaj.errors.PartitionNotAssigned):
            ends()
        assert len(native.topic("results")) == 0
        assert [record.value for record in late.poll(2)] == [0, 1]
        with store.transaction() as tx:
            tx.append("results", "once")
            tx.commit_cursor(late)
        other = store.consumer("other", "work", cursor_in="results")
        other.poll(1)
        with store.transaction() as tx:
            tx.commit_cursor(late)
            with pytest.raises(falaj.errors.InvalidArgument, match="one consumer"):
                tx.commit_cursor(other)
        late.close()
        other.close()
        with native.consumer("adder", "work", cursor_in="results") as rest:
            assert [record.value for record in rest] == [2, 3]


def test_each_record_has_one_result_through_lost_replies_and_kills(tmp_path: Path) -> None:
    with Door(tmp_path / "events") as door, falaj.open(tmp_path / "events") as native:
        parts = native.partitioned_topic("parts", partitions=2, codec="json")
        parts.extend([(f"{i}", i) for i in range(300)])
        results = native.topic("results", codec="json")

        def work() -> None:
            with falaj.connect(door.url, token=door.server.token, timeout=60) as store:
                member = store.consumer("adder", "parts", cursor_in="results")
                while records := member.poll(7, timeout=5):
                    try:
                        with store.transaction() as tx:
                            tx.extend("results", [record.value for record in records])
                            tx.commit_cursor(member)
                    except falaj.errors.PartitionNotAssigned:
                        continue

        door.run(work)
        assert sorted(record.value for record in results) == list(range(300))
        with native.consumer("adder", "parts", cursor_in=results) as rest:
            assert list(rest) == []


def test_a_member_from_asyncio_does_the_same(tmp_path: Path) -> None:
    async def use(url: str, token: str) -> None:
        async with falaj.aconnect(url, token=token) as store:
            topic = await store.topic("orders", codec="json")
            await topic.extend([1, 2, 3])
            async with await store.consumer("billing", "orders") as member:
                assert [record.value for record in await member.poll(2)] == [1, 2]
                await member.commit()
                assert [record.value async for record in member] == [3]
                await member.seek("earliest")
                assert [record.value async for record in member.follow(timeout=0)] == [1, 2, 3]
            sums = await store.topic("sums", codec="json")
            async with await store.consumer("adder", topic, cursor_in=sums) as member:
                async with store.transaction() as tx:
                    tx.append(sums, sum([record.value for record in await member.poll(2)]))
                    tx.commit_cursor(member)
                assert (await store.groups())["adder"]["partitions"][0]["committed"] == 2
            async with await store.consumer("billing", "orders") as member:
                assert [record.value async for record in member] == [3]
                assert isinstance(member, falaj_client.AsyncConsumer)

    with Server(tmp_path / "events") as server:
        asyncio.run(use(f"http://127.0.0.1:{server.port}", server.token))
