"""`replay`: append records of a topic to another, in the rhythm in which they came.

Runs in this process and not in Spark, for three reasons. A job of Spark's shows its records when it
ends, but people watch a replay while it runs. One reader that sleeps until the next record is due
takes less of the machine than any task. And times keep their nanoseconds, while those of Spark have
microseconds.

Invariant: the progress of a replay is the cursor of a consumer group with `cursor_in`. It is in the
log of the target, and moves in the same transaction as the records. So each record is appended
once, whichever process is killed. If two processes run the same replay at once, the second is
refused. Unlike the sequence numbers of a producer, a cursor needs no care for records that
compaction removed.
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
from falaj.spark.reading.loss import recreated
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

_PAUSE_MAX = _SPEED_MAX = 10**9
_RECORDS_MAX = 1_000
_BYTES_MAX = 1 << 20
"""The bytes of a transaction, which takes a quarter of a segment at most."""
_TAKEN_S = 1.0
"""Time in which the partitions of one that was killed are taken over; it takes 50 ms."""


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(Config):
    """Settings of `replay`.

    Attributes:
        topic: The topic that is read.
        into: The topic that is written, in the same store. If it does not exist, it is created with
            the source's codec and partitions, and marked compacted if the source is.
        speed: How many seconds of the past pass in one second. 1 is the original rhythm of the
            records, by their times; 10 is ten times as fast; "max" is as fast as possible.
        start: Where it begins: "earliest", an offset, or a time.
        end: Where it ends: before an offset, or a time; None for the current end.
        shift: Whether records get the time at which they are due now, instead of their own.
        longest_pause: The longest pause in seconds, whatever speed and times are; None keeps all
            pauses.
        resume: Whether to continue where a replay of this name ended. If false, it begins again,
            and appends replayed records once more.
        name: The consumer group that keeps the progress; `replay.TOPIC.INTO` by default.
        on_loss: What to do if records were trimmed before they were replayed, or the topic was
            created again: "fail", or "continue" with what is there.
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
    on_loss: Literal["fail", "continue"] = "fail"

    @property
    def group(self) -> str:
        """The consumer group that keeps the progress."""
        return self.name or f"replay.{self.topic}.{self.into}"

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            InvalidArgument: A setting is not allowed.
        """
        super().__post_init__()
        places.expect_two(self.topic, self.into)
        places.expect_names("the name of the replay", self.group)
        if self.speed != "max" and not 1 / _SPEED_MAX <= self.speed <= _SPEED_MAX:
            raise InvalidArgument(
                f'speed is a number from {1 / _SPEED_MAX} to {_SPEED_MAX:,}, or "max", not '
                f"{shown(self.speed)}"
            )
        if self.longest_pause is not None and not 0 <= self.longest_pause <= _PAUSE_MAX:
            raise InvalidArgument(
                f"longest_pause is a number of seconds from 0 to {_PAUSE_MAX:,}, not "
                f"{shown(self.longest_pause)}"
            )


@dataclass(frozen=True, kw_only=True)
class ReplayResult(Result):
    """The result of `replay`; `records` counts what it appended, `bytes` the values of these.

    Attributes:
        before: How many records of the range earlier runs had appended.
        behind: By how many seconds the latest record was late. A large value shows that the machine
            could not keep up with the speed.
        name: The consumer group that keeps the progress.
        lost: How many offsets were trimmed before a run could replay them.
        notes: What the run reported: a topic that was created again.
    """

    before: int
    behind: float
    name: str
    lost: int = 0
    notes: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """Tell it to people."""
        rows = super().rows()
        if self.before:
            rows.insert(1, ("replayed before", f"{self.before:,}"))
        if self.lost:
            rows.insert(1, ("lost", f"{self.lost:,}"))
        return [*rows, ("behind", f"{self.behind:.3f}"), *(("note", note) for note in self.notes)]


def replay(
    spark: SparkSession | None, config: ReplayConfig, *, progress: Progress | None = None
) -> ReplayResult:
    """Append a range of a topic to another one, at a chosen speed.

    The first record is appended at once. Each other record follows after the time between it and
    the first, divided by the speed. Partitions are merged by time. A record whose time is earlier
    than that of a record before it is appended at once. Waiting takes no processor time, and due
    times count from the first record, so errors do not add up.

    Records keep key, value and headers, and their time unless `shift` is true. They keep their
    partition if both topics have the same number; otherwise their keys choose it.

    You may end a replay at any moment, by Ctrl-C or SIGKILL. Started again, it continues after the
    last record in the target, so each record is appended once. It begins at once with the first
    record that is left. Two replays with the same name cannot run at the same time: the second is
    refused.

    Args:
        spark: Not used, and may be None. It is here because all pipelines have this first argument.
        config: The settings.
        progress: Learns how far it is, in records.

    Returns:
        What the replay did.

    Raises:
        UnknownTopic: There is no topic to read.
        OffsetOutOfRange: `start` or `end` does not exist, or the next records were trimmed.
        TopicDeleted: The topic was created again since the last run.
        PartitionNotAssigned: Another process runs this replay now.
        LogTruncated: The source lost records that were replayed already, for example because an
            older copy was restored.
    """
    with ExitStack() as held:
        store = held.enter_context(falaj.open(config.store))
        source = held.enter_context(open_raw(store, config.topic))
        into = held.enter_context(places.like(store, config.into, source))
        return _Replay(store, source, into, config, progress or SILENT).run()


@dataclass
class _Replay:
    """One replay, from its progress to the end."""

    store: Store
    source: AnyTopic[Any]
    into: AnyTopic[Any]
    config: ReplayConfig
    progress: Progress
    clock: Clock = WALL
    records: int = 0
    bytes: int = 0
    lost: int = 0
    notes: tuple[str, ...] = ()
    pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        speed = None if self.config.speed == "max" else float(self.config.speed)
        longest = self.config.longest_pause
        self.pace = Pace(speed, None if longest is None else round(longest * 1e9), self.clock)

    def run(self) -> ReplayResult:
        """Replay the records that are left."""
        began = time.monotonic()
        name = self.config.group
        self._expect_same(name)
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
            lost=self.lost,
            notes=self.notes,
        )

    def _expect_same(self, name: str) -> None:
        """Refuse a topic that was created again since the group read the old one.

        Raises:
            TopicDeleted: It is one, and the settings do not allow that.
        """
        if not self.config.resume or name not in self.store.groups:
            return
        topic = self.source
        read = [one for one in self.store.groups[name]["partitions"] if one["topic"] == topic.name]
        if all(one["generation"] == topic.generation for one in read):
            return
        gone = recreated(topic.name, "the replay")
        if self.config.on_loss == "continue":
            self.notes = (str(gone),)
            return
        gone.args = (
            f'{gone}: go on with the new one with on_loss="continue", or begin again with '
            "resume=False",
        )
        gone.topic = topic.name
        raise gone

    def _left(self, place: Consumer[Any], name: str) -> tuple[list[Lane], int]:
        """Return the records that are left to replay, and how many were replayed before."""
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
                self._skip(part._out_of_range(start), first - start)
                start = first
            found.append((partition, start, max(start, end)))
            before += part._count(max(part._start(self.config.start), first), min(start, end))
        return found, before

    def _skip(self, gone: IndexError, lost: int) -> None:
        """Go on behind records that were trimmed, or raise."""
        if self.config.on_loss == "fail":
            gone.args = (
                f'{gone}; go on behind them with on_loss="continue", or begin again with '
                "resume=False",
            )
            raise gone
        self.lost += lost

    def _due(self, todo: list[Lane]) -> Iterator[list[Due]]:
        """Wait, and yield the records that are due, in groups for one transaction each."""
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
        """Append records and move the cursor after them, both or neither."""
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
    """Make a record with an explicit time, even if the log had set the time of its append."""
    return falaj.NewRecord._of(record, record.timestamp_ns if time_ns is None else time_ns)
