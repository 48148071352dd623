"""Records that came too late: how many, and which was the first.

Spark leaves out of a windowed sum what belongs to windows that are closed, and tells how many rows
it left out, of a plan in which records were summed up before. So where it tells of any, the batch
is read once more and its records are held against the same watermark. That of a batch is in the
checkpoint: Spark holds late records against the watermark of the batch before.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

from falaj.pipeline.streaming.flow import RECORD

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

    from falaj.pipeline.streaming.runs import Batch

__all__ = ["Late", "among", "left_out", "watermark_ms"]


@dataclass(frozen=True, slots=True)
class Late:
    """Late records of a batch.

    Attributes:
        records: How many.
        partition: That of the first of them.
        offset: Its offset.
    """

    records: int
    partition: int
    offset: int


def left_out(batch: Batch) -> bool:
    """Say whether Spark left something out of a batch."""
    return any(each.numRowsDroppedByWatermark for each in batch.told.stateOperators)


def watermark_ms(query: Path, number: int) -> int:
    """Find the watermark of a batch in Spark's part of a checkpoint.

    Returns:
        Milliseconds since 1970; 0 where there was none yet, as before the first batch.
    """
    with suppress(FileNotFoundError):
        for line in (query / "offsets" / str(number)).read_text().splitlines():
            with suppress(ValueError):
                document = json.loads(line)
                if isinstance(document, dict) and "batchWatermarkMs" in document:
                    return int(document["batchWatermarkMs"])
    return 0


def among(rows: DataFrame, window: Column, ms: int) -> Late | None:
    """Count the records that have a closed window.

    Args:
        rows: The records.
        window: What makes the window of a record, or its windows.
        ms: The watermark.

    Returns:
        What came late; None if nothing did.
    """
    place = F.struct(f"{RECORD}.partition", f"{RECORD}.offset")
    closed = F.col("window.end") <= F.timestamp_millis(F.lit(ms))
    late = rows.select(place.alias("place"), window.alias("window")).where(closed)
    found = late.agg(F.count_distinct("place").alias("records"), F.min("place").alias("first"))
    row = found.first()
    if row is None or not row.records:
        return None
    return Late(row.records, row["first"].partition, row["first"].offset)
