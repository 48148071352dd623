"""The columns that are written to a topic: those of Spark's Kafka sink, and `timestamp`.

Owns which columns are written and their types, which are checked before anything is written. Owns
also which topic a record goes to. Other columns are ignored, as by Spark's Kafka sink.
`Part.append_arrow` handles the Arrow types in which Spark sends columns; settings of the session
change these types.
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
    """Refuse a frame whose rows are no records.

    Args:
        schema: The schema of the frame.
        options: The options of the write.

    Raises:
        InvalidArgument: A column that is written is missing, occurs twice, or has another type.
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
    """Return a warning about columns that are ignored but look like written ones; None for none."""
    said = [
        f"{near!r}, which is near {name}"
        for name in _TYPES
        if name not in names and (near := _near(name, names)) is not None
    ]
    return f"columns are not written to the topic: {'; '.join(said)}" if said else None


def _written(names: list[str], topic: str | None) -> list[str]:
    """Name the columns that are written; the option `topic` overrides the column."""
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
    """Compare types, without nullability and the collation of text."""
    if isinstance(given, StringType):
        return isinstance(kind, StringType)
    if isinstance(given, ArrayType):
        return given.simpleString() == kind.simpleString()
    return given == kind


def by_topic(
    batch: pyarrow.RecordBatch, named: str | None
) -> list[tuple[str, pyarrow.RecordBatch]]:
    """Divide a batch by the topics of its records.

    Args:
        batch: A batch that Spark sends of a frame that `check` allows.
        named: Topic of all records; None if the column `topic` names that of each.

    Returns:
        Topics in the order of their first records, each with its records in their order.

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
