"""Late records: how many there are, and which one was the first.

Spark leaves rows out of a windowed sum if their windows are closed, and reports their number. But
it sums up records before that, so one such row may stand for many records. If Spark reports any,
this module reads the batch once more and compares its records with the same watermark. The
checkpoint has the watermark of each batch: Spark compares late records with that of the batch
before.

Spark's first watermark is 1970, and would make all records before that late. So a query works with
times that are moved by a *shift*, behind 1970, and its results are moved back. A job keeps its
shift, since its windows are in Spark's state.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

from falaj.pipeline.streaming.flow import RECORD

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

    from falaj.pipeline.streaming.runs import Batch

__all__ = ["Late", "among", "left_out", "moved", "shift_us", "shown", "watermark_ms"]

_SPAN_US = 2_000 * 366 * 86_400 * 10**6
"""More than the time from the year 1 to 1970."""
_UNITS_US = {
    "milliseconds": 10**3,
    "seconds": 10**6,
    "minutes": 60 * 10**6,
    "hours": 3_600 * 10**6,
    "days": 86_400 * 10**6,
    "weeks": 7 * 86_400 * 10**6,
}


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


def shift_us(slide: str) -> int:
    """Choose a shift in microseconds that leaves windows where they are.

    Args:
        slide: How far apart windows begin, as `interval` of `flow` returns it.

    Example:
        >>> shift_us("1 hours") % 3_600_000_000, shift_us("7 minutes") % (7 * 60 * 10**6)
        (0, 0)
    """
    count, unit = slide.split()
    step = int(count) * _UNITS_US[unit]
    return -(-_SPAN_US // step) * step


def moved(time: str, shift: int) -> Column:
    """Move a time by microseconds, whatever the zone of the session is.

    Args:
        time: SQL for it.
        shift: By how many microseconds, backwards if below 0.
    """
    if not shift:
        return F.expr(time)
    return F.expr(f"timestamp_micros(unix_micros({time}) + ({shift}L))")


def shown(ms: int, shift: int) -> str | None:
    """Write a watermark in UTC; None if it is before the year 1, where no record is.

    Example:
        >>> shown(1_795_161_600_000, 0), shown(0, 86_400_000_000)
        ('2026-11-20T08:00:00.000Z', '1969-12-31T00:00:00.000Z')
    """
    with suppress(OverflowError):
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms - shift // 1000)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return None
