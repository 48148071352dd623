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
from pyspark.sql.types import TimestampNTZType, TimestampType

from falaj.errors import InvalidArgument
from falaj.pipeline.base.frame import Result, sentence, watched
from falaj.pipeline.streaming import late
from falaj.pipeline.streaming.flow import BATCH, RECORD, FlowConfig, interval, named, part_rows
from falaj.pipeline.streaming.runs import Run

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from falaj.pipeline.base.frame import Progress
    from falaj.pipeline.streaming.outputs import Counts, Outputs
    from falaj.pipeline.streaming.runs import Batch

__all__ = ["AggregateConfig", "AggregateResult", "aggregate"]

logger = logging.getLogger("falaj.pipeline")

_TIME, _WINDOW, _SEEN = "_time", "_window", "falaj"
_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)\((.+)\)", re.IGNORECASE)
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
        for name in names:
            if names.count(name) > 1:
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
        return F.window(_TIME, interval("window", self.window), slide)

    @property
    def keyed(self) -> str | None:
        """SQL of a record's key: the group; in mode `update` also the beginning of the window."""
        names = [f"`{name}`" for _, name in self.groups]
        if self.mode == "update":
            names.append(_WINDOW_NAMES[0])
        if self.key is not None or not names:
            return self.key
        if len(names) == 1:
            return f"CAST({names[0]} AS STRING)"
        return f"to_json(array({', '.join(f'CAST({name} AS STRING)' for name in names)}))"


def _sum(text: str) -> tuple[str, str]:
    expression, name = named(text)
    if expression.lower() == "count":
        return "count(*)", name
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
        run = Run.begin(spark, config, "aggregate", progress, lambda like: summed(like, config))
        tally = _Tally(run, config)
        run.seen = tally.look
        order = (*_WINDOW_NAMES, *(f"`{name}`" for _, name in config.groups))
        outputs = run.outputs(key=config.keyed, order=order)
        run.follow(_query(run, config, outputs, tally))
    return tally.result(time.perf_counter() - begun)


def _query(run: Run, config: AggregateConfig, outputs: Outputs, tally: _Tally) -> DataStreamWriter:
    """Build the query."""
    order = outputs.order

    def write(frame: DataFrame, number: int) -> None:
        run.keep_bad(number, *run.bounds(number))
        # All of it is made also where it is in the folder: so Spark keeps the windows' state.
        made = frame.repartition(1).sortWithinPartitions(*map(F.expr, order)).persist()
        try:
            counts = outputs.counted(made).asDict()
            tally.wrote(number, outputs.write(made.sparkSession, number, lambda: (made, counts)))
        finally:
            made.unpersist()

    return summed(run.stream(), config).writeStream.outputMode(config.mode).foreachBatch(write)


def timed(frame: DataFrame, config: AggregateConfig) -> DataFrame:
    """Add its time to each row.

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
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise InvalidArgument(
            f"time is {config.time}, which is {kind.simpleString()} and no timestamp: "
            f"to_timestamp({config.time}) may make it one"
        )
    return found


def summed(frame: DataFrame, config: AggregateConfig) -> DataFrame:
    """Sum up windows of a stream.

    Raises:
        InvalidArgument: Spark does not accept the SQL.
    """
    seen = timed(frame, config).observe(_SEEN, F.count_if(F.col(_TIME).isNull()).alias("untimed"))
    groups = [F.expr(sql).alias(name) for sql, name in config.groups]
    sums = [F.expr(sql).alias(name) for sql, name in config.sums]
    try:
        made = (
            seen.withWatermark(_TIME, interval("watermark", config.watermark))
            .groupBy(config.windows.alias(_WINDOW), *groups)
            .agg(*sums)
        )
        return made.select(
            F.col(f"{_WINDOW}.start").alias(_WINDOW_NAMES[0]),
            F.col(f"{_WINDOW}.end").alias(_WINDOW_NAMES[1]),
            *(F.col(f"`{name}`") for _, name in (*config.groups, *config.sums)),
        )
    except AnalysisException as error:
        raise InvalidArgument(f"Spark does not take by and aggregates: {sentence(error)}") from None


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
        mark = batch.told.eventTime.get("watermark", "")
        if mark and not mark.startswith("1970"):
            self.watermark = mark
        if late.left_out(batch):
            self._count(batch)

    def _count(self, batch: Batch) -> None:
        frame = part_rows(self.run.spark, self.config, batch.start, batch.end)
        ms = late.watermark_ms(self.run.job.query, batch.number - 1)
        found = late.among(timed(frame, self.config), self.config.windows, ms)
        if found is not None:
            self.late += found.records
            logger.warning(
                "topic %s: %s records came after their windows closed; the first is at offset %s "
                "of partition %s. A longer watermark would have waited for them",
                *(self.config.topic, found.records, found.offset, found.partition),
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
