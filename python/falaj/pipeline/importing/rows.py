"""The rows of an import's files as a frame of records.

Owns how a row becomes value, key, headers, partition and time, and which rows are malformed. Such a
row has no value, but its text and its file. `run` decides what happens to it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from falaj.errors import InvalidArgument
from falaj.pipeline.base.frame import struct_of
from falaj.pipeline.importing.remote import escaped, is_remote
from falaj.pipeline.importing.sources import form_of
from falaj.spark.reading import sampling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from falaj.pipeline.importing.run import ImportConfig

__all__ = ["BAD", "FILE", "expected", "file_of", "frame", "unknown"]

BAD, FILE = "_falaj_bad", "_falaj_file"
_BLOCK, _ROW = "_falaj_block", "_falaj_row"
_SAMPLE = 400
"""Rows that are held against a schema."""
_MICROS = (1 << 63) // 1000 - 1
"""Most microseconds before or after 1970 that 64 bits of nanoseconds can hold."""


def frame(spark: SparkSession, config: ImportConfig, paths: Sequence[str]) -> DataFrame:
    """Read files as records, in the order of the append.

    Args:
        spark: The session.
        config: The settings.
        paths: The files.

    Returns:
        Those columns of the sink that the config fills, and `BAD` and `FILE`.

    Raises:
        InvalidArgument: A column is missing, or has a type that is not allowed.
    """
    form = config.format or form_of(paths)
    rows, columns = _read(spark, config, form, paths)
    lazy = rows.select(
        "*",
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(_BLOCK),
        F.monotonically_increasing_id().alias(_ROW),
    )
    made = _records(lazy, columns, config, form)
    bad = _malformed(spark, lazy, made, columns, config, form, paths)
    chosen = [column.alias(name) for name, column in made.items()]
    order = [F.col(_quoted(expected(name, columns))) for name in config.order_by]
    ordered = lazy.orderBy(*order, _decoded(FILE), _BLOCK, _ROW)
    # As bytes: the text of a row that is malformed may be no UTF-8.
    return ordered.select(*chosen, bad.cast("binary").alias(BAD), FILE)


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
    types = {field.name: field.dataType.typeName() for field in rows.schema.fields}
    unread = [
        made[name].isNull() & F.col(_quoted(column)).isNotNull()
        for name, column in (("timestamp", config.time), ("partition", config.partition))
        if column is not None
    ]
    if form != "parquet":
        # JSON has no such number: it would become text. Mostly a double does not reach it.
        numbers = [F.col(_quoted(name)) for name in columns if types[name] in ("double", "float")]
        unread += [F.isnan(each) | (F.abs(each) == float("inf")) for each in numbers]
    texts = [F.col(_quoted(name)) for name in columns if types[name] == "string"]
    if form == "csv" and texts and (broken := _not_utf8(spark, config, paths)):
        # The reader has put U+FFFD in the place of these bytes.
        is_altered = reduce(or_, (F.contains(each, F.lit("\ufffd")) for each in texts))
        unread.append(is_altered & F.col(FILE).isin(broken))
    told = F.lit(None).cast("string") if form == "parquet" else F.col(BAD)
    if not unread:
        return told
    text = F.to_json(F.struct(*(F.col(_quoted(name)) for name in columns)))
    return F.coalesce(
        told, F.when(reduce(or_, (F.coalesce(each, F.lit(False)) for each in unread)), text)
    )


def unknown(spark: SparkSession, config: ImportConfig, paths: Sequence[str]) -> list[str]:
    """Find the columns of the schema that no row of a sample has; return a sentence for each."""
    if config.schema is None or (config.format or form_of(paths)) != "json":
        return []
    if any(name.lower() == "multiline" for name in config.options):
        return []
    lines = spark.read.option("pathGlobFilter", "*").text(list(map(escaped, paths)))
    seen = sampling.Seen()
    for row in lines.limit(_SAMPLE).select(F.col("value").cast("binary")).collect():
        with suppress(ValueError, RecursionError):
            seen.add(json.loads(bytes(row[0])))
    return sampling.unknown(struct_of(config.schema), seen)


def _not_utf8(spark: SparkSession, config: ImportConfig, paths: Sequence[str]) -> list[str]:
    """Find the files that are not UTF-8, unless they are said to be of another encoding."""
    if {"encoding", "charset"} & {name.lower() for name in config.options}:
        return []
    lines = spark.read.option("pathGlobFilter", "*").text(list(map(escaped, paths)))
    broken = lines.where(~F.is_valid_utf8("value")).select("_metadata.file_path").distinct()
    return [row[0] for row in broken.collect()]


def _read(
    spark: SparkSession, config: ImportConfig, form: str, paths: Sequence[str]
) -> tuple[DataFrame, list[str]]:
    reader = spark.read.format(form).options(**_options(config, form))
    if len(config.sources) == 1 and _is_folder(config.sources[0], paths):
        reader = reader.option("basePath", _absolute(config.sources[0]))
    plain = list(map(escaped, paths))
    if config.schema is not None:
        schema = struct_of(config.schema)
    elif form == "parquet":
        frame = reader.load(plain)
        return frame, frame.columns
    else:
        inferred = reader.option("inferSchema", "true").load(plain).schema
        schema = StructType([field for field in inferred.fields if field.name != BAD])
        if not schema:  # no row is one, and Spark would refuse to say so
            lines = spark.read.option("pathGlobFilter", "*").text(plain)
            return lines.where(F.trim("value") != "").withColumnRenamed("value", BAD), []
    if form == "parquet":
        frame = reader.schema(schema).load(plain)
        return frame, frame.columns
    whole = StructType([*schema.fields, StructField(BAD, StringType())])
    frame = reader.schema(whole).load(plain)
    return frame, [name for name in frame.columns if name != BAD]


def _absolute(source: str) -> str:
    return source if is_remote(source) else os.path.abspath(source)


def _is_folder(source: str, paths: Sequence[str]) -> bool:
    if is_remote(source):  # a pattern names no file, either, and is no base of paths
        return source not in paths and escaped(source) == source
    return os.path.isdir(source)


def _options(config: ImportConfig, form: str) -> dict[str, str]:
    usual = {"pathGlobFilter": "*"}
    if form == "csv":
        # Rows are held against all columns, and the heading against the schema.
        usual = {"header": "true", "enforceSchema": "false", "columnPruning": "false"}
    if form == "parquet":
        usual = {"mergeSchema": "true"}
    kept = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD} if form != "parquet" else {}
    return {**usual, **config.options, **kept}


def _records(
    rows: DataFrame, columns: list[str], config: ImportConfig, form: str
) -> dict[str, Column]:
    if not columns:
        return {"value": F.lit(None).cast("string")}
    types = {field.name: field.dataType for field in rows.schema.fields}
    made: dict[str, Column] = {}
    if config.value is None:
        chosen = [expected(name, columns) for name in config.columns or columns]
        members = F.struct(*(F.col(_quoted(name)) for name in chosen))
        made["value"] = F.to_json(members, {"ignoreNullFields": "false"})
    else:
        _expect_type(config.value, columns, types, "value", (StringType, BinaryType))
        made["value"] = F.col(_quoted(config.value))
    if config.key:
        is_guessed = config.schema is None and form != "parquet"
        for name in config.key:
            _expect_key(expected(name, columns), types[name], is_guessed)
        made["key"] = _key([F.col(_quoted(name)) for name in config.key], types[config.key[0]])
    if config.headers is not None:
        expected(config.headers, columns)
        made["headers"] = F.col(_quoted(config.headers))
    if config.partition is not None:
        name = expected(config.partition, columns)
        made["partition"] = _partition(F.col(_quoted(name)), types[name], name)
    if config.time is not None:
        name = expected(config.time, columns)
        made["timestamp"] = _time(F.col(_quoted(name)), types[name], name)
    return made


def _expect_key(name: str, kind: Any, is_guessed: bool) -> None:
    """Refuse keys that would not be the text of the column's value."""
    if kind.typeName() in ("struct", "array", "map", "variant"):
        raise InvalidArgument(
            f"key={name!r} is {kind.simpleString()}, whose text is no key: name one of its members "
            "as a column of its own, or another column"
        )
    if is_guessed and kind.typeName() in ("double", "float"):
        raise InvalidArgument(
            f"key={name!r} would be read as a double, which rounds numbers, so different keys may "
            f'become one: give a schema=, as "{name} STRING", which keeps their text'
        )


def _key(columns: list[Column], kind: Any) -> Column:
    if len(columns) > 1:
        return F.to_json(F.array(*(column.cast("string") for column in columns)))
    whole = isinstance(kind, StringType | BinaryType)
    return columns[0] if whole else columns[0].cast("string")


def _partition(column: Column, kind: Any, name: str) -> Column:
    """Read numbers of partitions; null for what is none."""
    if kind.typeName() not in ("byte", "short", "integer", "long", "string", "void"):
        raise InvalidArgument(
            f"the column {name} is {kind.simpleString()}, which is no number of a partition: give "
            "whole numbers, or leave partition= away"
        )
    number = column.try_cast("int")
    is_whole = column.cast("string").rlike(r"^\s*\d+\s*$")
    return F.when(is_whole, number)


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


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def file_of(uri: str) -> str:
    """Turn Spark's name of a file into its path."""
    return unquote(uri) if is_remote(uri) else unquote(urlparse(uri).path)
