"""Records on their way to other processes: pickled and copied, with bytes of their own."""

import copy
import dataclasses
import gc
import multiprocessing
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

import falaj

COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda record: pickle.loads(pickle.dumps(record)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@dataclasses.dataclass
class Order:
    pieces: int


class Tea(pydantic.BaseModel):
    grams: int


class Cup(msgspec.Struct):
    size: int


VALUES: dict[str, tuple[Any, Any]] = {
    "raw": ("raw", b"x"),
    "bytes": ("bytes", b"x"),
    "str": ("str", "é"),
    "json": ("json", {"n": [1, None]}),
    "msgpack": ("msgpack", {"n": b"b"}),
    "pickle": ("pickle", {1, 2}),
    "dataclass": (Order, Order(3)),
    "pydantic": (Tea, Tea(grams=5)),
    "msgspec": (Cup, Cup(2)),
    "own": (falaj.Codec("own", str.encode, bytes.decode), "y"),
}


def parts(record: falaj.Record[Any]) -> tuple[Any, ...]:
    return (
        *(record.topic, record.partition, record.offset, record.timestamp_ns, record.timestamp),
        *(record.key, record.headers, record.is_tombstone, record.value, record.raw),
        *(record.to_bytes(), bytes(record), len(record), repr(record), hash(record)),
    )


def maps_of(path: Path) -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if re.search(f"{path}/logs", line)]


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("codec", VALUES)
def test_a_pickled_or_copied_record_has_all_parts_of_it(
    store: falaj.Store, codec: str, way: str
) -> None:
    asked, value = VALUES[codec]
    topic: falaj.Topic[Any] = store.topic("t", codec=asked)
    topic.append(value, b"k", headers=[("a", b"1"), ("a", None)], timestamp_ns=5)
    topic.append(value)
    topic.tombstone("k")
    for record in topic:
        again = COPIES[way](record)
        assert again is not record
        assert parts(again) == parts(record)
        assert again == record
        assert {again, record} == {record}
        assert parts(COPIES[way](again)) == parts(record)


@pytest.mark.parametrize("way", COPIES)
def test_a_detached_record_outlives_its_store_without_a_map(tmp_path: Path, way: str) -> None:
    path = tmp_path / "store"
    with falaj.open(path) as store:
        topic = store.topic("t")
        topic.append(b"apples" * 1000, b"k")
        record: falaj.Record[Any] | None = topic[0]
        again = COPIES[way](record)
        view = again.value
    record = None
    del topic
    shutil.rmtree(path)
    gc.collect()
    assert maps_of(path) == []
    assert bytes(again) == bytes(view) == b"apples" * 1000
    del again
    assert view[:6] == b"apples"


def test_a_detached_record_is_appended_as_the_record_is(store: falaj.Store) -> None:
    source, target = store.topic("source", codec="json"), store.topic("target", codec="json")
    source.append({"n": 1}, "k", headers={"a": b"1"}, timestamp_ns=5)
    source.append({"n": 2})
    target.extend(pickle.loads(pickle.dumps(list(source))))
    assert [(r.value, r.key, r.headers) for r in target] == [
        ({"n": 1}, b"k", (("a", b"1"),)),
        ({"n": 2}, None, ()),
    ]
    assert target[0].timestamp_ns == 5
    assert target[1].timestamp_ns > source[1].timestamp_ns, "the time of its own append"


def values_of(records: list[falaj.Record[Order]]) -> list[int]:
    return [record.value.pieces for record in records]


def test_another_process_gets_records(store: falaj.Store) -> None:
    topic = store.topic("t", codec=Order)
    topic.extend([Order(1), Order(2)])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(values_of, (list(topic),)) == [1, 2]


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_batch_says_what_to_pass_on(store: falaj.Store, use: Callable[[Any], Any]) -> None:
    topic = store.topic("t")
    topic.append(b"a")
    with pytest.raises(TypeError, match=r"Pass on list\(batch\).*or batch\.to_arrow\(\)"):
        use(next(topic.batches()))
