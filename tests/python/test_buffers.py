"""Which memory counts as bytes: text and bytes do, numbers and arrays of other types do not."""

import ctypes
import mmap
from array import array
from collections import namedtuple
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import falaj

TEXTS: dict[str, Any] = {"str": "ünï", "a string of NumPy": np.str_("ünï")}
BYTES: dict[str, Any] = {
    "bytes": b"ab",
    "bytes of NumPy": np.bytes_(b"ab"),
    "bytearray": bytearray(b"ab"),
    "memoryview": memoryview(b"ab"),
    "a memoryview with steps": memoryview(b"axb")[::2],
    "an array of bytes": array("B", b"ab"),
    "an array of signed bytes": array("b", b"ab"),
    "characters of ctypes": (ctypes.c_char * 2)(b"a", b"b"),
    "uint8 of NumPy": np.array([97, 98], "u1"),
    "a buffer of Arrow": pyarrow.py_buffer(b"ab"),
    "a value of Arrow": pyarrow.scalar(b"ab"),
}
NO_BYTES: dict[str, Any] = {
    "an int": 5,
    "a bool": True,
    "a list of ints": [1, 2],
    "an int of NumPy": np.int64(5),
    "a byte of NumPy": np.uint8(5),
    "a float of NumPy": np.float64(5),
    "a bool of NumPy": np.bool_(True),
    "a date of NumPy": np.datetime64("2026-11-20"),
    "a span of NumPy": np.timedelta64(5, "s"),
    "no dimension": np.array(5, "u1"),
    "two dimensions": np.zeros((2, 2), "u1"),
    "ints of NumPy": np.array([1, 2]),
    "bools of NumPy": np.array([True, False]),
    "texts of NumPy": np.array(["ab"]),
    "bytes of a fixed length": np.array([b"a"]),
    "pointers": np.array([{}], dtype=object),
    "structures": np.zeros(2, [("a", "u1")]),
    "an array of ints": array("i", [1]),
    "a memoryview of ints": memoryview(array("i", [1])),
    "a memoryview of a table": memoryview(b"abcd").cast("B", (2, 2)),
    "ints of ctypes": (ctypes.c_int * 2)(),
    "a byte of ctypes": ctypes.c_ubyte(5),
    "a number of Arrow": pyarrow.scalar(5),
    "a column of pandas": pandas.Series([b"ab"]),
}

Append = Callable[[falaj.Store, Any], Any]


def with_key(store: falaj.Store, key: Any) -> Any:
    store.topic("values", log="one").append(b"x", key=key)


def with_header(store: falaj.Store, value: Any) -> Any:
    store.topic("values", log="one").append(b"x", headers=[("h", value)])


def in_a_pair(store: falaj.Store, key: Any) -> Any:
    store.topic("values", log="one").extend([(key, b"x")])


def in_a_new_record(store: falaj.Store, key: Any) -> Any:
    store.topic("values", log="one").extend([falaj.NewRecord(b"x", key, headers={"h": key})])


def in_a_tombstone(store: falaj.Store, key: Any) -> Any:
    store.topic("values", log="one").tombstone(key)


def in_a_transaction(store: falaj.Store, key: Any) -> Any:
    topic = store.topic("values", log="one")
    with store.transaction() as tx:
        tx.append(topic, b"x", key, headers={"h": key})


def in_pairs_of_a_transaction(store: falaj.Store, key: Any) -> Any:
    topic = store.topic("values", log="one")
    with store.transaction() as tx:
        tx.extend(topic, [(key, b"x")])


def in_a_bulk_load(store: falaj.Store, key: Any) -> Any:
    with store.topic("values", log="one").bulk_load("load") as job:
        job.append(b"x", key=key, headers={"h": key})


def in_a_queue(store: falaj.Store, key: Any) -> Any:
    store.queue("jobs", store.topic("values", log="one")).put(b"x", key, headers={"h": key})


KEYED: list[Append] = [
    with_key,
    in_a_pair,
    in_a_new_record,
    in_a_tombstone,
    in_a_transaction,
    in_pairs_of_a_transaction,
    in_a_bulk_load,
    in_a_queue,
]


@pytest.mark.parametrize("append", [*KEYED, with_header])
def test_keys_and_headers_are_text_as_utf8_or_bytes(store: falaj.Store, append: Append) -> None:
    given = TEXTS | BYTES
    for value in given.values():
        append(store, value)
    want = ["ünï".encode()] * len(TEXTS) + [b"ab"] * len(BYTES)
    records = list(store.topic("values"))
    if append is with_header:
        assert [dict(record.headers)["h"] for record in records] == want
        return
    assert [record.key for record in records] == want
    for record in records:
        assert dict(record.headers).get("h", record.key) == record.key


@pytest.mark.parametrize("append", [*KEYED, with_header])
def test_memory_that_is_no_bytes_is_no_key_and_no_header(
    store: falaj.Store, append: Append
) -> None:
    for what, value in (NO_BYTES | {"half a character": "\ud800"}).items():
        with pytest.raises((TypeError, ValueError)):
            append(store, value)
        assert len(store.topic("values")) == 0, what


