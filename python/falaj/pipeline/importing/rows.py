"""The rows of an import's files as a frame of records.

Owns how a row becomes value, key, headers, partition and time, and which rows are malformed. Such a
row has no value, but its text and its file. `run` decides what happens to it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it
from pyspark.sql.types import BinaryType, StringType

from falaj.errors import InvalidArgument
from falaj.pipeline.base import keys
from falaj.pipeline.base.documents import document
from falaj.pipeline.base.frame import struct_of
from falaj.pipeline.importing import lines
from falaj.pipeline.importing.lines import BLOCK, FILE, quoted
from falaj.pipeline.importing.reading import BAD, OWN, read, told_plainly
from falaj.pipeline.importing.sources import form_of
from falaj.spark.reading import sampling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from falaj.pipeline.importing.reading import Rows
    from falaj.pipeline.importing.run import ImportConfig

__all__ = ["expected", "frame", "unknown"]

_ROW = f"{OWN}row"
_SAMPLE = 400
"""Rows that are held against a schema."""
_LOSSY = {
    "double": "rounds numbers",
    "float": "rounds numbers",
    "timestamp": "has no zone and no nanoseconds",
    "timestamp_ntz": "has no nanoseconds",
}
"""Types that Spark guesses, and that do not tell all texts apart."""
_MICROS = (1 << 63) // 1000 - 1
"""Most microseconds before or after 1970 that 64 bits of nanoseconds can hold."""


def frame(
    spark: SparkSession, config: ImportConfig, paths: Sequence[str], partitions: int
) -> DataFrame:
    """Read files as records, in the order of the append.

    Args:
        spark: The session.
        config: The settings.
        paths: The files.
        partitions: How many partitions the topic has.

    Returns:
        Those columns of the sink that the config fills, and `BAD` and `FILE`.

    Raises:
        InvalidArgument: A column is missing, or has a type that is not allowed; or Spark does not
            read the files so.
    """
    form = config.format or form_of(paths)
    rows = read(spark, config, form, paths)
    with told_plainly():
        lazy = rows.frame.select("*", F.monotonically_increasing_id().alias(_ROW))
        made = _records(lazy, rows, config, form, partitions)
        bad = _malformed(spark, lazy, made, rows.columns, config, form, paths)
        chosen = [column.alias(name) for name, column in made.items()]
        order = [_order(expected(name, rows.columns), rows) for name in config.order_by]
        ordered = lazy.orderBy(*order, _decoded(FILE), BLOCK, _ROW)
        # As bytes: the text of a row that is malformed may be no UTF-8.
        return ordered.select(*chosen, bad.cast("binary").alias(BAD), FILE)


def _order(name: str, rows: Rows) -> Column:
    """Sort a key that is read as text by the type that Spark guessed for it."""
    column = F.col(quoted(name))
    kind = rows.guessed.get(name)
    return column if kind is None else column.try_cast(kind)


def _decoded(uri: str) -> Column:
    """Turn Spark's names of files into their paths, which the order goes by."""
    return F.url_decode(F.replace(F.col(uri), F.lit("+"), F.lit("%2B")))


def _malformed(
    spark: SparkSession,
    rows: DataFrame,
    made: dict[str, Column],
    columns: list[str],
    config: ImportConfig,
    form: str,
    paths: Sequence[str],
) -> Column:
    """Return the text of rows that are malformed; null for the others."""
    if not columns:
        return F.col(BAD)
    types = {each.name: each.dataType for each in rows.schema.fields}
    unread = [
        made[name].isNull() & F.col(quoted(column)).isNotNull()
        for name, column in (("timestamp", config.time), ("partition", config.partition))
        if column is not None
    ]
    if form != "parquet":
        # JSON has no such number: it would become text. Mostly a double does not reach it.
        found = [lines.unreached(F.col(quoted(name)), types[name]) for name in columns]
        unread += [each for each in found if each is not None]
    texts = [F.col(quoted(name)) for name in columns if isinstance(types[name], StringType)]
    if form == "csv" and texts and (broken := _not_utf8(spark, config, paths)):
        # The reader has put U+FFFD in the place of these bytes.
        is_altered = reduce(or_, (F.contains(each, F.lit("\ufffd")) for each in texts))
        unread.append(is_altered & F.col(FILE).isin(broken))
    told = F.lit(None).cast("string") if form == "parquet" else F.col(BAD)
    if not unread:
        return told
    text = document(F.col(quoted(name)) for name in columns)
    return F.coalesce(
        told, F.when(reduce(or_, (F.coalesce(each, F.lit(False)) for each in unread)), text)
    )


