"""Compaction by Spark leaves what plain Python says, and what compaction without Spark leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.errors import InvalidArgument, RecordCompacted, UnknownTopic
from falaj.pipeline import CompactConfig, compact, compacting
from spark.pipelines.conftest import JANUARY, TOPIC, fill

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from falaj.demo import flights as data
    from spark.pipelines.conftest import Told


@pytest.fixture
def planes(tmp_path: Path, january_flights: list[data.Flight]) -> Path:
    """The flights of January; the last one of each plane and airport counts."""
    flown = fill(tmp_path / "store", january_flights)
    with falaj.open(flown.store) as store, store.any_topic(TOPIC) as flights:
        flights.configure(compacted=True)
    return flown.store


def left(path: Path) -> set[tuple[int, int]]:
    with falaj.open(path, read_only=True) as store, store.any_topic(TOPIC) as flights:
        return {(record.partition, record.offset) for record in flights}


def test_what_is_left_is_what_plain_python_says(
    spark: SparkSession, planes: Path, told: Told
) -> None:
    last: dict[tuple[int, bytes], int] = {}
    keyless = set()
    with falaj.open(planes) as store, store.any_topic(TOPIC) as flights:
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
    with falaj.open(planes) as store, store.any_topic(TOPIC) as flights:
        assert flights.compact()["removed"] == 0, "without Spark nothing more goes"
        gone = next(offset for offset in range(JANUARY) if (0, offset) not in wanted)
        with pytest.raises(RecordCompacted):
            flights.partition(0)[gone]
    # Spark reads what is left, offsets with gaps and all.
    reading = spark.read.format("falaj").options(store=str(planes), subscribe=TOPIC).load()
    rows = reading.select("partition", "offset").collect()
    assert {(row.partition, row.offset) for row in rows} == wanted


Kept = tuple[int, bytes | None, bytes | None]


def kept(path: Path) -> list[Kept]:
    """List offset, key and value of the one partition of `t`."""
    with falaj.open(path, read_only=True) as store, store.any_topic("t") as topic:
        return [
            (record.offset, record.key, None if record.raw is None else record.to_bytes())
            for record in topic
        ]


@pytest.mark.parametrize("before", ["_read", "_compact"])
def test_what_is_appended_between_sparks_reading_and_the_swap_is_all_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    path = tmp_path / "s"
    with falaj.open(path) as store, store.topic("t", compacted=True) as topic:
        topic.extend([(b"a", b"0"), (b"b", b"1"), (b"a", b"2"), (b"c", b"3"), b"4"])
        topic.extend([(b"b", b"5"), (b"gone", b"6")])
        topic.tombstone(b"gone")
    meanwhile: list[Kept] = [
        (8, b"a", b"of a writer"),  # written over, and
        (9, b"new", b"key"),
        (10, b"b", None),  # deleted, and
        (11, b"unknown", None),
        (12, None, b"without a key"),
        (13, b"a", b"of a writer, once more"),
    ]
    step = getattr(compacting, before)

    def after_a_writer(*given: Any) -> Any:
        with falaj.open(path) as store, store.topic("t") as topic:
            for _, key, value in meanwhile:
                if value is None:
                    topic.tombstone(key or b"")
                else:
                    topic.append(value, key=key)
            # Its file is ended, and so the swap looks at it as well.
            topic.compact(last={}, seal=True)
        return step(*given)

    monkeypatch.setattr(compacting, before, after_a_writer)
    result = compact(spark, CompactConfig(store=path, topic="t", seal=True))
    # By the keys that there were when it began, though some of these records are old by now.
    old = [(2, b"a", b"2"), (3, b"c", b"3"), (4, None, b"4"), (5, b"b", b"5"), (7, b"gone", None)]
    assert kept(path) == [*old, *meanwhile]
    assert (result.removed, result.keys) == (3, 4)
    monkeypatch.setattr(compacting, before, step)
    assert compact(spark, CompactConfig(store=path, topic="t", seal=True)).removed == 3
    left = [record for record in [*old, *meanwhile] if record[0] not in (2, 5, 8)]
    assert kept(path) == left


def test_what_cannot_be_compacted_is_refused_before_anything_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    with falaj.open(tmp_path / "s") as store:
        store.topic("plain")
    with pytest.raises(InvalidArgument, match="not marked compacted"):
        compact(spark, CompactConfig(store=tmp_path / "s", topic="plain"))
    with pytest.raises(UnknownTopic, match="'other'"):
        compact(spark, CompactConfig(store=tmp_path / "s", topic="other"))
    with pytest.raises(InvalidArgument, match="from 0 up"):
        CompactConfig(store=tmp_path / "s", topic="plain", delete_retention=-1.0)
