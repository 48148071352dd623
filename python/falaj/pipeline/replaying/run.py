"""`replay`: records of a topic once more, into another one, in the rhythm in which they came.

Runs in this process and not in Spark: a job of Spark's shows what it wrote when it is done, and a
replay is watched while it goes on; one reader that sleeps until the next record is due takes less
of the machine than any task; and times keep their nanoseconds; Spark's end at microseconds.

Invariant: how far it is stands in the log that is written to, and moves in the same transaction as
the records: the place of a consumer with `cursor_in`. So every record goes once, whichever process
is killed; of two that replay the same at a time one is refused; records that compaction took leave
no hole that somebody would have to know of, as numbers of a producer would.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge
from typing import TYPE_CHECKING, Any, Literal

import falaj
from falaj.arrow import lanes
from falaj.errors import AppendTooLarge, InvalidArgument, PartitionNotAssigned, shown
from falaj.pipeline.base import places
from falaj.pipeline.base.frame import SILENT, Config, Progress, Result
from falaj.pipeline.replaying.pacing import WALL, Clock, Pace
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from falaj import AnyTopic, Record, Store
    from falaj._consumer import Consumer
    from falaj.arrow import Lane

    Due = tuple[Record[Any], int | None]
    """A record, and the time that it gets where it is not its own."""

__all__ = ["ReplayConfig", "ReplayResult", "replay"]

_PAUSE_MAX = 10**9
_RECORDS_MAX = 1_000
_BYTES_MAX = 1 << 20
"""The bytes of a transaction, which takes a quarter of a segment at most."""
_TAKEN_S = 1.0
"""Time in which the partitions of one that was killed are taken over; it takes 50 ms."""


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(Config):
    """Settings of `replay`.

    Attributes:
        topic: What is read.
        into: The topic that is written, of the same store; made with the source's codec and
            partitions, and marked compacted if that is, if it is not there.
        speed: How many seconds of the past go by in one second: 1 is the rhythm in which records
            came, by their times, 10 ten times as fast; or "max" for as fast as it goes.
        start: Where it begins: "earliest", an offset, or a time.
        end: Where it ends: before an offset, or a time; None for the end as of now.
        shift: Whether records get the time at which they are due now, in place of their own.
        longest_pause: Seconds after which a pause is over, whatever speed and times say; None for
            as long as they are.
        resume: Whether it goes on where a replay of this name was left; else it begins again, and
            what was replayed comes once more.
        name: Name of the consumer that keeps the place; `replay.TOPIC.INTO` by default.
    """

    topic: str
    into: str
    speed: float | Literal["max"] = 1.0
    start: int | str | datetime = "earliest"
    end: int | str | datetime | None = None
    shift: bool = False
    longest_pause: float | None = None
    resume: bool = True
    name: str | None = None

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            InvalidArgument: Something cannot be right.
        """
        super().__post_init__()
        places.expect_two(self.topic, self.into)
        if self.speed != "max" and not 0 < self.speed < float("inf"):
            raise InvalidArgument(f'speed is a number above 0, or "max", not {self.speed}')
        if self.longest_pause is not None and not 0 <= self.longest_pause <= _PAUSE_MAX:
            raise InvalidArgument(
                f"longest_pause is a number of seconds from 0 to {_PAUSE_MAX:,}, not "
                f"{shown(self.longest_pause)}"
            )


@dataclass(frozen=True, kw_only=True)
class ReplayResult(Result):
    """The result of `replay`; `records` are those that it appended, `bytes` their values.

    Attributes:
        before: Records of the range that earlier runs had appended.
        behind: Seconds that the latest record was late: more than a bit says that the machine did
            not keep up with the speed.
        name: Name of the consumer that keeps the place.
    """

    before: int
    behind: float
    name: str

    def rows(self) -> list[tuple[str, str]]:
        """Tell it to people."""
        rows = super().rows()
        if self.before:
            rows.insert(1, ("replayed before", f"{self.before:,}"))
        return [*rows, ("behind", f"{self.behind:.3f}")]


def replay(
    spark: SparkSession | None, config: ReplayConfig, *, progress: Progress | None = None
) -> ReplayResult:
    """Append a range of a topic to another one, at a speed.

    The first record goes at once, each other one when as much time has gone by as lies between
    their times, divided by the speed. Partitions are merged by time; a record whose time lies
    before that of one that went goes at once. Waiting takes no processor time, and what is due is
    counted from the first record, so nothing adds up. Records keep key, value, headers, time
    (unless `shift`), and partition where both topics have as many; else they go where their keys
    lead.

    It may be ended at any moment, by Ctrl-C or SIGKILL: started again it goes on, behind the last
    record that is in the target, each record once; at once with the first that is left. Two that
    run at the same time under one name do not do it twice: the second is refused.

    Args:
        spark: Not used, and may be None: it is the first argument because it is of all pipelines.
        config: The settings.
        progress: Gets how far it is, in records.

    Returns:
        What was done.

    Raises:
        UnknownTopic: There is no topic to read.
        OffsetOutOfRange: `start` or `end` is not there, or what comes next was trimmed.
        PartitionNotAssigned: Somebody else replays this now.
        LogTruncated: The source lost what was replayed already, as when an older copy was put back.
    """
    with ExitStack() as held:
        store = held.enter_context(falaj.open(config.store))
        source = held.enter_context(open_raw(store, config.topic))
        into = held.enter_context(places.like(store, config.into, source))
        return _Replay(store, source, into, config, progress or SILENT).run()


