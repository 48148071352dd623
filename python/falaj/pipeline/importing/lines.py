"""Files of JSON, where every byte counts.

Owns the search for text that Spark would drop. Its reader stops after the first value of a line, or
of a file over several lines, and ignores the rest. Here such text is read again, between brackets
and before a mark, as `{"x":[TEXT, "x"]}`, where `x` is a name that no file can know. So what
follows the first value breaks this text, or adds an element. Also, the reader makes `?` of an
escape from D800 to DFFF that stands alone, which is half a character.

Files with such text are then read line by line, where only lines with it are malformed. The reader
cannot leave out a line.

Also owns which numbers JSON lacks: Spark makes `Infinity` of a number that no double reaches.
"""

from __future__ import annotations

import codecs
import uuid
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from falaj.errors import InvalidArgument
from falaj.pipeline.importing.remote import escaped, is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

__all__ = [
    "BLOCK",
    "FILE",
    "LINE",
    "WHOLE",
    "apart",
    "decoded",
    "file_of",
    "is_multiline",
    "placed",
    "quoted",
    "read",
    "text",
    "unreached",
]

WHOLE = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Options that keep Spark from leaving out files or parts of them, whatever the session says."""
FILE, BLOCK = "_falaj_file", "_falaj_block"
"""Columns with the file of a row, as Spark writes its name, and where in it Spark began to read."""
LINE = "_falaj_line"
"""The column with a line, decoded; null where it is not of its encoding."""
_RAW, _VALUES, _VALUE = (f"_falaj_{name}" for name in ("raw", "values", "value"))
_OF_TEXT = {"linesep": "lineSep", "encoding": "encoding", "charset": "encoding"}
_ARRAY = r"^\s*\["
_SUSPECT = r"[}\]]\s*\S|\\u[dD][89a-fA-F]"
"""A closing bracket has text behind it wherever a second value is: few lines of flat objects."""
_BACKSLASH_OR_PAIR = r"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F].."


def text(
    spark: SparkSession, paths: Sequence[str], schema: StructType | None = None, **options: str
) -> DataFrame:
    """Read lines of files, in a column `value`, or as the schema names it."""
    reader = spark.read.options(pathGlobFilter="*", **WHOLE, **options)
    reader = reader if schema is None else reader.schema(schema)
    return reader.format("text").load(list(map(escaped, paths)))


def is_multiline(options: Mapping[str, str]) -> bool:
    """Tell whether a file is one value of JSON, over several lines."""
    named = {name.lower(): str(value).lower() for name, value in options.items()}
    return named.get("multiline") == "true"


def placed(frame: DataFrame) -> DataFrame:
    """Add the columns `FILE` and `BLOCK` to rows of files."""
    file, block = (f"_metadata.{name}" for name in ("file_path", "file_block_start"))
    return frame.select("*", F.col(file).alias(FILE), F.col(block).alias(BLOCK))


def read(
    spark: SparkSession,
    paths: Sequence[str],
    options: Mapping[str, str],
    schema: StructType,
    reader: Callable[[Sequence[str]], DataFrame],
    *,
    bad: str,
    base: str | None = None,
    folders: Sequence[str] = (),
) -> DataFrame:
    """Read files as Spark's reader does, but lines that it would not read whole are malformed.

    Args:
        spark: The session.
        paths: The files.
        options: Options of Spark's reader of JSON.
        schema: The columns.
        reader: Reads files by Spark's reader, with `schema` and `bad`.
        bad: The column for lines that are malformed. It has their text.
        base: The folder below which folders `name=value` are columns.
        folders: Names of those columns.

    Returns:
        The columns, `bad`, `FILE` and `BLOCK`.
    """
    torn = _torn(spark, paths, options)
    whole = [path for path in paths if path not in torn]
    rows = [placed(reader(whole))] if whole else []
    if some := [path for path in paths if path in torn]:
        rows.append(_by_lines(spark, some, options, schema, bad, base, folders))
    return rows[0] if len(rows) == 1 else rows[0].unionByName(rows[1])


def _torn(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> set[str]:
    """Find files with text that Spark would drop or alter."""
    of_text, of_json = apart(options)
    found = decoded(spark, paths, of_text).where(F.col(LINE).rlike(_SUSPECT))
    found = found.where(_is_lossy(of_json)).select(FILE).distinct()
    return {file_of(row[0]) for row in found.collect()}


def _by_lines(
    spark: SparkSession,
    paths: Sequence[str],
    options: Mapping[str, str],
    schema: StructType,
    bad: str,
    base: str | None,
    folders: Sequence[str],
) -> DataFrame:
    of_text, of_json = apart(options)
    outer = StructType([each for each in schema if each.name in folders])
    inner = StructType([each for each in schema if each.name not in folders])
    if base is not None:
        of_text["basePath"] = base
    rows = decoded(spark, paths, of_text, outer)
    rows = rows.where(F.col(LINE).isNull() | F.col(LINE).rlike(r"\S"))
    is_whole = F.is_valid_utf8(LINE) & ~F.coalesce(_is_lossy(of_json), F.lit(False))
    rows = rows.withColumn(_VALUES, F.when(is_whole, _values(inner, of_json, bad)))
    # As Spark's reader has it, an array without values is no row.
    rows = rows.where(F.col(_VALUES).isNull() | (F.size(_VALUES) > 0))
    rows = rows.withColumn(_VALUE, F.explode_outer(_VALUES))
    members = [F.col(_VALUE).getField(each.name).alias(each.name) for each in inner]
    malformed = F.when(F.col(_VALUES).isNull(), F.coalesce(LINE, _RAW)).alias(bad)
    return rows.select(*members, *(quoted(each.name) for each in outer), malformed, FILE, BLOCK)


def _values(schema: StructType, options: Mapping[str, str], bad: str) -> Column:
    """Read the objects of a line, which may be an array of them; null if one is malformed."""
    whole = StructType([*schema, StructField(bad, StringType())])
    given = {**options, "columnNameOfCorruptRecord": bad}
    texts = F.from_json(LINE, ArrayType(StringType()), options)
    texts = F.when(F.col(LINE).rlike(_ARRAY), texts).otherwise(F.array(LINE))
    values = F.transform(texts, lambda each: F.from_json(each, whole, given))
    is_bad = F.exists(values, lambda each: each.isNull() | each.getField(bad).isNotNull())
    return F.when(~is_bad, values)


def apart(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Part options into those that find lines, and those that read them."""
    of_json = dict(options)
    names = [name for name in options if name.lower() in _OF_TEXT]
    of_text = {_OF_TEXT[name.lower()]: of_json.pop(name) for name in names}
    if is_multiline(options):
        of_text = {"wholetext": "true", "encoding": of_text.get("encoding", "utf-8")}
    return of_text, {**of_json, "mode": "PERMISSIVE"}


