"""The tasks of `dedupe` in Spark: some decide about records, and others copy what is kept.

A deciding task gets all copies of the ids that `dealing` sends to it. A copying task gets the
offsets that are left out of its range. It reads the range, and stages the remaining records for the
target. So keys and values never reach Java.

Invariant: the ranges are fixed before the first task runs, and a task that runs again does the
same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow
from pyarrow import compute

from falaj.pipeline.base.buffers import array_of, bytes_of, numbers_of
from falaj.pipeline.deduping import copies, dealing
from falaj.spark.writing.sink import Staged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import Row

    from falaj.spark.reading.ranges import Range
    from falaj.spark.source import FalajReader
    from falaj.spark.writing.sink import Target

__all__ = ["DECIDED", "TOLD", "Copier", "Decider", "Done"]

DECIDED = "task INT, left_out BINARY, told BINARY"
"""For a task that copies: offsets that are left out; and in one row what was decided."""
TOLD = "task INT, told BINARY"


@dataclass(frozen=True)
class Decider:
    """Decides about the records that a task gets.

    Attributes:
        ranges: The ranges of the copying tasks.
        window: Microseconds within which copies are left out, or None.
        last: Whether the last one wins.
        top: How many ids are reported.
    """

    ranges: Sequence[Range]
    window: int | None
    last: bool
    top: int

    def decide(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Decide, and yield a row for each copying task, even if nothing is left out."""
        records, without = dealing.gather(batches)
        found = copies.decide(records, self.window, self.last, self.top)
        told = {
            "without_id": without,
            "dropped": len(found.left_out),
            "replaced": found.replaced,
            "repeated": [[*place, id_.hex()] for *place, id_ in found.repeated],
        }
        count = len(self.ranges)
        columns = [
            array_of(numpy.arange(count, dtype=numpy.int32)),
            bytes_of([*self._divided(records, found.left_out)]),
            bytes_of([json.dumps(told).encode(), *[b""] * (count - 1)][:count]),
        ]
        yield pyarrow.RecordBatch.from_arrays(columns, names=["task", "left_out", "told"])

    def _divided(self, records: copies.Records, rows: numpy.ndarray) -> Iterator[bytes]:
        """Find the offsets that are left out of each range."""
        partitions, offsets = records.partitions[rows], records.offsets[rows]
        of = {p: numpy.sort(offsets[partitions == p]) for p in numpy.unique(partitions).tolist()}
        nothing = offsets[:0]
        for each in self.ranges:
            mine = of.get(each.partition, nothing)
            first, behind = numpy.searchsorted(mine, (each.start, each.end))
            yield mine[first:behind].tobytes()


@dataclass(frozen=True)
class Copier:
    """Stages the kept records of the ranges that a task copies.

    Attributes:
        reader: Reads the ranges.
        ranges: The range of each task.
        target: The store that gets the records.
        job: Name of the job that stages them.
    """

    reader: FalajReader
    ranges: Sequence[Range]
    target: Target
    job: str

    def copy(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Copy, and yield what was staged."""
        left_out: dict[int, numpy.ndarray] = {}
        decided = []
        for batch in batches:
            for row in batch.to_pylist():
                bounds = self.ranges[row["task"]]
                mine = left_out.setdefault(row["task"], numpy.zeros(len(bounds), bool))
                mine[numpy.frombuffer(row["left_out"], numpy.int64) - bounds.start] = True
                if row["told"]:
                    decided.append(json.loads(row["told"]))
        if not left_out:
            return
        told: dict[str, Any] = {"kept": 0, "bytes": 0, "decided": decided}
        token = self.target.options.transaction
        parts = self.target.stage(self.job, token, self._kept(left_out, told))
        told["parts"] = {topic: part.hex() for topic, part in parts.items()}
        columns = [
            array_of(numpy.array([min(left_out)], numpy.int32)),
            bytes_of([json.dumps(told).encode()]),
        ]
        yield pyarrow.RecordBatch.from_arrays(columns, names=["task", "told"])

    def _kept(
        self, left_out: dict[int, numpy.ndarray], told: dict[str, Any]
    ) -> Iterator[pyarrow.RecordBatch]:
        for task in sorted(left_out):
            bounds = self.ranges[task]
            for batch in self.reader.read(bounds):
                gone = left_out[task][numbers_of(batch["offset"]) - bounds.start]
                kept = batch.filter(array_of(~gone)) if gone.any() else batch
                told["kept"] += len(kept)
                told["bytes"] += compute.sum(compute.binary_length(kept["value"])).as_py() or 0
                yield kept


class Done:
    """The combined results of the tasks of a run.

    Attributes:
        staged: The staged parts, in the order of the source.
        kept: How many records they staged.
        bytes: How many bytes their values have.
        without_id: How many records had no id.
        dropped: How many copies are left out.
        replaced: How many records of the target have a newer copy now.
        repeated: The ids with most copies left out, of each task: number, partition, offset and id.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.staged: list[Staged] = []
        self.kept = self.bytes = self.without_id = self.dropped = self.replaced = 0
        self.repeated: list[tuple[int, int, int, bytes]] = []
        for row in sorted(rows):
            told = json.loads(row["told"])
            parts = {topic: bytes.fromhex(part) for topic, part in told["parts"].items()}
            self.staged.append(Staged(None, parts))
            self.kept += told["kept"]
            self.bytes += told["bytes"]
            for each in told["decided"]:
                self.without_id += each["without_id"]
                self.dropped += each["dropped"]
                self.replaced += each["replaced"]
                self.repeated += [(*place, bytes.fromhex(id_)) for *place, id_ in each["repeated"]]
