"""The columns that are written to a topic, those of Spark's Kafka sink, and `timestamp`.

Owns the columns that are written and their types, checked before anything is; and the topic that a
record goes to. Other columns are passed over, as Spark's Kafka sink does. `Part.append_arrow` deals
with the Arrow types in which Spark sends them, which its session's settings change.
"""

from __future__ import annotations

import difflib
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

from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow

    from falaj.spark.writing.options import WriteOptions

__all__ = ["NAMES", "by_topic", "check", "passed_over"]

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
# Columns of a frame that was read from a topic, which the log gives a record itself.
_GIVEN_BY_THE_LOG = ("offset", "timestampType")


def check(schema: StructType, options: WriteOptions) -> None:
    """Refuse a frame that holds no records.

    Args:
        schema: The frame's.
        options: What else was asked for.

    Raises:
        InvalidArgument: A column that is written is missing, there twice or of another type.
    """
    names = schema.names
    written = _written(names, options.topic)
    if twice := [name for name in written if names.count(name) > 1]:
        raise InvalidArgument(f"the frame has the column {twice[0]} twice: leave one away")
    if "value" not in names:
        near = _near("value", names)
        meant = "" if near is None else f", did you mean {near!r}?"
        raise InvalidArgument(
            f"the column value is missing{meant or ':'} it is what is written, bytes or text; a "
            "whole row is written as JSON with .selectExpr('to_json(struct(*)) AS value')"
        )
    if options.topic is None and "topic" not in names:
        raise InvalidArgument("option topic is missing: add .option('topic', 'orders')")
    for name in written:
        _check_type(schema[name])


def passed_over(names: list[str]) -> str | None:
    """Say which columns are not written and look as if they were to be; None for none."""
    said = [
        f"{near!r}, which is near {name}"
        for name in _TYPES
        if name not in names and (near := _near(name, names)) is not None
    ]
    return f"columns are not written to the topic: {'; '.join(said)}" if said else None


def _written(names: list[str], topic: str | None) -> list[str]:
    """Name the columns that are written; the option `topic` goes before the column."""
    return [n for n in _TYPES if n in names and not (n == "topic" and topic is not None)]


def _near(name: str, names: list[str]) -> str | None:
    """Find a column that is spelled like one that is written."""
    spelled = {each.lower(): each for each in names if each not in (*_TYPES, *_GIVEN_BY_THE_LOG)}
    found = difflib.get_close_matches(name, spelled, n=1, cutoff=0.75)
    return spelled[found[0]] if found else None


def _check_type(field: StructField) -> None:
    name, given = field.name, field.dataType
    if any(_same(given, kind) for kind in _TYPES[name]):
        return
    wanted = " or ".join(kind.simpleString() for kind in _TYPES[name])
    if name == "value" and isinstance(given, StructType | ArrayType):
        remedy = ".withColumn('value', to_json('value')) makes it text"
    else:
        remedy = f".withColumn('{name}', ...cast('{_TYPES[name][-1].simpleString()}')) makes it so"
    raise InvalidArgument(f"the column {name} is {wanted}, not {given.simpleString()}: {remedy}")


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
        InvalidArgument: A record has no topic.
    """
    names = batch.schema.names
    whole = batch.select([n for n in _written(names, named) if n != "topic"])
    if named is not None:
        return [(named, whole)] if len(whole) else []
    from pyarrow import compute

    topics = batch.column("topic")
    if topics.null_count:
        raise InvalidArgument(
            "a record's topic is null: fill the column, or name one with .option('topic', 'orders')"
        )
    names = compute.unique(topics)
    if len(names) == 1:
        return [(names[0].as_py(), whole)]
    return [(name.as_py(), whole.filter(compute.equal(topics, name))) for name in names]
