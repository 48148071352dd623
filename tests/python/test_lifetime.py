"""Views outlive everything, and closed handles raise."""

import gc
import os
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import HandleClosed, NotWritable, TopicDeleted, UnknownTopic


def test_views_stay_valid_after_everything_was_closed_and_deleted(path: Path) -> None:
    store = falaj.open(path)
    topic = store.topic("orders", codec="raw", segment_bytes=1 << 16)
    expected = [os.urandom(1000) for _ in range(300)]
    for value in expected:
        topic.append(value)
    records = list(topic)
    views = [record.value for record in records]
    lazy = [view for batch in topic.batches() for view in batch.values]
    batches = list(topic.batches(10))
    topic.delete()
    topic.close()
    store.close()
    assert not list(path.glob("logs/*/*"))
    del topic, store
    gc.collect()
    assert [bytes(view) for view in views] == expected
    assert [bytes(view or b"") for view in lazy] == expected
    assert [bytes(record) for record in records] == expected
    assert [value for batch in batches for value in batch.to_list()] == expected
    del records, batches
    gc.collect()
    assert [bytes(view[10:20]) for view in views] == [value[10:20] for value in expected]


def test_views_are_read_only(topic: falaj.Topic[memoryview]) -> None:
    topic.append(b"fixed")
    view = topic[0].value
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1
    assert topic[0].to_bytes() == b"fixed"


def test_a_record_exports_its_payload(topic: falaj.Topic[memoryview]) -> None:
    topic.append(b"payload")
    record = topic[0]
    assert bytes(record) == record.to_bytes() == bytes(memoryview(record)) == b"payload"
    assert len(record) == 7
    assert b"".join([record, record]) == b"payloadpayload"
    assert bytes(record.raw or b"") == b"payload"


def calls(topic: Any) -> dict[str, Any]:
    return {
        "append": lambda: topic.append(b"x"),
        "extend": lambda: topic.extend([b"x"]),
        "iter": lambda: iter(topic),
        "getitem": lambda: topic[0],
        "slice": lambda: topic[0:1],
        "len": lambda: len(topic),
        "first": lambda: topic.start_offset,
        "end": lambda: topic.end_offset,
        "durable": lambda: topic.durable_offset,
        "read": lambda: topic.read(0, 1),
        "last": lambda: topic.last(),
        "at": lambda: topic.at("2026-11-20T08:00:00Z"),
        "batches": lambda: topic.batches(),
        "follow": lambda: topic.follow(),
        "afollow": lambda: topic.afollow(),
        "flush": lambda: topic.flush(),
        "wait_durable": lambda: topic.wait_durable(),
        "delete": lambda: topic.delete(),
    }


@pytest.mark.parametrize("call", list(calls(None)))
def test_every_call_on_a_closed_topic_says_that_it_is_closed(
    topic: falaj.Topic[memoryview], call: str
) -> None:
    topic.append(b"x")
    topic.close()
    topic.close()
    with pytest.raises(HandleClosed, match="open it again"):
        calls(topic)[call]()


WITHOUT_RECORDS = {"flush"}
"""Calls that a deleted topic still allows: nothing can be lost any more."""


@pytest.mark.parametrize("call", [c for c in calls(None) if c not in WITHOUT_RECORDS])
def test_every_call_on_a_deleted_topic_says_that_it_was_deleted(
    topic: falaj.Topic[memoryview], store: falaj.Store, call: str
) -> None:
    topic.append(b"x")
    store.delete_topic("orders")
    with pytest.raises(TopicDeleted, match="orders"):
        calls(topic)[call]()


def test_an_iteration_that_runs_while_the_topic_is_deleted_goes_on_or_says_so(
    topic: falaj.Topic[memoryview],
) -> None:
    topic.extend([b"x"] * 10)
    records = iter(topic)
    next(records)
    topic.delete()
    assert len(list(records)) == 9


def test_a_deleted_topic_can_be_created_anew_and_begins_at_zero(store: falaj.Store) -> None:
    old = store.topic("orders")
    old.append(b"old")
    generation = old.generation
    old.delete()
    new = store.topic("orders", codec="str")
    assert new.append("new") == 0
    assert new.generation != generation
    with pytest.raises(TopicDeleted):
        old.delete()
    assert len(new) == 1


def test_closing_the_store_closes_its_topics(path: Path) -> None:
    with falaj.open(path) as store, store.topic("orders") as topic:
        topic.append(b"x")
        parts = store.partitioned_topic("parts", partitions=2)
        store.close()
        assert store.closed
        assert topic.closed
        assert parts.closed
        with pytest.raises(HandleClosed, match="store"):
            store.topic("orders")
        with pytest.raises(HandleClosed, match="store"):
            list(store.topics)


def test_closing_a_view_of_a_partition_closes_the_topic(store: falaj.Store) -> None:
    topic = store.partitioned_topic("parted", partitions=2)
    topic.partition(1).close()
    assert topic.closed


def test_a_store_that_was_closed_leaves_no_file_open(path: Path) -> None:
    def open_files() -> list[str]:
        names = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        return [name for name in names if name.startswith(os.fspath(path))]

    with falaj.open(path) as store:
        topic = store.topic("orders", segment_bytes=1 << 16)
        for _ in range(1000):
            topic.append(bytes(500))
        assert open_files()
    assert open_files() == []


def test_the_same_store_can_be_open_many_times_in_a_process(path: Path) -> None:
    stores = [falaj.open(path) for _ in range(20)]
    topics = [store.topic("orders") for store in stores]
    assert [topic.append(b"x") for topic in topics] == list(range(20))
    for store in stores[:-1]:
        store.close()
    assert topics[-1].append(b"x") == 20
    assert len(topics[-1]) == 21
    stores[-1].close()


def test_a_store_keeps_its_id_and_another_at_its_path_has_another(
    path: Path, tmp_path: Path
) -> None:
    with falaj.open(path) as store:
        first = store.id
        assert first == store.info()["id"]
    with falaj.open(path, read_only=True) as store:
        assert store.id == first
    path.rename(tmp_path / "away")
    with falaj.open(path) as store:
        assert store.id != first


def test_a_store_opened_for_reading_creates_and_writes_nothing(path: Path) -> None:
    with pytest.raises(OSError, match="there is no store"):
        falaj.open(path, read_only=True)
    assert not path.exists()
    with falaj.open(path) as store:
        store.topic("orders").append(b"x")
    before = sorted(path.rglob("*"))
    reader = falaj.open(path, read_only=True)
    assert not reader.writable
    topic = reader.topic("orders")
    assert [record.to_bytes() for record in topic] == [b"x"]
    assert "read only" in repr(reader)
    for forbidden in (topic.append, lambda value: topic.extend([value])):
        with pytest.raises(NotWritable):
            forbidden(b"x")
    with pytest.raises(PermissionError):
        topic.delete()
    with pytest.raises(PermissionError):
        topic.flush()
    with pytest.raises(UnknownTopic, match="missing"):
        reader.topic("missing")
    with pytest.raises(KeyError):
        reader.topic("missing")
    assert sorted(path.rglob("*")) == before
