"""The values that `values=json` takes for a type, without Spark: what is strict, what is cut."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow
import pytest
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from falaj._json_columns import decode
from falaj.spark.reading.values import arrow_type

REFUSED = object()


def read(kind: DataType, *documents: str | None) -> list[Any]:
    """Read documents as a batch; those that are refused stand where they were."""
    payloads = [None if document is None else document.encode() for document in documents]
    wanted = arrow_type(kind)
    found, bad = decode(pyarrow.array(payloads, pyarrow.binary()), "json", wanted)
    assert found.type == wanted
    found.validate(full=True)
    read = iter(found.to_pylist())
    return [REFUSED if row in bad else next(read) for row in range(len(documents))]


@pytest.mark.parametrize("zone", ["", "Z", "+00:00", "+0000", "+00"])
@pytest.mark.parametrize("between", ["T", " "])
def test_decimals_of_a_time_beyond_microseconds_are_cut_off(between: str, zone: str) -> None:
    times = [f'"2026-11-20{between}08:00:00.{"123456789"[:n]}{zone}"' for n in range(6, 10)]
    expected = datetime(2026, 11, 20, 8, 0, 0, 123_456, UTC)
    assert read(TimestampType(), *times) == [expected] * 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1969-12-31T23:59:59.999999999Z", datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("0001-01-01T00:00:00.000000001Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("2026-11-20T08:00:00.1234567+02:00", datetime(2026, 11, 20, 6, 0, 0, 123_456, UTC)),
        ("2026-11-20T08:00:00.5", datetime(2026, 11, 20, 8, 0, 0, 500_000, UTC)),
        ("2026-11-20T08:00-0130", datetime(2026, 11, 20, 9, 30, tzinfo=UTC)),
        ("2026-11-20 08", datetime(2026, 11, 20, 8, tzinfo=UTC)),
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_whatever_its_year_zone_and_length(text: str, expected: datetime) -> None:
    assert read(TimestampType(), f'"{text}"') == [expected]


@pytest.mark.parametrize(
    "text",
    ["", "Z", "08:00:00.123456789", "2026-13-01", "2026-11-20Z", "2026-11-20T08:00:00.123456789 x"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    assert read(TimestampType(), f'"{text}"') == [REFUSED]


def test_a_number_that_is_too_large_for_its_type_is_refused_and_never_infinite() -> None:
    doubles = ["1e308", "1e400", "-1e400", "1.8e308", "9" * 309, "9" * 200 + "e200", "2"]
    assert read(DoubleType(), *doubles) == [1e308, *[REFUSED] * 5, 2.0]
    assert read(FloatType(), "1e38", "1e39", "-1e39", "1.5") == [
        pytest.approx(1e38),
        REFUSED,
        REFUSED,
        1.5,
    ]
    assert read(ByteType(), "127", "128") == [127, REFUSED]


def test_a_number_that_is_too_large_is_refused_wherever_it_stands() -> None:
    kind = StructType().add("a", ArrayType(StructType().add("x", FloatType()))).add("s", "string")
    assert read(
        kind,
        '{"a": [{"x": 1}, {"x": 1e39}]}',
        '{"a": [{"x": 2}]}',
        '{"a": [{"x": 1e39}], "s": "Infinity"}',
        None,
    ) == [REFUSED, {"a": [{"x": 2.0}], "s": None}, REFUSED, None]


def test_infinity_and_nan_are_read_as_python_writes_them() -> None:
    for kind in (DoubleType(), FloatType()):
        found = read(kind, "Infinity", "-Infinity", "1.8e308", "NaN", "1")
        assert found[:3] == [math.inf, -math.inf, REFUSED]
        assert math.isnan(found[3])
        assert found[4] == 1.0


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (TimestampType(), "1795161600"),
        (TimestampType(), "1795161600000"),
        (DateType(), "20777"),
        (StringType(), "17"),
        (StringType(), "true"),
        (StringType(), '{"a": 1}'),
        (StringType(), "[]"),
        (LongType(), "1.0"),
        (LongType(), "1e3"),
        (LongType(), '"5"'),
        (DoubleType(), '"5"'),
        (DecimalType(10, 2), "1.234"),
    ],
)
def test_a_value_of_another_type_is_refused_and_not_converted(
    kind: DataType, document: str
) -> None:
    assert read(kind, document, "null") == [REFUSED, None]


def test_what_is_missing_is_null_in_structs_and_lists_of_what_is_converted() -> None:
    row = StructType().add("t", TimestampType()).add("d", DateType()).add("f", FloatType())
    kind = StructType().add("rows", ArrayType(row)).add("times", ArrayType(TimestampType()))
    time = datetime(2026, 11, 20, 8, tzinfo=UTC)
    full = {"t": time, "d": date(2026, 11, 20), "f": 1.5}
    assert read(
        kind,
        '{"rows": [{"t": "2026-11-20T08", "d": "2026-11-20", "f": 1.5}, null, {"f": 1.5}]}',
        None,
        "null",
        '{"times": [null, "2026-11-20T08:00:00.0000000Z"], "rows": []}',
        "{}",
    ) == [
        {"rows": [full, None, {"t": None, "d": None, "f": 1.5}], "times": None},
        None,
        None,
        {"rows": [], "times": [None, time]},
        {"rows": None, "times": None},
    ]