@dataclass
class _Replay:
    """One replay, from where it stands to the end."""

    store: Store
    source: AnyTopic[Any]
    into: AnyTopic[Any]
    config: ReplayConfig
    progress: Progress
    clock: Clock = WALL
    records: int = 0
    bytes: int = 0
    pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        speed = None if self.config.speed == "max" else float(self.config.speed)
        longest = self.config.longest_pause
        self.pace = Pace(speed, None if longest is None else round(longest * 1e9), self.clock)

    def run(self) -> ReplayResult:
        """Replay what is left."""
        began = time.monotonic()
        name = self.config.name or f"replay.{self.source.name}.{self.into.name}"
        with self.store.consumer(
            name, [self.source], start=self.config.start, cursor_in=self.into
        ) as place:
            todo, before = self._left(place, name)
            self.progress.say(f"replaying {self.source.name}")
            left = (self.source.partition(p)._count(start, end) for p, start, end in todo)
            self.progress.total(sum(left))
            for records in self._due(todo):
                self._append(records, place)
        return ReplayResult(
            records=self.records,
            bytes=self.bytes,
            seconds=time.monotonic() - began,
            before=before,
            behind=self.pace.behind_ns / 1e9,
            name=name,
        )

    def _left(self, place: Consumer[Any], name: str) -> tuple[list[Lane], int]:
        """Say which records are left to replay, and how many are not."""
        until = time.monotonic() + _TAKEN_S
        while len(place.partitions) < len(self.source.partitions):
            if time.monotonic() > until:
                raise PartitionNotAssigned(
                    f"another process replays {self.source.name} under the name {name} now: wait "
                    "for it, or give another name="
                )
            time.sleep(0.01)
        topic, found, before = self.source.name, [], 0
        if not self.config.resume:
            place.seek(self.config.start)
        for partition, first, end in lanes(self.source, "earliest", self.config.end):
            part = self.source.partition(partition)
            start = place.position(topic, partition)
            if start < first:
                raise part._out_of_range(start)
            found.append((partition, start, max(start, end)))
            before += part._count(max(part._start(self.config.start), first), min(start, end))
        return found, before

    def _due(self, todo: list[Lane]) -> Iterator[list[Due]]:
        """Wait, and yield what is due, in pieces for a transaction."""
        parts = [self.source.partition(p)._records(start, end) for p, start, end in todo]
        ready: list[Due] = []
        size, wall = 0, time.time_ns()
        for record in merge(*parts, key=lambda record: record.timestamp_ns):
            due = self.pace.due(record.timestamp_ns)
            full = len(ready) >= _RECORDS_MAX or size + len(record) > _BYTES_MAX
            if ready and (full or not self.pace.is_due(due)):
                yield ready
                ready, size = [], 0
            self.pace.wait(due)
            if self.config.shift:
                moved = wall + self.pace.moved(record.timestamp_ns)
                ready.append((record, moved if self.pace.speed else time.time_ns()))
            else:
                ready.append((record, None))
            size += len(record)
        if ready:
            yield ready

    def _append(self, due: list[Due], place: Consumer[Any]) -> None:
        """Append records and move the place behind them, both or neither."""
        try:
            self._commit(due, place)
        except AppendTooLarge:
            # A target with small segments takes less at a time.
            if len(due) == 1:
                raise
            middle = len(due) // 2
            self._append(due[:middle], place)
            self._append(due[middle:], place)
            return
        self.records += len(due)
        self.bytes += sum(len(record) for record, _ in due)
        self.progress.advance(len(due))

    def _commit(self, due: list[Due], place: Consumer[Any]) -> None:
        ends = {record.partition: record.offset + 1 for record, _ in due}
        for partition, end in ends.items():
            place.seek(end, topic=self.source.name, partition=partition)
        with self.store.transaction() as tx:
            if len(self.into.partitions) == len(self.source.partitions):
                for partition in ends:
                    mine = [_new(*one) for one in due if one[0].partition == partition]
                    tx.extend(self.into, mine, partition=partition)
            else:
                tx.extend(self.into, [_new(*one) for one in due])
            tx.commit_cursor(place)


def _new(record: Record[Any], time_ns: int | None) -> Any:
    """Make a record with a time of its own, also where the log had given it that of the append."""
    return falaj.NewRecord._of(record, record.timestamp_ns if time_ns is None else time_ns)
