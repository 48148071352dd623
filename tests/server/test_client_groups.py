"""Consumer groups of the client: as native ones, and through lost replies and kills."""

import asyncio
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
            async with await store.consumer("billing", "orders") as member:
                assert [record.value async for record in member] == [3]
                assert isinstance(member, falaj_client.AsyncConsumer)

    with Server(tmp_path / "events") as server:
        asyncio.run(use(f"http://127.0.0.1:{server.port}", server.token))
