"""`export`: write a topic to files by date, each record once, however often it runs or dies.

Owns which records a run exports: those that came since the run before, as a stream of the connector
finds them. The connector's rules for lost records apply. `folders` owns how a run survives its
death, `pieces` what its tasks write, and `merging` how small files of a date become one.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import falaj
from falaj import arrow
from falaj.errors import InvalidArgument, OffsetOutOfRange
from falaj.pipeline.base import bad, places, steps
from falaj.pipeline.base.frame import Config, Result, cores, watched
from falaj.pipeline.base.spoken import expect_distinct, struct_of
from falaj.pipeline.exporting import lakes, merging
from falaj.pipeline.exporting.folders import Commit, Folder, Plan
from falaj.pipeline.exporting.pieces import Work, date_of_path
from falaj.spark import stores
from falaj.spark.reading import columns, ranges
from falaj.spark.reading.options import ReadOptions
from falaj.spark.streaming import checkpoint
from falaj.spark.streaming.checkpoint import Place, place_of
from falaj.spark.streaming.stream import FalajStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow
    from pyspark.sql import SparkSession

    from falaj.pipeline.base.frame import Progress

__all__ = ["ExportConfig", "ExportResult", "export"]

_CHOICES = "export to another folder, or let it go on from what is there with on_loss='continue'"
_RECORDS_MIN = 100_000
"""Fewest records that are worth a task of their own."""
_TASKS_PER_CORE = 2


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Config):
    """Settings of `export`.

    The first run to a folder fixes the settings from `columns` to `zone`.

    Attributes:
        store: Directory of the store, or the URL of a place.
        origin: With a place, which origin, if it has several.
        topic: Name of the topic.
        into: The folder: empty, missing, or that of an export. All executors must see its file
            system under the same path.
        format: "parquet", "delta" or "iceberg". With "delta" the folder is a Delta table, too; this
            needs the package deltalake. With "iceberg" a table of an Iceberg catalog names the
            files; this needs the package pyiceberg, which knows the catalog. Neither needs a jar.
        table: With "iceberg", the name of the table in the catalog, as "sales.orders".
        catalog: With "iceberg", the name of the catalog in pyiceberg's configuration; None for
            "default".
        columns: The columns to export, of those that `format("falaj")` has.
        values: The form in which to export values: "binary", "string" or "json".
        schema: With "json", the members of `value`, as Spark writes types: `id BIGINT, name
            STRING`.
        date_of: The source of a record's date. With "timestamp" it is the event time, or else the
            time of the append. With "run" it is the time of the export. A name as "value.sold_at"
            is a time or date in the JSON value.
        zone: The time zone of dates, as "Europe/Paris".
        start: Where the first run begins: "earliest", "latest", an offset, or a time.
        end: Where this run ends at the latest: an offset that each partition has, or a time. None
            exports all there is.
        visibility: Which records to export: "durable" ones, which no power failure can take back,
            or all "visible" ones.
        on_loss: What to do if records were removed before their export, or the topic was created
            again: "fail", or "continue" and report it.
        on_corrupt: What to do with corrupt records: "fail", or "skip" and report them.
        on_bad: What to do with values that do not fit `values`: "fail"; "skip" and report them; or
            the name of a topic. That topic then gets each one once and unchanged, with headers that
            name its topic, partition and offset. None: the same as `on_corrupt`.
        compression: The compression of Parquet: "zstd", "snappy", "gzip" or "none".
        file_records: Most records of a file. A run writes one file for each date. A date with more
            records, or more than 64 MB, gets several.
    """

    paths: ClassVar[tuple[str, ...]] = ("store", "into")
    only_reads: ClassVar[bool] = True

    topic: str
    origin: str | None = None
    into: Path | str
    format: Literal["parquet", "delta", "iceberg"] = "parquet"
    table: str | None = None
    catalog: str | None = None
    columns: tuple[str, ...] = ("partition", "offset", "timestamp", "key", "value", "headers")
    values: Literal["binary", "string", "json"] = "binary"
    schema: str | None = None
    date_of: str = "timestamp"
    zone: str = "UTC"
    start: int | str | datetime = "earliest"
    end: int | str | datetime | None = None
    visibility: Literal["durable", "visible"] = "durable"
    on_loss: Literal["fail", "continue"] = "fail"
    on_corrupt: Literal["fail", "skip"] = "fail"
    on_bad: str | None = None
    compression: Literal["zstd", "snappy", "gzip", "none"] = "zstd"
    file_records: int = 1_000_000

    def __post_init__(self) -> None:
        """Check what can be checked without the topic."""
        super().__post_init__()
        lakes.check(self)
        bad.check(self.on_bad, self.topic)
        if isinstance(self.store, str) and bad.topic_of(self.on_bad) is not None:
            raise InvalidArgument(
                f"on_bad is 'fail' or 'skip' here, not a topic: {self.store} is a place, which is "
                "only read"
            )
        if self.origin is not None and not isinstance(self.store, str):
            raise InvalidArgument(
                "origin chooses among the stores that were shipped to a place, such as "
                "s3://bucket/shop; a directory is one store: leave it away"
            )
        if self.values == "binary" and self.on_bad is not None:
            raise InvalidArgument(
                "on_bad is for values='string' or 'json': as bytes no value is bad"
            )
        if not self.columns:
            raise InvalidArgument(f"columns names none: choose from {', '.join(arrow.COLUMNS)}")
        for name in self.columns:
            if self.columns.count(name) > 1:
                raise InvalidArgument(f"columns names {name} twice: leave one away")
            if name not in arrow.COLUMNS:
                raise InvalidArgument(
                    f"a topic has no column {name!r}: choose from {', '.join(arrow.COLUMNS)}"
                )
        if (self.schema is None) == (self.values == "json"):
            raise InvalidArgument(
                "schema goes with values='json', and says what is in it: 'id BIGINT, name STRING'"
            )
        if self.date_of not in ("timestamp", "run") and not self.date_of.startswith("value."):
            raise InvalidArgument(
                f"date_of is 'timestamp', 'run' or a member of JSON as 'value.sold_at', not "
                f"{self.date_of!r}"
            )
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InvalidArgument(
                f"there is no time zone {self.zone!r}: as in 'Europe/Paris'"
            ) from None
        if self.file_records < 1:
            raise InvalidArgument(f"file_records is from 1 up, not {self.file_records}")

    def expect(self) -> None:
        """Check that there is such a topic, and that the folder can be exported to."""
        super().expect()
        with steps.told(Path(self.into)):
            Folder(Path(self.into)).expect()


@dataclass(frozen=True, kw_only=True)
class ExportResult(Result):
    """The result of a run; it is empty if nothing was new.

    `records` is how many records it exported, `bytes` the size of their files.

    Attributes:
        into: The folder.
        number: Number of the newest commit of the folder; 0 if there is none yet.
        files: How many files the run wrote.
        dates: The first and the last date, or None if there is no date.
        partitions: The exported offsets of each partition with new records: the first, and the one
            after the last.
        resumed: Whether it finished a run that had died.
        table: A description of the Delta or Iceberg table; None if there is none.
        bad: How many records were left out because their values do not fit `values`.
        notes: What the run reported: losses, what it left out, members that no record has.
    """

    into: Path
    table: str | None
    number: int
    files: int
    dates: tuple[str, str] | None
    partitions: dict[int, tuple[int, int]]
    resumed: bool
    bad: int
    notes: tuple[str, ...]

    def rows(self) -> list[tuple[str, str]]:
        """Tell it to people."""
        told = [
            ("folder", str(self.into)),
            *([("table", self.table)] if self.table else []),
            ("commit", f"{self.number}{' (gone on with)' if self.resumed else ''}"),
            ("files", f"{self.files:,}"),
            ("dates", " to ".join(self.dates) if self.dates else "-"),
            *([("bad values", f"{self.bad:,}")] if self.bad else []),
        ]
        return [*told, *super().rows(), *(("note", note) for note in self.notes)]


def export(
    spark: SparkSession, config: ExportConfig, *, progress: Progress | None = None
) -> ExportResult:
    """Export the records that came to a topic since the last run.

    Each record is in the committed files once, whatever happens to a run: the next run finishes one
    that was killed. Readers find only files of committed runs among the dates. Right after a commit
    some of its files may still be missing; `read_exported` waits for them. A run takes the time to
    read and write what is new.

    Args:
        spark: The session; its executors must see store and folder.
        config: What to export.
        progress: Learns how far it is.

    Returns:
        What the run exported.

    Raises:
        LockTimeout: Another run exports to the folder.
        SettingsMismatch: Earlier runs to the folder had other settings, or another store.
        OffsetOutOfRange: Records were removed before their export.
        TopicDeleted: The topic was deleted, or created again.
        LogTruncated: The topic's log lost its end, or is an older copy.
        CorruptData: A record, or the folder's own state, is corrupt.
        Error: Store or folder cannot be used.
    """
    began = time.perf_counter()
    with stores.opened(config.store, config.origin) as store:
        _opened(store, config).close()  # before a folder is made for it
        if (kept := bad.topic_of(config.on_bad)) is not None:
            places.expect_target(store, kept)
    folder = Folder(Path(config.into))
    with folder.locked():
        run = _Run(spark, config, folder, progress)
        moved = run.finish_committed()
        run.catch_up()
        commits = run.go_on()
        resumed = moved or bool(commits)
        commits += run.export_new()
    table = run.lake.name if run.lake else None
    return _result(config, folder, commits, resumed, table, time.perf_counter() - began)


class _Run:
    """A run of an export; the caller holds the folder's lock."""

    def __init__(
        self,
        spark: SparkSession,
        config: ExportConfig,
        folder: Folder,
        progress: Progress | None,
    ) -> None:
        self._spark = spark
        self._config = config
        self._folder = folder
        self._progress = progress
        schema = _schema(config)
        expect_distinct(spark, _value_type(config))
        written = StructType([schema[name] for name in config.columns])
        with stores.opened(config.store, config.origin) as store, _opened(store, config) as topic:
            options = _options(config, None if folder.last() else topic)
            store_id = store.id
        self._reader = FalajStreamReader(options, schema, _CHOICES)
        folder.agree(
            {
                "store": store_id,
                "topic": config.topic,
                "columns": list(config.columns),
                "values": config.values,
                "schema": written.jsonValue(),
                "date_of": config.date_of,
                "zone": config.zone,
                "table": _catalogued(config),
            }
        )
        self.lake = lakes.of(config, folder, columns.arrow_schema(written))

    def catch_up(self) -> None:
        """Bring the table to where the folder is, if there is one."""
        if self.lake:
            lakes.catch_up(self.lake, self._folder)

    def finish_committed(self) -> bool:
        """Move on the files of a run that died behind its commit; clear what others left."""
        plan, last = self._folder.plan(), self._folder.last()
        died = plan is not None and last is not None and plan.number == last.number
        if died and last is not None:
            self._folder.publish(last)
            self._keep_bad(last)
        if died or plan is None:
            self._folder.clear()
        return died

    def go_on(self) -> list[Commit]:
        """Finish a run that died before its commit; give it up if its records are gone.

        No reader has seen anything of a run that is given up.
        """
        plan = self._folder.plan()
        if plan is None:
            return []
        if tuple(self._reader.partitions(plan.start, plan.end)) != plan.whole:
            self._folder.clear()
            return []
        return [self._finished(plan)]

    def export_new(self) -> list[Commit]:
        """Export the records since the newest commit; the first run always commits.

        Its commit keeps the offsets that "latest" had then.
        """
        last = self._folder.last()
        start = self._reader.initialOffset() if last is None else last.end
        end = self._bounded(start, self._reader.latestOffset(start))
        whole = tuple(self._reader.partitions(start, end))
        if not whole and last is not None:
            return []
        plan = Plan(
            number=last.number + 1 if last else 1,
            run=secrets.token_hex(8),
            began=datetime.now(UTC).isoformat(),
            start=start,
            end=end,
            whole=whole,
            tasks=tuple(ranges.split(list(whole), self._tasks(sum(map(len, whole))))),
        )
        self._folder.begin(plan)
        return [self._finished(plan)]

    def _finished(self, plan: Plan) -> Commit:
        steps.make_folder(self._folder.staging(plan.run))
        missing = [n for n in range(len(plan.tasks)) if self._folder.kept(plan.run, n) is None]
        if missing:
            run_tasks(self._spark, self._work(plan), missing, self._progress)
        written, said, bad_values = self._folder.written(plan)
        files = merging.merge(
            self._spark,
            self._folder.staging(plan.run),
            written,
            self._config.file_records,
            self._config.compression,
            self._progress,
        )
        said.update(self._reader.loss.told)
        commit = self._folder.commit(plan, files, said, bad_values)
        self._folder.publish(commit)
        self._keep_bad(commit)
        self._folder.clear()
        self.catch_up()
        return commit

    def _keep_bad(self, commit: Commit) -> None:
        """Append the bad values of a commit to their topic, once, if they have one."""
        config, into = self._config, bad.topic_of(self._config.on_bad)
        if into is None or not commit.bad:
            return
        bad.make(config.store, into)
        with stores.opened(config.store, config.origin) as store, _opened(store, config) as topic:
            generation = topic.generation
        # In a topic that was created again since, these offsets are other records.
        whole = [each for each in commit.whole if each.generation == generation]
        bounds = {each.partition: (each.start, each.end) for each in whole}
        token = (f"export-{self._folder.settings()['id']}-bad", commit.number)
        given = (self._spark, config.store, config.topic, config.schema, bounds)
        bad.keep(*given, into=into, token=token)

    def _work(self, plan: Plan) -> Work:
        began = datetime.fromisoformat(plan.began)
        return Work(
            path=self._folder.path,
            folder=self._folder.settings()["id"],
            plan=plan,
            reader=self._reader,
            columns=self._config.columns,
            date_of=self._config.date_of,
            zone=self._config.zone,
            day=began.astimezone(ZoneInfo(self._config.zone)).date().isoformat(),
            compression=self._config.compression,
            dated=_catalogued(self._config) is not None,
        )

    def _tasks(self, records: int) -> int:
        """Choose the number of tasks: files stay bounded in size, and all cores have work."""
        bounded = -(-records // self._config.file_records)
        return max(bounded, min(records // _RECORDS_MIN, _TASKS_PER_CORE * cores(self._spark)), 1)

    def _bounded(self, start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
        """Limit the end of a run to `end`, but never before its start."""
        if self._config.end is None:
            return end
        begun, until = checkpoint.decode(start), checkpoint.decode(end)
        name = self._config.topic
        with (
            stores.opened(self._config.store, self._config.origin) as store,
            _opened(store, self._config) as topic,
        ):
            standing = until.get(name)
            if standing is None or standing.generation != topic.generation:
                return end  # it was created again this moment: planning meets that
            before = begun.get(name)
            # Exports of a topic that had the name before say nothing about this one.
            is_same = before is not None and before.generation == topic.generation
            exported = before.partitions if before is not None and is_same else {}
            for number, _, stop in _bounds(topic, self._config.end):
                place, least = standing.partitions[number], exported.get(number, Place(0))
                if stop < place.offset:
                    standing.partitions[number] = place_of(
                        topic.partition(number), max(stop, min(least.offset, place.offset))
                    )
        return checkpoint.encode(until)


def _bounds(topic: falaj.AnyTopic[Any], end: int | str | datetime) -> list[arrow.Lane]:
    """Find where a run ends, in each partition."""
    try:
        return arrow.lanes(topic, "earliest", end)
    except OffsetOutOfRange as error:
        error.args = (
            f"{error}: end={end} is an offset of each partition. Name one that all have, or a "
            "time, or leave it away for all there is",
        )
        raise


def run_tasks(spark: SparkSession, work: Work, tasks: list[int], progress: Progress | None) -> None:
    """Run tasks in the executors, each as a task of Spark."""

    def do(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        for batch in batches:
            for at in batch["id"].to_pylist():
                records, size = work.do(tasks[at])
                yield pyarrow.RecordBatch.from_pydict({"records": [records], "bytes": [size]})

    records = sum(len(work.plan.tasks[task]) for task in tasks)
    with watched(spark, progress, f"exporting up to {records:,} records"):
        frame = spark.range(0, len(tasks), 1, len(tasks))
        frame.mapInArrow(do, "records BIGINT, bytes BIGINT").collect()


def _opened(store: falaj.Store, config: ExportConfig) -> falaj.AnyTopic[Any]:
    return ranges.open_raw(store, config.topic, config.visibility)


def _schema(config: ExportConfig) -> StructType:
    """List what is read: the columns, and what dates are taken from."""
    value = _value_type(config)
    everything = columns.schema(
        ReadOptions.parse({"store": "-", "subscribe": "-", "includeHeaders": "true"})
    )
    types = {name: everything[name].dataType for name in everything.names} | {"value": value}
    source = config.date_of.split(".")[0]
    names = [*config.columns]
    if source != "run" and source not in names:
        names.append(source)
    if source == "value":
        _expect_date(value, config.date_of)
    return StructType([StructField(name, types[name]) for name in names])


def _value_type(config: ExportConfig) -> DataType:
    if config.schema is None:
        return StringType() if config.values == "string" else BinaryType()
    return struct_of(config.schema)


def _expect_date(value: DataType, date_of: str) -> None:
    found = value
    for name in date_of.split(".")[1:]:
        if not isinstance(found, StructType) or name not in found.names:
            raise InvalidArgument(
                f"date_of={date_of!r} is no member of the values: they are {value.simpleString()}"
            )
        found = found[name].dataType
    if not isinstance(found, TimestampType | DateType):
        raise InvalidArgument(
            f"date_of={date_of!r} is {found.simpleString()}: declare it as TIMESTAMP or DATE in "
            "schema"
        )


def _catalogued(config: ExportConfig) -> dict[str, str | None] | None:
    """Name the table that has a folder's files, which then have their date as a column.

    One that lies in the folder can come later.
    """
    if config.format != "iceberg":
        return None
    return {"format": config.format, "catalog": config.catalog, "table": config.table}


def _options(config: ExportConfig, first: falaj.AnyTopic[Any] | None) -> ReadOptions:
    """Say to the connector what is read; where from, in the first run."""
    given = {
        "store": str(config.store),
        **({} if config.origin is None else {"origin": config.origin}),
        "subscribe": config.topic,
        "values": config.values,
        "visibility": config.visibility,
        "onCorrupt": config.on_corrupt,
        "failOnDataLoss": str(config.on_loss == "fail").lower(),
        "includeHeaders": "true",
        "minPartitions": "1",
    }
    if config.values != "binary":
        fails = (config.on_bad or config.on_corrupt) == "fail"
        given["mode"] = "FAILFAST" if fails else "DROPMALFORMED"
    if first is not None:
        begin = {str(part.partitions[0]): part._start(config.start) for part in first._parts()}
        given["startingOffsets"] = json.dumps({config.topic: begin})
    return ReadOptions.parse(given, "stream")


def _result(
    config: ExportConfig,
    folder: Folder,
    commits: list[Commit],
    resumed: bool,
    table: str | None,
    seconds: float,
) -> ExportResult:
    files = [piece for commit in commits for piece in commit.files]
    dates = sorted({day.isoformat() for piece in files if (day := date_of_path(piece.path))})
    reached: dict[int, tuple[int, int]] = {}
    for commit in commits:
        for bounds in commit.whole:
            first = reached.get(bounds.partition, (bounds.start, 0))[0]
            reached[bounds.partition] = (first, bounds.end)
    last = folder.last()
    return ExportResult(
        records=sum(commit.records for commit in commits),
        bytes=sum(piece.bytes for piece in files),
        seconds=seconds,
        into=folder.path,
        table=table,
        number=last.number if last else 0,
        files=len(files),
        dates=(dates[0], dates[-1]) if dates else None,
        partitions=reached,
        resumed=resumed,
        bad=sum(commit.bad for commit in commits),
        notes=tuple(sorted({note for commit in commits for note in commit.notes})),
    )