def test_the_same_text_goes_to_the_same_partition_whatever_it_is_kept_in(
    store: falaj.Store,
) -> None:
    topic: Any = store.partitioned_topic("values", partitions=64)
    keys = ["ann", np.str_("ann"), b"ann", np.bytes_(b"ann"), bytearray(b"ann"), memoryview(b"ann")]
    assert len({topic.append(b"x", key=key).partition for key in keys}) == 1


def test_a_value_is_bytes_or_a_buffer_of_bytes(store: falaj.Store) -> None:
    topic: Any = store.topic("values")
    for value in BYTES.values():
        topic.append(value)
        topic.extend([value, (b"k", value), falaj.NewRecord(value)])
    with mmap.mmap(-1, 4096) as mapped:
        topic.append(mapped)
    *records, last = topic
    assert [record.to_bytes() for record in records] == [b"ab"] * 4 * len(BYTES)
    assert last.to_bytes() == bytes(4096)


@pytest.mark.parametrize("what", [*NO_BYTES, *TEXTS])
def test_memory_that_is_no_bytes_is_no_value(store: falaj.Store, what: str) -> None:
    topic: Any = store.topic("values")
    value = (NO_BYTES | TEXTS)[what]
    with pytest.raises(TypeError, match="a value is bytes, not"):
        topic.append(value)
    for record in (falaj.NewRecord(value), (b"k", value)):
        with pytest.raises(TypeError, match="a value is bytes, not"):
            topic.extend([record])
    with topic.stage("job", "0") as part, pytest.raises(TypeError, match="a value is bytes, not"):
        part.append(value)
    with store.transaction() as tx, pytest.raises(TypeError, match="a value is bytes, not"):
        tx.append(topic, value)
    own: Any = store.topic("own", codec=falaj.Codec("own", lambda value: value, bytes))
    with pytest.raises(TypeError, match="what the codec makes of a value is bytes"):
        own.append(value)
    assert len(topic) == len(own) == 0


@pytest.mark.parametrize("what", ["ints of NumPy", "texts of NumPy", "an array of ints"])
def test_an_array_is_refused_with_the_call_that_keeps_its_memory(
    store: falaj.Store, what: str
) -> None:
    topic: Any = store.topic("values")
    with pytest.raises(TypeError, match=r"\.tobytes\(\)"):
        topic.append(NO_BYTES[what])
    topic.append(NO_BYTES[what].tobytes())


# --- Arguments of extend() -----------------------------------------------------------------------

TABLES: dict[str, Any] = {
    "pandas": pandas.DataFrame({"name": ["ann"]}),
    "polars": polars.DataFrame({"name": ["ann"]}),
    "a lazy frame": polars.LazyFrame({"name": ["ann"]}),
    "arrow": pyarrow.table({"name": ["ann"]}),
    "a batch of arrow": pyarrow.record_batch({"name": ["ann"]}),
}
ONE: dict[str, Any] = {
    "text": "ab",
    "bytes": b"ab",
    "a bytearray": bytearray(b"ab"),
    "a memoryview": memoryview(b"ab"),
    "a dict": {"a": 1},
    "another mapping": MappingProxyType({"a": 1}),
    "a string of NumPy": np.str_("ab"),
}


@pytest.mark.parametrize("codec", ["bytes", "str", "json", "msgpack", "pickle"])
def test_a_table_is_refused_and_the_call_for_its_rows_named(store: falaj.Store, codec: str) -> None:
    topic: Any = store.topic("values", codec=codec)
    for table in TABLES.values():
        with pytest.raises(TypeError, match="extend_arrow"):
            topic.extend(table)
        with store.transaction() as tx, pytest.raises(TypeError, match="extend_arrow"):
            tx.extend(topic, table)
    assert len(topic) == 0


@pytest.mark.parametrize("codec", ["bytes", "str", "json", "msgpack", "pickle"])
def test_one_value_is_not_taken_apart(store: falaj.Store, codec: str) -> None:
    topic: Any = store.topic("values", codec=codec)
    for value in ONE.values():
        with pytest.raises(TypeError, match=r"append\(\) takes one"):
            topic.extend(value)
    assert len(topic) == 0


def test_columns_of_values_are_gone_through(store: falaj.Store) -> None:
    topic: Any = store.topic("values", codec="json")
    topic.extend(pandas.Series(["a"]))
    topic.extend(polars.Series([1]))
    topic.extend(np.array([0.5]))
    assert [record.value for record in topic] == ["a", 1, 0.5]


Row = namedtuple("Row", "name amount")  # as pandas gives rows


@pytest.mark.parametrize(
    "row", [(None, 5), ("ann",), ("ann", 5, 6), (), (17, "ann"), Row("ann", 5), (1.5, 2)]
)
def test_a_row_that_is_no_pair_of_a_key_and_a_value_is_refused(
    store: falaj.Store, row: Any
) -> None:
    topic: Any = store.topic("values", codec="json")
    with pytest.raises(TypeError, match="NewRecord"):
        topic.extend([row])
    with store.transaction() as tx, pytest.raises(TypeError, match="NewRecord"):
        tx.extend(topic, [row])
    topic.extend([falaj.NewRecord(row), falaj.NewRecord(row, "key")])
    assert [record.value for record in topic] == [list(row)] * 2
