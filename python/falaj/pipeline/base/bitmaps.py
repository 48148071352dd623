"""Sets of offsets that Spark finds and the driver gets: a bit for each record, not a row.

Owns how they travel. A row for each of a hundred million keys is more than Spark lets a driver have
(`spark.driver.maxResultSize`); a bit for each record between the first and the last is a hundredth
of that. Invariant: of each partition there are the offsets that were true, in a whole number of
Spark's buckets, and nothing of a partition in which none was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

if TYPE_CHECKING:
    import numpy
    from pyspark.sql import DataFrame

__all__ = ["Bitmap", "collect"]

_BUCKET = 32_768
"""Bits of one of Spark's bitmaps."""
_AT_ONCE = 1 << 20
"""Bytes that are looked at together: eight times that is what it takes for a moment."""


@dataclass(frozen=True)
class Bitmap:
    """Offsets of a partition.

    Attributes:
        first: The offset of the first bit.
        bits: A byte for each eight, the lowest first.
    """

    first: int
    bits: numpy.ndarray

    def has(self, offsets: numpy.ndarray) -> numpy.ndarray:
        """Say of each offset whether it is there."""
        places = offsets - self.first
        within = (places >= 0) & (places < len(self.bits) * 8)
        places = places * within  # of those outside any place will do
        found: numpy.ndarray = within & ((self.bits[places >> 3] >> (places & 7)) & 1).astype(bool)
        return found

    def offsets(self) -> numpy.ndarray:
        """List them, 8 bytes each, in order."""
        import numpy

        found = [
            numpy.flatnonzero(numpy.unpackbits(self.bits[start:][:_AT_ONCE], bitorder="little"))
            + (self.first + start * 8)
            for start in range(0, len(self.bits), _AT_ONCE)
        ]
        return numpy.concatenate(found).astype(numpy.uint64, copy=False)


def collect(records: DataFrame, *flags: str) -> list[dict[int, Bitmap]]:
    """Bring the offsets that have a flag to the driver.

    Args:
        records: With the columns `partition` and `offset`, and these.
        flags: Names of boolean columns.

    Returns:
        For each of the flags: by partition, where it is true.
    """
    # Spark numbers its bits from 1.
    at = "`offset` + 1"
    sets = [
        F.expr(f"bitmap_construct_agg(bitmap_bit_position({at})) FILTER (WHERE `{flag}`)")
        for flag in flags
    ]
    bucket = F.expr(f"bitmap_bucket_number({at}) - 1").alias("bucket")
    some = records.where(" OR ".join(f"`{flag}`" for flag in flags))
    found = some.groupBy("partition", bucket).agg(
        *(each.alias(flag) for each, flag in zip(sets, flags, strict=True))
    )
    table = found.toArrow()
    return [_by_partition(table, flag) for flag in flags]


def _by_partition(table: pyarrow.Table, flag: str) -> dict[int, Bitmap]:
    import numpy

    found = {}
    for partition in table["partition"].unique().to_pylist():
        own = table.filter(pyarrow.compute.equal(table["partition"], partition))
        buckets = own["bucket"].to_numpy()
        low, high = int(buckets.min()), int(buckets.max())
        bits = numpy.zeros((high - low + 1, _BUCKET // 8), dtype=numpy.uint8)
        for bucket, raw in zip(buckets, own[flag], strict=True):
            # A bucket in which it is true of none has no bitmap, or an empty one.
            if raw.is_valid:
                bits[bucket - low] = numpy.frombuffer(raw.as_buffer(), dtype=numpy.uint8)
        if bits.any():
            found[partition] = Bitmap(low * _BUCKET, bits.reshape(-1))
    return found
