"""Payloads without decoding: the codecs "raw" and "bytes", `RAW`, and the columns of a batch."""

from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import DecodeFailed, InvalidArgument, UnknownTopic


def test_raw_and_bytes_read_the_same_topic_and_the_reader_chooses(store: falaj.Store) -> None:
    raw = store.topic("first", codec="raw")
    read = store.topic("first", codec="bytes")
    raw.append(b"by raw")
    read.append(b"by bytes")
    assert [record.value for record in read] == [b"by raw", b"by bytes"]
    assert {type(record.value) for record in read} == {bytes}
    assert {type(record.value) for record in raw} == {memoryview}
    assert type(store.topic("first")[0].value) is memoryview, "raw must be the default"
    assert (raw.codec, read.codec) == ("bytes", "bytes")
    for codec in ("raw", "bytes"):
        store.topic("second", codec=codec).append(codec.encode())
    assert [record.to_bytes() for record in store.topic("second")] == [b"raw", b"bytes"]


@pytest.mark.parametrize("codec", ["raw", "bytes"])
def test_another_codec_is_refused_by_name(store: falaj.Store, codec: str) -> None:
    store.topic("json", codec="json")
    with pytest.raises(ValueError, match="json"):
        store.topic("json", codec=codec)


@pytest.mark.parametrize("codec", ["str", "json", "pickle", "own"])
def test_RAW_reads_any_topic_without_its_codec(  # noqa: N802  # it is what users write
    store: falaj.Store, codec: str
) -> None:
    def never(_: object) -> Any:
        raise AssertionError("the codec ran")

    own = falaj.Codec("own", lambda value: value.encode(), never)
    store.topic("t", codec=own if codec == "own" else codec).append("text")
    raw = store.topic("t", codec=falaj.RAW)
    assert type(raw[0].value) is memoryview
    assert bytes(raw[0].value) == raw[0].to_bytes()
    assert raw.codec == codec


def test_RAW_creates_no_topic(path: Path, store: falaj.Store) -> None:  # noqa: N802
    with pytest.raises(UnknownTopic):
        store.topic("missing", codec=falaj.RAW)
    assert list(store.topics) == []


def test_the_values_of_a_batch_obey_the_codec(store: falaj.Store) -> None:
    topic = store.topic("t", codec="json")
    topic.append({"n": 1}, key="a", timestamp_ns=7)
    topic.tombstone("b", timestamp_ns=8)
    batch = next(topic.batches())
    assert batch.values == [{"n": 1}, None]
    assert [None if view is None else bytes(view) for view in batch.raw_values] == [
        b'{"n":1}',
        None,
    ]
    assert (batch.keys, batch.timestamps_ns) == ([b"a", b"b"], [7, 8])
    assert batch.offsets == range(2)
    assert next(store.topic("b", codec="bytes").batches(), None) is None
    store.topic("b").extend([b"x", b"y"])
    assert next(store.topic("b", codec="bytes").batches()).values == [b"x", b"y"]
    assert [bytes(view) for view in next(store.topic("b").batches()).values] == [b"x", b"y"]


def test_a_value_that_the_codec_cannot_read_names_its_place_in_a_batch(store: falaj.Store) -> None:
    store.topic("t", codec="json").append(1)
    store.topic("t", codec=falaj.RAW).append(b"no JSON")
    batch = next(store.topic("t", codec="json").batches())
    with pytest.raises(DecodeFailed) as caught:
        batch.values  # noqa: B018  # reading it raises
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 1)
    assert [bytes(view or b"") for view in batch.raw_values] == [b"1", b"no JSON"]


def test_a_codec_of_ones_own_cannot_be_called_raw(store: falaj.Store) -> None:
    with pytest.raises(InvalidArgument, match="raw"):
        store.topic("t", codec=falaj.Codec("raw", bytes, bytes))
