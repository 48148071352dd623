"""A run of a job that follows a topic: the query, its trigger, its progress and its end.

Owns which records a run reads, and in which batches Spark read them. Owns also how a query ends: by
itself, by an error, or by Ctrl-C. The module `jobs` keeps the state between runs, and `outputs`
writes.
"""

from __future__ import annotations

import ast
import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

import falaj
from falaj.errors import Error, InvalidArgument
from falaj.pipeline.base import bad
from falaj.pipeline.base.frame import SILENT
from falaj.pipeline.base.spoken import struct_of
from falaj.pipeline.streaming import outputs
from falaj.pipeline.streaming.flow import BAD, interval, part_rows, rows
from falaj.pipeline.streaming.jobs import Job
from falaj.pipeline.streaming.outputs import Outputs, Shape
from falaj.spark.reading import sampling
from falaj.spark.reading.ranges import Range, open_raw
from falaj.spark.streaming import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from falaj import Topic
    from falaj.pipeline.base.frame import Progress
    from falaj.pipeline.streaming.flow import FlowConfig, Moment

__all__ = ["Batch", "Run", "expect_streamable"]

_LOOK_S = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that a query has finished, as Spark reports it.

    Attributes:
        number: Its number.
        start: The offsets at which it begins, by partition.
        end: The offsets at which it ends.
        records: How many records it read.
        told: The whole report of Spark.
    """

    number: int
    start: dict[int, int]
    end: dict[int, int]
    records: int
    told: Any


@dataclass(slots=True)
class Run:
    """One run of a job.

    Attributes:
        spark: The session.
        config: The settings.
        job: The job.
        shape: How a result becomes a record.
        progress: Learns how far it is.
        seen: Called with each batch that Spark has finished.
        records: How many records were read.
        bad: How many values could not be read.
        notes: What the run reported before it read the first record.
    """

    spark: SparkSession
    config: FlowConfig
    job: Job
    shape: Shape
    progress: Progress
    seen: Callable[[Batch], None] = lambda _: None
    records: int = 0
    bad: int = 0
    notes: tuple[str, ...] = ()
    _last: int = field(default=-1)
    _firsts: dict[int, dict[int, int]] = field(default_factory=dict)
    """The first offsets that were there when a batch began, by its number."""

    @classmethod
    def begin(
        cls,
        spark: SparkSession,
        config: FlowConfig,
        verb: str,
        progress: Progress | None,
        plan: Callable[[DataFrame], tuple[DataFrame, Shape]],
        shift: int = 0,
    ) -> Run:
        """Check all that can be checked, then find or create the job.

        Args:
            spark: The session.
            config: The settings.
            verb: The name of the pipeline.
            progress: Gets how far it is.
            plan: Gets the columns of the topic, without rows. It returns those of the results, and
                how a result becomes a record; or it raises if they do not fit the settings.
            shift: By how many microseconds the query of a new job moves times.

        Raises:
            InvalidArgument: A setting is impossible, and nothing has been created; or the
                checkpoint belongs to another job.
        """
        _refuse_remote(spark)
        start = _look(config, config.start)
        results, shape = plan(part_rows(spark, config, start, start))
        outputs.expect(config, results, shape)
        job = Job.begin(Path(config.checkpoint), verb, settings(config), start, shift)
        notes = _unknown(spark, config, start)
        return cls(spark, config, job, shape, progress or SILENT, notes=notes)

    def outputs(self) -> Outputs:
        """Prepare the outputs, and create what does not exist."""
        config = self.config
        folder = None if config.parquet is None else Path(config.parquet)
        made = Outputs(self.job, Path(config.store), config.into, folder, self.shape)
        made.prepare(config.partitions)
        bad.make(config.store, bad.topic_of(config.on_bad))
        return made

    def enter(self, number: int) -> None:
        """Begin a batch of the stream: keep its bad values, and see which records are there."""
        self._firsts[number] = self.firsts()
        self.keep_bad(number, *self.bounds(number))

    def keep_bad(self, number: int, start: dict[int, int], end: dict[int, int]) -> None:
        """Append the bad values of a batch to their topic, if they have one."""
        into, config = bad.topic_of(self.config.on_bad), self.config
        if into is not None:
            bounds = {part: (start.get(part, 0), at) for part, at in end.items()}
            token = (f"pipeline-{self.job.name}-bad", number)
            given = (self.spark, config.store, config.topic, config.schema, bounds)
            bad.keep(*given, into=into, token=token)

    def bounds(self, number: int) -> tuple[dict[int, int], dict[int, int]]:
        """Find where a batch of the stream begins and ends; Spark stores that before it runs."""
        before = None if number == 0 else _noted(self.job.query, number - 1)
        return self._bounds(before, _noted(self.job.query, number))

    def stream(self) -> DataFrame:
        """Read the topic as a stream."""
        config = self.config
        # Where it began, also if it was killed in its first batch and "latest" has moved since.
        options = config.source() | {"startingOffsets": config.offsets(self.job.start)}
        if config.batch is not None:
            options["maxOffsetsPerTrigger"] = str(config.batch)
        return rows(self.spark.readStream, options, config.schema, config.reserved)

    def ends(self, end: Moment | None = None) -> dict[int, int]:
        """Find where the partitions of the topic end.

        Args:
            end: An offset of each partition, or a time; None for all there is.
        """
        found = _look(self.config, "latest" if end is None else end)
        return {part: max(offset, self.job.start.get(part, 0)) for part, offset in found.items()}

    def firsts(self) -> dict[int, int]:
        """Find the first offsets that are there now; none of a deleted topic."""
        with suppress(Error):
            return _look(self.config, "earliest")
        return {}

    def count(
        self, start: dict[int, int], end: dict[int, int], firsts: dict[int, int] | None = None
    ) -> int:
        """Count the records between offsets, by partition.

        For records that were trimmed since they were read, and for a deleted topic, each offset
        counts as one record.

        Args:
            start: The first offsets.
            end: The offsets after the last.
            firsts: The offsets before which records were gone when they would have been read.
        """
        gone = firsts or {}
        start = {n: min(max(start.get(n, 0), gone.get(n, 0)), until) for n, until in end.items()}
        try:
            with (
                falaj.open(self.config.store, read_only=True) as store,
                open_raw(store, self.config.topic) as topic,
            ):
                gaps = sum(_gaps(topic.partition(n), start[n], e) for n, e in end.items())
        except Error:
            gaps = 0
        return sum(until - start[number] for number, until in end.items()) - gaps

    def follow(self, writer: DataStreamWriter) -> None:
        """Run a query to its end, or until a user stops it.

        Ctrl-C is the normal end of a continuous query; the next run makes the current batch again.
        """
        writer = writer.option("checkpointLocation", str(self.job.query))
        if self.config.continuous:
            writer = writer.trigger(processingTime=interval("trigger", self.config.trigger))
        else:
            writer = writer.trigger(availableNow=True)
        self.progress.say(f"reading {self.config.topic}")
        query = writer.start()
        try:
            while not query.awaitTermination(_LOOK_S):
                self._take_in(query)
        except KeyboardInterrupt:
            if not self.config.continuous:
                raise
        finally:
            query.stop()
            self._take_in(query)

    def _take_in(self, query: StreamingQuery) -> None:
        """Process the batches that Spark has finished since the last call."""
        for told in query.recentProgress:
            if told.batchId <= self._last or "addBatch" not in told.durationMs:
                continue  # known, or a look that found nothing new
            source = told.sources[0]
            start, end = self._bounds(source.startOffset, source.endOffset)
            firsts = self._firsts.pop(told.batchId, None)
            batch = Batch(told.batchId, start, end, self.count(start, end, firsts), told)
            if self._last < 0 and not self.config.continuous:
                self.progress.total(self.count(start, self.ends(), firsts))
            self._last = batch.number
            self.records += batch.records
            counted = told.observedMetrics.get(BAD)
            self.bad += counted["values"] if counted is not None else 0
            self.progress.advance(batch.records)
            self.seen(batch)

    def _bounds(self, start: Any, end: Any) -> tuple[dict[int, int], dict[int, int]]:
        """Find in Spark's offsets where a batch began and ended in the topic.

        A topic that was created again in between was read from its beginning.
        """
        before, until = _kept(start), _kept(end)
        ended = checkpoint.decode(until).get(self.config.topic) if until else None
        if ended is None:
            return {}, {}
        last = {number: place.offset for number, place in ended.partitions.items()}
        begun = checkpoint.decode(before) if before else checkpoint.beginning(until)
        if begun is None:
            return {number: self.job.start.get(number, 0) for number in last}, last
        known = begun.get(self.config.topic)
        if known is None or known.generation != ended.generation:
            return dict.fromkeys(last, 0), last
        first = {number: place.offset for number, place in known.partitions.items()}
        return {number: first.get(number, 0) for number in last}, last


def _noted(query: Path, number: int) -> Any:
    """Read the end of a batch that Spark stored; the query has one source."""
    lines = (query / "offsets" / str(number)).read_text().splitlines()
    noted = [each for each in map(_kept, lines[1:]) if isinstance(each, dict) and "topics" in each]
    return noted[0]


def _unknown(spark: SparkSession, config: FlowConfig, start: dict[int, int]) -> tuple[str, ...]:
    """Find the fields of the schema that no record of a sample has."""
    if config.schema is None:
        return ()
    with falaj.open(config.store, read_only=True) as store, open_raw(store, config.topic) as topic:
        ranges = [
            Range(topic.name, topic.generation, number, start.get(number, 0), part.end_offset)
            for number, part in enumerate(topic._parts())
        ]
    seen = sampling.look(config.store, ranges)
    return tuple(sampling.unknown(struct_of(config.schema), seen))


def _look(config: FlowConfig, moment: Moment) -> dict[int, int]:
    """Find the offset of a time, or the like, in each partition."""
    with falaj.open(config.store, read_only=True) as store, open_raw(store, config.topic) as topic:
        return {number: _at(part, moment) for number, part in enumerate(topic._parts())}


def _at(part: Topic[Any], moment: Moment) -> int:
    """Find an existing offset of a partition for an offset or a time."""
    if moment in ("earliest", "latest"):
        return part.start_offset if moment == "earliest" else part.end_offset
    if isinstance(moment, int):
        return min(max(part._bound(moment), part.start_offset), part.end_offset)
    found = part.offset_at(moment)
    return part.end_offset if found is None else found


def _gaps(part: Topic[Any], start: int, end: int) -> int:
    """Count the offsets of a partition whose records compaction removed."""
    start, end = max(start, part.start_offset), min(end, part.end_offset)
    return max(0, end - start) - part._count(start, end)


def settings(config: FlowConfig) -> dict[str, Any]:
    """Select the settings that decide what a job writes; the others may change between runs."""
    chosen: dict[str, Any] = {}
    for name in config.decisive:
        value = getattr(config, name)
        chosen[name] = str(value) if isinstance(value, Path) else value
    return json.loads(json.dumps(chosen))  # type: ignore[no-any-return]


def _kept(told: Any) -> Any:
    """Read an offset that Spark reports: as a value, as JSON text, or as text of Python.

    PySpark before 4.2 writes text of Python.
    """
    if not isinstance(told, str):
        return told
    with suppress(ValueError):
        return json.loads(told)
    return ast.literal_eval(told)


def expect_streamable(frame: DataFrame, mode: str) -> None:
    """Refuse a stream that Spark can plan and not run, as it does itself when a query starts.

    Raises:
        AnalysisException: It is such a stream.
    """
    package: Any = frame.sparkSession._jvm
    package = package.org.apache.spark.sql
    modes = package.streaming.OutputMode
    planned = frame._jdf.queryExecution().analyzed()
    # No public interface of Spark's: if one lacks it, the query refuses the stream a moment later.
    with suppress(TypeError, Py4JError):
        package.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            planned, modes.Append() if mode == "append" else modes.Update()
        )


def _refuse_remote(spark: SparkSession) -> None:
    """Refuse a session of Spark Connect.

    Raises:
        InvalidArgument: It is such a session; there another process runs the function that writes
            batches.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidArgument(
            "this pipeline writes batches from the process of the driver; Spark Connect has none. "
            "Run it with a session of falaj.spark.session.local(), or on the cluster"
        )
