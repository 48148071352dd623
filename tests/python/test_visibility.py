"""Reading only durable records: no call of such a handle shows anything past them."""

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import OffsetOutOfRange

SOON_S = 30.0
"""Far more than anything here takes: a limit, not a duration."""


def pair(store: falaj.Store, partitions: int = 1) -> tuple[Any, Any]:
    """A topic that only the test syncs, and a handle of it that reads durable records."""
    opens: Any = store.topic
    if partitions > 1:
        opens = partial(store.partitioned_topic, partitions=partitions)
    writer = opens("orders", sync="none", sync_interval_ms=3_600_000)
    return writer, store.any_topic("orders", visibility="durable")


def numbers(records: Any) -> list[int]:
    return [int(record.to_bytes()) for record in records]


def everything(topic: Any) -> dict[str, Any]:
    """All numbers that a topic reports about its records."""
    return {
        "for": numbers(topic),
        "slice": numbers(topic[:]),
        "backwards": numbers(topic[::-1])[::-1],
        "read": numbers(topic.read(0, 100)),
        "last": numbers(topic.last(100)),
        "batches": [int(value) for batch in topic.batches() for value in batch.to_list()],
        "follow": numbers(topic.follow(timeout=0)),
        "afollow": asyncio.run(afollowed(topic)),
        "len": list(range(len(topic))),
        "end": list(range(topic.end_offset)),
        "negative": list(range(int(topic[-1].to_bytes()) + 1)),
    }


async def afollowed(topic: Any) -> list[int]:
    return [int(record.to_bytes()) async for record in topic.afollow(timeout=0)]


def test_all_that_a_durable_handle_says_agrees(store: falaj.Store) -> None:
    writer, durable = pair(store)
    writer.extend([b"%d" % n for n in range(5)])
    writer.flush()
    writer.extend([b"%d" % n for n in range(5, 9)])
    assert set(map(tuple, everything(writer).values())) == {tuple(range(9))}
    assert set(map(tuple, everything(durable).values())) == {tuple(range(5))}
    assert (durable.visibility, writer.visibility) == ("durable", "visible")
    assert (durable.visible_offset, durable.durable_offset, durable.end_offset) == (9, 5, 5)
    with pytest.raises(OffsetOutOfRange, match="holds offsets 0 to 4"):
        durable[5]
    with pytest.raises(OffsetOutOfRange):
        durable.read(6, 1)
    assert durable.at(writer[8].timestamp) is None or durable.at(writer[8].timestamp).offset < 5
    writer.flush()
    assert set(map(tuple, everything(durable).values())) == {tuple(range(9))}


def test_partitions_of_a_durable_handle_are_durable(store: falaj.Store) -> None:
    writer, durable = pair(store, partitions=3)
    for n in range(6):
        writer.append(b"%d" % n, partition=n % 3)
    assert (len(durable), list(durable), durable.partition(1).end_offset) == (0, [], 0)
    follower = durable.follow()
    assert follower.poll() is None
    writer.flush()
    assert sorted(numbers(durable)) == list(range(6))
    assert len(durable.partition(1)) == 2
    assert sorted(numbers(follower.poll() for _ in range(6))) == list(range(6))


def test_following_says_by_itself_how_far_it_sees(store: falaj.Store) -> None:
    writer, durable = pair(store)
    writer.append(b"0")
    assert numbers(writer.follow(timeout=0, visibility="durable")) == []
    assert numbers(durable.follow(timeout=0, visibility="visible")) == [0]
    # Committed records that are not durable are still to come, for a durable reader.
    latest = durable.follow("latest")
    later = durable.follow(1)
    writer.append(b"1")
    writer.flush()
    assert numbers([latest.poll(), latest.poll()]) == [0, 1]
    assert numbers([later.poll()]) == [1]
    with pytest.raises(OffsetOutOfRange):
        durable.follow(3)


def test_a_follower_of_what_is_durable_is_woken_by_a_sync(store: falaj.Store) -> None:
    writer, durable = pair(store)
    for n in range(3):
        writer.append(b"%d" % n)
        follower = durable.follow(n, timeout=SOON_S)
        flusher = threading.Timer(0.05, writer.flush)
        flusher.start()
        assert numbers([next(follower)]) == [n]
        flusher.join()


def test_a_task_that_follows_what_is_durable_is_woken_by_a_sync(store: falaj.Store) -> None:
    writer, durable = pair(store)

    async def follow() -> list[int]:
        flusher = threading.Timer(0.05, writer.flush)
        writer.append(b"0")
        flusher.start()
        async for record in durable.afollow(timeout=SOON_S):
            flusher.join()
            return [int(record.to_bytes())]
        return []

    assert asyncio.run(follow()) == [0]


def test_a_reader_in_another_process_sees_what_is_durable(path: Path, store: falaj.Store) -> None:
    writer, _ = pair(store)
    writer.append(b"0", sync="durable")
    writer.append(b"1")
    program = """
topic = falaj.open(path, read_only=True).topic("orders", visibility="durable")
say(len(topic), [record.to_bytes() for record in topic])
follower = topic.follow(1, timeout=30)
say(next(follower).to_bytes())
"""
    with child(path, program) as reader:
        assert reader.hear() == "1 [b'0']"
        writer.flush()
        assert reader.hear() == "b'1'"


def test_closing_the_handle_ends_its_durable_followers(store: falaj.Store) -> None:
    writer, _ = pair(store)
    follower = writer.follow(visibility="durable")
    closer = threading.Timer(0.05, writer.close)
    closer.start()
    assert list(follower) == []
    closer.join()


@pytest.mark.parametrize("wrong", ["all", 5, True])
def test_a_visibility_that_is_none_is_named(store: falaj.Store, wrong: Any) -> None:
    topic = store.topic("orders")
    for ask in (
        lambda: store.topic("orders", visibility=wrong),
        lambda: topic.follow(visibility=wrong),
        lambda: topic.afollow(visibility=wrong),
    ):
        with pytest.raises(ValueError, match='"durable" or "remote"'):
            ask()
