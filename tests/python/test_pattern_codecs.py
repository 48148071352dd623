"""A group with a pattern reads on where a topic has a codec that no name gives."""

import asyncio
import sys

import pytest

import falaj
from falaj.errors import DecodeFailed, InvalidArgument

MINE: falaj.Codec[bytes] = falaj.Codec("mine", bytes, bytes)


def refused(record: falaj.Record[object]) -> DecodeFailed:
    with pytest.raises(DecodeFailed) as raised:
        _ = record.value
    return raised.value


def test_a_topic_of_another_codec_is_delivered_and_only_its_values_are_refused(
    store: falaj.Store,
) -> None:
    store.topic("ev.a", codec="str").append("one")
    store.topic("ev.mine", codec=MINE).append(b"x", key=b"k")
    parts = store.partitioned_topic("ev.p", partitions=2, codec="pickle")
    parts.append({"a": 1}, partition=1)
    with store.consumer("audit", pattern="ev.*") as audit:
        found = {record.topic: record for record in audit.poll(timeout=5)}
        audit.commit()
        assert set(found) == {"ev.a", "ev.mine", "ev.p"}
        assert found["ev.a"].value == "one"
        mine = found["ev.mine"]
        assert mine.raw is not None
        assert (mine.to_bytes(), bytes(mine.raw), mine.key) == (b"x", b"x", b"k")
        assert audit.lag == 0
    error = refused(mine)
    assert (error.topic, error.partition, error.offset) == ("ev.mine", 0, 0)
    assert "store.any_topic('ev.mine', codec=falaj.Codec('mine', encode, decode))" in str(error)
    error = refused(found["ev.p"])
    assert (error.topic, error.partition, error.offset) == ("ev.p", 1, 0)
    assert 'record 0 of topic "ev.p", partition 1' in str(error)
    assert "store.any_topic('ev.p', codec=\"pickle\")" in str(error)
    assert "`record.raw`" in str(error)


def test_a_topic_of_another_codec_that_joins_stops_no_other(store: falaj.Store) -> None:
    first = store.topic("ev.a", codec="str")
    late = store.topic("ev.late")  # it has no codec yet
    with store.consumer("audit", pattern="ev.*", auto_commit=True) as audit:
        first.append("one")
        assert [record.value for record in audit.poll(timeout=5)] == ["one"]
        store.topic("ev.late", codec="pickle").append({1})
        store.topic("ev.p", codec="pickle").append({2})
        found: list[falaj.Record[object]] = []
        while len(found) < 2:
            found += audit.poll(timeout=5)
        assert {record.topic for record in found} == {"ev.late", "ev.p"}
        assert all("pickles run code" in str(refused(record)) for record in found)
        first.append("two")
        [batch] = audit.batches(timeout=0)
        assert list(batch.values) == ["two"]
    late.close()


def test_a_follower_by_pattern_gets_records_of_other_codecs(store: falaj.Store) -> None:
    async def read() -> list[bytes]:
        return [record.to_bytes() async for record in audit.afollow(timeout=0)]

    store.topic("ev.mine", codec=MINE).extend([b"x", b"y"])
    with store.consumer("audit", pattern="ev.*") as audit:
        assert asyncio.run(read()) == [b"x", b"y"]


def test_a_codec_whose_package_is_missing_stops_no_other_topic(
    store: falaj.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("msgpack")
    store.topic("ev.a", codec="str").append("one")
    store.topic("ev.m", codec="msgpack").append([1])
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with store.consumer("audit", pattern="ev.*") as audit:
        found = {record.topic: record for record in audit.poll(timeout=5)}
    assert found["ev.a"].value == "one"
    assert "pip install 'falaj[msgpack]'" in str(refused(found["ev.m"]))


def test_a_topic_by_name_that_needs_its_codec_is_refused_by_name(store: falaj.Store) -> None:
    store.topic("ev.a")
    store.topic("ev.p", codec="pickle")
    store.topic("ev.mine", codec=MINE)
    with pytest.raises(InvalidArgument, match=r"^topic 'ev\.p' holds pickles, "):
        store.consumer("audit", ["ev.a", "ev.p"])
    with pytest.raises(InvalidArgument, match=r"^topic 'ev\.mine' has the codec 'mine', "):
        store.consumer("audit", "ev.mine")
    assert not store.groups
    with store.consumer("audit", store.topic("ev.p", codec="pickle")) as audit:
        assert audit.poll(timeout=0) == []
