"""The table that records are enriched from: files, or the last value of each key in a topic.

Owns how such a table is read, and when. A job reads it when it begins, and keeps it. With `reload`
the job looks before each batch whether the source changed, and then reads the table again. The
source is the names, sizes and times of files, or the ends of a topic.

Invariant: a row that cannot be read fails the read, or is left out and reported. It is never a row
of nulls, and no column of Spark's for such rows gets into the table.
"""

from __future__ import annotations

import logging
import operator
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it
from pyspark.sql.types import StringType, StructField, StructType

import falaj
from falaj.errors import InvalidArgument
from falaj.pipeline.base import bad
from falaj.pipeline.base.documents import document
from falaj.pipeline.base.frame import sentence
from falaj.pipeline.importing import lines, quotes, remote
from falaj.pipeline.importing.sources import expect_readable
from falaj.pipeline.streaming.flow import BAD, RECORD, whole_rows
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["FORMATS", "Lookup", "Source", "expect", "files"]

logger = logging.getLogger("falaj.pipeline")

Format = Literal["parquet", "csv", "json"]

FORMATS: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_BYTES = "ISO-8859-1"
"""The character set in which each byte is a character: so text that is not UTF-8 is noticed."""
_NAMED_MAX = 300
_PACKED = (".gz", ".bz2", ".zst")


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a table: `path`, or `topic` in `store`.

    Attributes:
        path: A file, or a folder of files of one format; text for a URL that Spark reads.
        store: Directory of the store.
        topic: The topic.
        schema: Fields of the values in the topic.
        columns: SQL and names of the table's columns; empty for all.
        null: The text for a missing value in CSV.
        fails: Whether a row that cannot be read is an error; else it is left out and reported.
        on_corrupt: Whether a corrupt record of the topic is an error, "fail", or left out, "skip".
    """

    path: Path | str | None = None
    store: Path | None = None
    topic: str | None = None
    schema: str | None = None
    columns: tuple[str, ...] = ()
    null: str = ""
    fails: bool = True
    on_corrupt: str = "fail"

    def read(self, spark: SparkSession, tell: Callable[[str], object]) -> DataFrame:
        """Read the table as it is now.

        Args:
            spark: The session.
            tell: Called with a sentence about rows that are left out.

        Raises:
            InvalidArgument: There is none, Spark does not take the columns, or a row cannot be
                read.
        """
        frame = self._last(spark) if self.path is None else _rows(spark, self.path, self.null)
        name = f"{self.path or self.topic}"
        if BAD in frame.columns:
            frame = _good(frame, name, self.fails, tell)
        try:
            if self.columns:
                return frame.selectExpr(*self.columns)
        except AnalysisException as error:
            raise InvalidArgument(
                f"Spark does not take the columns of the table {name}: {sentence(error)}"
            ) from None
        return frame.drop(RECORD) if self.topic is not None else frame

    def _last(self, spark: SparkSession) -> DataFrame:
        """Read the last value of each key, without keys that end in a tombstone; `record` too."""
        options = {"store": str(self.store), "subscribe": str(self.topic)}
        options |= {"onCorrupt": self.on_corrupt, **bad.options(self.schema)}
        kept = whole_rows(spark.read, options, self.schema, marked=True)
        kept = kept.where(f"{RECORD}.key IS NOT NULL")
        # The order within a partition is that of offsets; a key in several has a last in each.
        lane = kept.groupBy(f"{RECORD}.key", f"{RECORD}.partition")
        last = lane.agg(F.max_by(F.struct("*"), f"{RECORD}.offset").alias("row")).select("row.*")
        moment = F.struct(f"{RECORD}.timestamp", f"{RECORD}.partition")
        last = last.groupBy(f"{RECORD}.key").agg(F.max_by(F.struct("*"), moment).alias("row"))
        place = F.format_string(
            "offset %d of partition %d", F.col(f"{RECORD}.offset"), F.col(f"{RECORD}.partition")
        )
        there = last.select("row.*").where("value IS NOT NULL")
        values = "value" if self.schema is None else "value.*"
        return there.select(values, RECORD, F.when(F.col(BAD), place).alias(BAD))

    def state(self, spark: SparkSession) -> object:
        """Describe the current state of the source; another answer means another table."""
        if isinstance(self.path, str):
            return remote.listed(spark, [self.path])
        if self.path is not None:
            found = [(str(file), file.stat()) for file in _files(self.path)]
            return [(name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in found]
        assert self.store is not None
        assert self.topic is not None
        with falaj.open(self.store, read_only=True) as store, open_raw(store, self.topic) as topic:
            return topic.generation, [
                (part.start_offset, part.end_offset) for part in topic._parts()
            ]


@dataclass(slots=True)
class Lookup:
    """A table that a job uses.

    Attributes:
        spark: The session.
        source: The source of the table.
        reload: Whether to read it again when it changed.
        loads: How often it was read.
        notes: What was reported about the table that is used: rows that were left out.
    """

    spark: SparkSession
    source: Source
    reload: bool
    loads: int = 0
    notes: tuple[str, ...] = ()
    _state: object = None
    _frame: DataFrame | None = field(default=None)

    def now(self) -> DataFrame:
        """Return the table as it was when it was read, or with `reload` as it is now."""
        if self._frame is not None and not (
            self.reload and self.source.state(self.spark) != self._state
        ):
            return self._frame
        # Before it is read: what changes meanwhile is seen next time.
        self._state = self.source.state(self.spark)
        # It reads everything now, since files may change. A cached table would not do: Spark shares
        # it with other readers of the same files. It reads it again when one of them frees it, or
        # when memory is short.
        notes: list[str] = []
        self._frame = self.source.read(self.spark, notes.append).localCheckpoint()
        for note in notes:
            logger.warning("%s", note)
        self.notes = tuple(notes)
        self.loads += 1
        return self._frame

    def close(self) -> None:
        """Drop the table; Spark frees it when nothing refers to it any more."""
        self._frame = None


def files(
    spark: SparkSession, path: Path | str, columns: tuple[str, ...] = (), *, null: str = ""
) -> DataFrame:
    """Read a table from Parquet, CSV or JSON files.

    Args:
        spark: The session.
        path: A file, or a folder of files of one format, which their suffix shows; text for a URL.
        columns: SQL and names of the columns; empty for all. Columns of CSV are text.
        null: What stands for a missing value in CSV.

    Returns:
        The table.

    Raises:
        InvalidArgument: There is none, Spark does not take the columns, or a row cannot be read.
    """
    return Source(path=path, columns=columns, null=null).read(spark, logger.warning)


def _rows(spark: SparkSession, path: Path | str, null: str) -> DataFrame:
    """Read files; a column `falaj_bad` names rows that cannot be read, where there may be some."""
    if isinstance(path, str):
        found = [file.path for file in remote.listed(spark, [path])]
    else:
        found = [str(file) for file in _files(path)]
    kind = _kind(path, found)
    names = list(map(remote.escaped, found))
    try:
        if kind == "parquet":
            return spark.read.options(**lines.WHOLE).parquet(*names)
        if kind == "csv":
            quotes.expect_matching(spark, found, {}, f"the table {path}")
        frame = _csv(spark, names, null) if kind == "csv" else _json(spark, found)
    except AnalysisException as error:
        raise InvalidArgument(f"Spark does not read the table {path}: {sentence(error)}") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"the heading of the table {path} is not UTF-8") from None
    if not frame.columns:
        what = "a heading" if kind == "csv" else "a row"
        raise InvalidArgument(f"the table {path} is empty: give it {what}, which names its columns")
    return frame


def _csv(spark: SparkSession, names: list[str], null: str) -> DataFrame:
    null = null.encode().decode(_BYTES)
    reader = spark.read.options(header="true", nullValue=null, encoding=_BYTES, **lines.WHOLE)
    reader = reader.options(**quotes.reader_options({}))
    frame = reader.csv(names)
    read = frame.columns
    if not read:
        return frame
    fields = [StructField(name, StringType()) for name in (*read, BAD)]
    reader = reader.schema(StructType(fields)).option("columnNameOfCorruptRecord", BAD)
    frame = reader.csv(names)
    columns = [_utf8(name) for name in read]
    wrong = reduce(operator.or_, (~F.is_valid_utf8(column) for column in columns))
    text = F.concat_ws(",", *columns)  # at least one is not null where a row is not UTF-8
    shown = F.coalesce(_utf8(BAD), F.when(wrong, text))
    return frame.select(
        *(
            column.alias(name.encode(_BYTES).decode().removeprefix("\ufeff"))
            for name, column in zip(read, columns, strict=True)
        ),
        _placed(shown, F.input_file_name()).alias(BAD),
    )


def _utf8(name: str) -> Column:
    return F.encode(F.col(f"`{name.replace('`', '``')}`"), _BYTES).cast("string")


def _json(spark: SparkSession, paths: list[str]) -> DataFrame:
    reader = spark.read.options(columnNameOfCorruptRecord=BAD, **lines.WHOLE)
    plain = list(map(remote.escaped, paths))
    guessed = reader.json(plain).schema
    names = [each.name for each in guessed.fields if each.name != BAD]
    if not guessed.fields:
        return reader.json(plain)
    if not names:
        raise InvalidArgument(f"no row of the table {paths[0]} is JSON")
    kinds = StructType([each for each in guessed.fields if each.name != BAD])
    typed = reader.schema(StructType([*kinds, StructField(BAD, StringType())]))

    def by(some: Sequence[str]) -> DataFrame:
        return typed.json(list(map(remote.escaped, some)))

    frame = lines.read(spark, paths, {}, kinds, by, bad=BAD)
    tests = [lines.unreached(F.col(lines.quoted(each.name)), each.dataType) for each in kinds]
    wrong = [F.coalesce(each, F.lit(False)) for each in tests if each is not None]
    shown = F.col(BAD)
    if wrong:
        text = document(F.col(lines.quoted(name)) for name in names)
        shown = F.coalesce(shown, F.when(reduce(operator.or_, wrong), text))
    frame = frame.withColumn(BAD, _placed(shown, F.col(lines.FILE)))
    return frame.drop(lines.FILE, lines.BLOCK)


def _placed(text: Column, file: Column) -> Column:
    return F.when(text.isNotNull(), F.concat_ws(": ", file, text))


def _good(frame: DataFrame, name: str, fails: bool, tell: Callable[[str], object]) -> DataFrame:
    """Leave out the rows that cannot be read, and report them; or raise."""
    frame = frame.localCheckpoint()  # Spark does not read the column of bad rows alone
    wrong = F.col(BAD).isNotNull()
    count, first = frame.agg(F.count_if(wrong), F.min(BAD)).first() or (0, None)
    if count:
        said = (
            f"{count:,} row{'s' if count > 1 else ''} of the table {name} cannot be read, the "
            f"first: {str(first)[:_NAMED_MAX]}"
        )
        if fails:
            raise InvalidArgument(f"{said}; mend it, or leave such rows out with on_bad='skip'")
        tell(f"{said}; they were left out")
    return frame.where(~wrong).drop(BAD)


def expect(path: Path) -> None:
    """Refuse a path that is no table; needs no Spark.

    Raises:
        InvalidArgument: There is no file, or the files have several formats or an unknown one.
    """
    _kind(path, [str(file) for file in _files(path)])


def _kind(path: Path | str, found: list[str]) -> Format:
    kinds = {_format(file) for file in found}
    if len(kinds) > 1:
        raise InvalidArgument(
            f"{path} holds files of several kinds, {', '.join(sorted(kinds))}: name one"
        )
    return kinds.pop()


def _files(path: Path) -> list[Path]:
    """List the files of a table as Spark does: without names that begin with `_` or `.`.

    Raises:
        InvalidArgument: There are none, or Spark cannot read the name of one.
    """
    found = (
        [path]
        if path.is_file()
        else sorted(
            file
            for file in path.rglob("*")
            if file.is_file() and not any(p[0] in "_." for p in file.relative_to(path).parts)
        )
    )
    if not found:
        raise InvalidArgument(
            f"{path} is no table: there is no file; give a file or a folder of files"
        )
    for file in found:
        expect_readable(str(file))
    return found


def _format(file: str) -> Format:
    name = file
    for ending in _PACKED:
        name = name.removesuffix(ending)
    kind = FORMATS.get(Path(name).suffix.lower())
    if kind is None:
        raise InvalidArgument(
            f"{file} is no table: its name ends with none of {', '.join(FORMATS)}"
        )
    return kind
