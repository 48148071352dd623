"""Helpers of all moves: the store, its model, and the effect of limits."""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition

import falaj
from falaj.errors import OffsetOutOfRange
from together.model import (
    Group,
    Partition,
    Queue,
    Record,
    Topic,
    first_after_limits,
)

SEGMENT_BYTES = 1 << 16


class Kind(NamedTuple):
    """Settings with which a topic is made."""

    codec: str
    partitions: int = 1
    log: str | None = None
    compacted: bool = False


KINDS = {
    "raw": Kind("bytes"),
    "rows": Kind("json", compacted=True),
    "three": Kind("str", partitions=3, compacted=True),
    "packs": Kind("msgpack"),
    "paid": Kind("json", log="shop"),
    "audit": Kind("str", log="shop"),
}
SINGLE = ("raw", "rows", "packs", "audit")
KEYS = (None, b"ann", b"bob", b"")
OLD_NS = 1_600_000_000 * 10**9

some_topics = precondition(lambda machine: bool(machine.topics))
some_members = precondition(lambda machine: bool(machine.members))
some_absent = precondition(lambda machine: bool(machine.absent()))
some_queues = precondition(lambda machine: bool(machine.queues))

names = st.runner().flatmap(lambda machine: st.sampled_from(machine.chosen))
"""Names of this run: few, so that features meet in them."""
existing = st.runner().flatmap(lambda machine: st.sampled_from(sorted(machine.topics)))
members = st.runner().flatmap(lambda machine: st.sampled_from(sorted(machine.members)))
absent = st.runner().flatmap(lambda machine: st.sampled_from(machine.absent()))
queues = st.runner().flatmap(lambda machine: st.sampled_from(sorted(machine.queues)))
singles = st.runner().flatmap(lambda machine: st.sampled_from(machine.singles))
keys = st.sampled_from(KEYS)
syncs = st.sampled_from([None, None, None, "none", "durable"])
times = st.sampled_from([None, None, OLD_NS, OLD_NS + 10**9, OLD_NS + 5 * 10**9])
"""Event times: now, or some day in 2020, in any order."""


