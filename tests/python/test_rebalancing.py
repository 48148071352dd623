"""Callbacks around a change of partitions, and groups that read all topics of a pattern."""

import asyncio
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import HandleClosed, InvalidArgument

SOON_S = 30.0
"""Far more than anything here takes: a limit, not a duration."""


class Heard:
    """Note the arguments of callbacks."""

    def __init__(self, commits: bool = False) -> None:
        self.all: list[tuple[str, list[tuple[str, int]]]] = []
        self.commits = commits

    def assign(self, _consumer: Any, partitions: list[tuple[str, int]]) -> None:
        self.all.append(("assign", partitions))

    def revoke(self, consumer: Any, partitions: list[tuple[str, int]]) -> None:
        self.all.append(("revoke", partitions))
        if self.commits:
            consumer.commit()

    def both(self) -> dict[str, Any]:
        return {"on_assign": self.assign, "on_revoke": self.revoke}


def parted(store: falaj.Store, partitions: int = 4, each: int = 5, name: str = "orders") -> Any:
    topic = store.partitioned_topic(name, partitions=partitions)
    for partition in topic.partitions:
        topic.partition(partition).extend([b"%d" % n for n in range(each)])
    return topic


def test_a_commit_in_on_revoke_counts_when_another_process_joins(path: Path) -> None:
    with falaj.open(path) as store:
        parted(store)
        heard = Heard(commits=True)
        with store.consumer("billing", "orders", **heard.both()) as billing:
            assert len(billing.poll()) == 20
            assert billing.lag == 20, "nothing is committed yet"
            program = """
store = falaj.open(path)
billing = store.consumer("billing", "orders")
say("joined")
while len(billing.partitions) < 2:
    billing.poll(timeout=0.01)
say(*billing.poll(timeout=0), *[billing.committed(partition=p) for _, p in billing.partitions])
hear()
"""
            with child(path, program) as other:
                assert other.hear() == "joined"
                while len(billing.partitions) > 2:
                    assert billing.poll(timeout=0.01) == []
                assert other.hear() == "5 5", "it resumes behind what on_revoke committed"
                other.tell()
                other.process.wait(SOON_S)
            assigned, revoked = heard.all
            assert assigned == ("assign", [("orders", p) for p in range(4)])
            assert revoked[0] == "revoke"
            assert len(revoked[1]) == 2


def test_close_calls_on_revoke_while_a_commit_still_counts(path: Path) -> None:
    with falaj.open(path) as store:
        parted(store, 2)
        heard = Heard(commits=True)
        billing = store.consumer("billing", "orders", **heard.both())
        billing.poll()
        billing.close()
        assert heard.all[-1] == ("revoke", [("orders", 0), ("orders", 1)])
        billing.close()
        assert len(heard.all) == 2, "once"
        with pytest.raises(HandleClosed):
            billing.commit()
        assert store.consumer("billing", "orders").lag == 0


def test_a_waiting_thread_calls_on_revoke_when_another_closes_the_consumer(path: Path) -> None:
    with falaj.open(path) as store:
        parted(store, 1)
        threads: list[threading.Thread] = []
        waits = threading.Event()

        def revoke(consumer: Any, _partitions: Any) -> None:
            consumer.commit()
            threads.append(threading.current_thread())

        billing = store.consumer("billing", "orders", on_revoke=revoke)

        def read() -> None:
            for record in billing.follow():
                if record.offset == 4:
                    waits.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert waits.wait(SOON_S)
        billing.close()
        reader.join(SOON_S)
        assert not reader.is_alive()
        assert len(threads) == 1
        assert store.consumer("billing", "orders").lag == 0