def decoded(
    spark: SparkSession,
    paths: Sequence[str],
    options: Mapping[str, str],
    folders: StructType | None = None,
) -> DataFrame:
    """Read lines, or whole files, as they are, decoded, and with the columns of folders."""
    schema = StructType([StructField(_RAW, StringType()), *(folders or ())])
    rows = text(spark, paths, schema, **options)
    line = _decoded(options.get("encoding"))
    return placed(rows).withColumn(LINE, line)


def _is_lossy(options: Mapping[str, str]) -> Column:
    """Tell whether Spark would read a line, and drop or alter text of it; or null."""
    mark = f"falaj{uuid.uuid4().hex}"
    wrapped = F.concat(F.lit(f'{{"{mark}":['), F.col(LINE), F.lit(f'\n,"{mark}"]}}'))
    array = StructType([StructField(mark, ArrayType(StringType()))])
    bad = f"{mark}_bad"
    first = StructType([StructField(bad, StringType())])
    given = {**options, "columnNameOfCorruptRecord": bad}
    elements = F.from_json(wrapped, array, given).getField(mark)
    is_one = (F.size(elements) == 2) & (F.get(elements, F.lit(1)) == mark)
    is_object = F.from_json(LINE, first, given).getField(bad).isNull()
    is_array = F.from_json(LINE, ArrayType(StringType()), given).isNotNull()
    is_read = F.when(F.col(LINE).rlike(_ARRAY), is_array).otherwise(is_object)
    escapes = F.regexp_replace(LINE, _BACKSLASH_OR_PAIR, "")
    has_half = escapes.rlike(r"\\u[dD][89a-fA-F]")
    return (has_half | ~F.coalesce(is_one, F.lit(False))) & is_read


def _decoded(encoding: str | None) -> Column:
    """Decode a line; null if it is not of this encoding."""
    if encoding is None or encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        return F.col(_RAW)
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise InvalidArgument(
            f"options name the encoding {encoding!r}, which Python does not know: write it as "
            "Python does, as utf-16 or cp1252"
        ) from None

    # A function without types: Spark would take them for those of Arrow.
    decode = F.udf(lambda line: _text_of(line, encoding), "string")
    return decode(F.col(_RAW).cast("binary"))


def _text_of(line: bytes | None, encoding: str) -> str | None:
    if line is None:
        return None
    try:
        return bytes(line).decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None


def file_of(uri: str) -> str:
    """Turn Spark's name of a file into its path."""
    return unquote(uri) if is_remote(uri) else unquote(urlparse(uri).path)


def unreached(value: Column, kind: DataType) -> Column | None:
    """Tell whether a value has a number, at any depth, that is none of JSON: `Infinity` or `NaN`.

    Args:
        value: The value.
        kind: Its type.

    Returns:
        True, false or null; or None if the type has no such number.
    """
    if isinstance(kind, DoubleType | FloatType):
        return F.isnan(value) | (F.abs(value) == float("inf"))
    if isinstance(kind, StructType):
        inner = [unreached(value.getField(each.name), each.dataType) for each in kind.fields]
        found = [F.coalesce(each, F.lit(False)) for each in inner if each is not None]
        return reduce(or_, found) if found else None
    if isinstance(kind, ArrayType):
        return _any(value, kind.elementType)
    if isinstance(kind, MapType):
        return _any(F.map_values(value), kind.valueType)
    return None


def _any(values: Column, kind: DataType) -> Column | None:
    if unreached(F.lit(None), kind) is None:
        return None

    def test(each: Column) -> Column:
        found = unreached(each, kind)
        return F.lit(False) if found is None else F.coalesce(found, F.lit(False))

    return F.exists(values, test)


def quoted(name: str) -> str:
    """Write the name of a column as SQL."""
    return "`" + name.replace("`", "``") + "`"
