"""Where a job writes each of its batches once: a folder of Parquet files, a topic, or both.

A batch has a number. In the folder, batch 7 is a folder `batch=7`, which a rename makes visible
whole. In the topic, it is one append with an idempotency key, (name of the job, 7).

Invariant: each row of a batch is in both exactly once, whichever process was killed, and folder and
topic agree. They agree because a job writes the folder first. It never makes a batch again that is
in the folder; it copies what the topic lacks from there. So they agree even if a batch would differ
when made again, as with a table that changed.

Spark's own file sink lists the valid files in a file that only Spark reads. Here every reader of
the folder sees the right rows.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

import falaj
from falaj.errors import InvalidArgument
from falaj.pipeline.base import bad, keys, places, steps
from falaj.pipeline.base.documents import document
from falaj.pipeline.base.spoken import sentence
from falaj.pipeline.importing.remote import escaped
from falaj.pipeline.streaming import jobs
from falaj.spark.reading.ranges import make, open_raw
from falaj.spark.writing.sink import expect_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

    from falaj.pipeline.streaming.flow import FlowConfig
    from falaj.pipeline.streaming.jobs import Job

__all__ = ["Counts", "Outputs", "Shape", "expect"]

Counts = dict[str, int]
"""Counts of a batch; `rows` is always there."""

_MARK, _STAGED, _COUNTS, _BATCH = "_falaj.json", "_staged", "_batch.json", "batch="


@dataclass(frozen=True, slots=True)
class Shape:
    """How a row becomes a record.

    Attributes:
        key: SQL for the key of a record, or None.
        time: SQL for the time of a record; None for the time of the append.
        aside: Columns that do not go into the value of a record.
        order: SQL that sorts the rows when the topic is written from the folder.
    """

    key: str | None
    time: str | None = None
    aside: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def record(self, rows: DataFrame) -> list[Column]:
        """Return the columns that make a record of each row."""
        value = document(f"`{name}`" for name in rows.columns if name not in self.aside)
        record = [value.alias("value")]
        if self.key is not None:
            record.append(F.expr(self.key).alias("key"))
        if self.time is not None:
            record.append(F.expr(self.time).alias("timestamp"))
        return record

    def expect(self, rows: DataFrame) -> None:
        """Refuse rows that make no records.

        Raises:
            InvalidArgument: Spark does not take the key, or it is neither text nor bytes; or the
                rows have no form as JSON.
        """
        try:
            if self.key is not None:
                kind = rows.select(F.expr(self.key).alias("key")).schema["key"].dataType
                if not keys.is_key(kind):
                    raise InvalidArgument(
                        f"key is {self.key}, which is {kind.simpleString()} and neither text nor "
                        f"bytes: CAST({self.key} AS STRING) may make it text"
                    )
        except (AnalysisException, ParseException) as error:
            raise InvalidArgument(
                f"key is {self.key}, which Spark does not take: {sentence(error)}"
            ) from None
        try:
            rows.select(*self.record(rows)).schema  # noqa: B018  # Spark checks it for that
        except AnalysisException as error:
            raise InvalidArgument(f"the results cannot be JSON: {sentence(error)}") from None


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of a job.

    Attributes:
        job: The job.
        store: Directory of the store.
        topic: The topic, or None.
        folder: The folder, or None.
        shape: How a row becomes a record.
    """

    job: Job
    store: Path
    topic: str | None
    folder: Path | None
    shape: Shape

    def prepare(self, partitions: int | None) -> None:
        """Create topic and folder if they do not exist, and remove what a killed run left.

        Args:
            partitions: How many partitions a new topic gets; None for one.

        Raises:
            InvalidArgument: Another job or program uses the folder, or the topic's codec cannot
                read JSON.
        """
        if self.topic is not None:
            with falaj.open(self.store) as store:
                if self.topic not in store.topics:
                    make(store, self.topic, partitions or 1, "json")
                with open_raw(store, self.topic) as topic:
                    places.expect_codec(topic, *places.JSON_READERS)
        if self.folder is not None:
            self._claim(self.folder)
            shutil.rmtree(self.folder / _STAGED, ignore_errors=True)

    def _claim(self, folder: Path) -> None:
        """Ensure that the folder is of this job: the numbers of two jobs would mix."""
        with steps.told(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if _owner(folder) is None:
            mark = {"job": self.job.name, "checkpoint": str(self.job.folder)}
            jobs.create(folder / _MARK, mark)
        kept = jobs.read(folder / _MARK, "checkpoint")
        if kept["job"] != self.job.name:
            raise _of_another(folder, kept, self.job.folder)

    def counted(self, rows: DataFrame, kept: Column | None = None, **more: Column) -> Any:
        """Count rows, the bytes of their values as JSON, and more.

        Args:
            rows: All rows.
            kept: Selects the rows that are written; None for all.
            more: Other columns to compute, by name.

        Returns:
            A row with `rows`, `bytes` and the names of `more`.
        """
        value, *_ = self.shape.record(rows)
        size = F.octet_length(value)
        if kept is not None:
            size = F.when(kept, size)
        total = F.coalesce(F.sum(size), F.lit(0)).alias("bytes")
        named = [column.alias(name) for name, column in more.items()]
        return rows.agg(F.count(size).alias("rows"), total, *named).first()

    def found(self, number: int) -> Counts | None:
        """Read the counts of a batch in the folder; None if it is not there."""
        if self.folder is None:
            return None
        with suppress(FileNotFoundError):
            return dict(json.loads((self.folder / _place(number) / _COUNTS).read_bytes()))
        return None

    def write(
        self, spark: SparkSession, number: int, make: Callable[[], tuple[DataFrame, Counts]]
    ) -> Counts:
        """Write a batch, or the missing part of it.

        Args:
            spark: The session.
            number: The number of the batch.
            make: Makes the rows and their counts; called only if the folder lacks the batch.

        Returns:
            The counts of the batch.

        Raises:
            OffsetConflict: A later batch of the job is there, so its checkpoint is older.
        """
        self._expect_newest(number)
        counts = self.found(number)
        if counts is None:
            rows, counts = make()
            if not counts["rows"]:
                return counts
            if self.folder is not None:
                self._publish(self.folder, number, rows, counts)
        else:
            assert self.folder is not None  # it was found there
            rows = spark.read.parquet(escaped(str(self.folder / _place(number))))
            order = self.shape.order
            rows = rows.orderBy(*map(F.expr, order)) if order else rows
        if self.topic is not None:
            self._append(self.topic, number, rows)
        return counts

    def _expect_newest(self, number: int) -> None:
        """Refuse a batch if a later one is there: Spark repeats only the last."""
        if self.folder is not None:
            names = (entry.name.removeprefix(_BATCH) for entry in self.folder.glob(f"{_BATCH}*"))
            last = max((int(each) for each in names if each.isdecimal()), default=None)
            expect_turn(str(self.folder), last, number, "job")
        if self.topic is not None:
            with (
                falaj.open(self.store, read_only=True) as store,
                open_raw(store, self.topic) as topic,
            ):
                last = topic.last_idempotency_key(self._series)
            expect_turn(f"topic {self.topic}", last, number, "job")

    @property
    def _series(self) -> str:
        """The name of the idempotency keys of the job's batches."""
        return f"pipeline-{self.job.name}"

    def _publish(self, folder: Path, number: int, rows: DataFrame, counts: Counts) -> None:
        """Make the batch visible, whole and on the disk."""
        staged = folder / _STAGED / f"{number}-{uuid.uuid4().hex}"
        rows.write.parquet(str(staged))
        jobs.create(staged / _COUNTS, counts)
        _sync(staged)
        try:
            os.rename(staged, folder / _place(number))
        except OSError:
            if self.found(number) is None:
                raise
            shutil.rmtree(staged)  # the same batch, by a run that seemed dead
        steps.sync(folder)

    def _append(self, topic: str, number: int, rows: DataFrame) -> None:
        records = rows.select(*self.shape.record(rows))
        writer = records.write.format("falaj").mode("append").options(store=str(self.store))
        writer.options(topic=topic, txnAppId=self._series, txnVersion=str(number)).save()


def expect(config: FlowConfig, results: DataFrame, shape: Shape) -> None:
    """Refuse outputs that a job could never write, before it creates anything.

    Raises:
        InvalidName: A topic cannot have this name.
        SettingsMismatch: `into` has another number of partitions.
        InvalidArgument: The results make no records, the codec of `into` cannot read JSON, or
            `parquet` can be no folder of the job.
    """
    jobs.expect(Path(config.checkpoint))
    shape.expect(results)
    with falaj.open(config.store, read_only=True) as store:
        if config.into is not None:
            places.expect_target(store, config.into, *places.JSON_READERS)
            if config.partitions is not None:
                places.expect_partitions(store, config.into, config.partitions)
        if (kept := bad.topic_of(config.on_bad)) is not None:
            places.expect_target(store, kept)
    if config.parquet is not None:
        _expect_no_batch(results)
        _expect_folder(Path(config.parquet), Path(config.checkpoint))


def _expect_no_batch(results: DataFrame) -> None:
    """Refuse a column that readers of the folder would replace by the number of the batch."""
    for name in results.columns:
        if name.lower() == _BATCH.rstrip("="):
            raise InvalidArgument(
                f"a result is called {name}, as the folders in parquet, {_BATCH}0 and so on: give "
                "it another name with AS"
            )


def _expect_folder(folder: Path, checkpoint: Path) -> None:
    steps.expect_folder(folder, "parquet")
    if not folder.exists():
        return
    kept = _owner(folder)
    if kept is not None and not jobs.exists(checkpoint):
        raise _of_another(folder, kept, checkpoint)


def _owner(folder: Path) -> dict[str, Any] | None:
    """Read which job a folder belongs to; None if it is empty.

    Raises:
        InvalidArgument: The folder holds something else.
    """
    mark = folder / _MARK
    if mark.exists():
        return jobs.read(mark, "checkpoint")
    others = (entry.name for entry in folder.iterdir() if entry.suffix != ".tmp")
    if name := next(others, None):
        raise InvalidArgument(
            f"{folder} holds {name}, which no pipeline with a checkpoint wrote: choose an empty "
            "folder or a new one"
        )
    return None


def _of_another(folder: Path, kept: dict[str, Any], checkpoint: Path) -> InvalidArgument:
    return InvalidArgument(
        f"{folder} is written by the job whose checkpoint is {kept['checkpoint']}, and not by that "
        f"of {checkpoint}: go on with that checkpoint, or choose another folder"
    )


def _place(number: int) -> str:
    return f"{_BATCH}{number}"


def _sync(folder: Path) -> None:
    """Sync the files of a folder, and their names."""
    for entry in folder.iterdir():
        descriptor = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    steps.sync(folder)
