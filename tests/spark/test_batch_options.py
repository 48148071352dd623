"""Options of batch reads as plain Python: topics by pattern, times, losses, values, filters."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from pyspark.sql import datasource as ds
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

import falaj
from falaj._json_columns import decode
from falaj.errors import CorruptData, InvalidArgument, NotAStore, OffsetOutOfRange, TopicDeleted
from falaj.spark.reading import columns, ranges
from falaj.spark.reading.loss import Loss
from falaj.spark.reading.options import ReadOptions
from falaj.spark.source import FalajReader, FalajSource

if TYPE_CHECKING:
    from pathlib import Path

NOON_MS = 1_795_161_600_000
NOON = NOON_MS / 1000


def batch(store: Path, schema: StructType | None = None, /, **options: str) -> FalajReader:
    given = {"store": str(store), **options}
    if "subscribePattern" not in options:
        given.setdefault("subscribe", "t")
    source = FalajSource(given)
    return source.reader(schema or source.schema())


def rows(reader: FalajReader) -> list[dict[str, Any]]:
    found = [part for piece in reader.partitions() for part in reader.read(piece)]
    return [row for part in found for row in part.to_pylist()]


def values(reader: FalajReader) -> list[Any]:
    return [row["value"] for row in rows(reader)]


@pytest.fixture
def hours(path: Path) -> Path:
    """A topic with a record an hour, whose clock once went back, and one without records."""
    with falaj.open(path) as store:
        topic = store.topic("t")
        for hour in (0, 1, 2, 1, 3, 4):
            topic.append(
                b"%d" % hour,
                key=b"k%d" % (hour % 2),
                timestamp_ns=(NOON_MS + 3_600_000 * hour) * 10**6,
            )
        store.topic("empty")
    return path


# --- Which topics and which records ---------------------------------------------------------------


def test_a_pattern_chooses_topics_and_none_is_an_empty_table(path: Path) -> None:
    with falaj.open(path) as store:
        for name in ("orders-eu", "orders-us", "bills"):
            store.topic(name).append(name.encode())
    assert values(batch(path, subscribePattern="orders-.*")) == [b"orders-eu", b"orders-us"]
    assert rows(batch(path, subscribePattern="nothing.*")) == []


def test_offsets_for_a_pattern_name_every_topic_that_matches(path: Path) -> None:
    with falaj.open(path) as store:
        store.topic("a1").extend([b"x"] * 3)
        store.topic("a2").extend([b"y"] * 3)
    start = json.dumps({"a1": {"0": 1}})
    with pytest.raises(InvalidArgument, match="must name every topic, and a2 is missing"):
        batch(path, subscribePattern="a.", startingOffsets=start).partitions()
    start = json.dumps({"a1": {"0": 2}, "a2": {"0": 3}})
    assert values(batch(path, subscribePattern="a.", startingOffsets=start)) == [b"x"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingTimestamp": str(NOON_MS + 3_600_000)}, [b"1", b"2", b"1", b"3", b"4"]),
        ({"startingTimestamp": "2026-11-20T10:00:00.001Z"}, [b"3", b"4"]),
        ({"endingTimestamp": str(NOON_MS + 7_200_000)}, [b"0", b"1"]),
        ({"endingTimestamp": str(NOON_MS + 10**9)}, [b"0", b"1", b"2", b"1", b"3", b"4"]),
        ({"startingTimestamp": "0", "startingOffsets": '{"t": {"0": 5}}'}, None),
        (
            {
                "startingOffsetsByTimestamp": json.dumps({"t": {"0": NOON_MS + 1}}),
                "endingOffsetsByTimestamp": json.dumps({"t": {"0": NOON_MS + 7_200_001}}),
            },
            [b"1", b"2", b"1"],
        ),
        (
            {
                "startingTimestamp": str(NOON_MS + 10**9),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [],
        ),
    ],
)
def test_times_bound_what_is_read(
    hours: Path, options: dict[str, str], expected: list[bytes] | None
) -> None:
    every = [b"0", b"1", b"2", b"1", b"3", b"4"]
    assert values(batch(hours, **options)) == (every if expected is None else expected)


def test_a_beginning_behind_all_records_is_an_error_with_the_choice(hours: Path) -> None:
    for topic in ("t", "empty"):
        late = batch(hours, subscribe=topic, startingTimestamp=str(NOON_MS + 10**9))
        with pytest.raises(
            InvalidArgument, match=f"topic {topic}, partition 0, has no record of then or"
        ):
            late.partitions()


def test_records_that_come_while_a_read_is_planned_do_not_move_its_bounds(hours: Path) -> None:
    late = ReadOptions.parse(
        {"store": "s", "subscribe": "t", "endingTimestamp": str(NOON_MS + 3 * 3_600_000)}
    )
    with falaj.open(hours, read_only=True) as store, store.topic("t") as topic:
        assert late.ending.resolve(topic, 0, 6, Loss(True, "")) == 4
        assert late.ending.resolve(topic, 0, 3, Loss(True, "")) == 3


def test_only_what_is_durable_is_read_where_that_is_asked_for(path: Path) -> None:
    with falaj.open(path) as store:
        topic = store.topic("t", sync_interval_ms=60_000)
        topic.append(b"kept", sync="durable")
        topic.append(b"perhaps", sync="none")
        assert values(batch(path, visibility="durable")) == [b"kept"]
        assert values(batch(path)) == [b"kept", b"perhaps"]


# --- What is gone ---------------------------------------------------------------------------------


def test_offsets_that_were_trimmed_fail_or_are_told_and_left_out(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with falaj.open(path) as store:
        topic = store.topic("t")
        topic.extend([b"a", b"b", b"c"])
        topic.trim(before_offset=2)
    options = {"startingOffsets": '{"t": {"0": 1}}', "endingOffsets": '{"t": {"0": 7}}'}
    with pytest.raises(OffsetOutOfRange) as raised:
        batch(path, **options).partitions()
    assert "says 1 for topic t, partition 0, which is gone: it holds 2 to 3" in str(raised.value)
    assert "option('failOnDataLoss', 'false')" in str(raised.value)
    assert (raised.value.first, raised.value.end) == (2, 3)
    assert values(batch(path, failOnDataLoss="false", **options)) == [b"c"]
    told = [record.getMessage() for record in caplog.records]
    assert [sentence.split(",")[0] for sentence in told] == [
        "option startingOffsets says 1 for topic t",
        "option endingOffsets says 7 for topic t",
    ]


def test_records_trimmed_while_a_task_reads_fail_it_or_are_told(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "BATCH_ROWS_MAX", 100)
    with falaj.open(path) as store:
        topic = store.topic("t")
        topic.extend([b"%d" % i for i in range(1000)])
        failing, going_on = batch(path), batch(path, failOnDataLoss="false")
        [piece] = failing.partitions()
        topic.trim(before_offset=400)
        with pytest.raises(OffsetOutOfRange, match="records 0 to 400 were trimmed after Spark"):
            list(failing.read(piece))
        found = [v for part in going_on.read(piece) for v in part["value"].to_pylist()]
    assert found == [b"%d" % i for i in range(400, 1000)]
    assert "records 0 to 400 were trimmed" in caplog.text


@pytest.mark.parametrize("anew", [True, False])
def test_a_topic_deleted_while_spark_reads_fails_the_task_or_is_told(
    path: Path, caplog: pytest.LogCaptureFixture, anew: bool
) -> None:
    with falaj.open(path) as store:
        store.topic("t").append(b"old")
        failing, going_on = batch(path), batch(path, failOnDataLoss="false")
        [piece] = failing.partitions()
        store.delete_topic("t")
        if anew:
            store.topic("t").append(b"new")
        with pytest.raises(TopicDeleted, match="after Spark planned to read it: give"):
            list(failing.read(piece))
        assert list(going_on.read(piece)) == []
    assert "after Spark planned to read it" in caplog.text


def test_an_executor_that_does_not_see_the_store_says_so(path: Path, tmp_path: Path) -> None:
    with falaj.open(path) as store:
        store.topic("t").append(b"x")
    reader = batch(path)
    [piece] = reader.partitions()
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(NotAStore, match=r"the executor on \S+ does not see the store that the dri"):
        list(reader.read(piece))


def test_damage_fails_with_the_remedy_or_is_skipped_and_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with falaj.open(path) as store, store.topic("t") as topic:
        for i in range(5):
            topic.append(b"record %d" % i)
    [segment] = path.glob("logs/t@*/*.log")
    segment.write_bytes(segment.read_bytes().replace(b"record 2", b"recorD 2"))
    failing = batch(path)
    with pytest.raises(CorruptData) as raised:
        rows(failing)
    said = str(raised.value)
    assert said.startswith(f"topic t, partition 0, offset 2: {segment} is corrupt at byte")
    assert said.endswith("go on behind what is corrupt with .option('onCorrupt', 'skip')")
    assert values(batch(path, onCorrupt="skip")) == [b"record %d" % i for i in (0, 1, 3, 4)]
    assert f"topic t, partition 0: offsets (2, 3) are corrupt, in {segment}" in caplog.text


def test_what_was_handed_out_is_not_read_again_where_a_log_lost_its_end(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with falaj.open(path) as store, store.topic("t") as topic:
        topic.extend([b"%d" % n for n in range(10)])
    reader = batch(path, failOnDataLoss="false")
    [piece] = reader.partitions()
    whole = columns._reader

    class Losing:
        """A reader that yields some records, and then finds the others gone."""

        skipped = ()

        def __init__(self, *given: Any) -> None:
            self.given = given

        def __iter__(self) -> Any:
            topic, start, _, *rest = self.given
            yield from whole(topic, start, 4, *rest)
            raise OffsetOutOfRange("gone")

    class Short:
        """A topic that ends at 7 now."""

        name, partitions, start_offset, end_offset = "t", range(1), 0, 7

    def losing(topic: Any, start: int, end: int, *rest: Any) -> Any:
        return (Losing if end > 7 else whole)(there.partition(0), start, end, *rest)

    monkeypatch.setattr(columns, "_reader", losing)
    schema = StructType().add("value", "binary")
    with falaj.open(path, read_only=True) as store, ranges.open_raw(store, "t") as there:
        loss = Loss(fails=False, choices="")
        given: Any = (Short(), piece.start, piece.end, schema, reader.options, loss)
        found = [row["value"] for part in columns.batches(*given) for row in part.to_pylist()]
    assert found == [b"%d" % n for n in range(7)]
    assert "ends at 7 now, before 10: it lost its end" in caplog.text


# --- Values ---------------------------------------------------------------------------------------


def put(path: Path, *payloads: bytes) -> None:
    with falaj.open(path) as store:
        topic = store.topic("t")
        for payload in payloads:
            topic.append(payload)


def test_text_is_text(path: Path) -> None:
    put(path, "zwölf".encode(), b"")
    assert values(batch(path, values="string")) == ["zwölf", ""]
    schema = StructType().add("value", "string")
    assert values(batch(path, schema, values="string")) == ["zwölf", ""]


@pytest.mark.parametrize(
    ("kind", "wanted", "expected"),
    [
        ("string", pyarrow.string(), ["{}", None, "{}"]),
        ("json", pyarrow.struct([("id", pyarrow.int64())]), [{"id": None}, None, {"id": None}]),
    ],
)
def test_a_tombstone_is_null(kind: Any, wanted: pyarrow.DataType, expected: list[Any]) -> None:
    payloads = pyarrow.array([b"{}", None, b"\xff", b"{}"], pyarrow.binary())
    found, bad = decode(payloads, kind, wanted)
    assert (found.to_pylist(), bad) == (expected, [2])


def test_what_is_not_utf8_fails_by_name_or_is_left_out_and_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(path, b"one", b"\xff\xfe", b"three", b"\xc3")
    with pytest.raises(InvalidArgument) as raised:
        rows(batch(path, values="string"))
    assert str(raised.value) == (
        "topic t, partition 0: the value at offset 1 is not UTF-8: read it with "
        ".option('values', 'binary'), or leave such records out with .option('onCorrupt', 'skip')"
    )
    kept = rows(batch(path, values="string", onCorrupt="skip"))
    assert [(row["offset"], row["value"]) for row in kept] == [(0, "one"), (2, "three")]
    assert "left out 2 records, not UTF-8: offsets 1, 3" in caplog.text


def test_many_values_that_are_nothing_are_counted(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(path, *[b"\xff"] * 25)
    assert rows(batch(path, values="string", onCorrupt="skip")) == []
    assert "offsets 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 15 more" in caplog.text


ORDER = (
    StructType()
    .add("id", "long")
    .add("paid", "boolean")
    .add("price", "decimal(10,2)")
    .add("weight", "double")
    .add("day", "date")
    .add("at", "timestamp")
    .add("lines", ArrayType(StructType().add("sku", "string").add("n", "integer")))
)


def test_json_is_read_by_the_schema_that_is_given(path: Path) -> None:
    put(
        path,
        b'{"id": 1, "paid": true, "price": 12.5, "weight": 1, "day": "2026-11-20", '
        b'"at": "2026-11-20T08:00:00+02:00", "lines": [{"sku": "a", "n": 2}, null], "more": {}}',
        b'\n{\n"id": null}\n',
    )
    schema = StructType().add("value", ORDER).add("offset", "long")
    first, second = rows(batch(path, schema, values="json"))
    assert first == {
        "offset": 0,
        "value": {
            "id": 1,
            "paid": True,
            "price": Decimal("12.50"),
            "weight": 1.0,
            "day": date(2026, 11, 20),
            "at": datetime(2026, 11, 20, 6, tzinfo=UTC),
            "lines": [{"sku": "a", "n": 2}, None],
        },
    }
    assert set(second["value"].values()) == {None}


HOSTILE = [
    b"",
    b" ",
    b"nope",
    b'{"id": 1',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1},{"id": 2}',
    b'{"id": 1}]}\n{"v":[{"id": 2}',
    b'{"id": 1}],"v":[{"id": 2}',
    b'{"id": "one"}',
    b'{"id": 1.5}',
    b'{"id": 99999999999999999999}',
    b'{"paid": 1}',
    b'{"day": "yesterday"}',
    b'{"price": 1.005}',
    b'{"lines": [{"sku": "\xff"}]}',
    b"[]",
    b"7",
    b"\xef\xbb\xbf{}",
]


@pytest.mark.parametrize("bad", HOSTILE)
def test_a_value_that_is_not_that_json_costs_itself_and_nothing_else(
    path: Path, bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good = [b'{"id": %d}' % i for i in range(6)]
    put(path, *good[:3], bad, *good[3:], b"", bad)
    schema = StructType().add("value", ORDER)  # without the offset, which the message needs
    with pytest.raises(
        InvalidArgument, match="the value at offset 3 is not JSON of the type struct<id"
    ):
        rows(batch(path, schema, values="json"))
    kept = values(batch(path, schema, values="json", onCorrupt="skip"))
    assert [row["id"] for row in kept] == list(range(6))
    assert "offsets 3, 7, 8" in caplog.text


@pytest.mark.parametrize(
    ("kind", "least", "most"), [("byte", -128, 127), ("short", -32_768, 32_767)]
)
def test_a_small_number_is_read_and_one_beyond_its_type_is_no_such_json(
    path: Path, kind: str, least: int, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = [least, most, 0, least - 1, most + 1, 1.5]
    put(path, *[b'{"n": %s}' % str(n).encode() for n in numbers], b'{"n": null}', b"{}")
    schema = StructType().add("value", StructType().add("n", kind)).add("offset", "long")
    with pytest.raises(
        InvalidArgument, match="the value at offset 3 is not JSON of the type struct<n: "
    ):
        rows(batch(path, schema, values="json"))
    kept = rows(batch(path, schema, values="json", onCorrupt="skip"))
    assert [row["value"]["n"] for row in kept] == [least, most, 0, None, None]
    assert "offsets 3, 4, 5" in caplog.text


def test_a_float_is_the_nearest_that_there_is(path: Path) -> None:
    numbers = [b"1", b"-0.5", b"0.1", b"16777217", b"3.4028235e38", b"null"]
    put(path, *numbers)
    schema = StructType().add("value", "float")
    reader = batch(path, schema, values="json")
    [found] = [part for piece in reader.partitions() for part in reader.read(piece)]
    assert found["value"].type == pyarrow.float32()
    assert found["value"].to_pylist() == [
        *(1.0, -0.5, struct.unpack("f", struct.pack("f", 0.1))[0], 16777216.0),
        *(3.4028234663852886e38, None),
    ]


def test_json_may_be_something_else_than_an_object(path: Path) -> None:
    put(path, b"[1, 2]", b"null", b"[]")
    schema = StructType().add("value", ArrayType(LongType()))
    assert values(batch(path, schema, values="json")) == [[1, 2], None, []]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (MapType(StringType(), IntegerType()), "values=json does not read map<string,int> (value)"),
        (StructType().add("a", ArrayType(BinaryType())), "does not read binary (value.a[])"),
        (
            StructType().add("a", StructType().add("b", "integer", nullable=False)),
            "value.a.b is declared NOT NULL, and no JSON is held to that",
        ),
        (ArrayType(LongType(), containsNull=False), "value is declared without nulls"),
    ],
)
def test_types_that_json_is_not_read_as_are_refused(
    path: Path, kind: DataType, sentence: str
) -> None:
    schema = StructType().add("value", kind)
    with pytest.raises(InvalidArgument) as raised:
        batch(path, schema, values="json")
    assert sentence in str(raised.value)


def test_json_without_a_schema_is_refused(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="values=json needs a schema that says what is in"):
        FalajSource({"store": str(path), "subscribe": "t", "values": "json"}).schema()


# --- Filters --------------------------------------------------------------------------------------


def at(hour: int) -> datetime:
    return datetime.fromtimestamp(NOON + 3600 * hour, UTC)


FILTERS: list[tuple[list[ds.Filter], list[int]]] = [
    ([ds.EqualTo(("offset",), 2)], [2]),
    ([ds.GreaterThan(("offset",), 2), ds.LessThanOrEqual(("offset",), 4)], [3, 4]),
    ([ds.GreaterThanOrEqual(("offset",), 9)], []),
    ([ds.LessThan(("offset",), -3)], []),
    ([ds.EqualTo(("topic",), "t")], [0, 1, 2, 3, 4, 5]),
    ([ds.In(("topic",), ("a", "b"))], []),
    ([ds.EqualTo(("partition",), 1)], []),
    ([ds.EqualTo(("key",), b"k1")], [1, 3, 4]),
    ([ds.In(("key",), (bytearray(b"k0"), b"zz"))], [0, 2, 5]),
    ([ds.EqualTo(("key",), b"k0"), ds.EqualTo(("key",), b"k1")], []),
    ([ds.GreaterThanOrEqual(("timestamp",), at(2))], [2, 4, 5]),
    ([ds.EqualTo(("timestamp",), at(4))], [5]),
    ([ds.GreaterThan(("timestamp",), at(9))], []),
    ([ds.LessThanOrEqual(("timestamp",), at(1))], [0, 1, 3]),
    ([ds.LessThan(("timestamp",), at(1)), ds.EqualTo(("key",), b"k1")], [1, 3]),
    ([ds.GreaterThan(("timestamp",), at(0)), ds.LessThan(("timestamp",), at(0))], [0]),
    # A filter that is not understood, or says nothing, leaves everything to Spark.
    ([ds.EqualNullSafe(("key",), None)], [0, 1, 2, 3, 4, 5]),
    ([ds.Not(ds.EqualTo(("offset",), 2))], [0, 1, 2, 3, 4, 5]),
    ([ds.IsNull(("key",)), ds.EqualTo(("headers", "key"), "x")], [0, 1, 2, 3, 4, 5]),
    ([ds.StringStartsWith(("topic",), "x")], [0, 1, 2, 3, 4, 5]),
]


@pytest.mark.parametrize(("filters", "expected"), FILTERS)
def test_filters_leave_out_what_spark_would_and_never_more(
    hours: Path, filters: list[ds.Filter], expected: list[int]
) -> None:
    reader = batch(hours, pushdown="true")
    assert list(reader.pushFilters(filters)) == filters  # which Spark evaluates again
    assert [row["offset"] for row in rows(reader)] == expected


def test_filters_choose_by_columns_that_are_not_read(hours: Path) -> None:
    reader = batch(hours, StructType().add("value", "binary"), pushdown="true")
    reader.pushFilters([ds.EqualTo(("key",), b"k1"), ds.LessThan(("timestamp",), at(2))])
    assert rows(reader) == [{"value": b"1"}, {"value": b"1"}]


def test_without_the_option_a_reader_takes_no_filters(hours: Path) -> None:
    assert type(batch(hours)).pushFilters is ds.DataSourceReader.pushFilters
    assert type(batch(hours, pushdown="true")).pushFilters is not ds.DataSourceReader.pushFilters
