"""Finished topics: no record comes after the end, and whatever follows them ends there."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj import errors

if TYPE_CHECKING:
    from pathlib import Path


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


def test_a_finished_topic_takes_no_record_and_keeps_those_that_are_there(
    store: falaj.Store,
) -> None:
    day = store.topic("day", log="days")
    parts = store.partitioned_topic("parts", log="days", partitions=3)
    day.extend([b"x", b"y"])
    assert (day.finished, parts.finished) == (False, False)
    day.finish()
    day.finish()
    with store.transaction() as tx:
        tx.append(parts, b"last", partition=1)
        tx.finish("parts")
    assert (day.finished, parts.finished, parts.partition(1).finished) == (True, True, True)
    for late in (
        lambda: day.append(b"z"),
        lambda: day.append(b"z", expect=2),
        lambda: day.extend([b"z"]),
        lambda: day.tombstone(b"k"),
        lambda: parts.append(b"z", partition=0),
        lambda: parts.append(b"z", b"key"),
    ):
        with pytest.raises(errors.TopicFinished, match="is finished") as told:
            late()
        assert told.value.topic in ("day", "parts")
    assert offsets(day) == [0, 1]
    info = {topic["name"]: topic for topic in store.info()["topics"]}
    assert info["day"]["finished"] is True
    with pytest.raises(errors.InvalidArgument, match="with all its partitions"):
        parts.partition(1).finish()


def test_a_finished_topic_stays_so_through_a_restart_a_backup_and_a_repair(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "store") as store:
        day = store.topic("day")
        day.append(b"x")
        day.finish()
        store.backup(tmp_path / "copy")
    falaj.repair(tmp_path / "store")
    for place in ("store", "copy"):
        with falaj.open(tmp_path / place) as store:
            day = store.topic("day")
            with pytest.raises(errors.TopicFinished):
                day.append(b"y")
            assert (day.finished, offsets(day.follow())) == (True, [0])
        with falaj.open(tmp_path / place, read_only=True) as store:
            day = store.topic("day")
            assert (day.finished, offsets(day.follow())) == (True, [0])
            with pytest.raises(errors.NotWritable):
                day.finish()


def finish_meanwhile(store: falaj.Store) -> threading.Thread:
    """Append to the topic `day` and finish it, in a thread that has begun."""

    def work() -> None:
        with falaj.open(store.path) as own:
            day = own.topic("day")
            for _ in range(20):
                day.append(b"x")
            with own.transaction() as tx:
                tx.append(day, b"last")
                tx.finish(day)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_followers_end_behind_the_last_record(store: falaj.Store) -> None:
    day = store.topic("day")
    thread = finish_meanwhile(store)
    assert offsets(day.follow()) == list(range(21))
    thread.join()
    assert offsets(day.follow(visibility="durable")) == list(range(21))


def test_async_followers_end_behind_the_last_record(store: falaj.Store) -> None:
    day = store.topic("day")

    async def follow() -> list[int]:
        return [record.offset async for record in day.afollow()]

    thread = finish_meanwhile(store)
    assert asyncio.run(follow()) == list(range(21))
    thread.join()
    assert asyncio.run(follow()) == list(range(21))


def test_what_follows_a_consumer_of_finished_topics_ends(store: falaj.Store) -> None:
    store.topic("day")
    rest = store.topic("rest")

    async def follow(consumer: falaj.Consumer[Any]) -> list[int]:
        return [record.offset async for record in consumer.afollow()]

    thread = finish_meanwhile(store)
    with store.consumer("sync", "day") as consumer:
        assert offsets(consumer.follow()) == list(range(21))
        assert consumer.poll() == []
    with store.consumer("async", "day") as consumer:
        assert asyncio.run(follow(consumer)) == list(range(21))
    thread.join()
    with store.consumer("both", ["day", "rest"]) as consumer:
        assert offsets(consumer.follow(timeout=0.01)) == list(range(21))
        rest.append(b"x")
        rest.finish()
        assert offsets(consumer.follow()) == [0]


def test_a_member_waits_for_what_another_one_has_not_committed(store: falaj.Store) -> None:
    parts = store.partitioned_topic("parts", partitions=2)
    parts.append(b"x", partition=0)
    parts.append(b"x", partition=1)
    parts.finish()
    with store.consumer("group", "parts") as one, store.consumer("group", "parts") as other:
        assert len(one.poll(timeout=1)) == 1
        assert len(other.poll(timeout=1)) == 1
        one.commit()
        assert one.poll(timeout=0) == []
        assert not one._over()
        other.commit()
        assert one._over()
        assert one.poll() == []