def unknown(spark: SparkSession, config: ImportConfig, paths: Sequence[str]) -> list[str]:
    """Find the columns of the schema that no row of a sample has; return a sentence for each."""
    if config.schema is None or (config.format or form_of(paths)) != "json":
        return []
    if lines.is_multiline(config.options):
        return []
    seen = sampling.Seen()
    for row in (
        lines.text(spark, paths).limit(_SAMPLE).select(F.col("value").cast("binary")).collect()
    ):
        with suppress(ValueError, RecursionError):
            seen.add(json.loads(bytes(row[0])))
    return sampling.unknown(struct_of(config.schema), seen)


def _not_utf8(spark: SparkSession, config: ImportConfig, paths: Sequence[str]) -> list[str]:
    """Find the files that are not UTF-8, unless they are said to be of another encoding."""
    if {"encoding", "charset"} & {name.lower() for name in config.options}:
        return []
    broken = lines.text(spark, paths).where(~F.is_valid_utf8("value"))
    broken = broken.select("_metadata.file_path").distinct()
    return [row[0] for row in broken.collect()]


def _records(
    lazy: DataFrame, rows: Rows, config: ImportConfig, form: str, partitions: int
) -> dict[str, Column]:
    columns = rows.columns
    if not columns:
        return {"value": F.lit(None).cast("string")}
    types = {field.name: field.dataType for field in lazy.schema.fields}
    made: dict[str, Column] = {}
    if config.value is None:
        chosen = [expected(name, columns) for name in config.columns or columns]
        made["value"] = document(F.col(quoted(name)) for name in chosen)
    else:
        _expect_type(config.value, columns, types, "value", (StringType, BinaryType))
        made["value"] = F.col(quoted(config.value))
    if config.key:
        is_guessed = config.schema is None and form != "parquet"
        for name in config.key:
            _expect_key(expected(name, columns), types[name], is_guessed)
        made["key"] = F.expr(_key([(name, types[name]) for name in config.key]))
    if config.headers is not None:
        expected(config.headers, columns)
        made["headers"] = F.col(quoted(config.headers))
    if config.partition is not None:
        name = expected(config.partition, columns)
        made["partition"] = _partition(F.col(quoted(name)), types[name], name, partitions)
    if config.time is not None:
        name = expected(config.time, columns)
        made["timestamp"] = _time(F.col(quoted(name)), types[name], name)
    return made


def _expect_key(name: str, kind: Any, is_guessed: bool) -> None:
    """Refuse keys that would not be the text of the column's value."""
    if kind.typeName() in ("struct", "array", "map", "variant"):
        raise InvalidArgument(
            f"key={name!r} is {kind.simpleString()}, whose text is no key: name one of its members "
            "as a column of its own, or another column"
        )
    if is_guessed and (why := _LOSSY.get(kind.typeName())) is not None:
        raise InvalidArgument(
            f"key={name!r} would be read as a {kind.typeName()}, which {why}, so different keys "
            f'may become one: give a schema=, as "{name} STRING", which keeps their text'
        )


def _key(columns: list[tuple[str, Any]]) -> str:
    texts = [keys.text_of(quoted(name), kind) for name, kind in columns]
    if len(texts) > 1:
        return f"to_json(array({', '.join(texts)}))"
    name, kind = columns[0]
    return quoted(name) if keys.is_key(kind) else texts[0]


def _partition(column: Column, kind: Any, name: str, partitions: int) -> Column:
    """Read numbers of partitions that the topic has; null for what is none."""
    if kind.typeName() not in ("byte", "short", "integer", "long", "string", "void"):
        raise InvalidArgument(
            f"the column {name} is {kind.simpleString()}, which is no number of a partition: give "
            "whole numbers, or leave partition= away"
        )
    number = column.try_cast("int")
    is_whole = column.cast("string").rlike(r"^\s*\d+\s*$")
    return F.when(is_whole & (number < partitions), number)


def _time(column: Column, kind: Any, name: str) -> Column:
    """Read times; null for what is none, or is none that nanoseconds since 1970 can tell."""
    if kind.typeName() not in ("timestamp", "date", "timestamp_ntz", "string", "void"):
        raise InvalidArgument(
            f"the column {name} is {kind.simpleString()}, which is no time: give a timestamp, a "
            "date or text, or leave time= away"
        )
    time = column.try_cast("timestamp")
    has_date = column.cast("string").rlike(r"^\s*\d{4}")  # else it would be a time of today
    return F.when(has_date & F.unix_micros(time).between(-_MICROS, _MICROS), time)


def _expect_type(
    name: str, columns: list[str], types: dict[str, Any], what: str, kinds: tuple[type, ...]
) -> None:
    expected(name, columns)
    if not isinstance(types[name], kinds):
        raise InvalidArgument(
            f"{what}={name!r} is {types[name].simpleString()}, and is written as it is only where "
            "it is text or binary: leave value= away, and rows are written as JSON"
        )


def expected(name: str, columns: list[str]) -> str:
    """Return the name of a column that exists.

    Raises:
        InvalidArgument: There is no such column.
    """
    if name not in columns:
        raise InvalidArgument(f"the files have no column {name!r}: they have {', '.join(columns)}")
    return name
