"""`aggregate`: sum up windows of a stream, as they close, into a topic and into Parquet.

One query with a watermark writes both. Invariant: each of the two has a closed window once, with
the same figures, whichever process was killed. A record that came after its window closed is in no
result, and is counted. The module `outputs` ensures this, and `late` finds late records.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it
from pyspark.sql.types import TimestampType

from falaj.errors import InvalidArgument
from falaj.pipeline.base import keys
from falaj.pipeline.base.frame import Result, watched
from falaj.pipeline.base.spoken import sentence
from falaj.pipeline.streaming import late
from falaj.pipeline.streaming.flow import (
    BATCH,
    OURS,
    RECORD,
    FlowConfig,
    interval,
    named,
    part_rows,
    rows,
)
from falaj.pipeline.streaming.outputs import Shape
from falaj.pipeline.streaming.runs import Run, expect_streamable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from falaj.pipeline.base.frame import Progress
    from falaj.pipeline.streaming.outputs import Counts, Outputs
    from falaj.pipeline.streaming.runs import Batch

__all__ = ["AggregateConfig", "AggregateResult", "aggregate"]

logger = logging.getLogger("falaj.pipeline")

_TIME, _WINDOW, _SEEN = f"{OURS}time", f"{OURS}window", "falaj"
_QUANTILE = re.compile(r"p([0-9]{1,2}(?:\.[0-9]+)?)\((.+)\)", re.IGNORECASE)
_WINDOW_NAMES = ("window_start", "window_end")


@dataclass(frozen=True, kw_only=True)
class AggregateConfig(FlowConfig):
    """Settings of `aggregate`, beside those of `FlowConfig`.

    In SQL, fields of the value have their own names. The key, topic, partition, offset and
    timestamp of the record are `record.key` and so on. An expression with `AS` has that name in the
    results.

    Attributes:
        window: The length of a window, as `"1 hour"`.
        slide: The time from the beginning of a window to that of the next; if it is shorter than
            `window`, windows overlap. None puts one window after the other.
        time: SQL for the time that assigns a record to a window.
        watermark: How late a record may come and still be counted.
        by: SQL that defines groups, as `("carrier", "hour(record.timestamp) AS hour")`.
        aggregates: What to compute for a window: `"count"`, or SQL as `"sum(delay) AS minutes"`,
            `"mean(delay)"`, `"min(delay)"`. `"p95(delay)"` is an approximate quantile.
        mode: `"append"` writes a window once, when it is closed. `"update"` writes its current
            state each time it changed.
    """

    decisive: ClassVar[tuple[str, ...]] = (
        *FlowConfig.decisive,
        *("window", "slide", "time", "by", "aggregates", "mode"),
    )

    window: str = "1 hour"
    slide: str | None = None
    time: str = f"{RECORD}.timestamp"
    watermark: str = "10 minutes"
    by: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ("count",)
    mode: Literal["append", "update"] = "append"

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            InvalidArgument: A setting is not allowed.
        """
        super().__post_init__()
        if self.trigger == BATCH:
            raise InvalidArgument('trigger is "available-now" or a span of time, not "batch"')
        interval("window", self.window)
        interval("watermark", self.watermark)
        if self.slide is not None:
            interval("slide", self.slide)
        if not self.aggregates:
            raise InvalidArgument('aggregates are missing: give ("count",), or SQL')
        names = [name for _, name in (*self.groups, *self.sums)] + list(_WINDOW_NAMES)
        alike = [name.lower() for name in names]  # as Spark compares them
        for name in names:
            if alike.count(name.lower()) > 1:
                raise InvalidArgument(
                    f"two results are called {name}: give one another name with AS"
                )

    @property
    def groups(self) -> list[tuple[str, str]]:
        """SQL and names of the columns that define groups."""
        return [named(text) for text in self.by]

    @property
    def sums(self) -> list[tuple[str, str]]:
        """SQL and names of the aggregates of a window."""
        return [_sum(text) for text in self.aggregates]

    @property
    def windows(self) -> Column:
        """The window of a record, or its windows."""
        slide = None if self.slide is None else interval("slide", self.slide)
        return F.window(F.col(f"`{_TIME}`"), interval("window", self.window), slide)

    @property
    def shift(self) -> int:
        """By how many microseconds a new job moves times, so that none is before 1970."""
        return late.shift_us(interval("slide", self.slide or self.window))

    def keyed(self, results: StructType) -> str | None:
        """SQL of a record's key: the group; in mode `update` also the beginning of the window.

        Args:
            results: The columns of the results.
        """
        names = [name for _, name in self.groups]
        if self.mode == "update":
            names.append(_WINDOW_NAMES[0])
        if self.key is not None or not names:
            return self.key
        texts = [keys.text_of(f"`{name}`", results[name].dataType) for name in names]
        return texts[0] if len(texts) == 1 else f"to_json(array({', '.join(texts)}))"


