"""Merge the small files that an export has of one date: tasks read them and write one file instead.

Each task of an export writes a file for each date that it meets. So each date has as many small
files as tasks met it. Merging runs after all tasks of a run are done, and before its commit.
Invariant: the files of tasks stay in staging until the commit, so after a run that died, the next
one merges again.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from falaj.pipeline.base import steps
from falaj.pipeline.base.frame import cores, watched
from falaj.pipeline.exporting.folders import Piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow
    from pyspark.sql import SparkSession

    from falaj.pipeline.base.frame import Progress

__all__ = ["MERGED_BYTES", "Merging", "in_spark", "merge"]

MERGED_BYTES = 64 << 20
"""A file is not made larger than this out of smaller ones."""
_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 64 << 20


def merge(
    spark: SparkSession,
    staging: Path,
    pieces: Iterable[Piece],
    records_max: int,
    compression: str,
    progress: Progress | None,
) -> list[Piece]:
    """Merge the small files of each date into one.

    Args:
        spark: The session; its executors see the folder.
        staging: Where the files are.
        pieces: The files that the tasks wrote.
        records_max: Most records of a file.
        compression: The compression of Parquet.
        progress: Learns how far it is.

    Returns:
        The files of the run: merged ones, and those that stay as they are.
    """
    together = _together(pieces, records_max)
    todo = [group for group in together if len(group) > 1]
    done = [group[0] for group in together if len(group) == 1]
    if todo:
        done += in_spark(spark, Merging(staging, compression), todo, progress)
    return sorted(done, key=lambda piece: piece.path)


def in_spark(
    spark: SparkSession, work: Merging, todo: list[list[Piece]], progress: Progress | None
) -> list[Piece]:
    """Merge in the executors, several groups in a task."""

    def do(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        for batch in batches:
            made = [work.do(todo[number]) for number in batch["id"].to_pylist()]
            text = [json.dumps(asdict(piece)) for piece in made]
            yield pyarrow.RecordBatch.from_pydict({"piece": pyarrow.array(text, "string")})

    count = min(len(todo), 2 * cores(spark))
    with watched(spark, progress, f"merging small files into {len(todo):,}"):
        rows = spark.range(0, len(todo), 1, count).mapInArrow(do, "piece STRING").collect()
    return [Piece(**json.loads(row.piece)) for row in rows]


def _together(pieces: Iterable[Piece], records_max: int) -> list[list[Piece]]:
    """Group the files that become one: of one date, in their order, and small together."""
    groups: list[list[Piece]] = []
    in_order = sorted(pieces, key=lambda piece: piece.path)
    for _, same in groupby(in_order, key=lambda piece: piece.path.split("/")[0]):
        size = records = 0
        groups.append([])
        for piece in same:
            size, records = size + piece.bytes, records + piece.records
            if groups[-1] and (size > MERGED_BYTES or records > records_max):
                groups.append([])
                size, records = piece.bytes, piece.records
            groups[-1].append(piece)
    return groups


@dataclass(frozen=True)
class Merging:
    """The settings that a task merges files by.

    Attributes:
        staging: Where the files are.
        compression: The compression of Parquet.
    """

    staging: Path
    compression: str

    def do(self, group: list[Piece]) -> Piece:
        """Write one file out of several; it gets the path of the first."""
        from pyarrow import parquet

        with steps.told(self.staging):
            staged = f"{group[0].staged.rpartition('.')[0]}.{secrets.token_hex(4)}"
            with (self.staging / staged).open("xb") as file:
                writer = None
                for table in self._tables(group):
                    if writer is None:
                        writer = parquet.ParquetWriter(
                            file, table.schema, compression=self.compression
                        )
                    writer.write_table(table, row_group_size=max(1, len(table)))
                assert writer is not None, "a file that a task wrote has rows"
                writer.close()
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            steps.sync(self.staging)
        records = sum(piece.records for piece in group)
        return replace(group[0], staged=staged, records=records, bytes=size)

    def _tables(self, group: list[Piece]) -> Iterator[pyarrow.Table]:
        """Read row groups, and put small ones together."""
        import pyarrow
        from pyarrow import parquet

        waiting: list[pyarrow.Table] = []
        rows = size = 0
        for piece in group:
            with parquet.ParquetFile(self.staging / piece.staged) as file:
                for number in range(file.num_row_groups):
                    waiting.append(file.read_row_group(number))
                    rows, size = rows + len(waiting[-1]), size + waiting[-1].nbytes
                    if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                        yield pyarrow.concat_tables(waiting)
                        waiting, rows, size = [], 0, 0
        if waiting:
            yield pyarrow.concat_tables(waiting)
