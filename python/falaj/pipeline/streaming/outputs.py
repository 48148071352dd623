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
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

import falaj
from falaj.errors import InvalidArgument
from falaj.pipeline.base import steps
from falaj.pipeline.base.places import JSON_READERS, expect_codec
from falaj.pipeline.streaming import jobs
from falaj.spark.reading.ranges import make, open_raw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from falaj.pipeline.streaming.jobs import Job

__all__ = ["Counts", "Outputs"]

Counts = dict[str, int]
"""Counts of a batch; `rows` is always there."""

_MARK, _STAGED, _COUNTS = "_falaj.json", "_staged", "_batch.json"


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of a job.

    Attributes:
        job: The job.
        store: Directory of the store.
        topic: The topic, or None.
        folder: The folder, or None.
        key: SQL for the key of a record, or None.
        time: SQL for the time of a record; None for the time of the append.
        aside: Columns that do not go into the value of a record.
        order: SQL that sorts the rows when the topic is written from the folder.
    """

    job: Job
    store: Path
    topic: str | None
    folder: Path | None
    key: str | None
    time: str | None = None
    aside: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def prepare(self, partitions: int) -> None:
        """Create topic and folder if they do not exist, and remove what a killed run left.

        Args:
            partitions: How many partitions a new topic gets.

        Raises:
            InvalidArgument: Another job or program uses the folder, or the topic's codec cannot
                read JSON.
        """
        if self.topic is not None:
            with falaj.open(self.store) as store:
                if self.topic not in store.topics:
                    make(store, self.topic, partitions, "json")
                with open_raw(store, self.topic) as topic:
                    expect_codec(topic, *JSON_READERS)
        if self.folder is not None:
            self._claim(self.folder)
            shutil.rmtree(self.folder / _STAGED, ignore_errors=True)

    def _claim(self, folder: Path) -> None:
        """Ensure that the folder is of this job: the numbers of two jobs would mix."""
        folder.mkdir(parents=True, exist_ok=True)
        mark = folder / _MARK
        if not mark.exists():
            others = (entry.name for entry in folder.iterdir() if entry.suffix != ".tmp")
            if name := next(others, None):
                raise InvalidArgument(
                    f"{folder} holds {name}, which no pipeline with a checkpoint wrote: choose an "
                    "empty folder or a new one"
                )
            jobs.create(mark, {"job": self.job.name, "checkpoint": str(self.job.folder)})
        kept = jobs.read(mark, "checkpoint")
        if kept["job"] != self.job.name:
            raise InvalidArgument(
                f"{folder} is written by the job whose checkpoint is {kept['checkpoint']}, and "
                f"not by that of {self.job.folder}: go on with that checkpoint, or choose another "
                "folder"
            )

    def counted(self, rows: DataFrame, kept: Column | None = None, **more: Column) -> Any:
        """Count rows, the bytes of their values as JSON, and more.

        Args:
            rows: All rows.
            kept: Selects the rows that are written; None for all.
            more: Other columns to compute, by name.

        Returns:
            A row with `rows`, `bytes` and the names of `more`.
        """
        value, *_ = self.record(rows)
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
        """
        counts = self.found(number)
        if counts is None:
            rows, counts = make()
            if not counts["rows"]:
                return counts
            if self.folder is not None:
                self._publish(self.folder, number, rows, counts)
        else:
            assert self.folder is not None  # it was found there
            rows = spark.read.parquet(str(self.folder / _place(number)))
            rows = rows.orderBy(*map(F.expr, self.order)) if self.order else rows
        if self.topic is not None:
            self._append(self.topic, number, rows)
        return counts

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
        records = rows.select(*self.record(rows))
        writer = records.write.format("falaj").mode("append").options(store=str(self.store))
        name = f"pipeline-{self.job.name}"
        writer.options(topic=topic, txnAppId=name, txnVersion=str(number)).save()

    def record(self, rows: DataFrame) -> list[Column]:
        """Return the columns that make a record of each row."""
        columns = [f"`{name}`" for name in rows.columns if name not in self.aside]
        value = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
        record = [value.alias("value")]
        if self.key is not None:
            record.append(F.expr(self.key).alias("key"))
        if self.time is not None:
            record.append(F.expr(self.time).alias("timestamp"))
        return record


def _place(number: int) -> str:
    return f"batch={number}"


def _sync(folder: Path) -> None:
    """Sync the files of a folder, and their names."""
    for entry in folder.iterdir():
        descriptor = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    steps.sync(folder)
