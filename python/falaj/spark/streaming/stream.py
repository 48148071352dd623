"""`FalajStreamReader`: topics as a stream.

Spark keeps one reader in a process of the driver as long as a query runs. It asks this reader how
far to go, and how to cut the batch into ranges. It pickles another reader to the workers, which
read. Between calls the driver's reader keeps topics and cursors open; the others keep nothing open.

Invariant: no later batch has records before its start; the batch between two positions has exactly
the records between them. If the log no longer has them, `failOnDataLoss` decides, and no loss is
silent. A topic that the query no longer reads keeps its position in the checkpoint.

From PySpark 4.2 on, `latestOffset` gets a limit and the start. PySpark 4.1 passes nothing. There
the reader learns the position of the stream only when Spark plans a batch, so its cursors are one
batch behind.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from falaj.errors import InvalidArgument, LogTruncated, TopicDeleted
from falaj.spark import stores
from falaj.spark.reading import columns, ranges, sampling
from falaj.spark.reading.loss import STREAM_CHOICES, Loss, out_of_range, recreated
from falaj.spark.streaming import checkpoint
from falaj.spark.streaming.admission import admit
from falaj.spark.streaming.checkpoint import Place, Places, Standing, is_there, place_of
from falaj.spark.streaming.held import HeldTopics
from falaj.spark.streaming.lag import Cursors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
    from pyspark.sql.types import StructType

    import falaj
    from falaj.spark.reading.options import ReadOptions

    HAS_LIMITS = True
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS = True
    except ImportError:  # PySpark 4.1, which asks for all there is, always
        SupportsTriggerAvailableNow = object
        HAS_LIMITS = False

__all__ = ["FalajStreamReader"]

_REMEMBERED = 4
"""Places of a partition that need not be looked up again: both ends of this batch and the last."""


class FalajStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of the records of topics, in order within each partition."""

    def __init__(
        self, options: ReadOptions, schema: StructType, choices: str = STREAM_CHOICES
    ) -> None:
        columns.check(schema, options)
        if options.rate is not None and not HAS_LIMITS:
            raise InvalidArgument(
                "option maxOffsetsPerTrigger needs PySpark 4.2 or newer: upgrade it"
            )
        self.options = options
        self.schema = schema
        self.loss = Loss(options.fails_on_loss, choices)
        self._target: dict[tuple[str, str, int], int] | None = None
        self._topics = HeldTopics(options)
        self._cursors: Cursors | None = None
        self._recognised: dict[tuple[str, str, int], deque[Place]] = {}
        self._planned: dict[tuple[str, int], int] = {}
        self._started = self._sampled = False
        self._initial: Places | None = None
        """Where the query begins, until its first batch is planned."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Find where a query without a checkpoint begins."""
        found: Places = {}
        starting = self.options.starting
        with stores.opened(self.options.store, self.options.origin) as store:
            names = self.options.chosen(list(store.topics))
            if self.options.topics is None:
                starting.expect_topics(names)
            for name in names:
                with ranges.open_raw(store, name, self.options.visibility) as topic:
                    starting.expect_partitions(name, topic.partitions)
                    found[name] = Standing(topic.generation, {})
                    for part in topic._parts():
                        offset = starting.resolve(
                            part, part.start_offset, part.end_offset, self.loss
                        )
                        found[name].partitions[part.partitions[0]] = place_of(part, offset)
        self._initial = found
        return checkpoint.encode(found)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return `maxOffsetsPerTrigger` in Spark's form."""
        rate = self.options.rate
        return ReadAllAvailable() if rate is None else ReadMaxRows(rate)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the current ends: the query ends there."""
        self._target = {
            _lane(part): part.end_offset
            for topic in self._topics.now().values()
            for part in topic._parts()
        }

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Find where the next batch ends: at the end of all topics, or at the limit."""
        topics = self._topics.now()
        begun = self._begin(topics, {} if start is None else checkpoint.decode(start))
        if start is not None:
            self._follow(begun)
        waiting = {
            _lane(part): self._end(part, begun) - begun[name].partitions[number].offset
            for name, topic in topics.items()
            for number, part in enumerate(topic._parts())
        }
        if HAS_LIMITS and isinstance(limit, ReadMaxRows):
            turn = sum(p.offset for s in begun.values() for p in s.partitions.values())
            waiting = admit(waiting, limit.max_rows, turn)
        end = self._left_out(start) | {
            name: Standing(
                topic.generation,
                {
                    number: _moved(part, begun[name].partitions[number], waiting)
                    for number, part in enumerate(topic._parts())
                },
            )
            for name, topic in topics.items()
        }
        self._planned = {
            (name, number): place.offset
            for name, standing in end.items()
            for number, place in standing.partitions.items()
        }
        if start is not None and end == checkpoint.decode(start):
            return start  # as a text, too, or Spark would take it for news
        is_first = start is None or checkpoint.decode(start) == self._initial
        return checkpoint.encode(end, self._initial if is_first else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Report the ends of the topics, and the lag behind them, for the progress of the query.

        Spark accepts no metrics from a source in Python; this text is the only one that the
        progress shows unchanged. The lag is that of the batch that was planned last. It
        counts offsets: to count records of compacted topics, each batch would read the log.
        """
        ends = {
            name: {n: part.end_offset for n, part in enumerate(topic._parts())}
            for name, topic in self._topics.now().items()
        }
        topics = {
            name: {
                str(n): {"offset": end, "lag": max(0, end - self._planned.get((name, n), end))}
                for n, end in each.items()
            }
            for name, each in ends.items()
        }
        lag = sum(each["lag"] for parts in topics.values() for each in parts.values())
        return {"lag": lag, "topics": topics}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[ranges.Range]:
        """Fix the range of each task of a batch."""
        # When a first batch is planned again Spark says only where it would begin now.
        began = None if start == end else checkpoint.beginning(end)
        before, until = began or checkpoint.decode(start), checkpoint.decode(end)
        self._initial = None
        whole = []
        with (
            stores.opened(self.options.store, self.options.origin) as store,
            ExitStack() as opened,
        ):
            topics = {}
            for name, standing in until.items():
                if before.get(name) == standing and not self._reads(name):
                    continue  # left out: its place is only kept
                if name not in store.topics:
                    self.loss.meet(_deleted(name))
                    continue
                topic = opened.enter_context(ranges.open_raw(store, name))
                if topic.generation == standing.generation:
                    topics[name] = topic
                else:
                    self.loss.meet(recreated(name))
            begun = self._begin(topics, before)
            if not HAS_LIMITS:
                self._follow(begun)
            for name, topic in topics.items():
                for number, part in enumerate(topic._parts()):
                    first = begun[name].partitions[number].offset
                    stop = self._there(part, until[name].partitions[number])
                    if first < stop:
                        planned = stores.number_of(store)
                        whole.append(
                            ranges.Range(name, topic.generation, number, first, stop, planned)
                        )
        if whole and not self._sampled:
            self._sampled = True
            sampling.warn(self.options, self.schema, whole, self.loss)
        return ranges.split(whole, self.options.partitions_min)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the range of one task."""
        if not isinstance(partition, ranges.Range):
            return
        with ranges.opened(self.options, partition, self.loss) as part:
            if part is not None:
                yield from columns.batches(
                    part, partition.start, partition.end, self.schema, self.options, self.loss
                )

    def commit(self, end: dict[str, Any]) -> None:
        """Move the cursors: Spark is done with the records before `end`."""
        if self._cursors is not None:
            at = checkpoint.decode(end)
            self._cursors.move({name: at[name] for name in at if self._reads(name)})

    def stop(self) -> None:
        """Close the topics and the cursors."""
        self._topics.close()
        if self._cursors is not None:
            self._cursors.close()

    def _begin(self, topics: dict[str, falaj.AnyTopic[Any]], kept: Places) -> Places:
        """Find where to continue in existing topics, from their kept positions.

        A topic that is new to the stream begins with its first record. A topic that is not read
        keeps its position.
        """
        for name in kept.keys() - topics.keys():
            if self._reads(name):
                self.loss.meet(_deleted(name))
            else:
                self.loss.warn(
                    f"topic {name} is in the checkpoint and not read: the query keeps its place, "
                    "and resumes there when the topic is subscribed to again"
                )
        found = {}
        for name, topic in topics.items():
            known = kept.get(name)
            if known is not None and known.generation != topic.generation:
                self.loss.meet(recreated(name))
                known = None
            at = {} if known is None else known.partitions
            found[name] = Standing(
                topic.generation,
                {
                    number: self._go_on(part, at[number])
                    if number in at
                    else Place(part.start_offset)
                    for number, part in enumerate(topic._parts())
                },
            )
        return found

    def _go_on(self, part: falaj.Topic[Any], place: Place) -> Place:
        """Return where to continue: at the place, if the log still has it."""
        there = self._there(part, place)
        first = part.start_offset
        if there < first:
            lost = f"{_named(part)}: records {there} to {first} were trimmed before they were read"
            self.loss.meet(out_of_range(lost, part, there, first, part.end_offset))
            there = first
        return place if there == place.offset else Place(there)

    def _there(self, part: falaj.Topic[Any], place: Place) -> int:
        """Check that the log has the records before a place; return the offset to continue at."""
        recognised = self._recognised.setdefault(_lane(part), deque(maxlen=_REMEMBERED))
        if place in recognised:
            return place.offset
        committed = part.visible_offset
        if place.offset > committed:
            lost = (
                f"{_named(part)} ends at {committed}, and the query has read up to {place.offset}: "
                "its log lost its end, or is an older copy"
            )
            self.loss.meet(LogTruncated(lost))
            return committed
        if place.after and place.offset > part.start_offset and not is_there(part, place):
            lost = (
                f"{_named(part)} holds other records before offset {place.offset} than those that "
                "the query has read: its log lost its end, or is an older copy"
            )
            self.loss.meet(LogTruncated(lost))
        recognised.append(place)
        return place.offset

    def _end(self, part: falaj.Topic[Any], begun: Places) -> int:
        """Return how far a partition may be read; never before the position that was read."""
        start = begun[part.name].partitions[part.partitions[0]].offset
        end = part.end_offset if self._target is None else self._target.get(_lane(part), start)
        return max(start, min(end, part.end_offset))

    def _follow(self, begun: Places) -> None:
        """Move the cursors to the position of the stream, before which all records are done.

        Spark asks for the next batch when the one before is done. It calls `commit` of a batch only
        if another batch follows.
        """
        if not self._started:
            self.options.warn_of_ignored()
            if self.options.consumer is not None and isinstance(self.options.store, Path):
                self._cursors = Cursors(self.options.store, self.options.consumer, self.loss)
                self._cursors.begin(begun)
            self._started = True
        elif self._cursors is not None:
            self._cursors.move(begun)

    def _reads(self, name: str) -> bool:
        """Tell whether a topic of this name is read, whether it exists or not."""
        return name in self.options.chosen([name])

    def _left_out(self, start: dict[str, Any] | None) -> Places:
        """Find the places of topics that the query read before and does not read now."""
        kept = {} if start is None else checkpoint.decode(start)
        return {name: at for name, at in kept.items() if not self._reads(name)}


def _lane(part: falaj.Topic[Any]) -> tuple[str, str, int]:
    return part.name, part.generation, part.partitions[0]


def _named(part: falaj.Topic[Any]) -> str:
    return f"topic {part.name}, partition {part.partitions[0]}"


def _moved(part: falaj.Topic[Any], place: Place, by: dict[tuple[str, str, int], int]) -> Place:
    # The same where it stays: Spark compares texts.
    more = by.get(_lane(part), 0)
    return place_of(part, place.offset + more) if more else place


def _deleted(name: str) -> TopicDeleted:
    return TopicDeleted(f"topic {name} was deleted, and what the query did not read of it is gone")
