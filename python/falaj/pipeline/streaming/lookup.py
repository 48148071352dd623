"""The table that records are enriched from: files, or the last value of each key in a topic.

Owns how such a table is read, and when. A job reads it when it begins, and keeps it. With `reload`
the job looks before each batch whether the source changed, and then reads the table again. The
source is the names, sizes and times of files, or the ends of a topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

import falaj
from falaj.errors import InvalidArgument
from falaj.pipeline.base.frame import sentence
from falaj.pipeline.importing import remote
from falaj.pipeline.streaming.flow import RECORD, whole_rows
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMATS", "Lookup", "Source", "expect", "files", "latest"]

Format = Literal["parquet", "csv", "json"]

FORMATS: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
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
    """

    path: Path | str | None = None
    store: Path | None = None
    topic: str | None = None
    schema: str | None = None
    columns: tuple[str, ...] = ()
    null: str = ""

    def read(self, spark: SparkSession) -> DataFrame:
        """Read the table as it is now.

        Raises:
            InvalidArgument: There is none, or Spark does not take the columns.
        """
        if self.path is not None:
            return files(spark, self.path, self.columns, null=self.null)
        assert self.store is not None
        assert self.topic is not None
        return latest(spark, self.store, self.topic, self.schema, self.columns)

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
    """

    spark: SparkSession
    source: Source
    reload: bool
    loads: int = 0
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
        self._frame = self.source.read(self.spark).localCheckpoint()
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
        InvalidArgument: There is none, or Spark does not take the columns.
    """
    if isinstance(path, str):
        found = [file.path for file in remote.listed(spark, [path])]
    else:
        found = [str(file) for file in _files(path)]
    kind = _kind(path, found)
    reader = spark.read.format(kind)
    if kind == "csv":
        reader = reader.options(header="true", nullValue=null)
    try:
        frame = reader.load(list(map(remote.escaped, found)))
        return frame.selectExpr(*columns) if columns else frame
    except AnalysisException as error:
        raise InvalidArgument(f"Spark does not read the table {path}: {sentence(error)}") from None


def latest(
    spark: SparkSession, store: Path, topic: str, schema: str | None, columns: tuple[str, ...] = ()
) -> DataFrame:
    """Read a topic as a table: the last value of each key, without keys that end in a tombstone.

    Args:
        spark: The session.
        store: Directory of the store.
        topic: The topic.
        schema: Fields of its values; None for text in a column `value`.
        columns: SQL and names of the columns, which may use `record`; empty for the fields.

    Returns:
        The table.

    Raises:
        InvalidArgument: Spark does not take the columns.
    """
    options = {
        "store": str(store),
        "subscribe": topic,
        "values": "string" if schema is None else "json",
    }
    kept = whole_rows(spark.read, options, schema).where(f"{RECORD}.key IS NOT NULL")
    # The order within a partition is that of offsets; a key that is in several has a last in each.
    lane = kept.groupBy(f"{RECORD}.key", f"{RECORD}.partition")
    last = lane.agg(F.max_by(F.struct("*"), f"{RECORD}.offset").alias("row")).select("row.*")
    moment = F.struct(f"{RECORD}.timestamp", f"{RECORD}.partition")
    last = last.groupBy(f"{RECORD}.key").agg(F.max_by(F.struct("*"), moment).alias("row"))
    there = last.select("row.*").where("value IS NOT NULL")
    fields = there.select("value" if schema is None else "value.*", RECORD)
    try:
        return fields.selectExpr(*columns) if columns else fields.drop(RECORD)
    except AnalysisException as error:
        raise InvalidArgument(
            f"Spark does not take the columns of the table {topic}: {sentence(error)}"
        ) from None


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
        InvalidArgument: There are none.
    """
    if path.is_file():
        return [path]
    found = sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and not any(p[0] in "_." for p in file.relative_to(path).parts)
    )
    if not found:
        raise InvalidArgument(
            f"{path} is no table: there is no file; give a file or a folder of files"
        )
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
