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
    from collections.abc import Iterator

    import pyarrow

    from falaj import Topic

__all__ = ["BATCH_BYTES_MAX", "BATCH_ROWS_MAX", "batches", "check", "schema"]

BATCH_ROWS_MAX = 10_000
BATCH_BYTES_MAX = 16 << 20

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


def batches(
    topic: Topic[Any], start: int, end: int, wanted: StructType
) -> Iterator[pyarrow.RecordBatch]:
    """Read records of one partition as Arrow batches.

    Args:
        topic: The partition.
        start: First offset.
        end: Offset behind the last.
        wanted: The columns, as `check` allows them.

    Returns:
        An iterator of batches.
    """
    import pyarrow

    declared = pyarrow.schema(
        [pyarrow.field(f.name, _arrow_types()[f.name], nullable=f.nullable) for f in wanted.fields]
    )
    found = topic.to_reader(
        start, end, columns=wanted.names, batch_rows=BATCH_ROWS_MAX, batch_bytes=BATCH_BYTES_MAX
    )
    for batch in found:
        yield pyarrow.RecordBatch.from_arrays(batch.columns, schema=declared)


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
