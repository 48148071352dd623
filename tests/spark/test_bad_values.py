"""Values that are no such JSON fail, are left out and counted, or kept; wrong names are said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import ArrayType, StructType

import falaj
from falaj.errors import InvalidArgument
from spark.test_batch_options import batch, put, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from falaj.spark.streaming.stream import FalajStreamReader

GOOD, BAD = b'{"id": 1}', (b'{"id": "x"}', b"\xff{", b"")


def schema(*members: tuple[str, Any]) -> StructType:
    value = StructType()
    for name, kind in members:
        value.add(name, kind)
    return StructType().add("offset", "long").add("value", value)


WITH = schema(("_corrupt_record", "string"), ("id", "long"))


@pytest.mark.parametrize(
    "options", [{}, {"mode": "PERMISSIVE"}, {"onCorrupt": "skip"}, {"mode": "permissive"}]
)
def test_a_value_that_is_no_such_json_is_kept_as_text_where_the_schema_has_a_member_for_it(
    path: Path, options: dict[str, str]
) -> None:
    put(path, BAD[0], GOOD, *BAD[1:], b'{"id": 2, "_corrupt_record": "mine"}')
    with falaj.open(path) as store:
        store.topic("t").tombstone(b"k")
    found = rows(batch(path, WITH, values="json", **options))
    assert [(row["offset"], row["value"]) for row in found] == [
        (0, {"_corrupt_record": '{"id": "x"}', "id": None}),
        (1, {"_corrupt_record": None, "id": 1}),
        (2, {"_corrupt_record": "\ufffd{", "id": None}),
        (3, {"_corrupt_record": "", "id": None}),
        (4, {"_corrupt_record": None, "id": 2}),
        (5, None),
    ]


def test_a_member_of_bytes_keeps_a_bad_value_byte_for_byte_under_any_name(path: Path) -> None:
    put(path, GOOD, *BAD)
    wanted = schema(("id", "long"), ("raw", "binary"))
    found = rows(batch(path, wanted, values="json", columnNameOfCorruptRecord="raw"))
    assert [row["value"]["raw"] for row in found] == [None, *BAD]


def test_the_words_of_sparks_json_reader_decide(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(path, GOOD, *BAD)
    for with_member in (WITH, schema(("id", "long"))):
        with pytest.raises(InvalidArgument, match="the value at offset 1 is not JSON"):
            rows(batch(path, with_member, values="json", mode="FAILFAST", onCorrupt="skip"))
        with pytest.raises(InvalidArgument, match=r"out with \.option\('mode', 'DROPMALFORMED'\)$"):
            rows(batch(path, with_member, values="json", mode="FAILFAST"))
        caplog.clear()
        found = rows(batch(path, with_member, values="json", mode="DROPMALFORMED"))
        assert [row["value"]["id"] for row in found] == [1]
        assert "left out 3 records, not JSON of the type struct<" in caplog.text
        assert "offsets 1, 2, 3" in caplog.text


@pytest.mark.parametrize(
    ("wanted", "options", "sentence"),
    [
        (schema(("id", "long")), {"mode": "PERMISSIVE"}, "_corrupt_record: STRING>; or leave"),
        (WITH, {"mode": "lenient"}, "option mode is failfast, dropmalformed or permissive, not"),
        (schema(("_corrupt_record", "long")), {}, "it is STRING or BINARY, not bigint"),
        (schema(("raw", "binary")), {}, "values=json does not read binary"),
        (schema(("id", "long"), ("id", "string")), {}, "value has the field id twice"),
        (
            schema(("_Corrupt_Record", "string"), ("id", "long")),
            {"onCorrupt": "skip"},
            "did you mean '_corrupt_record'?",
        ),
        (
            schema(("id", "long")),
            {"columnNameOfCorruptRecord": "bad"},
            "columnNameOfCorruptRecord=bad names no member of the value",
        ),
        (
            schema(("id", "long")).add("_corrupt_record", "string"),
            {},
            "value STRUCT<_corrupt_record STRING, …>",
        ),
    ],
)
def test_a_mode_that_cannot_be_is_refused(
    path: Path, wanted: StructType, options: dict[str, str], sentence: str
) -> None:
    put(path, GOOD)
    with pytest.raises(InvalidArgument) as raised:
        batch(path, wanted, values="json", **options)
    assert sentence in str(raised.value)


def test_a_mode_is_for_json_and_but_for_permissive_for_text(path: Path) -> None:
    put(path, GOOD)
    with pytest.raises(InvalidArgument, match="option mode=PERMISSIVE is for values=json"):
        batch(path, values="string", mode="PERMISSIVE")
    with pytest.raises(InvalidArgument, match="mode=FAILFAST is for values=json and values=string"):
        batch(path, mode="FAILFAST")
    put(path, b"\xff")
    dropped = {"values": "string", "mode": "DROPMALFORMED"}
    assert [row["value"] for row in rows(batch(path, **dropped))] == [GOOD.decode()]


FLIGHT = b'{"carrier": "UA", "dep": {"delay": 4}, "legs": [{"to": "JFK"}]}'


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("Carrier", "string", "value.Carrier is in none of the 3 records that were looked at, and"),
        ("Carrier", "string", "null: did you mean 'carrier'?"),
        ("carier", "string", "did you mean 'carrier'?"),
        ("tail", "string", "they have carrier, dep, legs"),
        ("dep", StructType().add("dely", "long"), "value.dep.dely is in none"),
        ("legs", ArrayType(StructType().add("from", "string")), "value.legs.from is in none"),
    ],
)
def test_a_member_that_no_record_has_is_reported(
    path: Path, caplog: pytest.LogCaptureFixture, name: str, kind: Any, sentence: str
) -> None:
    put(path, FLIGHT, b"no JSON", b"[1]", FLIGHT, b'{"carrier": null, "dep": null, "legs": []}')
    reader = batch(path, schema((name, kind)), values="json", onCorrupt="skip")
    reader.partitions()
    assert sentence in caplog.text


def test_members_that_some_record_has_are_not_reported(
    path: Path,
    streams: Callable[..., FalajStreamReader],
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(path, *[b"{}"] * 1_000, FLIGHT)
    wanted = schema(("carrier", "string"), ("_corrupt_record", "string"))
    batch(path, wanted, values="json").partitions()
    with falaj.open(path) as store:
        store.topic("empty")
    batch(path, schema(("x", "long")), values="json", subscribe="empty").partitions()
    assert caplog.text == ""


def test_a_stream_reports_a_member_that_no_record_has_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from falaj.spark.source import FalajSource

    put(path, FLIGHT)
    given = {"store": str(path), "subscribe": "t", "values": "json", "visibility": "visible"}
    source = FalajSource(given | {"startingOffsets": "earliest"})
    reader = source.streamReader(schema(("carier", "string")))
    start = reader.initialOffset()
    for _ in range(2):
        reader.partitions(start, reader.latestOffset(start))
    assert caplog.text.count("did you mean 'carrier'?") == 1


def test_spark_keeps_bad_values_as_its_own_json_reader_does(
    spark: SparkSession, path: Path
) -> None:
    put(path, GOOD, *BAD[:2])
    given = {"store": str(path), "subscribe": "t"}
    reader = spark.read.format("falaj").options(**given, values="json")
    found = reader.schema("value STRUCT<id: BIGINT, _corrupt_record: STRING>").load()
    text = spark.read.format("falaj").options(**given).load()
    parsed = text.selectExpr(
        "from_json(CAST(value AS STRING), 'id BIGINT, _corrupt_record STRING', "
        "map('mode', 'PERMISSIVE')) AS value"
    )
    both = [[tuple(row) for row in each.select("value.*").collect()] for each in (found, parsed)]
    assert both[0] == both[1] == [(1, None), (None, '{"id": "x"}'), (None, "\ufffd{")]
