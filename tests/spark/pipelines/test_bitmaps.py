"""Sets of offsets come from Spark as they are there."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy

from falaj.pipeline.base import bitmaps
from falaj.pipeline.base.bitmaps import Bitmap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_is_true_of_which_offsets_comes_to_the_driver(spark: SparkSession) -> None:
    drawn = random.Random(20261123)
    # Edges of Spark's buckets, a gap of several of them, one in which one flag is never true.
    places = [0, 32_766, 32_767, 32_768, 65_535, 65_536, 400_000, 400_001]
    rows = [
        (partition, offset, drawn.random() < 0.5, offset < 400_000 and drawn.random() < 0.3)
        for partition in (0, 3)
        for offset in {*places, *drawn.sample(range(100_000), 500)}
    ]
    rows += [(7, 5, False, False), (8, 6, True, False)]
    records = spark.createDataFrame(rows, "partition INT, offset BIGINT, one BOOLEAN, two BOOLEAN")
    found = bitmaps.collect(records.repartition(4), "one", "two")
    for flag, told in zip((2, 3), found, strict=True):
        wanted: dict[int, list[int]] = {}
        for row in sorted(rows):
            if row[flag]:
                wanted.setdefault(row[0], []).append(row[1])
        assert {partition: of.offsets().tolist() for partition, of in told.items()} == wanted
        assert all(of.offsets().dtype == numpy.uint64 for of in told.values())


def test_a_bitmap_has_what_it_lists_and_nothing_else() -> None:
    drawn = numpy.random.default_rng(20261123)
    # Longer than what is looked at together.
    bits = drawn.integers(0, 256, (1 << 20) + 4096, dtype=numpy.uint8)
    bitmap = Bitmap(65_536, bits)
    listed = bitmap.offsets().astype(numpy.int64)
    assert len(listed) == numpy.unpackbits(bits).sum()
    assert (numpy.diff(listed) > 0).all()
    around = numpy.arange(bitmap.first + len(bits) * 8 + 9)
    assert (around[bitmap.has(around)] == listed).all()
