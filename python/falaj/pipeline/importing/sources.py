"""The files of an import, and their rows as a frame of records.

Owns the list of files, sorted by name, how names decide the format, and how a row becomes value,
key, headers, partition and time. A malformed row has no value, but its text and its file.
`importing` decides what happens to it.
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it
from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from falaj.errors import InvalidArgument, PermissionDenied
from falaj.pipeline.base.frame import struct_of
from falaj.pipeline.importing import remote
from falaj.pipeline.importing.ledgers import SourceFile
from falaj.pipeline.importing.remote import escaped, is_remote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from falaj.pipeline.importing.run import ImportConfig

__all__ = [
    "BAD",
    "FILE",
    "expected",
    "file_of",
    "form_of",
    "frame",
    "listed",
    "local",
    "look",
    "names_in",
]

BAD, FILE = "_falaj_bad", "_falaj_file"
_BLOCK, _ROW = "_falaj_block", "_falaj_row"
_SUFFIXES = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv",),
    "json": (".json", ".jsonl", ".ndjson"),
}
_PACKED = (".gz", ".bz2", ".zst", ".xz", ".snappy", ".lz4", ".deflate")
_NAMED_MAX = 5


def listed(spark: SparkSession, source: Iterable[str]) -> list[SourceFile]:
    """Find the files, sorted by path.

    Args:
        spark: The session, which lists the files behind URLs.
        source: Files, folders and patterns; a folder stands for all files in it. Like Spark, it
            skips names in a folder that begin with `_` or `.`. Such a file is not complete yet, or
            only describes the others.

    Returns:
        The files, each once.

    Raises:
        InvalidArgument: A name matches no file.
    """
    given = list(source)
    here = local([each for each in given if not is_remote(each)])
    there = remote.listed(spark, [each for each in given if is_remote(each)])
    return sorted([*map(_look, here), *there], key=lambda file: file.path)


def look(spark: SparkSession, files: Iterable[SourceFile]) -> list[SourceFile]:
    """Examine files again, in the order of the argument."""
    paths = [file.path for file in files]
    there = remote.listed(spark, map(escaped, filter(is_remote, paths)))
    behind = {file.path: file for file in there}
    return [behind[path] if is_remote(path) else _look(path) for path in paths]


def local(source: Iterable[str]) -> list[str]:
    """Find files on this machine, each once, sorted by path.

    Raises:
        InvalidArgument: A name matches no file.
    """
    found: set[str] = set()
    for given in source:
        at = os.path.abspath(given)
        if os.path.isdir(at):
            found.update(_below(Path(at)))
        elif os.path.exists(at):
            found.add(at)
        else:
            matches = [path for path in glob.glob(at, recursive=True) if os.path.isfile(path)]
            if not matches:
                raise InvalidArgument(f"there is no file {given}: give files, folders or patterns")
            found.update(matches)
    return sorted(found)


def names_in(path: str) -> list[str]:
    """Name the columns of a Parquet file, and those of its folders, `name=value`.

    Returns:
        The names; none if the file cannot be read, and Spark will report why.
    """
    from pyarrow import ArrowException, parquet

    try:
        return [*parquet.read_schema(path).names, *re.findall(r"([^/=]+)=[^/]*/", path)]
    except (ArrowException, OSError):
        return []


def _below(folder: Path) -> Iterable[str]:
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] not in "_."]
        yield from (os.path.join(at, name) for name in names if name[0] not in "_.")


def _look(path: str) -> SourceFile:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise InvalidArgument(
            f"{path} is gone while it was to be imported: run the import again"
        ) from None
    except PermissionError as error:
        raise PermissionDenied(f"{path}: {error.strerror}: let this user read it") from None
    return SourceFile(path=path, size=found.st_size, mtime_ns=found.st_mtime_ns)


def form_of(paths: Sequence[str]) -> str:
    """Find the format of files by their names.

    Raises:
        InvalidArgument: A name shows no known format, or the files have several formats.
    """
    forms = {path: _form(path) for path in paths}
    strange = [path for path, form in forms.items() if form is None]
    if strange:
        raise InvalidArgument(
            f"{_some(strange)}: is no Parquet, CSV or JSON by its name: say which with format="
        )
    several = sorted({form for form in forms.values() if form})
    if len(several) > 1:
        raise InvalidArgument(
            f"the files are {' and '.join(several)}: import each format by itself"
        )
    return several[0]


def _form(path: str) -> str | None:
    name = path.lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return next((form for form, ends in _SUFFIXES.items() if name.endswith(ends)), None)


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED_MAX} more" if len(paths) > _NAMED_MAX else ""
    return ", ".join(paths[:_NAMED_MAX]) + more


# --- Rows ----------------------------------------------------------------------------------------


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
    bad = F.col(BAD) if form != "parquet" else F.lit(None).cast("string")
    made = _records(lazy, columns, config)
    if config.time is not None:
        text = F.to_json(F.struct(*(F.col(_quoted(name)) for name in columns)))
        unread = made["timestamp"].isNull() & F.col(_quoted(config.time)).isNotNull()
        bad = F.coalesce(bad, F.when(unread, text))
    chosen = [column.alias(name) for name, column in made.items()]
    order = [F.col(_quoted(expected(name, columns))) for name in config.order_by]
    return lazy.orderBy(*order, FILE, _BLOCK, _ROW).select(*chosen, bad.alias(BAD), FILE)


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


def _records(rows: DataFrame, columns: list[str], config: ImportConfig) -> dict[str, Column]:
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
        for name in config.key:
            expected(name, columns)
        made["key"] = _key([F.col(_quoted(name)) for name in config.key], types[config.key[0]])
    if config.headers is not None:
        expected(config.headers, columns)
        made["headers"] = F.col(_quoted(config.headers))
    if config.partition is not None:
        expected(config.partition, columns)
        made["partition"] = F.col(_quoted(config.partition)).cast("int")
    if config.time is not None:
        expected(config.time, columns)
        made["timestamp"] = _time(F.col(_quoted(config.time)), types[config.time], config.time)
    return made


def _key(columns: list[Column], kind: Any) -> Column:
    if len(columns) > 1:
        return F.to_json(F.array(*(column.cast("string") for column in columns)))
    whole = isinstance(kind, StringType | BinaryType)
    return columns[0] if whole else columns[0].cast("string")


def _time(column: Column, kind: Any, name: str) -> Column:
    if isinstance(kind, TimestampType):
        return column
    if kind.typeName() in ("date", "timestamp_ntz", "string"):
        return column.try_cast("timestamp")
    raise InvalidArgument(
        f"the column {name} is {kind.simpleString()}, which is no time: give a timestamp, a date "
        "or text, or leave time= away"
    )


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
