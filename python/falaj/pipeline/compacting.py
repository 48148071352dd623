"""`compact`: of all records of a topic with the same key the last one stays.

Owns finding out which records those are, by Spark, for topics with more keys than one process
likes to remember; the log itself then leaves out the others (`Topic.compact`), which is where the
rules are: what stays anyhow, tombstones, readers and writers meanwhile.
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
        topic: Name of the topic; it has to be marked compacted, and to have its log to itself.
        delete_retention: For how many seconds a tombstone stays once all that it hides is gone.
        seal: Whether to begin a new file first, so that all that was appended is looked at: for a
            topic that no process writes to for a while.
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

    `records` is how many it looked at, `bytes` how many less the topic takes on the disk.

    Attributes:
        keys: How many keys there are.
        removed: Records that are gone.
        tombstones: How many of those were tombstones whose time was over.
        segments: Files that it looked at.
        segments_removed: How many of those are gone.
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
    """Leave of all records with the same key the last one, in each partition by itself.

    As `Topic.compact`, which does the same in one process: offsets stay, others read and write
    meanwhile, what lies in the newest file stays unless `seal` is asked for. Spark finds out which
    records are the last of their keys, and sends the driver two bits for each record, which makes 8
    bytes of each key there, 16 of one that stands alone. A run that was
    killed leaves a whole topic, and the next one finishes.

    Args:
        spark: The session; its executors must see the store.
        config: What to compact.
        progress: Whom to tell how far it is.

    Returns:
        What went.

    Raises:
        InvalidArgument: The topic is not marked compacted, or shares its log with another one.
        UnknownTopic: There is none of this name.
        CorruptData: Something of it is corrupt: nothing was removed.
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
