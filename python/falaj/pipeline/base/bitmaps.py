"""Sets of offsets that Spark finds and the driver collects: one bit for each record, not one row.

Owns how such sets reach the driver. Spark limits what a driver may collect
(`spark.driver.maxResultSize`), and a row for each of a hundred million keys exceeds it. One bit for
each record between the first and the last takes a hundredth of that.

Invariant: the bitmap of a partition covers whole buckets of Spark's, and has exactly the offsets
whose flag is true. A partition without such an offset has no bitmap.
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
    """A set of offsets of one partition.

    Attributes:
        first: The offset of the first bit.
        bits: One byte for each eight offsets; the lowest bit is the first offset.
    """

    first: int
    bits: numpy.ndarray

    def has(self, offsets: numpy.ndarray) -> numpy.ndarray:
        """Tell for each offset whether the set has it."""
        places = offsets - self.first
        within = (places >= 0) & (places < len(self.bits) * 8)
        places = places * within  # of those outside any place will do
        found: numpy.ndarray = within & ((self.bits[places >> 3] >> (places & 7)) & 1).astype(bool)
        return found

    def offsets(self) -> numpy.ndarray:
        """List the offsets in ascending order, 8 bytes each."""
        import numpy

        found = [
            numpy.flatnonzero(numpy.unpackbits(self.bits[start:][:_AT_ONCE], bitorder="little"))
            + (self.first + start * 8)
            for start in range(0, len(self.bits), _AT_ONCE)
        ]
        return numpy.concatenate(found).astype(numpy.uint64, copy=False)


def collect(records: DataFrame, *flags: str) -> list[dict[int, Bitmap]]:
    """Collect the offsets at which a flag is true.

    Args:
        records: Has the columns `partition` and `offset`, and the flags.
        flags: Names of boolean columns.

    Returns:
        For each flag, the offsets at which it is true, by partition.
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
