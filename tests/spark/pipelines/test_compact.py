"""Compaction by Spark leaves what plain Python says, and what compaction without Spark leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import falaj
from falaj.errors import Compacted, Invalid, NoSuchTopic
from falaj.pipeline import CompactConfig, compact
from spark.pipelines.conftest import JANUARY, TOPIC, fill

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from falaj.demo import flights as data
    from spark.pipelines.conftest import Told


@pytest.fixture
def planes(tmp_path: Path, january_flights: list[data.Flight]) -> Path:
    """The flights of January, of which the last one of each plane and airport counts."""
    flown = fill(tmp_path / "store", january_flights)
    with falaj.open(flown.store) as store, store.topic(TOPIC) as flights:
        flights.configure(compacted=True)
    return flown.store


def left(path: Path) -> set[tuple[int, int]]:
    with falaj.open(path, "r") as store, store.topic(TOPIC) as flights:
        return {(record.partition, record.offset) for record in flights}


def test_what_is_left_is_what_plain_python_says(
    spark: SparkSession, planes: Path, told: Told
) -> None:
    last: dict[tuple[int, bytes], int] = {}
    keyless = set()
    with falaj.open(planes) as store, store.topic(TOPIC) as flights:
        for record in flights:
            if record.key is None:
                keyless.add((record.partition, record.offset))
            else:
                last[record.partition, record.key] = record.offset
    wanted = {(partition, offset) for (partition, _), offset in last.items()} | keyless
    config = CompactConfig(store=planes, topic=TOPIC, seal=True)
    result = compact(spark, config, progress=told)
    assert left(planes) == wanted
    assert (result.records, result.keys) == (JANUARY, len(last))
    assert result.removed == JANUARY - len(wanted)
    assert result.bytes > 0
    assert told.said == [f"find the last records of {TOPIC}", f"compact {TOPIC}"]
    assert dict(result.rows())["keys"] == f"{len(last):,}"
    with falaj.open(planes) as store, store.topic(TOPIC) as flights:
        assert flights.compact()["removed"] == 0, "without Spark nothing more goes"
        gone = next(offset for offset in range(JANUARY) if (0, offset) not in wanted)
        with pytest.raises(Compacted):
            flights.partition(0)[gone]
    # Spark reads what is left, offsets with gaps and all.
    reading = spark.read.format("falaj").options(store=str(planes), subscribe=TOPIC).load()
    rows = reading.select("partition", "offset").collect()
    assert {(row.partition, row.offset) for row in rows} == wanted


def test_what_cannot_be_compacted_is_refused_before_anything_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    with falaj.open(tmp_path / "s") as store:
        store.topic("plain")
    with pytest.raises(Invalid, match="not marked compacted"):
        compact(spark, CompactConfig(store=tmp_path / "s", topic="plain"))
    with pytest.raises(NoSuchTopic, match="'other'"):
        compact(spark, CompactConfig(store=tmp_path / "s", topic="other"))
    with pytest.raises(Invalid, match="from 0 up"):
        CompactConfig(store=tmp_path / "s", topic="plain", delete_retention=-1.0)
