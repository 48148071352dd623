"""Input partitions: ranges of offsets that the driver fixes once, and how a task reads one.

The driver fixes every range before the first task runs. So a task that is retried reads the same
records, and no task reads records that come meanwhile. A range carries the generation of its topic.
So a topic that was created again between planning and reading counts as another one.
"""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

import falaj
from falaj.errors import InvalidArgument, NotAStore, TopicDeleted, UnknownTopic
from falaj.spark import stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from falaj._arguments import Visibility
    from falaj.spark.reading.loss import Loss
    from falaj.spark.reading.options import ReadOptions
    from falaj.spark.reading.pushdown import Pruning

__all__ = ["Range", "open_raw", "opened", "plan", "split"]

# Without `minPartitions`: tasks for all cores that the driver may use, none too small to be worth
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
    number: int = 0
    """The number of the place that this was planned from."""

    def __len__(self) -> int:
        return self.end - self.start

    def __bool__(self) -> bool:
        """Be true even if the range is empty."""
        return True


def plan(options: ReadOptions, loss: Loss, pruning: Pruning | None = None) -> list[Range]:
    """Look at the log and fix the range of each task of a batch.

    Args:
        options: The options of the user.
        loss: Decides what to do if requested offsets do not exist.
        pruning: The records that Spark's filters want.

    Returns:
        Ranges in the order of topics, partitions and offsets; none for empty topics.

    Raises:
        InvalidArgument: The requested offsets are not allowed.
        OffsetOutOfRange: They do not exist.
        Error: The store or a topic cannot be read.
    """
    whole: list[Range] = []
    with stores.opened(options.store, options.origin) as store:
        names = options.chosen(list(store.topics))
        if options.topics is None:
            options.starting.expect_topics(names)
            options.ending.expect_topics(names)
        for name in names:
            with open_raw(store, name, options.visibility) as topic:
                whole += _bounds(topic, options, loss, pruning, stores.number_of(store))
    return split([bounds for bounds in whole if len(bounds)], options.partitions_min)


def split(whole: list[Range], partitions_min: int | None) -> list[Range]:
    """Cut ranges into pieces of about one size; at least `partitions_min` if the records suffice.

    Args:
        whole: A range for each partition that has records.
        partitions_min: Fewest pieces; None to choose by the cores and the records.

    Returns:
        The pieces, in order; together they are the ranges.
    """
    records = sum(map(len, whole))
    if not records:
        return []
    if partitions_min is None:
        enough = -(-records // RECORDS_MIN)
        partitions_min = min(enough, TASKS_PER_CORE * len(os.sched_getaffinity(0)))
    pieces = []
    for bounds in whole:
        # Rounded up, so that the sum reaches the minimum.
        parts = min(len(bounds), -(-len(bounds) * partitions_min // records))
        cuts = [bounds.start + len(bounds) * part // parts for part in range(parts + 1)]
        pieces += [replace(bounds, start=start, end=end) for start, end in itertools.pairwise(cuts)]
    return pieces


@contextmanager
def opened(options: ReadOptions, bounds: Range, loss: Loss) -> Iterator[falaj.Topic[Any] | None]:
    """Open the partition of a range, in the process that reads it.

    Yields:
        The partition; None if it is lost and the options allow that.

    Raises:
        NotAStore: This machine does not see the store.
        TopicDeleted: The topic was deleted or created again since the range was planned.
    """
    with ExitStack() as held:
        try:
            at = held.enter_context(stores.opened(options.store, options.origin, bounds.number))
        except NotAStore as error:
            raise NotAStore(
                f"the executor on {socket.gethostname()} does not see the store that the driver "
                f"reads: {error}; executors must see it under the same path, {options.store}"
            ) from None
        try:
            topic = open_raw(at, bounds.topic)
        except UnknownTopic:
            gone = f"topic {bounds.topic} was deleted after Spark planned to read it"
            loss.meet(TopicDeleted(gone))
            yield None
            return
        with topic:
            if topic.generation == bounds.generation:
                yield topic.partition(bounds.partition)
                return
            gone = (
                f"topic {bounds.topic} was deleted and created again after Spark planned to read it"
            )
            loss.meet(TopicDeleted(gone))
            yield None


def open_raw(
    store: falaj.Store, name: str, visibility: Visibility = "visible"
) -> falaj.Topic[Any] | falaj.PartitionedTopic[Any]:
    """Open a topic without its codec: the column has the bytes, even those of pickles.

    Raises:
        UnknownTopic: There is no such topic, even if the store is open for writing.
    """
    return store.any_topic(name, codec=falaj.RAW, visibility=visibility)


def make(store: falaj.Store, name: str, partitions: int, codec: str | None = None) -> None:
    """Create a topic if it does not exist.

    Raises:
        SettingsMismatch: It exists, with another number of partitions or another codec.
    """
    if partitions == 1:
        store.topic(name, codec=codec).close()
    else:
        store.partitioned_topic(name, partitions=partitions, codec=codec).close()


def _bounds(
    topic: falaj.AnyTopic[Any],
    options: ReadOptions,
    loss: Loss,
    pruning: Pruning | None,
    number: int,
) -> Iterator[Range]:
    options.starting.expect_partitions(topic.name, topic.partitions)
    options.ending.expect_partitions(topic.name, topic.partitions)
    for partition in topic.partitions:
        part = topic.partition(partition)
        first, end = part.start_offset, part.end_offset
        start = options.starting.resolve(part, first, end, loss)
        stop = options.ending.resolve(part, first, end, loss)
        if start > stop:
            raise InvalidArgument(
                f"{options.starting.option} ({start}) lies behind {options.ending.option} ({stop}) "
                f"for topic {topic.name}, partition {partition}"
            )
        if pruning is not None:
            start, stop = pruning.cut(part, start, stop)
        yield Range(topic.name, topic.generation, partition, start, stop, number)
