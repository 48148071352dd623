"""The source as plain Python: what is planned and what a task reads, without a JVM."""

from __future__ import annotations

import pickle
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructType

import falaj
from falaj.errors import InvalidArgument, NotAStore, OffsetOutOfRange, TopicDeleted, UnknownTopic
from falaj.spark.reading import columns, ranges
from falaj.spark.reading.options import ReadOptions
from falaj.spark.source import FalajReader, FalajSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Reader = Callable[..., FalajReader]

# PySpark 4.1 does not ask for the zone: it is UTC.
ZONE: Any = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


def all_columns(**options: str) -> StructType:
    return columns.schema(ReadOptions.parse({"store": "s", "subscribe": "t", **options}))


def read(reader: FalajReader) -> pyarrow.Table:
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pyarrow.Table.from_batches(found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def whole(sizes: list[int]) -> list[ranges.Range]:
    return [ranges.Range("t", "g", p, 7, 7 + size) for p, size in enumerate(sizes)]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=9), st.integers(1, 64))
def test_pieces_cover_every_record_once_and_are_as_many_as_asked_for(
    sizes: list[int], least: int
) -> None:
    pieces = ranges.split(whole(sizes), least)
    assert len(pieces) >= min(least, sum(sizes))
    for part, size in enumerate(sizes):
        mine = [piece for piece in pieces if piece.partition == part]
        ends = [7, *(piece.end for piece in mine)]
        assert [piece.start for piece in mine] == ends[:-1]
        assert ends[-1] == 7 + size
    lengths = [len(piece) for piece in pieces]
    assert min(lengths) > 0
    assert max(lengths) <= -(-sum(sizes) // least) + 1


def test_there_are_two_tasks_for_each_core_that_may_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 3, 7})
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert len(ranges.split([ranges.Range("t", "g", 0, 0, 10**6)], None)) == 6


def test_a_small_topic_is_one_task() -> None:
    assert len(ranges.split(whole([ranges.RECORDS_MIN]), None)) == 1


def test_an_empty_topic_has_no_ranges_and_the_task_that_spark_makes_then_is_empty(
    orders: Path, reader: Reader
) -> None:
    empty = reader(orders, "empty")
    assert list(empty.partitions()) == []
    assert list(empty.read(InputPartition(None))) == []


@pytest.mark.parametrize("asked", [(), ("includeHeaders",), ("includeHeaders", "includeOrigin")])
def test_batches_have_the_schema_that_spark_declares_to_the_letter(
    asked: tuple[str, ...], orders: Path, reader: Reader
) -> None:
    options = dict.fromkeys(asked, "true")
    declared = to_arrow_schema(all_columns(**options), **ZONE)
    assert read(reader(orders, "orders,plain", **options)).schema.equals(declared)


def test_a_column_that_the_user_declares_not_null_is_so_in_batches(orders: Path) -> None:
    wanted = StructType().add("offset", "long", nullable=False).add("key", "binary")
    source = FalajSource({"store": str(orders), "subscribe": "plain"})
    table = read(source.reader(wanted))
    assert table.schema.equals(to_arrow_schema(wanted, **ZONE))


def test_batches_are_bounded_in_rows_and_in_bytes(
    path: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "BATCH_ROWS_MAX", 100)
    monkeypatch.setattr(columns, "BATCH_BYTES_MAX", 1_000)
    with falaj.open(path) as store:
        store.topic("t").extend([b"x"] * 250 + [b"y" * 600] * 4)
    (part,) = (made := reader(path, "t")).partitions()
    assert [batch.num_rows for batch in made.read(part)] == [100, 100, 52, 2]


def test_values_are_the_bytes_even_where_the_codec_is_not_known_here(
    path: Path, reader: Reader
) -> None:
    with falaj.open(path) as store:
        store.topic("pickled", codec="pickle").append({"a": 1})
    (value,) = read(reader(path, "pickled"))["value"].to_pylist()
    assert pickle.loads(value) == {"a": 1}