class Base(RuleBasedStateMachine):
    """A store in memory, and the model of it."""

    ways: list[Any]

    @initialize(chosen=st.sets(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    def begin(self, chosen: set[str]) -> None:
        self.chosen = sorted(chosen)
        self.singles = [name for name in SINGLE if name in chosen] or [SINGLE[0]]
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="falaj-", dir=memory))
        self.path = self.folder / "store"
        self.store = falaj.open(self.path)
        self.copies = 0
        self.topics: dict[str, Topic] = {}
        self.store_limit: int | None = None
        self.groups: dict[str, Group] = {}
        self.members: dict[str, Any] = {}
        self.queues: dict[str, Queue] = {}
        self.takers: dict[str, Any] = {}
        self.jobs: dict[str, dict[int, Any]] = {}
        self.handles: dict[str, Any] = {}
        self.touched: set[str] = set()
        for name in self.chosen:
            self.topic(name)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    def absent(self) -> list[str]:
        """Groups that exist and have no member."""
        return sorted(set(self.groups) - set(self.members))

    # --- Topics ----------------------------------------------------------------------------------

    def topic(self, name: str) -> Any:
        """Open a topic; create it if needed."""
        kind = KINDS[name]
        self.touched.add(name)
        if name not in self.handles or self.handles[name].closed:
            compacted = kind.compacted if name not in self.topics else None
            opens: Any = self.store.topic
            if kind.partitions > 1:
                opens = partial(self.store.partitioned_topic, partitions=kind.partitions)
            self.handles[name] = opens(
                name,
                codec=kind.codec,
                log=kind.log,
                segment_bytes=SEGMENT_BYTES,
                compacted=compacted,
            )
        if name not in self.topics:
            parts = [Partition() for _ in range(kind.partitions)]
            self.topics[name] = Topic(kind.codec, kind.log, parts, kind.compacted)
        return self.handles[name]

    def part(self, name: str, p: int) -> tuple[falaj.Topic[Any], Partition, int]:
        """Open one partition, and find its list."""
        topic = self.topic(name)
        p %= KINDS[name].partitions
        return topic.partition(p), self.topics[name].partitions[p], p

    def written(self, name: str, p: int, offset: int, record: Record, time_ns: int | None) -> None:
        """Note an append; without a given time, read the clock's from the record."""
        part = self.topics[name].partitions[p]
        assert offset == part.end, f"{name}/{p}: appended at {offset}, not {part.end}"
        part.records.append(record)
        for queue in self.queues.values():
            if queue.topic == name:
                queue.works[offset] = self.new_work(record)
        has_time = time_ns is not None
        if time_ns is None:
            time_ns = time.time_ns()
            try:
                read = self.topic(name).partition(p)[offset]
            except OffsetOutOfRange:
                assert self.limited()  # a limit was faster
            else:
                assert abs(read.timestamp_ns - time_ns) < 60 * 10**9
                time_ns = read.timestamp_ns
        part.records[offset] = record._replace(time_ns=time_ns, has_time=has_time)

    def new_work(self, record: Record) -> Any:
        from together.model import Work

        late = any(name == "falaj-not-before" for name, _ in record.headers)
        return Work("late" if late else "new")

    def refused(self, call: Callable[[], Any], *errors: type[BaseException]) -> bool:
        """True if a call raises one of these errors."""
        try:
            call()
        except errors:
            return True
        return False

    # --- Effects of limits -----------------------------------------------------------------------

    def needed(self, name: str, p: int) -> int | None:
        """The lowest offset of a partition that a group or a queue still needs."""
        part = self.topics[name].partitions[p]
        committed = [
            group.committed[name, p]
            for group in self.groups.values()
            if (name, p) in group.committed
        ]
        undone = [q.lowest_undone(part.end) for q in self.queues.values() if q.topic == name]
        return min([*committed, *undone], default=None)

    def limited(self) -> bool:
        """True if limits may delete anything."""
        return bool(self.store_limit) or any(of.limits.any() for of in self.topics.values())

    def settle(self) -> None:
        """Apply the limits, and check that what was deleted is within the bounds."""
        if not self.limited():
            return
        touched = set(self.touched)
        for name in self.topics:
            self.topic(name).flush()
        report = self.store.maintain()
        assert report["problems"] == []
        now = time.time_ns()
        for name, topic in self.topics.items():
            for p, part in enumerate(topic.partitions):
                # In a shared log, a limit of one topic deletes files of all; each topic keeps its
                # own records.
                needed = self.needed(name, p)
                least, most = first_after_limits(
                    part, topic.limits, self.store_limit is not None, now, needed
                )
                first = self.topic(name).partition(p).start_offset
                assert least <= first <= most, (
                    f"{name}/{p} begins at {first}, and must from {least} to {most}: "
                    f"{topic.limits}, needed {needed}, {len(part.there())} records"
                )
                if part.first != first:
                    touched.add(name)
                part.first = first
        self.touched = touched

    def forget_topic(self, name: str) -> None:
        """Remove a deleted topic from the model, with all that is known of its records."""
        self.topics.pop(name)
        self.handles.pop(name, None)
        for group in self.groups.values():
            for places in (group.committed, group.position):
                for of in [of for of in places if of[0] == name]:
                    del places[of]
        for queue in [q for q, of in self.queues.items() if of.topic == name]:
            self.drop_queue(queue)

    def drop_queue(self, name: str) -> None:
        """Close a queue, and remove it from the model."""
        if name in self.takers:
            self.takers.pop(name).close()
        self.jobs.pop(name, None)
        self.queues.pop(name)
        self.store.delete_queue(name)

    def close_members(self) -> None:
        """Close all groups; uncommitted records are delivered again."""
        for name in list(self.members):
            self.members.pop(name).close()
            self.groups[name].position.clear()

    def open_again(self, path: Path) -> None:
        """Close everything, and open the store at a path."""
        self.close_members()
        for name, jobs in self.jobs.items():
            for offset in jobs:
                work = self.queues[name].works[offset]
                work.suspect = work.suspect or work.begun
                work.back()
            jobs.clear()
        self.takers.clear()
        self.handles.clear()
        self.store.close()
        self.path = path
        self.store = falaj.open(path)

    def limits(self, name: str, **changed: Any) -> None:
        """Note changed limits."""
        topic = self.topics[name]
        topic.limits = replace(topic.limits, **changed)
