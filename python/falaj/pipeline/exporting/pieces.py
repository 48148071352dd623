"""The work of one task of an export: read a range of a topic, and write a file for each date.

Runs in executors. A task writes files under names of its own attempt, and then reports these names.
So the files of two attempts never mix, even if both run at once or outlive their driver. Memory is
bounded: rows wait until their date has enough for a row group. If too many bytes wait, the task
writes the date with the most.
"""

from __future__ import annotations

import datetime
import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from falaj.errors import NotAStore
from falaj.pipeline.base import steps
from falaj.pipeline.exporting.dates import local_dates
from falaj.pipeline.exporting.folders import Folder, Piece

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow
    from pyarrow.parquet import ParquetWriter

    from falaj.pipeline.exporting.folders import Plan
    from falaj.spark.reading.ranges import Range
    from falaj.spark.streaming.stream import FalajStreamReader

__all__ = ["DATE", "Work", "by_date", "date_of_path"]

_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 64 << 20
_WAITING_BYTES = 256 << 20
_OPEN_FILES = 64
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
"""Where Hive's readers, Spark among them, expect rows whose date is null."""
DATE = "date"
"""Name of the column that files are divided by."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Everything that a task needs, on whichever machine it runs.

    Attributes:
        path: The export's folder.
        folder: Its id. A machine that finds another folder at this path must not write there.
        plan: The run.
        reader: Reads the range of a task.
        columns: The columns that are written.
        date_of: The source of the date: a column, a member of a column, or "run".
        zone: The time zone of dates.
        day: The date of the run, for `date_of="run"`.
        compression: The compression of Parquet.
        dated: Whether files have their date as a column, too.
    """

    path: Path
    folder: str
    plan: Plan
    reader: FalajStreamReader
    columns: tuple[str, ...]
    date_of: str
    zone: str
    day: str
    compression: str
    dated: bool

    def do(self, task: int) -> tuple[int, int]:
        """Write the files of a task; return the number of records and bytes."""
        with steps.told(self.path):
            folder = Folder(self.path)
            if folder.settings().get("id") != self.folder:
                raise NotAStore(
                    f"this executor sees another folder under {self.path} than the driver: it must "
                    "be the same everywhere"
                )
            bounds, loss = self.plan.tasks[task], self.reader.loss
            before = loss.skipped
            files = _Files(self, folder.staging(self.plan.run), bounds)
            for batch in self.reader.read(bounds):
                for date, rows in self._dated(batch):
                    files.add(date, self._chosen(rows, date))
            pieces = files.finish()
            steps.sync(folder.staging(self.plan.run))
            folder.keep(self.plan.run, task, pieces, loss.told, loss.skipped - before)
        return sum(piece.records for piece in pieces), sum(piece.bytes for piece in pieces)

    def _chosen(self, rows: pyarrow.RecordBatch, date: str) -> pyarrow.RecordBatch:
        import pyarrow

        chosen = rows.select(list(self.columns))
        if not self.dated:
            return chosen
        day = pyarrow.scalar(_day(date), pyarrow.date32())
        return chosen.append_column(DATE, pyarrow.repeat(day, len(rows)))

    def _dated(self, batch: pyarrow.RecordBatch) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
        if self.date_of == "run":
            return iter([(self.day, batch)] if len(batch) else [])
        return by_date(batch, self.date_of, self.zone)


def date_of_path(path: str) -> datetime.date | None:
    """Read the date of a file from its path below the folder; None if its rows have none."""
    return _day(path.split("/")[0].removeprefix(f"{DATE}="))


def _day(date: str) -> datetime.date | None:
    return None if date == NO_DATE else datetime.date.fromisoformat(date)


