"""The contents of a store, by name; and waiting for a topic that another process creates."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import HandleClosed, UnknownGroup, UnknownQueue, UnknownTopic


def test_topics_groups_and_queues_are_mappings_that_read_the_store(
    path: Path, store: falaj.Store
) -> None:
    mappings: list[Any] = [store.topics, store.groups, store.queues]
    assert [list(each) for each in mappings] == [[], [], []]
    store.topic("orders", codec="json").append({"id": 1})
    store.consumer("billing", "orders").close()
    store.queue("jobs", topic="orders")
    assert [dict(each) for each in mappings] == [
        {each["name"]: each for each in store.info()[kind]}
        for kind in ("topics", "groups", "queues")
    ]
    assert [name in each for each, name in zip(mappings, "xyz", strict=True)] == [False] * 3
    assert ("orders" in store.topics, "billing" in store.groups, "jobs" in store.queues) == (
        True,
        True,
        True,
    )
    assert [len(each) for each in mappings] == [1, 1, 1]
    assert repr(store.topics) == "<falaj.Store.topics: 'orders'>"
    with falaj.open(path, read_only=True) as reader:
        assert reader.groups["billing"]["partitions"][0]["lag"] == 1
        assert reader.queues["jobs"]["ready"] == 1
        assert reader.topics["orders"]["partitions"][0]["end"] == 1
    store.delete_queue("jobs")
    store.delete_group("billing")
    store.delete_topic("orders")
    assert [len(each) for each in mappings] == [0, 0, 0]


@pytest.mark.parametrize("name", ["missing", "no/name", "", "x" * 300])
def test_a_name_that_is_missing_is_a_key_error(store: falaj.Store, name: str) -> None:
    for mapping, error in (
        (store.topics, UnknownTopic),
        (store.groups, UnknownGroup),
        (store.queues, UnknownQueue),
    ):
        with pytest.raises(error):
            mapping[name]
        assert name not in mapping
        assert mapping.get(name) is None


def test_a_topic_that_cannot_be_read_is_told_with_its_problem(
    path: Path, store: falaj.Store
) -> None:
    store.topic("orders")
    (path / "topics" / "orders" / "topic.json").write_bytes(b"{")
    assert "orders" in store.topics
    assert store.topics["orders"]["problem"]


WRITES = """
import falaj
store = falaj.open(path)
say("open")
hear()
store.topic("orders").append(b"one")
"""


def test_a_consumer_that_starts_before_its_writer_waits_for_the_topic(path: Path) -> None:
    with falaj.open(path) as store, child(path, WRITES) as writer:
        writer.hear()
        with pytest.raises(UnknownTopic, match="the store has no topics"):
            store.wait_for_topic("orders", timeout=0)
        threading.Timer(0.05, lambda: writer.tell("go")).start()
        store.wait_for_topic("orders")
        with store.consumer("billing", "orders") as billing:
            (order,) = billing.poll(timeout=30)
        assert order.to_bytes() == b"one"


def test_a_topic_is_waited_for_from_asyncio(path: Path, store: falaj.Store) -> None:
    async def wait() -> str:
        waiting = asyncio.create_task(store.await_for_topic("orders"))
        await asyncio.sleep(0)  # sleep: only gives it its first turn, in which it finds no topic
        assert not waiting.done()
        await asyncio.to_thread(store.topic, "orders")
        await waiting
        with pytest.raises(UnknownTopic, match="orders"):
            await store.await_for_topic("other", timeout=0.01)
        return store.topic("orders", create=False).name

    assert asyncio.run(wait()) == "orders"


def test_waiting_for_a_topic_ends_when_the_store_is_closed(path: Path) -> None:
    store = falaj.open(path)
    threading.Timer(0.02, store.close).start()
    with pytest.raises(HandleClosed):
        store.wait_for_topic("orders")
