"""Files of JSON, where every byte counts.

Owns the search for text that Spark would drop. Its reader stops after the first value of a line, or
of a file over several lines, and ignores the rest. Here such text is read again, between brackets
and before a mark, as `{"x":[TEXT, "x"]}`, where `x` is a name that no file can know. So what
follows the first value breaks this text, or adds an element.

Also owns which numbers JSON lacks: Spark makes `Infinity` of a number that no double reaches.
"""

from __future__ import annotations

import codecs
import uuid
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

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
from falaj.pipeline.importing.remote import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

__all__ = ["WHOLE", "Cut", "cut", "is_multiline", "quoted", "text", "unreached"]

WHOLE = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Options that keep Spark from leaving out files or parts of them, whatever the session says."""
_LINE = "_falaj_line"
_SHOWN = 200
_OF_TEXT = {"linesep": "lineSep", "encoding": "encoding", "charset": "encoding"}


def text(spark: SparkSession, paths: Sequence[str], **options: str) -> DataFrame:
    """Read lines of files, in a column `value`."""
    reader = spark.read.options(pathGlobFilter="*", **WHOLE, **options)
    return reader.format("text").load(list(map(escaped, paths)))


def is_multiline(options: Mapping[str, str]) -> bool:
    """Tell whether a file is one value of JSON, over several lines."""
    named = {name.lower(): str(value).lower() for name, value in options.items()}
    return named.get("multiline") == "true"


@dataclass(frozen=True)
class Cut:
    """A file with text that Spark would drop.

    Attributes:
        path: The file, as Spark names it.
        count: How many of its lines have more than one value; 1 for a file over several lines.
        text: The beginning of one of them.
    """

    path: str
    count: int
    text: str


def cut(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str] | None = None
) -> list[Cut]:
    """Find files where Spark would read a value, and drop the text that follows it.

    Args:
        spark: The session.
        paths: The files.
        options: Options of Spark's reader of JSON.
    """
    given = dict(options or {})
    of_text = {
        _OF_TEXT[name.lower()]: given.pop(name) for name in [*given] if name.lower() in _OF_TEXT
    }
    line = _decoded(of_text.get("encoding"))
    if is_multiline(given):
        of_text = {"wholetext": "true"}
    whole = text(spark, paths, **of_text).withColumnRenamed("value", _LINE)
    # A closing bracket has text behind it wherever a second value is: few lines of flat objects.
    some = whole.select(_LINE, F.col("_metadata.file_path").alias("path"), line.alias("line"))
    some = some.where(F.col("line").rlike(r"[}\]]\s*\S"))
    mark = f"falaj{uuid.uuid4().hex}"
    wrapped = F.concat(F.lit(f'{{"{mark}":['), F.col("line"), F.lit(f'\n,"{mark}"]}}'))
    array = StructType([StructField(mark, ArrayType(StringType()))])
    bad = f"{mark}_bad"
    first = StructType([StructField(bad, StringType())])
    given |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": bad}
    elements = F.from_json(wrapped, array, given).getField(mark)
    is_one = (F.size(elements) == 2) & (F.get(elements, F.lit(1)) == mark)
    is_object = F.from_json("line", first, given).getField(bad).isNull()
    is_array = F.col("line").rlike(r"^\s*\[")
    is_read = F.when(
        is_array, F.from_json("line", ArrayType(StringType()), given).isNotNull()
    ).otherwise(is_object)
    lost = some.where(~F.coalesce(is_one, F.lit(False)) & is_read)
    found = lost.groupBy("path").agg(F.count("*"), F.min(F.substring("line", 1, _SHOWN)))
    return sorted((Cut(*row) for row in found.collect()), key=lambda each: each.path)


def _decoded(encoding: str | None) -> Column:
    """Decode a line; null if it is not of this encoding."""
    if encoding is None or encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        return F.col(_LINE)
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise InvalidArgument(
            f"options name the encoding {encoding!r}, which Python does not know: write it as "
            "Python does, as utf-16 or cp1252"
        ) from None

    # A function without types: Spark would take them for those of Arrow.
    decode = F.udf(lambda line: _text_of(line, encoding), "string")
    return decode(F.col(_LINE).cast("binary"))


def _text_of(line: bytes | None, encoding: str) -> str | None:
    if line is None:
        return None
    try:
        return bytes(line).decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None


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