def by_date(
    batch: pyarrow.RecordBatch, date_of: str, zone: str
) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    """Divide rows by date, and keep their order.

    Args:
        batch: The rows.
        date_of: Name of a column of times or dates; with dots, a member of a struct.
        zone: The time zone in which a time has its date.

    Yields:
        Each date as text, or the text for no date, with its rows; the dates are in no order.
    """
    import pyarrow
    from pyarrow import compute

    name, *members = date_of.split(".")
    column = batch[name]
    if members:
        column = compute.struct_field(column, members)
    if pyarrow.types.is_timestamp(column.type):
        column = local_dates(column, ZoneInfo(zone))
    dates = compute.unique(column)
    for date in dates:
        text = NO_DATE if not date.is_valid else date.as_py().isoformat()
        if len(dates) == 1:
            yield text, batch
        elif date.is_valid:
            yield text, batch.filter(compute.equal(column, date))
        else:
            yield text, batch.filter(compute.is_null(column))


@dataclass
class _Waiting:
    """Rows of one date that wait to be written."""

    batches: list[pyarrow.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


@dataclass
class _Open:
    """A file that is open for writing."""

    writer: ParquetWriter
    file: Any
    piece: dict[str, Any]


class _Files:
    """The files of one attempt of a task."""

    def __init__(self, work: Work, staging: Path, bounds: Range) -> None:
        self._work = work
        self._staging = staging
        self._bounds = bounds
        self._attempt = secrets.token_hex(4)
        self._waiting: dict[str, _Waiting] = {}
        self._open: dict[str, _Open] = {}
        self._begun: dict[str, int] = {}
        self._done: list[Piece] = []
        self._bytes = 0

    def add(self, date: str, rows: pyarrow.RecordBatch) -> None:
        """Add rows of a date."""
        waiting = self._waiting.setdefault(date, _Waiting())
        waiting.batches.append(rows)
        waiting.rows += len(rows)
        waiting.bytes += rows.nbytes
        self._bytes += rows.nbytes
        if waiting.rows >= _GROUP_ROWS or waiting.bytes >= _GROUP_BYTES:
            self._flush(date)
        elif self._bytes >= _WAITING_BYTES:
            self._flush(max(self._waiting, key=lambda each: self._waiting[each].bytes))

    def finish(self) -> list[Piece]:
        """Write the rows that wait; return the files, which are then on the disk."""
        for date in sorted(self._waiting):
            self._flush(date)
            self._close(date)
        for date in sorted(self._open):
            self._close(date)
        return self._done

    def _flush(self, date: str) -> None:
        import pyarrow

        waiting = self._waiting.pop(date)
        self._bytes -= waiting.bytes
        if date not in self._open:
            if len(self._open) >= _OPEN_FILES:
                self._close(next(iter(self._open)))
            self._open[date] = self._begin(date, waiting.batches[0].schema)
        table = pyarrow.Table.from_batches(waiting.batches)
        self._open[date].writer.write_table(table, row_group_size=max(1, waiting.rows))
        self._open[date].piece["records"] += waiting.rows

    def _begin(self, date: str, schema: pyarrow.Schema) -> _Open:
        from pyarrow import parquet

        turn = self._begun.get(date, 0)
        self._begun[date] = turn + 1
        name = self._name(turn)
        staged = f"{date}.{name}.{self._attempt}"
        file = (self._staging / staged).open("xb")
        piece = {
            "path": f"{DATE}={date}/{name}",
            "staged": staged,
            "partition": self._bounds.partition,
            "start": self._bounds.start,
            "records": 0,
        }
        writer = parquet.ParquetWriter(file, schema, compression=self._work.compression)
        return _Open(writer, file, piece)

    def _name(self, turn: int) -> str:
        """Name a file; no other run, and no other range of this run, uses the same name."""
        again = f"-{turn}" if turn else ""
        place = f"{self._bounds.partition:05}-{self._bounds.start:020}"
        return f"part-{self._work.plan.number:06}-{place}{again}.parquet"

    def _close(self, date: str) -> None:
        done = self._open.pop(date)
        done.writer.close()
        done.file.flush()
        os.fsync(done.file.fileno())
        self._done.append(Piece(**done.piece, bytes=done.file.tell()))
        done.file.close()