def test_a_callback_that_raises_ends_the_call_and_the_next_call_delivers(path: Path) -> None:
    with falaj.open(path) as store:
        parted(store, 1)

        def refuse(_consumer: Any, partitions: list[tuple[str, int]]) -> None:
            raise ZeroDivisionError(partitions)

        billing = store.consumer("billing", "orders", on_assign=refuse, on_revoke=refuse)
        with pytest.raises(ZeroDivisionError, match="orders"):
            billing.poll()
        assert [record.offset for record in billing] == [0, 1, 2, 3, 4]
        with pytest.raises(ZeroDivisionError):
            billing.close()
        assert billing.closed
        second = store.consumer("billing", "orders")
        assert len(second.poll(timeout=SOON_S)) == 5, "the partition is released all the same"


def test_a_callback_may_seek_commit_and_ask_in_every_way_of_reading(path: Path) -> None:
    async def first_of(records: Any) -> Any:
        found = [record async for record in records]
        return found[0]

    ways: dict[str, Any] = {
        "poll": lambda c: c.poll(1, timeout=0)[0].offset,
        "for": lambda c: next(iter(c)).offset,
        "follow": lambda c: next(iter(c.follow(timeout=0))).offset,
        "batches": lambda c: next(c.batches(timeout=0)).offsets[0],
        "apoll": lambda c: asyncio.run(c.apoll(1, timeout=0))[0].offset,
        "afollow": lambda c: asyncio.run(first_of(c.afollow(timeout=0))).offset,
        "abatches": lambda c: asyncio.run(first_of(c.abatches(timeout=0))).offsets[0],
    }
    with falaj.open(path) as store:
        parted(store, 1)
        for way, read in ways.items():

            def assign(consumer: Any, partitions: list[tuple[str, int]]) -> None:
                for topic, partition in partitions:
                    consumer.seek(3, topic=topic, partition=partition)
                consumer.commit()
                assert consumer.position() == consumer.committed() == 3

            with store.consumer(f"g-{way}", "orders", on_assign=assign) as billing:
                assert read(billing) == 3, way


def test_callbacks_are_plain_functions(path: Path) -> None:
    async def later(_consumer: Any, _partitions: Any) -> None: ...

    with falaj.open(path) as store:
        parted(store, 1)
        with pytest.raises(TypeError, match="on_assign is called without await"):
            store.consumer("billing", "orders", on_assign=later)
        wrong: Any = 7
        with pytest.raises(TypeError, match="on_revoke is a function"):
            store.consumer("billing", "orders", on_revoke=wrong)
        assert list(store.groups) == []


def test_a_consumer_that_its_callbacks_refer_to_is_collected(path: Path) -> None:
    with falaj.open(path) as store:
        parted(store, 1)
        heard = Heard()
        billing = store.consumer("billing", "orders", **heard.both())
        vars(heard)["billing"] = billing
        gone = weakref.ref(billing)
        del billing, heard
        gc.collect()
        assert gone() is None
        assert len(store.consumer("billing", "orders").poll(timeout=SOON_S)) == 5


def test_a_topic_that_another_process_creates_joins_a_pattern_while_it_waits(path: Path) -> None:
    with falaj.open(path) as store:
        heard = Heard()
        with store.consumer(
            "billing", pattern="orders.*", start="latest", **heard.both()
        ) as billing:
            assert (billing.topics, billing.pattern, billing.partitions) == ([], "orders.*", [])
            assert billing.poll(timeout=0) == []
            program = """
store = falaj.open(path)
store.topic("refunds").append(b"no")
store.topic("orders.eu", codec="json").append({"n": 1})
"""
            with child(path, program) as other:
                [record] = billing.poll(timeout=SOON_S)
                other.process.wait(SOON_S)
            assert (record.topic, record.offset, record.value) == ("orders.eu", 0, {"n": 1})
            assert billing.topics == ["orders.eu"]
            assert heard.all == [("assign", [("orders.eu", 0)])]
            billing.commit()
        assert store.groups["billing"]["partitions"][0]["committed"] == 1
        # A topic that was created while no member lived is read as start= says.
        store.topic("orders.us").append(b"x")
        with store.consumer("billing", pattern="orders.*") as billing:
            assert [record.topic for record in billing] == ["orders.us"]


