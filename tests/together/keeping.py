"""Moves that remove records, move the store, or kill a process that writes to it."""

import shutil
from datetime import UTC, datetime
from typing import Any

import pytest
from children import Child
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

import falaj
from falaj.errors import InvalidArgument, OffsetOutOfRange, TopicDeleted
from together import looks, values
from together.base import KINDS, OLD_NS, Base, existing, names, some_topics
from together.model import Record

partitions = st.integers(0, 2)

APPENDING = """
store = falaj.open(path)
name, p, key, many = hear().split()
topic = store.any_topic(name).partition(int(p))
for i in range(int(many)):
    value = f"killed {i}" if topic.codec != "bytes" else f"killed {i}".encode()
    say(topic.append(value, key.encode()))
os.kill(os.getpid(), 9)
"""


compactable = st.runner().flatmap(lambda machine: st.sampled_from(machine.to_compact()))


class Keeping(Base):
    """Trims, limits, compaction, deletion, copies, reopening and kills."""

    def to_compact(self) -> list[str]:
        """Topics with keys, and some that may not be compacted."""
        return [name for name, model in self.topics.items() if model.compacted]

    @some_topics
    @rule(
        name=existing,
        p=partitions,
        n=st.integers(0, 6),
        how=st.sampled_from(["offset", "last", "time"]),
        dry=st.booleans(),
    )
    def trim(self, name: str, p: int, n: int, how: str, dry: bool) -> None:
        topic, part, p = self.part(name, p)
        wanted: dict[str, Any]
        if how == "offset":
            first = min(part.first + n, part.end)
            wanted = {"before_offset": first}
        elif how == "last":
            first = part.from_the_end(n + 1)
            wanted = {"before_offset": -(n + 1)}
        else:
            first = part.at(OLD_NS + n * 10**9)
            wanted = {"before_time": datetime.fromtimestamp(OLD_NS // 10**9 + n, UTC)}
        report = topic.trim(**wanted, dry_run=dry)
        # Compacted offsets may count as trimmed or not, as long as no record does.
        said = report["firsts"][p]
        assert part.behind(said) == part.behind(first), f"trim({wanted}) says {report}, not {first}"
        if not dry:
            part.first = max(part.first, said)

    @some_topics
    @rule(name=existing, p=partitions)
    def trim_beyond_the_end(self, name: str, p: int) -> None:
        topic, part, _ = self.part(name, p)
        with pytest.raises(OffsetOutOfRange):
            topic.trim(before_offset=part.end + 1)

    @some_topics
    @rule(name=existing, records=st.none() | st.integers(1, 6))
    def keep_records(self, name: str, records: int | None) -> None:
        self.topic(name).configure(retention_records=records)
        self.limits(name, records=records)

    @some_topics
    @rule(name=existing, bytes_=st.sampled_from([None, 1, 100_000, 200_000]))
    def keep_bytes(self, name: str, bytes_: int | None) -> None:
        self.topic(name).configure(retention_bytes=bytes_)
        # In a log that topics share, all files count, so each topic gets this limit by itself.
        self.limits(name, bytes=bytes_)

    @some_topics
    @rule(name=existing, age=st.sampled_from([None, 3600.0]))
    def keep_for_some_time(self, name: str, age: float | None) -> None:
        self.topic(name).configure(retention_age=age)
        self.limits(name, age_s=age)

    @some_topics
    @rule(name=existing, waits=st.booleans(), protected=st.booleans())
    def keep_for_readers(self, name: str, waits: bool, protected: bool) -> None:
        self.topic(name).configure(retention_waits=waits, retention_protected=protected)
        self.limits(name, waits=waits, protected=protected)

    @rule(limit=st.sampled_from([None, None, 1, 300_000]))
    def keep_bytes_in_the_store(self, limit: int | None) -> None:
        self.store.configure(retention_bytes=limit)
        self.store_limit = limit

    @precondition(lambda machine: machine.to_compact())
    @rule(
        name=compactable,
        seal=st.booleans(),
        at_once=st.booleans(),
        memory=st.sampled_from([1, 128 << 20]),
    )
    def compact(self, name: str, seal: bool, at_once: bool, memory: int) -> None:
        """The last record of each key stays; the report lists what was removed."""
        topic, model = self.topic(name), self.topics[name]
        shares = any(t.log == model.log is not None for t in self.topics.values() if t is not model)
        if shares:
            with pytest.raises(InvalidArgument):
                topic.compact(seal=seal)
            return
        retention = 0 if at_once else 86_400
        try:
            report = topic.compact(seal=seal, delete_retention=retention, memory=memory)
        except InvalidArgument:
            assert model.log is not None  # another topic may join a shared log
            return
        removed = limited = 0
        for p, part in enumerate(model.partitions):
            left = self.left_in(topic.partition(p))
            there = set(part.there())
            # Compaction begins a file, and then limits may delete others at the same time.
            start = topic.partition(p).start_offset if self.limited() else part.first
            limited += start - part.first
            gone = {offset for offset in there - left if offset >= start}
            assert left <= there, "compaction brought something back"
            assert gone <= part.may_be_compacted(tombstones=at_once), f"{name}/{p} lost {gone}"
            for offset in (
                gone & part.last_of_keys()
            ):  # a tombstone: the records that it hides are gone
                key = part.records[offset].key
                assert key not in {part.records[o].key for o in left}
            part.taken |= gone
            removed += len(gone)
        trimmed = limited + sum(part.first for part in model.partitions)
        assert removed <= report["removed"] <= removed + trimmed, report

    def left_in(self, topic: falaj.Topic[Any]) -> set[int]:
        """Read the offsets that are there; a limit may delete the first ones meanwhile."""
        while True:
            try:
                return {record.offset for record in topic}
            except OffsetOutOfRange:
                assert self.limited()

    @some_topics
    @rule(name=existing, compacted=st.booleans())
    def mark_compacted(self, name: str, compacted: bool) -> None:
        topic, model = self.topic(name), self.topics[name]
        topic.configure(compacted=compacted)
        model.compacted = compacted

    @some_topics
    @rule(name=existing)
    def delete(self, name: str) -> None:
        topic = self.topic(name)
        self.close_members()
        self.drop_queues_of(name)
        topic.delete()
        with pytest.raises(TopicDeleted):
            topic.partition(0).append(values.large(KINDS[name].codec, 0))
        self.forget_topic(name)
        assert name not in self.store.topics

    def drop_queues_of(self, name: str) -> None:
        for queue in [q for q, of in self.queues.items() if of.topic == name]:
            self.drop_queue(queue)

    @rule()
    def reopen(self) -> None:
        self.open_again(self.path)

    @some_topics
    @rule()
    def go_on_in_a_backup(self) -> None:
        copy = self.folder / f"copy {self.copies}"
        self.copies += 1
        self.store.backup(copy)
        before = self.path
        self.open_again(copy)
        shutil.rmtree(before)

    @rule(name=names, p=partitions, acked=st.integers(0, 3), in_the_midst=st.booleans())
    def kill_a_process_that_appends(
        self, name: str, p: int, acked: int, in_the_midst: bool
    ) -> None:
        """Acknowledged records are there; others are there wholly or not at all."""
        topic, part, p = self.part(name, p)
        killed = Child(self.path, APPENDING)
        try:
            killed.tell(f"{name} {p} ann {acked + 3 * in_the_midst}")
            offsets = [int(killed.hear()) for _ in range(acked)]
            if not in_the_midst:
                killed.process.wait()
        finally:
            if killed.process.poll() is None:
                killed.kill()
            for pipe in (killed.process.stdin, killed.process.stdout, killed.process.stderr):
                assert pipe is not None
                pipe.close()
        assert offsets == list(range(part.end, part.end + acked))
        i = 0
        for record in topic[part.end :]:
            value: Any = f"killed {i}"
            wanted = Record(value.encode() if topic.codec == "bytes" else value, b"ann")
            self.written(name, p, record.offset, wanted, None)
            i += 1
        assert acked <= i <= acked + 3 * in_the_midst

    @some_topics
    @rule(read=st.sampled_from(["mmap", "pread"]))
    def read_only(self, read: Any) -> None:
        """A reader sees the same."""
        with falaj.open(self.path, read_only=True, io=read) as store:
            for name, model in self.topics.items():
                topic = store.any_topic(name, codec=KINDS[name].codec)
                for p, part in enumerate(model.partitions):
                    looks.forwards(topic.partition(p), part)
                    looks.from_the_end(topic.partition(p), part)

    @some_topics
    @rule()
    def verify(self) -> None:
        found = self.store.verify()
        assert found["sound"], found
