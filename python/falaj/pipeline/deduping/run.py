"""`dedupe`: copy a topic into another, with each record once.

Spark's tasks decide which copies are left out; for that they read only ids, times and offsets
(`copies`). Then they read the whole records, and stage all others in the order of the source
(`copying`). So values are never sorted.

Invariant: a run is a bulk load with an idempotency key, and its plan is kept (`plans`). So its
records are in the target once, whichever process dies and however often it is started. A run learns
of earlier runs only from the records of the target.
"""

from __future__ import annotations

import itertools
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import numpy
import pyarrow
from pyspark.sql.types import StringType, StructField, StructType

import falaj
from falaj.arrow import lanes
from falaj.errors import InvalidArgument, OffsetOutOfRange, RecordCompacted, shown
from falaj.pipeline.base import places
from falaj.pipeline.base.buffers import array_of, numbers_of
from falaj.pipeline.base.frame import Config, Result, cores, watched
from falaj.pipeline.base.plans import Plans, ledger_of
from falaj.pipeline.deduping import ids
from falaj.pipeline.deduping.copying import DECIDED, TOLD, Copier, Decider, Done
from falaj.pipeline.deduping.dealing import DEALT, IDS, deal
from falaj.spark.reading import sampling
from falaj.spark.reading.loss import recreated
from falaj.spark.reading.ranges import Range, open_raw
from falaj.spark.writing.options import WriteOptions
from falaj.spark.writing.sink import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from falaj import AnyTopic, Store
    from falaj.arrow import Lane
    from falaj.pipeline.base.frame import Progress
    from falaj.pipeline.base.plans import Plan
    from falaj.spark.writing.sink import Staged

__all__ = ["DedupeConfig", "DedupeResult", "Repeated", "dedupe"]

