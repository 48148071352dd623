"""`import_files`: append rows of files to a topic, each file once, however often it runs or dies.

Owns how an import treats malformed rows and changed files. `ledgers` owns which files were
imported, and `sources` how a row becomes a record. Tasks stage records in the same way as the tasks
of the connector's sink. This process commits all of them at once, while it holds the lock; so no
import outlives its lock.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import falaj
from falaj._paths import local_path
from falaj.errors import InvalidArgument, OffsetConflict
from falaj.pipeline.base.frame import Config, Result, watched
from falaj.pipeline.base.places import (
    JSON_READERS,
    expect_names,
    expect_no_ledger,
    expect_partitions,
    expect_target,
)
from falaj.pipeline.importing import sources
from falaj.pipeline.importing.ledgers import TOKEN, Ledger, SourceFile, known, ledger_of
from falaj.pipeline.importing.lines import FILE, file_of
from falaj.pipeline.importing.reading import BAD, expect_options
from falaj.pipeline.importing.remote import is_remote
from falaj.pipeline.importing.rows import expected, frame, unknown
from falaj.spark.reading.ranges import make, open_raw
from falaj.spark.writing import columns as sink_columns
from falaj.spark.writing.options import WriteOptions
from falaj.spark.writing.sink import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from falaj.pipeline.base.frame import Progress

__all__ = ["ImportConfig", "ImportResult", "import_files"]

_TEXT_MAX = 200
_NAMED_MAX = 5


@dataclass(frozen=True, kw_only=True)
class ImportConfig(Config):
    """Settings of `import_files`.

    Attributes:
        store: Directory of the store; created if it does not exist.
        into: Name of the topic; created if it does not exist.
        source: Files, folders or patterns that all executors see, as `data/*.csv`. URLs that Spark
            reads work, too, as `s3a://bucket/*.csv`.
        partitions: How many partitions the topic has; 1 by default for a new one.
        format: "parquet", "csv" or "json" (one object on each line); None to choose by the file
            names.
        schema: Columns of the files as Spark writes types, `id BIGINT, name STRING`. None lets
            Spark find out; it then reads CSV and JSON files once more.
        options: Options of Spark's reader of that format, as `{"sep": ";"}`. CSV files have a
            header line unless `header` is "false", and quotes as RFC 4180 has them. Options that
            leave out files or rows, as `pathGlobFilter` and `mode`, are refused.
        value: The column of text or bytes that becomes the record's value; None for the row as
            JSON.
        columns: The columns in that JSON; None for all.
        key: Column of the record's key. Several columns become a JSON array of their texts; none
            means no key. Without a schema, keys of CSV are text as the file has it.
        headers: Column of the headers, with the type that `format("falaj")` uses; None for none.
        partition: Column with the number of the partition; None to choose it by the key.
        time: Column of the record's time: a timestamp, a date, or ISO text. None uses the time of
            the import.
        order_by: Columns by which records are sorted before the append. Rows that are equal in
            them, or all rows without them, keep the order of the paths and of the rows in a file.
        on_bad: For rows that are malformed or have an invalid time: "fail", "skip" and report them,
            or a topic that gets their text.
        on_changed: What to do with files that changed after their import: "fail", or "skip" and
            report them.
    """

    paths: ClassVar[tuple[str, ...]] = ("store",)

    into: str
    source: tuple[str, ...] | str | Path
    partitions: int | None = None
    format: Literal["parquet", "csv", "json"] | None = None
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    value: str | None = None
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] | str = ()
    headers: str | None = None
    partition: str | None = None
    time: str | None = None
    order_by: tuple[str, ...] | str = ()
    on_bad: str = "fail"
    on_changed: Literal["fail", "skip"] = "fail"

    def __post_init__(self) -> None:
        """Check what can be checked without the files."""
        super().__post_init__()
        for name in ("key", "order_by"):
            given = getattr(self, name)
            if isinstance(given, str):
                object.__setattr__(self, name, (given,))
        if not self.sources:  # refuses paths, too, that cannot be
            raise InvalidArgument("source names no file: give files, folders or patterns")
        if self.value is not None and self.columns:
            raise InvalidArgument("columns are those of a row as JSON: leave them or value= away")
        if twice := [name for name, times in Counter(self.columns).items() if times > 1]:
            raise InvalidArgument(
                f"columns has {twice[0]} twice: each member of a row is there once"
            )
        expect_options(self.options)
        if self.partitions is not None and self.partitions < 1:
            raise InvalidArgument(f"partitions is from 1 up, not {self.partitions}")
        if self.on_bad == self.into:
            raise InvalidArgument("on_bad is a topic of its own, not the one that is imported into")
        expect_no_ledger(self.into, "into")
        if self.bad_to is not None:
            expect_no_ledger(self.bad_to, "on_bad")
        expect_names(self.into, ledger_of(self.into))

    def expect(self) -> None:
        """Check that the local files exist, and that Parquet files have the columns."""
        files = sources.local([each for each in self.sources if not is_remote(each)])
        if not files or self.schema is not None or self.options:
            return
        form = self.format or sources.form_of(files)
        base = sources.base_of(self.sources, files)
        there = sources.names_in(files[0], base) if form == "parquet" else []
        if there:
            one = (self.value, self.headers, self.partition, self.time)
            for name in (*self.columns, *self.key, *self.order_by, *filter(None, one)):
                expected(name, there)

    @property
    def sources(self) -> tuple[str, ...]:
        """The names in `source`, as a tuple."""
        given = self.source if isinstance(self.source, tuple) else (str(self.source),)
        return tuple(each if is_remote(each) else local_path(each, "source") for each in given)

    @property
    def bad_to(self) -> str | None:
        """The topic that gets malformed rows."""
        return None if self.on_bad in ("fail", "skip") else self.on_bad


@dataclass(frozen=True, kw_only=True)
class ImportResult(Result):
    """The result of an import; it is empty if no file was new.

    `records` is how many records it appended, `bytes` the size of their files.

    Attributes:
        into: The topic.
        files: How many files were imported.
        known: How many files were imported before, and did not change.
        bad: How many rows were malformed, by file.
        offsets: For each partition with new records, the first offset and the one after the last.
        notes: What the import reported: files that changed, malformed rows, columns of the schema
            that no row of a sample has.
    """

    into: str
    files: int
    known: int
    bad: dict[str, int]
    offsets: dict[int, tuple[int, int]]
    notes: tuple[str, ...]

    def rows(self) -> list[tuple[str, str]]:
        """Tell it to people."""
        told = [
            ("topic", self.into),
            ("files", f"{self.files:,}"),
            ("known before", f"{self.known:,}"),
            ("malformed rows", f"{sum(self.bad.values()):,}"),
        ]
        return [*told, *super().rows(), *(("note", note) for note in self.notes)]


def import_files(
    spark: SparkSession, config: ImportConfig, *, progress: Progress | None = None
) -> ImportResult:
    """Append the rows of files that were not imported before, all at once or none.

    An import recognizes a file by its path, size and time of change. The topic `<into>.imports` of
    the store keeps which files were imported. An import that was killed has appended nothing, or
    all. An import takes the time to read and sort the rows of the files.

    Args:
        spark: The session; its executors must see store and files.
        config: What to import.
        progress: Learns how far it is.

    Returns:
        What the import appended.

    Raises:
        InvalidArgument: Rows are malformed, a file changed after its import, or columns are
            missing.
        SettingsMismatch: The topic has another number of partitions.
        LockTimeout: Another import into the topic is under way.
        Error: Store, topic or files cannot be used.
    """
    began = time.perf_counter()
    files = sources.listed(spark, config.sources)
    with falaj.open(config.store) as store:
        # A column of values goes in as it is.
        expect_target(store, config.into, *(JSON_READERS if config.value is None else ()))
        if config.bad_to is not None:
            expect_target(store, config.bad_to, "str", "bytes")
        if config.partitions is not None:
            expect_partitions(store, config.into, config.partitions)
        planner = _Planner(spark, config, progress)
        if config.into not in store.topics:  # then all files are new
            planner.records([file.path for file in files], config.partitions or 1)
            make(store, config.into, config.partitions or 1)
        with Ledger.opened(store, config.into) as ledger:
            run = _Run(spark, config, store, ledger, progress, planner)
            run.finish_bad()
            done = run.go(files)
    return replace(done, seconds=time.perf_counter() - began)


class _Planner:
    """Makes the frame of records, before anything is created; Spark reads no file twice for it."""

    def __init__(
        self, spark: SparkSession, config: ImportConfig, progress: Progress | None
    ) -> None:
        self._spark = spark
        self._config = config
        self._progress = progress
        self._made: tuple[list[str], int, DataFrame] | None = None

    def records(self, paths: list[str], partitions: int) -> DataFrame:
        """Plan how files become records of a topic.

        Raises:
            InvalidArgument: They cannot: a column is missing, or has a type that is not allowed.
        """
        if self._made is None or self._made[:2] != (paths, partitions):
            text = f"looking at {len(paths):,} file{'s' if len(paths) > 1 else ''}"
            with watched(self._spark, self._progress, text):
                made = frame(self._spark, self._config, paths, partitions)
            sink_columns.check(made.drop(BAD, FILE).schema, self.options)
            self._made = paths, partitions, made
        return self._made[2]

    @property
    def options(self) -> WriteOptions:
        """The options of the sink that takes the records."""
        given = {"store": str(self._config.store), "topic": self._config.into}
        return WriteOptions.parse(given, "batch")


@dataclass
class _Staged:
    """The records that tasks staged.

    Attributes:
        parts: The manifests for each topic, in the order of the records.
        records: How many records the topic gets.
        bad: How many malformed rows, by file.
        text: The text of one such row for each file.
    """

    parts: dict[str, list[bytes]]
    records: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    text: dict[str, str] = field(default_factory=dict)


class _Run:
    """An import; the caller has opened the ledger."""

    def __init__(
        self,
        spark: SparkSession,
        config: ImportConfig,
        store: falaj.Store,
        ledger: Ledger,
        progress: Progress | None,
        planner: _Planner,
    ) -> None:
        self._planner = planner
        self._spark = spark
        self._config = config
        self._store = store
        self._ledger = ledger
        self._progress = progress
        self._done = ledger.done()

    def finish_bad(self) -> None:
        """Write the malformed rows of an import that died after its commit."""
        if not self._done:
            return
        number, entry = self._done[0]
        if not entry.bad or entry.bad_to is None or entry.bad_to not in self._store.topics:
            return
        with open_raw(self._store, entry.bad_to) as topic:
            last = topic.last_idempotency_key(self._bad_token)
        if last is not None and last >= number:
            return
        for file, now in zip(entry.files, sources.look(self._spark, entry.files), strict=True):
            if now != file:
                raise InvalidArgument(
                    f"{file.path} changed before the malformed rows of import {number} were "
                    f"written to topic {entry.bad_to}: put it back as it was, and run it again"
                )
        config = replace(self._config, on_bad=entry.bad_to)
        with self._job(entry.bad_to) as job:
            staged = self._stage(job, config, entry.files, number, only_bad=True)
            self._commit_bad(job, staged, number, entry.bad_to)

    def go(self, files: Sequence[SourceFile]) -> ImportResult:
        """Import the new files."""
        new, notes = self._new(files)
        result = ImportResult(
            records=0,
            bytes=sum(file.size for file in new),
            seconds=0.0,
            into=self._config.into,
            files=len(new),
            known=len(files) - len(new) - len(notes),
            bad={},
            offsets={},
            notes=tuple(notes),
        )
        if not new:
            return result
        number = self._ledger.number
        bad_to = self._config.bad_to
        if bad_to is not None and bad_to not in self._store.topics:
            self._plan(new)  # raises before there is a topic
            make(self._store, bad_to, self._config.partitions or 1)
        with self._job(self._config.bad_to) as job:
            with self._job(self._config.into, job):
                staged = self._stage(job, self._config, new, number)
                self._judge(staged)
                self._expect_unchanged(new)
                begun = self._ledger.begin(new, staged.bad.total(), self._config.bad_to)
                assert begun == number, "others are locked out"
                offsets = self._commit(job, staged, number)
            if self._config.bad_to is not None and staged.bad:
                self._commit_bad(job, staged, number, self._config.bad_to)
        notes += [_told(path, staged) for path in sorted(staged.bad)]
        notes += _folders(self._config, [file.path for file in new])
        notes += unknown(self._spark, self._config, [file.path for file in new])
        return replace(
            result,
            records=staged.records,
            bad=dict(sorted(staged.bad.items())),
            offsets=offsets,
            notes=tuple(notes),
        )

    def _new(self, files: Sequence[SourceFile]) -> tuple[list[SourceFile], list[str]]:
        """Separate new files from imported ones."""
        before = known(self._done)
        changed = [file for file in files if before.get(file.path, file) != file]
        if changed and self._config.on_changed == "fail":
            names = ", ".join(file.path for file in changed[:_NAMED_MAX])
            raise InvalidArgument(
                f"{len(changed)} file(s) changed since they were imported, and nothing tells their "
                f"new rows from the old: {names}; give new rows a file of their own, or pass over "
                "them with on_changed='skip'"
            )
        notes = [f"{file.path} changed since it was imported: passed over" for file in changed]
        return [file for file in files if file.path not in before], notes

    def _judge(self, staged: _Staged) -> None:
        if staged.bad and self._config.on_bad == "fail":
            told = "; ".join(_told(path, staged) for path in sorted(staged.bad)[:_NAMED_MAX])
            raise InvalidArgument(
                f"{staged.bad.total()} malformed row(s), and nothing was imported: {told}; mend "
                "them, or import the others with on_bad='skip' or the name of a topic for them"
            )

    def _expect_unchanged(self, files: Sequence[SourceFile]) -> None:
        for file, now in zip(files, sources.look(self._spark, files), strict=True):
            if now != file:
                raise InvalidArgument(
                    f"{file.path} changed while it was read, and nothing was imported: rename "
                    "files into the folder when they are whole, and run the import again"
                )

    # --- Spark -----------------------------------------------------------------------------------

    def _stage(
        self,
        job: str,
        config: ImportConfig,
        files: Sequence[SourceFile],
        number: int,
        only_bad: bool = False,
    ) -> _Staged:
        """Run tasks that stage the rows of files."""
        made = self._plan(files)
        text = f"importing {len(files):,} file{'s' if len(files) > 1 else ''}"
        with watched(self._spark, self._progress, text):
            target = Target(replace(self._planner.options, topic=None), self._store.id)
            is_text = self._is_text(config.bad_to)
            token, into = (TOKEN, number), config.into
            work = _Work(target, job, token, into, config.bad_to, is_text, only_bad)
            return collect(made, work)

    def _plan(self, files: Sequence[SourceFile]) -> DataFrame:
        with open_raw(self._store, self._config.into) as topic:
            partitions = len(topic.partitions)
        return self._planner.records([file.path for file in files], partitions)

    def _is_text(self, name: str | None) -> bool:
        if name is None:
            return False
        with open_raw(self._store, name) as topic:
            return bool(topic.codec == "str")

    # --- Commits ---------------------------------------------------------------------------------

    def _commit(self, job: str, staged: _Staged, number: int) -> dict[int, tuple[int, int]]:
        into = self._config.into
        with open_raw(self._store, into) as topic:
            told = topic.commit_bulk_load(
                job, staged.parts.get(into, []), idempotency_key=(TOKEN, number)
            )
        if not told["committed"]:
            raise OffsetConflict(
                f"import {number} is in topic {into}, and was not to be: run it again"
            )
        return told["offsets"]

    @property
    def _bad_token(self) -> str:
        """The key for malformed rows; several topics may send theirs to one topic."""
        return f"{TOKEN}.{self._config.into}"

    def _commit_bad(self, job: str, staged: _Staged, number: int, bad_to: str) -> None:
        with open_raw(self._store, bad_to) as topic:
            topic.commit_bulk_load(
                job, staged.parts.get(bad_to, []), idempotency_key=(self._bad_token, number)
            )

    @contextmanager
    def _job(self, topic: str | None, name: str | None = None) -> Iterator[str]:
        """Name a job that stages records for a topic; remove what it staged if the body fails."""
        job = name or f"import-{uuid.uuid4().hex}"
        try:
            yield job
        except BaseException:
            if topic is not None:
                with open_raw(self._store, topic) as opened:
                    opened.abort_bulk_load(job)
            raise


def _folders(config: ImportConfig, paths: list[str]) -> list[str]:
    base = sources.base_of(config.sources, paths)
    left = sources.not_columns(base, paths)
    if not left:
        return []
    named = ", ".join(left[:_NAMED_MAX])
    return [
        f"{named}: no column of the records, since source names the folder itself; a source above "
        "it, as a folder or a pattern, makes it one"
    ]


def _told(path: str, staged: _Staged) -> str:
    return f"{path}: {staged.bad[path]:,} malformed, as {staged.text[path]!r}"


# --- Tasks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """The settings that a task stages records by.

    Attributes:
        target: The store.
        job: Name of the job.
        token: Its idempotency key.
        into: The topic.
        bad_to: The topic of malformed rows, or None.
        bad_is_text: True if that topic takes UTF-8 alone.
        only_bad: Whether the task stages malformed rows alone.
    """

    target: Target
    job: str
    token: tuple[str, int]
    into: str
    bad_to: str | None
    bad_is_text: bool
    only_bad: bool

    def do(self, batches: Iterator[pyarrow.RecordBatch]) -> dict[str, Any]:
        """Stage the rows of a task, and yield what was staged."""
        told: dict[str, Any] = {"records": 0, "bad": Counter(), "text": {}}
        parts = self.target.stage(self.job, self.token, self._records(batches, told))
        return {**told, "parts": {topic: part.hex() for topic, part in parts.items()}}

    def _records(
        self, batches: Iterator[pyarrow.RecordBatch], told: dict[str, Any]
    ) -> Iterator[pyarrow.RecordBatch]:
        from pyarrow import compute

        for batch in batches:
            bad = batch.filter(compute.is_valid(batch[BAD]))
            if len(bad):
                for path, text in zip(bad[FILE].to_pylist(), bad[BAD].to_pylist(), strict=True):
                    path = file_of(path)
                    told["bad"][path] += 1
                    told["text"].setdefault(path, text.decode(errors="replace")[:_TEXT_MAX])
                if self.bad_to is not None:
                    yield self._bad(bad)
                batch = batch.filter(compute.is_null(batch[BAD]))
            if len(batch) and not self.only_bad:
                told["records"] += len(batch)
                yield self._to(batch.drop_columns([BAD, FILE]), self.into)

    def _bad(self, rows: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Make records of malformed rows, with the file as the key."""
        import pyarrow

        paths = [file_of(path) for path in rows[FILE].to_pylist()]
        if self.bad_is_text:
            for path, text in zip(paths, rows[BAD].to_pylist(), strict=True):
                _expect_text(path, text, self.bad_to)
        made = {"value": rows[BAD], "key": pyarrow.array(paths, pyarrow.string())}
        return self._to(pyarrow.RecordBatch.from_pydict(made), self.bad_to)

    @staticmethod
    def _to(rows: pyarrow.RecordBatch, topic: str | None) -> pyarrow.RecordBatch:
        import pyarrow

        return rows.append_column("topic", pyarrow.repeat(pyarrow.scalar(topic), len(rows)))


def _expect_text(path: str, text: bytes, topic: str | None) -> None:
    try:
        text.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(
            f"{path} has a malformed row that is not UTF-8, which topic {topic} of the codec str "
            "cannot take: name a topic of the codec bytes, or a new one, in on_bad="
        ) from None


def collect(rows: DataFrame, work: _Work) -> _Staged:
    """Run the tasks; combine what they staged, in the order of the frame."""

    def do(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        place = context.partitionId() if context else 0
        told = json.dumps(work.do(batches))
        yield pyarrow.RecordBatch.from_pydict({"place": [place], "told": [told]})

    staged = _Staged({})
    for row in sorted(rows.mapInArrow(do, "place BIGINT, told STRING").collect()):
        told = json.loads(row["told"])
        staged.records += told["records"]
        staged.bad.update(told["bad"])
        for path, text in told["text"].items():
            staged.text.setdefault(path, text)
        for topic, part in told["parts"].items():
            staged.parts.setdefault(topic, []).append(bytes.fromhex(part))
    return staged