def test_records_that_come_after_planning_are_in_no_task(path: Path, reader: Reader) -> None:
    with falaj.open(path) as store:
        topic = store.topic("t")
        topic.extend([b"a", b"b"])
        made = reader(path, "t")
        parts = made.partitions()
        topic.append(b"c")
        rows = [batch.num_rows for part in parts for batch in made.read(part)]
    assert sum(rows) == 2


def test_a_topic_made_anew_between_planning_and_reading_is_noticed(
    path: Path, reader: Reader
) -> None:
    with falaj.open(path) as store:
        store.topic("t").append(b"old")
        made = reader(path, "t")
        (part,) = made.partitions()
        store.delete_topic("t")
        store.topic("t").append(b"new")
        with pytest.raises(
            TopicDeleted, match="created again after Spark planned to read it: give"
        ):
            list(made.read(part))


def test_reader_and_ranges_travel_to_workers(orders: Path, reader: Reader) -> None:
    made = reader(orders, "plain")
    (part,) = made.partitions()
    again, there = pickle.loads(pickle.dumps((made, part)))
    assert list(again.read(there)) == list(made.read(part))


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (StructType().add("vlaue", "binary"), "a topic has no column 'vlaue': it has key, value"),
        (StructType().add("key", "string"), "the column key is binary, not string: read it so,"),
        (StructType().add("value", "string"), "; or choose .option('values', 'string') or 'json'"),
        (
            StructType().add(all_columns(includeHeaders="true")["headers"]),
            "needs .option('includeHead",
        ),
        (StructType().add("origin", "string"), "needs .option('includeOrigin', 'true')"),
    ],
)
def test_a_schema_that_no_topic_has_is_refused(
    orders: Path, schema: StructType, sentence: str
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        FalajSource({"store": str(orders), "subscribe": "plain"}).reader(schema)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("name", ["key", "value", "origin", "headers"])
def test_not_null_is_refused_where_nulls_may_be(name: str, orders: Path) -> None:
    asked = {"includeHeaders": "true", "includeOrigin": "true"}
    source = FalajSource({"store": str(orders), "subscribe": "plain", **asked})
    whole = source.schema()
    whole[name].nullable = False
    with pytest.raises(InvalidArgument, match=f"column {name} may be null: leave NOT NULL away"):
        source.reader(whole)
    with pytest.raises(InvalidArgument, match=f"column {name} may be null"):
        source.streamReader(whole)


def test_a_schema_with_a_column_twice_is_refused(orders: Path) -> None:
    twice = StructType().add("partition", IntegerType()).add("partition", IntegerType())
    with pytest.raises(InvalidArgument, match="names the column partition twice"):
        FalajSource({"store": str(orders), "subscribe": "plain"}).reader(twice)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"startingOffsets": '{"orders": {"0": 1, "1": -2, "2": -2, "3": 0}}'},
            "names partition 3 of topic orders, which has partitions 0 to 2",
        ),
        (
            {"endingOffsets": '{"orders": {"0": 1, "2": -1}}'},
            'partition 1 of topic orders is missing: add "1": -2 for earliest or -1 for latest',
        ),
        (
            {"startingOffsets": '{"orders": {"0": 99999, "1": -2, "2": -2}}'},
            "says 99999 for topic orders, partition 0, which is not written yet: it holds 0 to ",
        ),
        (
            {
                "startingOffsets": '{"orders": {"0": 20, "1": -2, "2": -2}}',
                "endingOffsets": '{"orders": {"0": 10, "1": -1, "2": -1}}',
            },
            "startingOffsets (20) lies behind endingOffsets (10) for topic orders, partition 0",
        ),
    ],
)
def test_offsets_that_are_not_there_are_refused(
    orders: Path, reader: Reader, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises((InvalidArgument, OffsetOutOfRange)) as raised:
        reader(orders, "orders", **options).partitions()
    assert sentence in str(raised.value)


def test_a_topic_or_store_that_is_not_there_is_not_made(
    orders: Path, path: Path, reader: Reader
) -> None:
    with pytest.raises(UnknownTopic):
        reader(orders, "bills").partitions()
    with pytest.raises(NotAStore):
        reader(path, "orders").partitions()
    assert not path.exists()
