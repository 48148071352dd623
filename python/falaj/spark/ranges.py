"""Input partitions: ranges of offsets, decided once on the driver.

Every range is fixed before the first task runs, so that a task that is retried reads the same
records, and records that come meanwhile are in no task. A range carries its topic's generation: a
topic that was deleted and made anew between planning and reading is not taken for the old one.
"""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

import falaj
from falaj.errors import Invalid, TopicDeleted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from falaj.spark.options import ReadOptions

__all__ = ["Range", "opened", "plan"]

# Without `minPartitions`: tasks for all cores of the driver's machine, none too small to be worth
# its start.
TASKS_PER_CORE = 2
RECORDS_MIN = 10_000


@dataclass(frozen=True)
class Range(InputPartition):
    """Records [start, end) of one partition of a topic."""

    topic: str
    generation: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __bool__(self) -> bool:
        """Be true even where it is empty."""
        return True


def plan(options: ReadOptions) -> list[Range]:
    """Look at the log and decide what each task reads.

    Args:
        options: What the user asked for.

    Returns:
        Ranges in the order of topics, partitions and offsets; none for empty topics.

    Raises:
        Invalid: The offsets asked for are not there.
        Error: The store or a topic cannot be read.
    """
    whole = []
    with falaj.open(options.store, "r") as store:
        for name in options.topics:
            with _raw(store, name) as topic:
                whole += [bounds for bounds in _bounds(topic, options) if len(bounds)]
    return split(whole, options.partitions_min)


def split(whole: list[Range], partitions_min: int | None) -> list[Range]:
    """Cut ranges into pieces of about one size, at least as many as asked for if there are enough.

    Args:
        whole: A range for each partition that has records.
        partitions_min: Fewest pieces, or None to go by the cores and the records.

    Returns:
        The pieces, in order; together they are the ranges.
    """
    records = sum(map(len, whole))
    if not records:
        return []
    if partitions_min is None:
        enough = -(-records // RECORDS_MIN)
        partitions_min = min(enough, TASKS_PER_CORE * (os.cpu_count() or 1))
    pieces = []
    for bounds in whole:
        # Rounded up, so that the sum reaches the minimum.
        parts = min(len(bounds), -(-len(bounds) * partitions_min // records))
        cuts = [bounds.start + len(bounds) * part // parts for part in range(parts + 1)]
        pieces += [
            Range(bounds.topic, bounds.generation, bounds.partition, start, end)
            for start, end in itertools.pairwise(cuts)
        ]
    return pieces


@contextmanager
def opened(store: Path, bounds: Range) -> Iterator[falaj.Topic[Any]]:
    """Open the partition that a range is of, in the process that reads it.

    Raises:
        TopicDeleted: The topic is another one than when the range was planned.
    """
    with falaj.open(store, "r") as at, _raw(at, bounds.topic) as topic:
        if topic.generation != bounds.generation:
            raise TopicDeleted(
                f"topic {bounds.topic} was deleted and made anew while Spark read it: "
                "run the query again"
            )
        yield topic.partition(bounds.partition)


def _bounds(topic: falaj.Topic[Any], options: ReadOptions) -> Iterator[Range]:
    options.starting.check(topic.name, topic.partitions)
    options.ending.check(topic.name, topic.partitions)
    for partition in topic.partitions:
        part = topic.partition(partition)
        first, end = part.first, part.end
        start = options.starting.resolve(topic.name, partition, first, end)
        stop = options.ending.resolve(topic.name, partition, first, end)
        if start > stop:
            raise Invalid(
                f"startingOffsets ({start}) lie behind endingOffsets ({stop}) for topic "
                f"{topic.name}, partition {partition}"
            )
        yield Range(topic.name, topic.generation, partition, start, stop)


def _raw(store: falaj.Store, name: str) -> falaj.Topic[Any]:
    """Open a topic without running its codec: the column is the bytes, pickles included."""
    opened = store._open_topic(
        name,
        codec=None,
        resolve=lambda _: (None, None),
        partitions=None,
        segment_bytes=None,
        sync_interval_ms=None,
        sync=None,
        verify=None,
    )
    return falaj.Topic(opened, store)
