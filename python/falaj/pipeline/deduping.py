"""`dedupe`: a topic into another, with each record once.

Spark decides over ids, times and offsets alone which copies are left out (`copies`). Then the
records are read once more, and all others are appended in the order of the source, so values are
never sorted. Invariant: a run is a bulk load with an idempotency key and a plan that is kept
(`plans`), so it is in the target once, whichever process dies and however often it is started. All
that a run knows of earlier runs is what stands in the target.
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it
from pyspark.sql.types import StringType, StructField, StructType

import falaj
from falaj.arrow import lanes
from falaj.errors import InvalidArgument, OffsetOutOfRange, RecordCompacted, shown
from falaj.pipeline import bitmaps, copies, places
from falaj.pipeline.frame import Config, Result, cores, watched
from falaj.pipeline.plans import Plans
from falaj.spark import sampling
from falaj.spark.ranges import Range, open_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, Row, SparkSession

    from falaj import AnyTopic, Store
    from falaj.arrow import Lane
    from falaj.pipeline.bitmaps import Bitmap
    from falaj.pipeline.frame import Progress
    from falaj.pipeline.plans import Plan

__all__ = ["DedupeConfig", "DedupeResult", "Repeated", "dedupe"]

_COLUMNS = (
    "key BINARY, value BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_US = 1_000_000
_SORTED = 1_000_000
"""About how many ids a task sorts: they fit its memory."""
_WINDOW_MAX = 10**9


@dataclass(frozen=True, kw_only=True)
class DedupeConfig(Config):
    """Settings of `dedupe`.

    Attributes:
        topic: What is read.
        into: The topic that is written; made with the source's codec and partitions, and marked
            compacted if that is, if it is not there.
        by: What copies of a record have in common: "key", "value", "key+value", "header:NAME" (the
            first header of that name), or "json:FIELD" (a member of a JSON object, "order.id", or a
            path, "$.lines[0].id"). A record that has none is no copy of any, and kept.
        keep: Which copy is kept: the "first" or the "last" by time.
        window: Seconds; copies further apart are both kept. None: of all copies one is kept.
        start: Where the first run begins: "earliest", an offset, or a time. A later one goes on
            where the last one ended.
        end: Where a run ends: before an offset, or a time; None for the end as of now.
        on_loss: "fail" where records were trimmed before a run could read them, or "continue" to
            go on behind them.
        top: How many of the ids with most copies are reported.
    """

    topic: str
    into: str
    by: str = "key"
    keep: Literal["first", "last"] = "first"
    window: float | None = None
    start: int | str | datetime = "earliest"
    end: int | str | datetime | None = None
    on_loss: Literal["fail", "continue"] = "fail"
    top: int = 10

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            InvalidArgument: Something cannot be right.
        """
        super().__post_init__()
        places.expect_two(self.topic, self.into)
        copies.check(self.by)
        if self.window is not None and not 0 < self.window <= _WINDOW_MAX:
            raise InvalidArgument(
                f"window is a number of seconds above 0, and at most {_WINDOW_MAX:,}, not "
                f"{shown(self.window)}"
            )
        if self.top < 0:
            raise InvalidArgument(f"top is how many ids are reported, 0 or more, not {self.top}")


@dataclass(frozen=True)
class Repeated:
    """An id with copies that were left out.

    Attributes:
        id: What the copies have in common, for people: shortened, and of values the beginning.
        dropped: How many were left out.
        partition: Where one of them stands in the source.
        offset: Where one of them stands in the source.
    """

    id: str
    dropped: int
    partition: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class DedupeResult(Result):
    """The result of `dedupe`; `records` are those read, `bytes` the values that were kept.

    Attributes:
        kept: Records that were appended to the target.
        dropped: Copies that were left out.
        without_id: Of those that were kept, records that have no id.
        replaced: With `keep="last"`, records that earlier runs appended and that this one
            appended a newer copy of: both stand in the target.
        lost: Records that were trimmed before a run could read them.
        runs: How many runs that were: two, where one had been begun before and was not done.
        repeated: The ids with most copies that were left out.
        notes: What was reported: an id that no record has.
    """

    kept: int
    dropped: int
    without_id: int
    replaced: int
    lost: int
    runs: int
    repeated: tuple[Repeated, ...]
    notes: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """Tell it to people."""
        told = [
            ("records", f"{self.records:,}"),
            ("kept", f"{self.kept:,}"),
            ("dropped", f"{self.dropped:,}"),
        ]
        told += [
            (name.replace("_", " "), f"{found:,}")
            for name in ("without_id", "replaced", "lost")
            if (found := getattr(self, name))
        ]
        told += [("copies of " + each.id, f"{each.dropped:,}") for each in self.repeated]
        return [*told, *super().rows()[1:], *(("note", note) for note in self.notes)]


