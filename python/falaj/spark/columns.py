"""The columns of a topic, those of Spark's Kafka source, and record batches that hold them.

Spark takes an Arrow batch only if it has the declared schema to the letter, so the types stand here
once for both. A schema that the user gives chooses columns and their order: what it leaves out is
not read. Batches are bounded in rows and in bytes, whatever the records are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from falaj.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow

    from falaj import Record

__all__ = ["BATCH_BYTES_MAX", "BATCH_ROWS_MAX", "batches", "check", "schema"]

BATCH_ROWS_MAX = 10_000
BATCH_BYTES_MAX = 16 << 20

_CREATE_TIME = 0  # Kafka's number for "the producer's clock"
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def schema(headers: bool) -> StructType:
    """List all columns, as Spark's Kafka source has them."""
    return StructType(
        [StructField(name, kind) for name, kind in _TYPES.items() if headers or name != "headers"]
    )


def check(wanted: StructType, headers: bool) -> None:
    """Refuse a schema that asks for what is not there.

    Args:
        wanted: The schema that the user gave.
        headers: Whether `includeHeaders` is on.

    Raises:
        Invalid: A column is unknown, has another type, or is there twice.
    """
    for place, name in enumerate(wanted.names):
        if name in wanted.names[:place]:
            raise Invalid(f"the schema names the column {name} twice")
        if name not in _TYPES:
            raise Invalid(f"a topic has no column {name!r}: it has {', '.join(_TYPES)}")
        if name == "headers" and not headers:
            raise Invalid("the column headers needs .option('includeHeaders', 'true')")
        kind, given = _TYPES[name], wanted[name].dataType
        if given != kind:
            raise Invalid(
                f"the column {name} is {kind.simpleString()}, not {given.simpleString()}: "
                f"read it so, and cast it then"
            )


def batches(records: Iterable[Record[Any]], wanted: StructType) -> Iterator[pyarrow.RecordBatch]:
    """Put records of one partition into Arrow batches.

    Args:
        records: What to put there.
        wanted: The columns, as `check` allows them.

    Returns:
        An iterator of batches.
    """
    import pyarrow

    types = _arrow_types()
    fields = [pyarrow.field(f.name, types[f.name], nullable=f.nullable) for f in wanted.fields]
    arrow_schema = pyarrow.schema(fields)
    for rows in _chunks(records):
        arrays = [
            pyarrow.array(_FILL[field.name](rows), field.type, size=len(rows)) for field in fields
        ]
        yield pyarrow.RecordBatch.from_arrays(arrays, schema=arrow_schema)


def _chunks(records: Iterable[Record[Any]]) -> Iterator[list[Record[Any]]]:
    rows: list[Record[Any]] = []
    size = 0
    for record in records:
        rows.append(record)
        size += len(record)
        if len(rows) == BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _value(record: Record[Any]) -> bytes | None:
    """Copy the payload; None for a tombstone, which the type of `raw` does not tell."""
    raw: memoryview | None = record.raw if not len(record) else memoryview(b"")
    return None if raw is None else record.bytes()


# Python values of a column, for Arrow to convert.
_FILL: dict[str, Callable[[list[Any]], Iterable[Any]]] = {
    "key": lambda rows: [row.key for row in rows],
    "value": lambda rows: [_value(row) for row in rows],
    "topic": lambda rows: [rows[0].topic] * len(rows),
    "partition": lambda rows: [rows[0].partition] * len(rows),
    "offset": lambda rows: [row.offset for row in rows],
    "timestamp": lambda rows: [row.timestamp_ns // 1_000 for row in rows],
    "timestampType": lambda rows: [_CREATE_TIME] * len(rows),
    "headers": lambda rows: [
        [{"key": name, "value": value} for name, value in row.headers] or None for row in rows
    ],
}


def _arrow_types() -> dict[str, pyarrow.DataType]:
    import pyarrow

    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    return {
        "key": pyarrow.binary(),
        "value": pyarrow.binary(),
        "topic": pyarrow.string(),
        "partition": pyarrow.int32(),
        "offset": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
        "timestampType": pyarrow.int32(),
        "headers": pyarrow.list_(pyarrow.field("element", header)),
    }
