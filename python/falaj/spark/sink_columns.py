"""The columns that are written to a topic, those of Spark's Kafka sink, and `timestamp`.

Owns: which columns and types a frame may have, checked before anything is written, and to which
topic a record goes. In which Arrow types Spark sends them, which its session's settings change, is
left to `Part.append_arrow`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from falaj.errors import Invalid

if TYPE_CHECKING:
    import pyarrow

    from falaj.spark.sink_options import WriteOptions

__all__ = ["NAMES", "by_topic", "check"]

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_TYPES: dict[str, tuple[DataType, ...]] = {
    "value": (BinaryType(), StringType()),
    "key": (BinaryType(), StringType()),
    "headers": (_HEADERS,),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
    "topic": (StringType(),),
}
NAMES = tuple(_TYPES)
# What a frame has that was read from a topic, and what no record can be given.
_GIVEN_BY_THE_LOG = ("offset", "timestampType")


def check(schema: StructType, options: WriteOptions) -> None:
    """Refuse a frame that is no records.

    Args:
        schema: The frame's.
        options: What else was asked for.

    Raises:
        Invalid: A column is missing, unknown, there twice or of another type.
    """
    names = schema.names
    if unknown := [name for name in names if name not in _TYPES]:
        raise Invalid(_unknown(unknown))
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Invalid(f"the frame has the column {twice[0]} twice: leave one away")
    if "value" not in names:
        raise Invalid(
            "the column value is missing: it is what is written, bytes or text; a whole row is "
            "written as JSON with .selectExpr('to_json(struct(*)) AS value')"
        )
    if options.topic is None and "topic" not in names:
        raise Invalid("option topic is missing: add .option('topic', 'orders')")
    for field in schema.fields:
        _check_type(field)


def _unknown(names: list[str]) -> str:
    several = len(names) > 1
    named = ", ".join(map(repr, names))
    given = [name for name in names if name in _GIVEN_BY_THE_LOG]
    remedy = (
        f"leave it to the log: .drop({', '.join(map(repr, given))})"
        if given == names
        else "choose with .select(), or put rows into the value with "
        ".selectExpr('to_json(struct(*)) AS value')"
    )
    return (
        f"a record has no column{'s' if several else ''} {named}, it has {', '.join(_TYPES)}: "
        f"{remedy}"
    )


def _check_type(field: StructField) -> None:
    name, given = field.name, field.dataType
    if any(_same(given, kind) for kind in _TYPES[name]):
        return
    wanted = " or ".join(kind.simpleString() for kind in _TYPES[name])
    if name == "value" and isinstance(given, StructType | ArrayType):
        remedy = ".withColumn('value', to_json('value')) makes it text"
    else:
        remedy = f".withColumn('{name}', ...cast('{_TYPES[name][-1].simpleString()}')) makes it so"
    raise Invalid(f"the column {name} is {wanted}, not {given.simpleString()}: {remedy}")


def _same(given: DataType, kind: DataType) -> bool:
    """Compare but for whether there may be nulls, and how text is compared."""
    if isinstance(given, StringType):
        return isinstance(kind, StringType)
    if isinstance(given, ArrayType):
        return given.simpleString() == kind.simpleString()
    return given == kind


def by_topic(
    batch: pyarrow.RecordBatch, named: str | None
) -> list[tuple[str, pyarrow.RecordBatch]]:
    """Divide a batch among the topics of its records.

    Args:
        batch: What Spark sends of a frame that `check` allows.
        named: Topic of all records; None where the column `topic` says that of each.

    Returns:
        Topics and their records, in their order; topics in the order of their first records.

    Raises:
        Invalid: A record has no topic.
    """
    whole = batch.drop_columns(["topic"]) if "topic" in batch.schema.names else batch
    if named is not None:
        return [(named, whole)] if len(whole) else []
    from pyarrow import compute

    topics = batch.column("topic")
    if topics.null_count:
        raise Invalid(
            "a record's topic is null: fill the column, or name one with .option('topic', 'orders')"
        )
    names = compute.unique(topics)
    if len(names) == 1:
        return [(names[0].as_py(), whole)]
    return [(name.as_py(), whole.filter(compute.equal(topics, name))) for name in names]