def test_a_topic_joins_a_pattern_in_asyncio_too(path: Path) -> None:
    async def read(store: falaj.Store) -> Any:
        return await anext(aiter(store.consumer("billing", pattern="*").afollow()))

    async def both(store: falaj.Store) -> Any:
        reading = asyncio.create_task(read(store))
        await asyncio.sleep(0)  # sleep: the other task gets its turn
        store.topic("orders").append(b"one")
        return await asyncio.wait_for(reading, SOON_S)

    with falaj.open(path) as store:
        assert asyncio.run(both(store)).topic == "orders"


def test_two_members_of_a_pattern_share_a_later_topic_and_read_each_record_once(path: Path) -> None:
    with falaj.open(path) as store:
        found: list[tuple[int, int]] = []
        full = threading.Event()

        def read(member: Any) -> None:
            for record in member.follow():
                found.append((record.partition, record.offset))
                member.commit()
                if len(found) >= 20:
                    full.set()

        members = [store.consumer("billing", pattern="orders.*") for _ in range(2)]
        readers = [threading.Thread(target=read, args=(member,)) for member in members]
        for reader in readers:
            reader.start()
        parted(store, 4, 5, "orders.eu")
        assert full.wait(SOON_S)
        for member in members:
            member.close()
        for reader in readers:
            reader.join(SOON_S)
            assert not reader.is_alive()
        assert sorted(found) == [(p, n) for p in range(4) for n in range(5)]


def test_a_deleted_topic_leaves_a_pattern_and_raises_nothing(path: Path) -> None:
    with falaj.open(path) as store:
        heard = Heard(commits=True)
        for name in ("a.1", "a.2"):
            store.topic(name).append(b"x")
        with store.consumer("billing", pattern="a.*", **heard.both()) as billing:
            billing.pause("a.2")
            assert [record.topic for record in billing] == ["a.1"]
            store.delete_topic("a.1")
            while billing.topics != ["a.2"]:
                assert billing.poll(timeout=0.01) == []
            assert heard.all[-1] == ("revoke", [("a.1", 0)])
            billing.resume()
            assert [record.topic for record in billing] == ["a.2"]


def test_topics_that_come_and_go_all_the_time_raise_nothing_in_a_pattern(path: Path) -> None:
    with falaj.open(path) as store:
        store.topic("a.stays").append(b"x")
        is_over = threading.Event()

        def come_and_go() -> None:
            with falaj.open(path) as mine:
                for number in range(400):
                    mine.topic(f"a.{number % 3}").append(b"x")
                    mine.delete_topic(f"a.{number % 3}")
            is_over.set()

        thread = threading.Thread(target=come_and_go)
        thread.start()
        read = 0
        while not is_over.is_set():
            with store.consumer("billing", pattern="a.*") as billing:
                for _ in range(5):
                    read += len(billing.poll(10, timeout=0.002))
                    billing.commit()
        thread.join(SOON_S)
        assert not thread.is_alive()
        assert read > 0


def test_members_with_another_subscription_are_refused(path: Path) -> None:
    with falaj.open(path) as store:
        store.topic("orders")
        with store.consumer("billing", pattern="o*"):
            others: list[dict[str, Any]] = [{"pattern": "ord*"}, {"topics": "orders"}]
            for other in others:
                with pytest.raises(InvalidArgument, match="other topics or another pattern"):
                    store.consumer("billing", **other)
        for wrong in ("^orders$", "", "a|b"):
            with pytest.raises(InvalidArgument, match="no regular expression"):
                store.consumer("billing", pattern=wrong)
        neither: dict[str, Any] = {}
        for wrong_both in (neither, {"topics": "orders", "pattern": "o*"}):
            with pytest.raises(InvalidArgument, match="give topics= or pattern="):
                store.consumer("billing", **wrong_both)