def _sum(text: str) -> tuple[str, str]:
    expression, name = named(text)
    if expression.lower() == "count":
        return "count(*)", "count" if name == expression else name
    if quantile := _QUANTILE.fullmatch(expression):
        return f"approx_percentile({quantile[2]}, {float(quantile[1]) / 100})", name
    return expression, name


@dataclass(frozen=True, kw_only=True)
class AggregateResult(Result):
    """The result of a run of `aggregate`; `bytes` counts the results as JSON.

    Attributes:
        rows_written: How many results the run wrote.
        late: How many records came after a window of theirs closed; they are not in it.
        untimed: How many records have no time, and so are in no window.
        bad: How many values do not fit the schema, or are not UTF-8.
        batches: How many micro-batches there were.
        watermark: The time up to which windows are closed; None if none is closed.
        notes: What the run reported: fields of the schema that no record of a sample has.
    """

    rows_written: int
    late: int
    untimed: int
    bad: int
    batches: int
    watermark: str | None
    notes: tuple[str, ...]

    def rows(self) -> list[tuple[str, str]]:
        """Tell it to people."""
        return [
            ("records", f"{self.records:,}"),
            ("late", f"{self.late:,}"),
            ("without a time", f"{self.untimed:,}"),
            ("bad values", f"{self.bad:,}"),
            ("results", f"{self.rows_written:,}"),
            ("bytes", f"{self.bytes:,}"),
            ("batches", f"{self.batches:,}"),
            ("windows closed up to", self.watermark or "none"),
            ("seconds", f"{self.seconds:.1f}"),
            *(("note", note) for note in self.notes),
        ]


def aggregate(
    spark: SparkSession, config: AggregateConfig, *, progress: Progress | None = None
) -> AggregateResult:
    """Sum up windows of a topic, into a topic and into Parquet, each result once.

    Run again with the same checkpoint, it continues where it was, even after it was killed.

    Args:
        spark: The session; not one of Spark Connect.
        config: The settings.
        progress: Learns how far it is, in records.

    Returns:
        What this run did.

    Raises:
        InvalidArgument: The config does not fit the topic or the checkpoint.
        Error: The topic cannot be read, or results cannot be written.
    """
    begun = time.perf_counter()
    with watched(spark, None, f"aggregate {config.topic}"):
        planned = lambda like: _planned(like, config)  # noqa: E731
        run = Run.begin(spark, config, "aggregate", progress, planned, config.shift)
        tally = _Tally(run, config)
        run.seen = tally.look
        run.follow(_query(run, config, run.outputs(), tally))
    return tally.result(time.perf_counter() - begun)


def _planned(like: DataFrame, config: AggregateConfig) -> tuple[DataFrame, Shape]:
    """Check the SQL; return the columns of the results, and how a result becomes a record."""
    made = summed(like, config)
    source = rows(like.sparkSession.readStream, config.source(), config.schema, config.reserved)
    try:
        expect_streamable(summed(source, config), config.mode)
    except AnalysisException as error:
        raise InvalidArgument(
            f"Spark does not take by and aggregates in a stream: {sentence(error)}"
        ) from None
    order = (*_WINDOW_NAMES, *(f"`{name}`" for _, name in config.groups))
    return made, Shape(key=config.keyed(made.schema), order=order)


def _query(run: Run, config: AggregateConfig, outputs: Outputs, tally: _Tally) -> DataStreamWriter:
    """Build the query."""
    order = outputs.shape.order

    def write(frame: DataFrame, number: int) -> None:
        run.enter(number)
        # All of it is made also where it is in the folder: so Spark keeps the windows' state.
        made = frame.repartition(1).sortWithinPartitions(*map(F.expr, order)).persist()
        try:
            counts = outputs.counted(made).asDict()
            tally.wrote(number, outputs.write(made.sparkSession, number, lambda: (made, counts)))
        finally:
            made.unpersist()

    stream = summed(run.stream(), config, run.job.shift)
    return stream.writeStream.outputMode(config.mode).foreachBatch(write)


