"""Only `tombstone(key)` writes a tombstone: None is a value, or an error."""

from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest

import falaj
from falaj import NewRecord

KEYED: dict[str, Callable[[falaj.Topic[Any], Any], object]] = {
    "append": lambda topic, value: topic.append(value, key=b"k"),
    "a value of extend": lambda topic, value: topic.extend([value]),
    "a pair of extend": lambda topic, value: topic.extend([(b"k", value)]),
    "a new record": lambda topic, value: topic.extend([NewRecord(value, key=b"k")]),
    "a partition": lambda topic, value: topic.partition(0).append(value),
    "a transaction": lambda topic, value: _within(topic, "append", value),
    "extend in a transaction": lambda topic, value: _within(topic, "extend", [(b"k", value)]),
    "a bulk load": lambda topic, value: _staged(topic, lambda job: job.append(value, key=b"k")),
    "put": lambda topic, value: topic.store.queue("q", topic).put(value, key=b"k"),
}


def _within(topic: Any, what: str, given: Any) -> None:
    with topic.store.transaction() as tx:
        getattr(tx, what)(topic, given)


def _staged(topic: Any, work: Callable[[Any], object]) -> None:
    with topic.bulk_load("job") as job:
        work(job)


@pytest.mark.parametrize("way", KEYED)
@pytest.mark.parametrize("codec", ["json", "msgpack", "pickle"])
def test_none_is_a_value_where_the_codec_has_one(store: falaj.Store, codec: str, way: str) -> None:
    topic = store.topic("t", codec=codec)
    KEYED[way](topic, None)
    (record,) = topic
    assert (record.value, record.is_tombstone) == (None, False)
    assert record.to_bytes() in (b"null", b"\xc0", b"\x80\x05N.")


@pytest.mark.parametrize("way", KEYED)
@pytest.mark.parametrize("codec", [None, "str"])
def test_none_is_an_error_that_names_tombstone_where_the_codec_has_no_none(
    store: falaj.Store, codec: str | None, way: str
) -> None:
    topic = store.topic("t", codec=codec)
    with pytest.raises(TypeError, match=r"None is no .*: to delete a key, call tombstone\(key\)"):
        KEYED[way](topic, None)
    assert len(topic) == 0


@pytest.mark.parametrize("way", KEYED)
def test_a_tombstone_is_not_taken_for_an_empty_value(store: falaj.Store, way: str) -> None:
    topic = store.topic("t")
    topic.tombstone(b"k")
    (tombstone,) = topic
    if way == "a value of extend":
        topic.extend([tombstone])
        assert [record.is_tombstone for record in topic] == [True, True]
        return
    with pytest.raises(TypeError, match=r"a tombstone has no value: .*call tombstone\(key\)"):
        KEYED[way](topic, tombstone)
    assert len(topic) == 1


WAYS: dict[str, Callable[[Any, dict[str, Any]], object]] = {
    "tombstone": lambda topic, rest: topic.tombstone(b"k", **rest),
    "extend": lambda topic, rest: topic.extend([NewRecord.tombstone(b"k", **rest)]),
    "a transaction": lambda topic, rest: _tombstone_within(topic, rest),
    "a bulk load": lambda topic, rest: _staged(topic, lambda job: job.tombstone(b"k", **rest)),
    "a partition": lambda topic, rest: topic.partition(2).tombstone(b"k", **rest),
}


def _tombstone_within(topic: Any, rest: dict[str, Any]) -> None:
    with topic.store.transaction() as tx:
        tx.tombstone(topic, b"k", **rest)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", ["bytes", "str", "json", "msgpack", "pickle"])
def test_tombstone_writes_a_tombstone_in_every_codec(
    store: falaj.Store, codec: str, way: str
) -> None:
    topic = store.partitioned_topic("t", codec=codec, partitions=4)
    WAYS[way](topic, {"headers": {"why": b"sold out"}, "timestamp": "2026-11-20T08:00:00Z"})
    (record,) = topic
    assert (record.is_tombstone, record.value, record.raw) == (True, None, None)
    assert (record.key, record.headers) == (b"k", (("why", b"sold out"),))
    assert record.timestamp_ns == 1_795_161_600 * 10**9
    assert record.partition == (2 if way == "a partition" else place_of(b"k", 4))


def place_of(key: bytes, partitions: int) -> int:
    return crc32(key) % partitions


def test_tombstone_takes_partition_producer_sequence_and_expect(store: falaj.Store) -> None:
    topic = store.partitioned_topic("t", partitions=4)
    told: dict[str, Any] = {"partition": 3, "producer": "till", "sequence": 5, "sync": "durable"}
    assert topic.tombstone(b"k", **told) == topic.tombstone(b"k", **told) == (3, 0)
    with pytest.raises(falaj.errors.OffsetConflict):
        topic.tombstone(b"k", partition=3, expect=0)
    with store.transaction() as tx:
        tx.tombstone(topic, b"k", partition=1)
    with topic.bulk_load("job") as job:
        job.tombstone(b"k", partition=0)
    assert [len(topic.partition(p)) for p in range(4)] == [1, 1, 0, 1]


@pytest.mark.parametrize("codec", ["bytes", "json"])
def test_a_copy_of_a_tombstone_is_one(store: falaj.Store, codec: str) -> None:
    source = store.topic("source", codec=codec)
    source.append(b"v" if codec == "bytes" else None, key=b"a")
    source.tombstone(b"b", headers={"h": b"1"})
    copies = [store.topic(f"copy{n}", codec=codec) for n in range(3)]
    copies[0].extend(source)
    copies[1].extend(list(source))
    with store.transaction() as tx:
        tx.extend(copies[2], source)
    for copy in copies:
        assert [(r.key, r.to_bytes(), r.is_tombstone) for r in copy] == [
            (b"a", b"v" if codec == "bytes" else b"null", False),
            (b"b", b"", True),
        ]
        assert [r.is_tombstone for batch in copy.batches() for r in batch] == [False, True]


def test_a_null_of_arrow_is_a_tombstone(store: falaj.Store) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    topic = store.topic("t", codec="json")
    with topic.bulk_load("job") as job:
        job.append_arrow(pyarrow.record_batch({"key": [b"a", b"b"], "value": [None, b"null"]}))
    assert [(r.key, r.value, r.is_tombstone) for r in topic] == [
        (b"a", None, True),
        (b"b", None, False),
    ]
    assert topic.to_arrow(columns=["value"])["value"].to_pylist() == [None, b"null"]


def test_a_dead_letter_of_a_tombstone_is_one(store: falaj.Store) -> None:
    queue = store.queue("t", max_attempts=1)
    queue.topic.tombstone(b"k")
    (job,) = queue.take()
    assert job.record.is_tombstone
    job.nack()
    assert queue.take(timeout=0) == []
    assert queue.dead is not None
    assert [(r.key, r.is_tombstone) for r in queue.dead] == [(b"k", True)]


def test_a_new_record_tells_whether_it_is_a_tombstone() -> None:
    assert NewRecord.tombstone(b"k").is_tombstone
    assert not NewRecord(None, key=b"k").is_tombstone
    assert repr(NewRecord.tombstone(b"k")) == "NewRecord.tombstone(b'k')"
    assert repr(NewRecord(None, b"k")) == "NewRecord(None, key=b'k')"
    for wrong in (None, 7):
        with pytest.raises(TypeError, match="the key of a tombstone is text or bytes, not"):
            NewRecord.tombstone(wrong)  # type: ignore[arg-type]