def dedupe(
    spark: SparkSession, config: DedupeConfig, *, progress: Progress | None = None
) -> DedupeResult:
    """Copy a topic into another with each record once.

    Copies are taken in the order of their times, and of one time by partition and offset; with
    `keep="last"` the other way round. The first is kept and begins a window; copies less than
    `window` seconds from it are left out; the next one is kept and begins another window. Records
    that are kept stand in the order of the source: in the same partitions where the target has as
    many, else by their keys, one source partition after the other. They keep key, value, headers
    and time, to the microsecond.

    A run is all or nothing, and goes on where the last one ended. Every record in the target counts
    as seen, whatever appended it: a copy of it, less than a window away, is left out. So runs in
    pieces give what a single one gives, if times do not go back from one to the next. With
    `keep="last"` nothing of the target can be taken back: a newer copy is appended behind it, and
    counted in `replaced`. Starting it again after it died, also twice at once, appends nothing
    twice.

    Costs one reading of the ids of what is new, one of the ids in the target (with a window, of
    those that are not too old), a sort of ids, and one reading of whole records. Memory holds a bit
    for each record that is read.

    Args:
        spark: The session.
        config: The settings.
        progress: Gets how far it is.

    Returns:
        What was done.

    Raises:
        UnknownTopic: There is no topic to read.
        OffsetOutOfRange: Records that come next were trimmed; see `on_loss`.
        InvalidArgument: The target was filled with other settings; or, like other errors, as
            Spark's sink has them.
    """
    began = time.monotonic()
    settings = {"by": config.by, "keep": config.keep, "window": config.window}
    total = DedupeResult(
        **dict.fromkeys(
            ("records", "bytes", "kept", "dropped", "without_id", "replaced", "lost", "runs"), 0
        ),
        seconds=0.0,
        repeated=(),
        notes=(),
    )
    with ExitStack() as held:
        store = held.enter_context(falaj.open(config.store))
        source = held.enter_context(open_raw(store, config.topic))
        into = held.enter_context(places.like(store, config.into, source))
        plans = Plans(store, "dedupe", source, into, settings)
        held.callback(plans.close)
        run = _Run(spark, config, store, source, into, progress)
        while plan := plans.next(config.start, config.end):
            _expect_there(source, plan, config)
            total = _sum(total, run.do(plan, plans))
            if total.records and total.without_id == total.kept:
                total = replace(total, notes=(_without_id(config, source, plan),))
            if not plan.begun:
                break
    return replace(total, seconds=time.monotonic() - began)


def _expect_there(source: AnyTopic[Any], plan: Plan, config: DedupeConfig) -> None:
    if not plan.lost or config.on_loss == "continue":
        return
    error = OffsetOutOfRange(
        f"{plan.lost:,} records of topic {source.name} were trimmed before dedupe could read them: "
        'go on behind them with on_loss="continue"'
    )
    error.topic = source.name
    error.partition, error.offset, _ = plan.lanes[0]
    raise error


def _without_id(config: DedupeConfig, source: AnyTopic[Any], plan: Plan) -> str:
    """Say that no record has an id, and what may have been meant by a member of JSON."""
    said = f"no record has what by={config.by!r} names, so none is a copy of another"
    kind, _, path = config.by.partition(":")
    if kind != "json":
        return said
    wanted: Any = StringType()
    for name in reversed(re.sub(r"\[[^]]*\]", "", path.removeprefix("$.")).split(".")):
        wanted = StructType([StructField(name, wanted)])
    ranges = [Range(source.name, source.generation, *lane) for lane in plan.lanes]
    found = sampling.unknown(wanted, sampling.look(config.store, ranges))
    return "; ".join([said, *found])


def _sum(one: DedupeResult, two: DedupeResult) -> DedupeResult:
    names = ("records", "bytes", "kept", "dropped", "without_id", "replaced", "lost", "runs")
    more: dict[str, Any] = {name: getattr(one, name) + getattr(two, name) for name in names}
    return replace(two, repeated=(*one.repeated, *two.repeated), **more)