def timed(frame: DataFrame, config: AggregateConfig, shift: int = 0) -> DataFrame:
    """Add its time to each row.

    Args:
        frame: The rows.
        config: The settings.
        shift: By how many microseconds times are moved.

    Raises:
        InvalidArgument: The SQL is wrong, or makes no time.
    """
    try:
        found = frame.withColumn(_TIME, F.expr(config.time))
        kind = found.schema[_TIME].dataType
    except AnalysisException as error:
        raise InvalidArgument(
            f"time is {config.time}, which Spark does not take: {sentence(error)}"
        ) from None
    if not isinstance(kind, TimestampType):
        raise InvalidArgument(
            f"time is {config.time}, which is {kind.simpleString()} and no timestamp: "
            f"to_timestamp({config.time}) may make it one"
        )
    return found.withColumn(_TIME, late.moved(f"`{_TIME}`", shift)) if shift else found


def summed(frame: DataFrame, config: AggregateConfig, shift: int = 0) -> DataFrame:
    """Sum up windows of a stream.

    Args:
        frame: The rows.
        config: The settings.
        shift: By how many microseconds times are moved meanwhile.

    Raises:
        InvalidArgument: Spark does not accept the SQL.
    """
    seen = timed(frame, config, shift)
    seen = seen.observe(_SEEN, F.count_if(F.col(f"`{_TIME}`").isNull()).alias("untimed"))
    groups = [F.expr(sql).alias(name) for sql, name in config.groups]
    sums = [F.expr(sql).alias(name) for sql, name in config.sums]
    try:
        made = (
            seen.withWatermark(f"`{_TIME}`", interval("watermark", config.watermark))
            .groupBy(config.windows.alias(_WINDOW), *groups)
            .agg(*sums)
        )
        return made.select(
            late.moved(f"`{_WINDOW}`.start", -shift).alias(_WINDOW_NAMES[0]),
            late.moved(f"`{_WINDOW}`.end", -shift).alias(_WINDOW_NAMES[1]),
            *(F.col(f"`{name}`") for _, name in (*config.groups, *config.sums)),
        )
    except AnalysisException as error:
        raise InvalidArgument(f"Spark does not take by and aggregates: {sentence(error)}") from None


_LATE = "A longer watermark would have waited for them"
_BEFORE_1970 = (
    "Their windows end before 1970, where the first watermark of a job of this age is: a new job, "
    "with another checkpoint, counts them"
)


class _Tally:
    """The sums of a run, which grow with its batches."""

    def __init__(self, run: Run, config: AggregateConfig) -> None:
        self.run, self.config = run, config
        self.written: dict[int, Counts] = {}
        self.late = self.untimed = 0
        self.watermark: str | None = None

    def wrote(self, number: int, counts: Counts) -> None:
        """Count what was written."""
        self.written[number] = counts

    def look(self, batch: Batch) -> None:
        """Count what Spark reports about a finished batch."""
        seen = batch.told.observedMetrics.get(_SEEN)
        self.untimed += seen.untimed if seen is not None else 0
        ms = late.watermark_ms(self.run.job.query, batch.number)
        if ms:  # Spark's first one is 0
            self.watermark = late.shown(ms, self.run.job.shift)
        if late.left_out(batch):
            self._count(batch)

    def _count(self, batch: Batch) -> None:
        frame = part_rows(self.run.spark, self.config, batch.start, batch.end)
        ms = late.watermark_ms(self.run.job.query, batch.number - 1)
        shift = self.run.job.shift
        found = late.among(timed(frame, self.config, shift), self.config.windows, ms)
        if found is not None:
            self.late += found.records
            logger.warning(
                "topic %s: %s records came after their windows closed; the first is at offset %s "
                "of partition %s. %s",
                *(self.config.topic, found.records, found.offset, found.partition),
                _LATE if ms or shift else _BEFORE_1970,
            )

    def result(self, seconds: float) -> AggregateResult:
        """Return what the run did."""
        return AggregateResult(
            records=self.run.records,
            bytes=sum(counts["bytes"] for counts in self.written.values()),
            seconds=seconds,
            rows_written=sum(counts["rows"] for counts in self.written.values()),
            late=self.late,
            untimed=self.untimed,
            bad=self.run.bad,
            notes=self.run.notes,
            batches=len(self.written),
            watermark=self.watermark,
        )