_COLUMNS = (
    "key BINARY, value BINARY, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_US = 1_000_000
_DECISIONS = 1_000_000
"""About how many records a task decides about: their ids fit its memory."""
_COPIED = 8_000_000
"""How many records a task copies at most: it holds a byte for each."""
_WINDOW_MAX = 10**9


@dataclass(frozen=True, kw_only=True)
class DedupeConfig(Config):
    """Settings of `dedupe`.

    Attributes:
        topic: The topic that is read.
        into: The topic that is written. If it does not exist, it is created with the source's codec
            and partitions, and marked compacted if the source is.
        by: What copies of a record have in common: "key", "value", "key+value", "header:NAME" or
            "json:FIELD". NAME is a header; the first one of that name counts. FIELD is a member of
            a JSON object, as "order.id", or a path, as "$.lines[0].id". A record without this id is
            always kept.
        keep: Which copy is kept: the "first" or the "last" by time.
        window: Seconds; two copies that are at least this far apart are both kept. None: of all
            copies one is kept.
        start: Where the first run begins: "earliest", an offset, or a time. A later run continues
            where the last one ended.
        end: Where a run ends: before an offset, or a time; None for the end as of now.
        on_loss: What to do if records were trimmed before a run could read them, or the topic was
            created again: "fail"; or "continue".
        top: How many ids to report, of those with most copies.
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
            InvalidArgument: A setting is not allowed.
        """
        super().__post_init__()
        places.expect_two(self.topic, self.into)
        ledger = ledger_of(self.into, "dedupe")
        places.expect_names(self.into, ledger)
        if self.topic == ledger:
            raise InvalidArgument(
                f"topic {ledger} is the ledger of into={self.into}, and grows with each run: name "
                "another one in into="
            )
        ids.check(self.by)
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
        id: The id in a form for people: shortened; of a value, its beginning.
        dropped: How many copies were left out.
        partition: The partition of one of them, in the source.
        offset: Its offset there.
    """

    id: str
    dropped: int
    partition: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class DedupeResult(Result):
    """The result of `dedupe`. `records` counts what was read, `bytes` the values that were kept.

    Attributes:
        kept: Records that were appended to the target.
        dropped: Copies that were left out.
        without_id: Kept records that have no id.
        replaced: With `keep="last"`, records of earlier runs to which this run appended a newer
            copy; both are in the target.
        lost: Records that were trimmed before a run could read them.
        runs: How many runs this call did: two if it first finished a run that had died.
        repeated: The ids with most copies that were left out.
        notes: What the run reported: an id that no record has; a topic that was created again.
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

    The run goes through the copies of an id in the order of their times. Copies of one time come by
    partition and offset. With `keep="last"` the order is reversed. The first copy is kept and
    begins a window. Copies less than `window` seconds from it are left out; the next one is kept
    and begins another window.

    Kept records have the order of the source. They stay in their partitions if the target has as
    many. Otherwise their keys choose the partition, and the source partitions follow one after the
    other. Records keep key, value, headers and time, to the microsecond.

    A run appends all its records or none, and continues where the last one ended. Every record in
    the target counts, whichever program appended it: its copies less than a window away are left
    out. So several runs give the same result as one, if times do not go back from one run to the
    next.

    With `keep="last"` a run cannot take back what is in the target. It appends the newer copy after
    it, and counts it in `replaced`. If a run died, start it again, even twice at once: nothing is
    appended twice.

    A run reads the ids of new records once, the ids in the target once, and the whole new records
    once. With a window it skips those ids of the target that are too old to matter. A task holds
    the ids of about a million records in memory. All copies of an id are in one task; each takes
    some 40 bytes and the id.

    Args:
        spark: The session.
        config: The settings.
        progress: Learns how far it is.

    Returns:
        What the run did.

    Raises:
        UnknownTopic: There is no topic to read.
        OffsetOutOfRange: The records that come next were trimmed; see `on_loss`.
        InvalidArgument: Earlier runs filled the target with other settings. Spark's sink raises
            this and other errors, too.
    """
    began = time.monotonic()
    settings = {"by": config.by, "keep": config.keep, "window": config.window}
    notes: list[str] = []
    without: tuple[str, ...] = ()
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
            total = _sum(total, run.do(plan, plans.token))
            if plan.recreated and (note := str(recreated(source.name, "dedupe"))) not in notes:
                notes.append(note)
            if total.records and total.without_id == total.kept:
                without = (_without_id(config, source, plan),)
            else:
                without = ()
            if not plan.begun:
                break
    return replace(total, notes=(*notes, *without), seconds=time.monotonic() - began)


def _expect_there(source: AnyTopic[Any], plan: Plan, config: DedupeConfig) -> None:
    if config.on_loss == "continue":
        return
    if plan.recreated:
        gone = recreated(source.name, "dedupe")
        gone.args = (f'{gone}: go on with the new one with on_loss="continue"',)
        gone.topic = source.name
        raise gone
    if not plan.lost:
        return
    error = OffsetOutOfRange(
        f"{plan.lost:,} records of topic {source.name} were trimmed before dedupe could read them: "
        'go on behind them with on_loss="continue"'
    )
    error.topic = source.name
    error.partition, error.offset, _ = plan.lanes[0]
    raise error


def _without_id(config: DedupeConfig, source: AnyTopic[Any], plan: Plan) -> str:
    """Report that no record has an id, and which member of JSON may have been meant."""
    said = f"no record has what by={config.by!r} names, so none is a copy of another"
    kind, _, path = config.by.partition(":")
    if kind != "json":
        return said
    wanted: Any = StringType()
    for name in reversed(ids.path_of(path)):
        if isinstance(name, str):
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
    """One run: it decides, and appends."""

    spark: SparkSession
    config: DedupeConfig
    store: Store
    source: AnyTopic[Any]
    into: AnyTopic[Any]
    progress: Progress | None

    def do(self, plan: Plan, token: str) -> DedupeResult:
        """Append the records of a plan that are kept."""
        given = {"store": str(self.store.path), "topic": self.into.name}
        given |= {"txnAppId": token, "txnVersion": str(plan.number)}
        target = Target.prepare(WriteOptions.parse(given, "batch"))
        job = f"dedupe-{uuid.uuid4().hex}"
        try:
            seen = self._seen(plan)
            with watched(self.spark, self.progress, "copying what is kept"):
                done = Done(self._copied(plan, seen, target, job).collect())
            self._commit(target, job, done.staged)
        except BaseException:
            target.abort(job, [])
            raise
        most = sorted(done.repeated, key=lambda each: (-each[0], *each[1:3]))
        return DedupeResult(
            records=done.kept + done.dropped,
            bytes=done.bytes,
            seconds=0.0,
            kept=done.kept,
            dropped=done.dropped,
            without_id=done.without_id,
            replaced=done.replaced,
            lost=plan.lost,
            runs=1,
            repeated=tuple(itertools.starmap(self._repeated, most[: self.config.top])),
        )

    def _copied(self, plan: Plan, seen: Sequence[Lane], target: Target, job: str) -> DataFrame:
        """Stage the kept records: send ids to tasks, decide there, and copy."""
        alike = len(self.into.partitions) == len(self.source.partitions)
        columns = f"{_COLUMNS}, partition INT" if alike else _COLUMNS
        whole = places.Reading.of(self.spark, self.source, plan.lanes, columns, most=_COPIED)
        count = plan.offsets + sum(end - start for _, start, end in seen)
        deciding = max(
            1, -(-count // _DECISIONS), min(cores(self.spark), count // (_DECISIONS // 10))
        )
        dealt = self._dealt(self.source, plan.lanes, deciding, seen=False)
        if seen:
            dealt = dealt.union(self._dealt(self.into, seen, deciding, seen=True))
        window = None if self.config.window is None else round(self.config.window * _US)
        decider = Decider(whole.tasks, window, self.config.keep == "last", self.config.top)
        return (
            dealt.repartitionById(deciding, "task")
            .mapInArrow(decider.decide, DECIDED)
            .repartitionById(max(1, len(whole.tasks)), "task")
            .mapInArrow(Copier(whole.reader, whole.tasks, target, job).copy, TOLD)
        )

    def _dealt(
        self, topic: AnyTopic[Any], lanes: Sequence[Lane], tasks: int, *, seen: bool
    ) -> DataFrame:
        """Send the ids of records to the deciding tasks."""
        by = self.config.by
        columns = f"{ids.columns(by)}, partition INT, offset BIGINT, timestamp TIMESTAMP"
        reading = places.Reading.of(self.spark, topic, lanes, columns)
        return reading.through(_dealer(by, seen, tasks), DEALT)

    def _seen(self, plan: Plan) -> list[Lane]:
        """List the records of the target that new records may be copies of."""
        if not any(self.into.partition(p).end_offset for p in self.into.partitions):
            return []
        if self.config.window is None or not plan.offsets:
            return lanes(self.into, "earliest", None)
        with watched(self.spark, self.progress, "looking at times"):
            reading = places.Reading.of(self.spark, self.source, plan.lanes, "timestamp TIMESTAMP")
            oldest = min(
                (row.at for row in reading.through(_oldest, "at BIGINT").collect()), default=0
            )
        start = datetime.fromtimestamp(oldest / _US - self.config.window - 1, UTC)
        return lanes(self.into, start, None)

    def _repeated(self, dropped: int, partition: int, offset: int, id_: bytes) -> Repeated:
        return Repeated(self._shown(partition, offset, id_), dropped, partition, offset)

    def _shown(self, partition: int, offset: int, id_: bytes) -> str:
        """Write an id for people."""
        if self.config.by not in ("value", "key+value"):
            return places.shown(ids.bare(self.config.by, id_))
        try:
            record = self.source.partition(partition)[offset]
        except (RecordCompacted, OffsetOutOfRange):
            return f"{partition}:{offset}"  # gone since it was read
        if self.config.by == "value":
            return places.shown(record.raw)
        return f"{places.shown(record.key)}: {places.shown(record.raw)}"

    def _commit(self, target: Target, job: str, staged: list[Staged]) -> None:
        target.commit(job, staged, target.options.transaction)


def _dealer(
    by: str, seen: bool, tasks: int
) -> Callable[[Range, Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def with_id(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        there = [batch[name] for name in ("partition", "offset", "timestamp")]
        return pyarrow.RecordBatch.from_arrays([ids.ids(by, batch), *there], names=IDS)

    return lambda _, batches: deal(map(with_id, batches), seen, tasks)


def _oldest(_: Range, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Find the least time."""
    times = [numbers_of(batch["timestamp"]).min() for batch in batches]
    least = array_of(numpy.array([min(times)] if times else [], numpy.int64))
    yield pyarrow.RecordBatch.from_arrays([least], names=["at"])
