"""`join`: enrich records of a topic from a table, into a topic and into Parquet.

Each batch of the stream is joined with the table as it is at that time. Invariant: every record is
written once, or once with each row of the table that matches it, whichever process was killed.
Records without a match are kept with nulls, or left out, as the config says, and are counted.
Records of a key keep their order.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

import falaj
from falaj.errors import InvalidArgument
from falaj.pipeline.base import bad
from falaj.pipeline.base.frame import Result, watched
from falaj.pipeline.base.spoken import sentence
from falaj.pipeline.streaming import lookup
from falaj.pipeline.streaming.flow import BATCH, OURS, RECORD, FlowConfig, Moment, part_rows
from falaj.pipeline.streaming.lookup import Lookup, Source
from falaj.pipeline.streaming.outputs import Shape
from falaj.pipeline.streaming.runs import Run
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from falaj.pipeline.base.frame import Progress
    from falaj.pipeline.streaming.outputs import Counts, Outputs

__all__ = ["JoinConfig", "JoinResult", "join"]

logger = logging.getLogger("falaj.pipeline")

_TABLE, _FITS = "table", f"{OURS}fits"
_ON, _WITH = f"{OURS}on", f"{OURS}with"
_EQUAL = re.compile(r"(.+?)(?<![<>=!])==?(?![<>=])(.+)")


@dataclass(frozen=True, kw_only=True)
class JoinConfig(FlowConfig):
    """Settings of `join`, beside those of `FlowConfig`.

    In SQL, fields of the value have their own names. The key, topic, partition, offset and
    timestamp of the record are `record.key` and so on. Columns of the table are `table.name`.
    `trigger` may also be `"batch"`: one batch with all there is, or with all before `end`.

    Attributes:
        on: What has to be equal: a column of both, or SQL as `"dest = faa"` with the table's side
            second.
        table: A Parquet, CSV or JSON file, or a folder of such files; a path, or a URL that Spark
            reads.
        table_topic: A topic of the store, instead of `table`; the last value of each key counts.
        table_schema: Fields of the values of `table_topic`, in the form of `schema`.
        table_columns: SQL and names of the table's columns, as `("carrier", "name AS airline")`;
            empty for all columns. Columns of CSV are text, so cast them:
            `"CAST(temp AS DOUBLE) AS temp"`.
        null: The text for a missing value in CSV.
        how: What to do with records without a match: `"left"` keeps them, `"inner"` leaves them
            out.
        select: SQL and names of the columns of a result; empty for all columns of both.
        reload: Whether to read the table again when its files or its topic changed.
        broadcast: Whether each executor holds the whole table. For a table that is too large for
            that, Spark sorts it together with each batch.
        end: With the trigger `"batch"`, where it ends: before an offset of each partition, or a
            time.
    """

    urls: ClassVar[tuple[str, ...]] = ("table",)
    decisive: ClassVar[tuple[str, ...]] = (
        *(*FlowConfig.decisive, "on", "table", "table_topic", "table_schema", "table_columns"),
        *("how", "select", "at_once"),
    )
    reserved: ClassVar[tuple[str, ...]] = (_TABLE,)

    on: tuple[str, ...]
    table: Path | str | None = None
    table_topic: str | None = None
    table_schema: str | None = None
    table_columns: tuple[str, ...] = ()
    null: str = ""
    how: Literal["left", "inner"] = "left"
    select: tuple[str, ...] = ()
    reload: bool = False
    broadcast: bool = True
    end: Moment | None = None

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            InvalidArgument: A setting is not allowed.
        """
        super().__post_init__()
        if (self.table is None) == (self.table_topic is None):
            raise InvalidArgument("give one of table, a file or a folder, and table_topic, a topic")
        if self.table_schema is not None and self.table_topic is None:
            raise InvalidArgument(
                "table_schema is that of a topic's values: types of files are given by "
                "table_columns, as 'CAST(temp AS DOUBLE) AS temp'"
            )
        if self.table_topic is not None and self.table_topic in (self.topic, self.into):
            raise InvalidArgument(
                f"the table is read from {self.table_topic}: choose another topic for it"
            )
        if self.end is not None and not self.at_once:
            raise InvalidArgument('end is for trigger="batch": a stream has none')
        if not self.on:
            raise InvalidArgument("on is missing: give the columns that have to be equal")

    def expect(self) -> None:
        """Check that the topics exist, or the file or folder."""
        super().expect()
        if isinstance(self.table, Path):
            lookup.expect(self.table)
        elif self.table_topic is not None:
            with falaj.open(self.store, read_only=True) as store:
                open_raw(store, self.table_topic).close()

    @property
    def at_once(self) -> bool:
        """Whether the job is one batch and no stream."""
        return self.trigger == BATCH

    @property
    def lookup(self) -> Source:
        """The source of the table."""
        columns, null, fails = self.table_columns, self.null, self.fails_on_bad
        if self.table is not None:
            return Source(path=self.table, columns=columns, null=null, fails=fails)
        return Source(
            store=Path(self.store),
            topic=self.table_topic,
            schema=self.table_schema,
            columns=columns,
            fails=fails,
            on_corrupt=self.on_corrupt,
        )

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of SQL that must be equal: of the record, and of the table."""
        return [_sides(text) for text in self.on]


def _sides(text: str) -> tuple[str, str]:
    match = _EQUAL.fullmatch(text)
    return (match[1].strip(), match[2].strip()) if match else (text.strip(), text.strip())


@dataclass(frozen=True, kw_only=True)
class JoinResult(Result):
    """The result of a run of `join`; `bytes` counts the results as JSON.

    Attributes:
        rows_written: How many results the run wrote. A record has as many as rows match it.
        unmatched: How many records match no row of the table.
        bad: How many values do not fit the schema, or are not UTF-8.
        batches: How many micro-batches there were.
        loads: How often the run read the table.
        notes: What the run reported: fields of the schema that no record of a sample has, and rows
            of the table that were left out.
    """

    rows_written: int
    unmatched: int
    bad: int
    batches: int
    loads: int
    notes: tuple[str, ...]

    def rows(self) -> list[tuple[str, str]]:
        """Tell it to people."""
        return [
            ("records", f"{self.records:,}"),
            ("that fit nothing", f"{self.unmatched:,}"),
            ("bad values", f"{self.bad:,}"),
            ("results", f"{self.rows_written:,}"),
            ("bytes", f"{self.bytes:,}"),
            ("batches", f"{self.batches:,}"),
            ("table read", f"{self.loads:,}"),
            ("seconds", f"{self.seconds:.1f}"),
            *(("note", note) for note in self.notes),
        ]


def join(
    spark: SparkSession, config: JoinConfig, *, progress: Progress | None = None
) -> JoinResult:
    """Enrich the records of a topic from a table, into a topic and into Parquet, each once.

    Run again with the same checkpoint, it continues where it was, even after it was killed. With
    `trigger="batch"`, a job that is done then does nothing more.

    Args:
        spark: The session; not one of Spark Connect.
        config: The settings.
        progress: Learns how far it is: in records, or in Spark's tasks for a single batch.

    Returns:
        What this run did.

    Raises:
        InvalidArgument: The config does not fit the topic, the table or the checkpoint.
        Error: The topic or the table cannot be read, or results cannot be written.
    """
    begun = time.perf_counter()
    lookup = Lookup(spark, config.lookup, config.reload)
    shape = Shape(
        key=config.key or f"{RECORD}.key",
        time=f"{RECORD}.timestamp",
        aside=(RECORD, _FITS),
        order=(f"{RECORD}.partition", f"{RECORD}.offset"),
    )
    with watched(spark, progress if config.at_once else None, f"join {config.topic}"):
        try:
            run = Run.begin(
                *(spark, config, "join", progress),
                lambda like: (enriched(config, like, lookup.now()), shape),
            )
            work = _Work(config, lookup, run.outputs())
            if config.at_once:
                _at_once(run, config, work)
            else:

                def write(frame: DataFrame, number: int) -> None:
                    run.enter(number)
                    work.write(frame, number)

                run.follow(run.stream().writeStream.foreachBatch(write))
        finally:
            lookup.close()
    counts = work.written.values()
    return JoinResult(
        records=run.records,
        bytes=sum(count["bytes"] for count in counts),
        seconds=time.perf_counter() - begun,
        rows_written=sum(count["rows"] for count in counts),
        unmatched=sum(count["unmatched"] for count in counts),
        bad=run.bad,
        batches=len(counts),
        loads=lookup.loads,
        notes=(*run.notes, *lookup.notes),
    )


def _at_once(run: Run, config: JoinConfig, work: _Work) -> None:
    """Write everything as one batch, unless that is done."""
    if run.job.done:
        return
    end = run.ends(config.end)
    start = {part: run.job.start.get(part, 0) for part in end}
    run.records = run.count(start, end, run.firsts())
    run.keep_bad(0, start, end)
    run.bad = _bad_values(run, config, start, end)
    work.write(part_rows(run.spark, config, start, end), 0)
    run.job.finish()


def _bad_values(run: Run, config: JoinConfig, start: dict[int, int], end: dict[int, int]) -> int:
    """Count the values of a range that cannot be read."""
    if config.fails_on_bad:
        return 0
    bounds = {part: (start.get(part, 0), at) for part, at in end.items()}
    return bad.found(run.spark, config.store, config.topic, config.schema, bounds).count()


def enriched(config: JoinConfig, frame: DataFrame, table: DataFrame) -> DataFrame:
    """Join, and return `record`, the columns of the result, and whether a row matches.

    Raises:
        InvalidArgument: Spark does not accept `on` or `select`, or two columns have one name.
    """
    pairs = config.pairs
    fields = [name for name in frame.columns if name != RECORD]
    try:
        for number, (mine, _) in enumerate(pairs):
            frame = frame.withColumn(f"{_ON}{number}", F.expr(mine))
        right = table.alias(_TABLE).select(
            *(F.expr(its).alias(f"{_WITH}{n}") for n, (_, its) in enumerate(pairs)),
            F.struct(*(f"`{name}`" for name in table.columns)).alias(_TABLE),
            F.lit(True).alias(_FITS),
        )
        equal = [F.col(f"`{_ON}{n}`") == F.col(f"`{_WITH}{n}`") for n in range(len(pairs))]
        right = F.broadcast(right) if config.broadcast else right
        joined = frame.join(right, equal, "left")
        if not config.broadcast:
            joined = joined.orderBy(f"{RECORD}.partition", f"{RECORD}.offset")
        chosen = joined.selectExpr(RECORD, *_select(config, fields, table), f"`{_FITS}`")
    except AnalysisException as error:
        raise InvalidArgument(f"Spark does not take on or select: {sentence(error)}") from None
    alike = [name.lower() for name in chosen.columns]  # as Spark compares them
    for name in chosen.columns:
        if alike.count(name.lower()) > 1:
            raise InvalidArgument(
                f"two columns are called {name}: choose with select, as {name!r} and "
                f"'{_TABLE}.{name} AS other'"
            )
    return chosen


def _select(config: JoinConfig, fields: list[str], table: DataFrame) -> list[str]:
    """Choose the columns of a result."""
    mine = [f"`{name}`" for name in fields]
    if config.select:
        return [s for one in config.select for s in (mine if one == "*" else [one])]
    known = {its.lower() for _, its in config.pairs}
    return mine + [f"{_TABLE}.`{name}`" for name in table.columns if name.lower() not in known]


class _Work:
    """Joins and writes batches, and counts what was written."""

    def __init__(self, config: JoinConfig, lookup: Lookup, outputs: Outputs) -> None:
        self.config, self.lookup, self.outputs = config, lookup, outputs
        self.written: dict[int, Counts] = {}

    def write(self, frame: DataFrame, number: int) -> None:
        """Join a batch and write it, or the missing part of it."""
        held: list[DataFrame] = []

        def make() -> tuple[DataFrame, Counts]:
            joined = enriched(self.config, frame, self.lookup.now()).persist()
            held.append(joined)
            return self._kept(joined), self._counted(joined)

        try:
            self.written[number] = self.outputs.write(frame.sparkSession, number, make)
        finally:
            for each in held:
                each.unpersist()

    def _kept(self, joined: DataFrame) -> DataFrame:
        if self.config.how == "inner":
            joined = joined.where(F.col(f"`{_FITS}`").isNotNull())
        return joined.drop(_FITS)

    def _counted(self, joined: DataFrame) -> Counts:
        alone = F.col(f"`{_FITS}`").isNull()
        kept = ~alone if self.config.how == "inner" else None
        place = F.struct(f"{RECORD}.partition", f"{RECORD}.offset")
        found = self.outputs.counted(
            joined, kept, unmatched=F.count_if(alone), first=F.min(F.when(alone, place))
        )
        if found.unmatched:
            logger.warning(
                "topic %s: %s records fit no row of the table, the first at offset %s of "
                "partition %s",
                *(self.config.topic, found.unmatched, found["first"].offset),
                found["first"].partition,
            )
        return {name: found[name] for name in ("rows", "bytes", "unmatched")}
