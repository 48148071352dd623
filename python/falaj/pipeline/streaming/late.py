"""Late records: how many there are, and which one was the first.

Spark leaves rows out of a windowed sum if their windows are closed, and reports their number. But
it sums up records before that, so one such row may stand for many records. If Spark reports any,
this module reads the batch once more and compares its records with the same watermark. The
checkpoint has the watermark of each batch: Spark compares late records with that of the batch
before.
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
    """The late records of a batch.

    Attributes:
        records: How many there are.
        partition: The partition of the first one.
        offset: Its offset.
    """

    records: int
    partition: int
    offset: int


def left_out(batch: Batch) -> bool:
    """Tell whether Spark left rows out of a batch."""
    return any(each.numRowsDroppedByWatermark for each in batch.told.stateOperators)


def watermark_ms(query: Path, number: int) -> int:
    """Find the watermark of a batch in Spark's part of a checkpoint.

    Returns:
        Milliseconds since 1970; 0 if there was none yet, as before the first batch.
    """
    with suppress(FileNotFoundError):
        for line in (query / "offsets" / str(number)).read_text().splitlines():
            with suppress(ValueError):
                document = json.loads(line)
                if isinstance(document, dict) and "batchWatermarkMs" in document:
                    return int(document["batchWatermarkMs"])
    return 0


def among(rows: DataFrame, window: Column, ms: int) -> Late | None:
    """Count the records with a closed window.

    Args:
        rows: The records.
        window: The expression for the window of a record, or for its windows.
        ms: The watermark.

    Returns:
        The late records; None if there are none.
    """
    place = F.struct(f"{RECORD}.partition", f"{RECORD}.offset")
    closed = F.col("window.end") <= F.timestamp_millis(F.lit(ms))
    late = rows.select(place.alias("place"), window.alias("window")).where(closed)
    found = late.agg(F.count_distinct("place").alias("records"), F.min("place").alias("first"))
    row = found.first()
    if row is None or not row.records:
        return None
    return Late(row.records, row["first"].partition, row["first"].offset)
