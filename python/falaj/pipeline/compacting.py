"""`compact`: keep only the last of all records of a topic that have the same key.

Owns how Spark finds those records. It is for topics with more keys than one process can keep in
memory. The log itself then removes the others (`Topic.compact`). The rules are there: which records
stay in any case, when tombstones expire, and how readers and writers go on meanwhile.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import falaj
from falaj._compaction import CompactReport, Last
from falaj.errors import InvalidArgument, UnknownTopic
from falaj.pipeline.base import bitmaps
from falaj.pipeline.base.frame import SILENT, Config, Result, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from falaj.pipeline.base.bitmaps import Bitmap
    from falaj.pipeline.base.frame import Progress

__all__ = ["CompactConfig", "CompactResult", "compact"]

_DAY = 86_400.0
"""Seconds."""


@dataclass(frozen=True, kw_only=True)
class CompactConfig(Config):
    """Settings of `compact`.

    Attributes:
        store: Directory of the store.
        topic: Name of the topic; it must be marked compacted, and must not share its log.
        delete_retention: For how many seconds a tombstone stays once all records that it hides are
            gone.
        seal: Whether to begin a new file first, so that the compaction covers all records. This is
            for a topic that no process writes to for a while.
    """

    topic: str
    delete_retention: float = _DAY
    seal: bool = False

    def __post_init__(self) -> None:
        """Check what can be checked without the topic."""
        super().__post_init__()
        if not 0 <= self.delete_retention < 1e12:
            raise InvalidArgument(
                f"delete_retention is seconds, from 0 up, not {self.delete_retention}"
            )


@dataclass(frozen=True, kw_only=True)
class CompactResult(Result):
    """The result of a compaction.

    `records` is how many records it examined; `bytes` is how much space it freed on the disk.

    Attributes:
        keys: How many keys there are.
        removed: How many records it removed.
        tombstones: How many of those were tombstones past their retention.
        segments: How many files it examined.
        segments_removed: How many of those it removed.
    """

    keys: int
    removed: int
    tombstones: int
    segments: int
    segments_removed: int

    def rows(self) -> list[tuple[str, str]]:
        """Tell it to people."""
        told = [
            ("keys", f"{self.keys:,}"),
            ("removed", f"{self.removed:,}, {self.tombstones:,} of them tombstones"),
            ("files", f"{self.segments:,}, {self.segments_removed:,} of them deleted"),
        ]
        return [*told, *super().rows()]


def compact(
    spark: SparkSession, config: CompactConfig, *, progress: Progress | None = None
) -> CompactResult:
    """Keep only the last record of each key, in each partition by itself.

    `Topic.compact` does the same in one process. Offsets stay as they are, and other processes read
    and write meanwhile. The newest file is not compacted unless `seal` is true.

    Spark finds out which records are the last of their keys, and sends the driver two bits for each
    record. The driver turns them into 8 bytes for each key, or 16 for a key with one record. A run
    that was killed leaves the topic complete, and the next run finishes the work.

    Args:
        spark: The session; its executors must see the store.
        config: What to compact.
        progress: Learns how far it is.

    Returns:
        What it removed.

    Raises:
        InvalidArgument: The topic is not marked compacted, or shares its log with another one.
        UnknownTopic: There is no topic of this name.
        CorruptData: Part of the topic is corrupt; nothing was removed.
    """
    started = time.monotonic()
    told = progress or SILENT
    with falaj.open(config.store) as store:
        if config.topic not in store.topics:
            raise UnknownTopic(f"there is no topic {config.topic!r} in {config.store}")
        with store.any_topic(config.topic) as topic:
            # Refuses what cannot be compacted, before Spark reads all of it.
            topic.compact(last={}, seal=config.seal)
            topic.flush()
            ends = {p: topic.partition(p).end_offset for p in topic.partitions}
            with watched(spark, progress, f"find the last records of {config.topic}"):
                last = _last(spark, config, ends)
            told.say(f"compact {config.topic}")
            done = _compact(topic, config, last, told)
    return CompactResult(
        records=done["records"],
        bytes=done["bytes_before"] - done["bytes_after"],
        seconds=time.monotonic() - started,
        keys=sum(len(of.offsets) for of in last.values()),
        removed=done["removed"],
        tombstones=done["tombstones"],
        segments=done["segments"],
        segments_removed=done["segments_removed"],
    )


def _compact(
    topic: falaj.AnyTopic[Any], config: CompactConfig, last: dict[int, Last], told: Progress
) -> CompactReport:
    before = 0

    def tell(done: int, total: int) -> None:
        nonlocal before
        if before == 0:
            told.total(total)
        told.advance(done - before)
        before = done

    return topic.compact(delete_retention=config.delete_retention, last=last, progress=tell)


def _last(spark: SparkSession, config: CompactConfig, ends: dict[int, int]) -> dict[int, Last]:
    """Find the last records before these ends."""
    found = _last_records(_read(spark, config, ends))
    last, alone = bitmaps.collect(found, "last", "alone")
    return {
        partition: Last(end, _offsets(last.get(partition)), _offsets(alone.get(partition)))
        for partition, end in ends.items()
    }


def _offsets(found: Bitmap | None) -> Any:
    return array("Q") if found is None else found.offsets()


def _read(spark: SparkSession, config: CompactConfig, ends: dict[int, int]) -> DataFrame:
    """Read partition, offset and key of all records before these ends."""
    import json

    until = json.dumps({config.topic: {str(p): end for p, end in ends.items()}})
    reader = spark.read.format("falaj").option("store", str(config.store))
    reader = reader.option("subscribe", config.topic).option("endingOffsets", until)
    return reader.schema("partition INT, offset BIGINT, key BINARY").load()


def _last_records(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    keyed = records.where(functions.col("key").isNotNull()).groupBy("partition", "key")
    return keyed.agg(
        functions.max("offset").alias("offset"),
        functions.lit(True).alias("last"),
        (functions.count("*") == 1).alias("alone"),
    )