@dataclass(frozen=True)
class _Run:
    """One run: what is decided, and what is appended."""

    spark: SparkSession
    config: DedupeConfig
    store: Store
    source: AnyTopic[Any]
    into: AnyTopic[Any]
    progress: Progress | None

    def do(self, plan: Plan, plans: Plans) -> DedupeResult:
        """Append what is kept of a plan."""
        with (
            self._decided(plan) as decided,
            watched(self.spark, self.progress, "finding copies"),
        ):
            names = ("kept", "without_id", "dropped", "replaced")
            sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names]
            counts = decided.agg(*sums).collect()[0]
            (left_out,) = bitmaps.collect(decided, "left_out")
            repeated = self._repeated(decided)
        with watched(self.spark, self.progress, "copying what is kept"):
            size = self._write(plan, left_out, plans.token)
        return DedupeResult(
            records=counts.kept + counts.dropped,
            bytes=size,
            seconds=0.0,
            lost=plan.lost,
            runs=1,
            repeated=repeated,
            **counts.asDict(),
        )

    @contextmanager
    def _decided(self, plan: Plan) -> Iterator[DataFrame]:
        """Decide about every record: rows of `copies.DECIDED`."""
        read = list(plan.lanes)
        rows = self._rows(self.source, plan.lanes, seen=False)
        if (lanes := self._seen(plan)) is not None:
            target = self._rows(self.into, lanes, seen=True)
            rows = rows.union(target.where("id IS NOT NULL"))
            read += lanes
        count = sum(end - start for _, start, end in read)
        tasks = max(1, -(-count // _SORTED), min(cores(self.spark), count // (_SORTED // 10)))
        order = ["at", "partition", "offset"]
        window = None if self.config.window is None else round(self.config.window * _US)
        last = self.config.keep == "last"
        # Records without an id have nothing in common: each goes to any task.
        spread = F.when(F.col("id").isNull(), F.col("offset"))
        decided = (
            rows.repartition(tasks, "id", spread)
            .sortWithinPartitions(
                "id", F.desc("seen"), *(F.desc(name) if last else F.asc(name) for name in order)
            )
            .mapInArrow(_decider(window, last), copies.DECIDED)
            .persist()
        )
        try:
            yield decided
        finally:
            decided.unpersist()

    def _rows(self, topic: AnyTopic[Any], lanes: Iterable[Lane], *, seen: bool) -> DataFrame:
        names = "partition INT, offset BIGINT, timestamp TIMESTAMP"
        columns = f"{copies.columns(self.config.by)}, {names}"
        return places.read(self.spark, topic, lanes, columns).select(
            copies.id_of(self.config.by).alias("id"),
            F.lit(seen).alias("seen"),
            F.unix_micros("timestamp").alias("at"),
            "partition",
            "offset",
        )

    def _seen(self, plan: Plan) -> list[Lane] | None:
        """Say which records of the target may have copies in what is new; None for none."""
        if not any(self.into.partition(p).end_offset for p in self.into.partitions):
            return None
        if self.config.window is None or not plan.offsets:
            return lanes(self.into, "earliest", None)
        times = places.read(self.spark, self.source, plan.lanes, "timestamp TIMESTAMP")
        with watched(self.spark, self.progress, "looking at times"):
            found = times.agg(F.unix_micros(F.min("timestamp"))).first()
        oldest = (found[0] if found and found[0] is not None else 0) / _US
        return lanes(self.into, datetime.fromtimestamp(oldest - self.config.window - 1, UTC), None)

    def _repeated(self, decided: DataFrame) -> tuple[Repeated, ...]:
        most = decided.where("dropped > 0").orderBy(F.desc("dropped"), "partition", "offset")
        return tuple(
            Repeated(self._shown(row), row.dropped, row.partition, row.offset)
            for row in most.limit(self.config.top).collect()
        )

    def _shown(self, row: Row) -> str:
        """Write an id for people."""
        if self.config.by not in copies.HASHED:
            return places.shown(row.id)
        try:
            record = self.source.partition(row.partition)[row.offset]
        except (RecordCompacted, OffsetOutOfRange):
            return f"{row.partition}:{row.offset}"  # gone since it was read
        if self.config.by == "value":
            return places.shown(record.raw)
        return f"{places.shown(record.key)}: {places.shown(record.raw)}"

    def _write(self, plan: Plan, left_out: dict[int, Bitmap], token: str) -> int:
        """Append what is not left out; return the bytes of its values."""
        reading = places.Reading.of(self.spark, self.source, plan.lanes, _COLUMNS)
        rows = reading.through(_keeper(left_out), _COLUMNS)
        columns = ["key", "value", "timestamp"]
        if len(self.into.partitions) == len(self.source.partitions):
            columns.append("partition")
        seen = Observation()
        size = F.coalesce(F.sum(F.octet_length("value")), F.lit(0)).alias("bytes")
        (
            rows.select(*columns, places.headers_or_empty().alias("headers"))
            .observe(seen, size)
            .write.format("falaj")
            .mode("append")
            .options(store=str(self.store.path), topic=self.into.name)
            .options(txnAppId=token, txnVersion=str(plan.number))
            .save()
        )
        return int(seen.get["bytes"])


def _decider(
    window: int | None, last: bool
) -> Callable[[Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    return lambda batches: copies.decide(batches, window, last)


def _keeper(
    left_out: dict[int, Bitmap],
) -> Callable[[Range, Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Make what passes all records but those that are left out."""

    def keep(
        bounds: Range, batches: Iterable[pyarrow.RecordBatch]
    ) -> Iterator[pyarrow.RecordBatch]:
        mine = left_out.get(bounds.partition)
        for batch in batches:
            if mine is None:
                yield batch
            else:
                left = mine.has(batch["offset"].to_numpy())
                yield batch.filter(pyarrow.array(~left))

    return keep
