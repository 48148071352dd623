"""A store compared with plain lists: any operations, by this process or another, in any order.

Hypothesis chooses the moves and shortens a failing list of them. In a small budget its choice is
the same each time. With `--proof` it differs each time, and a failure prints how to reproduce it.
"""

import json
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from children import Child, child
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import falaj
from falaj.errors import OffsetOutOfRange, TopicDeleted

TOPICS = {"one": 1, "x.tmp": 1, "three": 3}
"""Names, and their numbers of partitions."""
SEGMENT_BYTES = 1 << 16
FEW, MANY = 40, 250
"""Number of lists of moves to try."""
LARGE = 12_000
"""Bytes of a value: a segment holds five, so topics roll."""

OTHER_PROCESS = """
import json
while line := hear():
    path, command, name, p, values = json.loads(line)
    with falaj.open(path, lock_timeout=30) as store:
        if command == "delete":
            store.delete_topic(name)
            say("null")
            continue
        topic = store.any_topic(name, codec="raw").partition(p)
        if command == "append":
            said = [topic.append(bytes.fromhex(value), key=b"other") for value in values]
        elif command == "extend":
            said = list(topic.extend([(b"other", bytes.fromhex(value)) for value in values]))
        elif command == "read":
            said = [record.to_bytes().hex() for record in topic]
    say(json.dumps(said))
"""


class Record(NamedTuple):
    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    time: int | None = None

    def rest(self) -> dict[str, Any]:
        """The arguments of `append` beside a value and a key."""
        ns = None if self.time is None else self.time * 10**9
        return {"headers": self.headers, "timestamp_ns": ns}

    def new(self) -> falaj.NewRecord:
        return falaj.NewRecord(self.value, self.key, **self.rest())


Partition = list[Record]
names = st.sampled_from(sorted(TOPICS))
values = st.binary(max_size=40)
records = st.builds(
    Record,
    values,
    st.none() | st.binary(max_size=3),
    st.lists(st.tuples(st.text(max_size=3), st.none() | values), max_size=3).map(tuple),
    st.none() | st.integers(-(2**33), 2**33),
)
several = st.lists(records, min_size=1, max_size=8)
syncs = st.sampled_from([None, None, "none", "interval", "durable"])
partitions = st.integers(0, 2)


class Against(RuleBasedStateMachine):
    """The moves, and the conditions that must hold after each."""

    other: Child

    @initialize()
    def begin(self) -> None:
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.place = Path(tempfile.mkdtemp(prefix="falaj-", dir=memory))
        self.path = self.place / "store"
        self.model: dict[str, list[Partition]] = {}
        self.followers: dict[str, tuple[Any, list[int]]] = {}
        self.old: list[tuple[memoryview, bytes]] = []
        self.store = falaj.open(self.path)

    # --- Helpers ---------------------------------------------------------------------------------

    def topic(self, name: str) -> falaj.PartitionedTopic[memoryview]:
        topic = self.store.partitioned_topic(
            name, codec="raw", partitions=TOPICS[name], segment_bytes=SEGMENT_BYTES
        )
        if name not in self.model:
            self.model[name] = [[] for _ in range(TOPICS[name])]
        return topic

    def part(self, name: str, p: int) -> tuple[falaj.Topic[memoryview], Partition]:
        topic = self.topic(name)
        p %= TOPICS[name]
        return topic.partition(p), self.model[name][p]

    def same(self, read: Any, expected: Record) -> None:
        assert (read.to_bytes(), read.key, read.headers) == expected[:3]
        if expected.time is not None:
            assert read.timestamp_ns == expected.time * 10**9

    def same_list(self, read: Any, expected: Partition) -> None:
        for found, record in zip(read, expected, strict=True):
            self.same(found, record)

    def tell(self, command: str, name: str, p: int, values: list[bytes]) -> Any:
        told = [str(self.path), command, name, p, [value.hex() for value in values]]
        self.other.tell(json.dumps(told))
        return json.loads(self.other.hear())

    # --- Moves that change it --------------------------------------------------------------------

    @rule(name=names, p=partitions, record=records, sync=syncs)
    def append(self, name: str, p: int, record: Record, sync: Any) -> None:
        topic, expected = self.part(name, p)
        assert topic.append(*record[:2], **record.rest(), sync=sync) == len(expected)
        expected.append(record)

    @rule(name=names, p=partitions, several=several, sync=syncs)
    def extend_a_partition(self, name: str, p: int, several: list[Record], sync: Any) -> None:
        topic, expected = self.part(name, p)
        offsets = topic.extend(
            [falaj.NewRecord(*record[:2], **record.rest()) for record in several], sync=sync
        )
        assert offsets == range(len(expected), len(expected) + len(several))
        expected.extend(several)

    @rule(several=several)
    def extend_all_partitions(self, several: list[Record]) -> None:
        """falaj chooses where a record goes, but records of a key stay together."""
        topic = self.topic("three")
        placed: Any = topic.extend(
            [falaj.NewRecord(*record[:2], **record.rest()) for record in several]
        )
        left = list(several)
        for p, offsets in placed.items():
            expected = self.model["three"][p]
            assert offsets.start == len(expected)
            for read in topic.partition(p)[offsets.start : offsets.stop]:
                found = next(r for r in left if (read.to_bytes(), read.key, read.headers) == r[:3])
                left.remove(found)
                expected.append(found)
        assert left == []
        for key in {record.key for record in several} - {None}:
            homes = [p for p, offsets in placed.items() if self.has_key(p, offsets, key)]
            assert len(homes) == 1

    def has_key(self, p: int, offsets: range, key: bytes | None) -> bool:
        return any(record.key == key for record in self.model["three"][p][offsets.start :])

    @rule(name=names, p=partitions, n=st.integers(1, 8), together=st.booleans())
    def roll(self, name: str, p: int, n: int, together: bool) -> None:
        topic, expected = self.part(name, p)
        value = bytes([n]) * LARGE
        for _ in range(n):
            if together:
                topic.extend([value])
            else:
                topic.append(value)
        expected.extend([Record(value)] * n)

    @rule(
        name=names,
        p=partitions,
        several=st.lists(values, min_size=1, max_size=4),
        one=st.booleans(),
    )
    def append_from_another_process(
        self, name: str, p: int, several: list[bytes], one: bool
    ) -> None:
        _, expected = self.part(name, p)
        command = "append" if one else "extend"
        offsets = self.tell(command, name, p % TOPICS[name], several)
        assert offsets == list(range(len(expected), len(expected) + len(several)))
        expected.extend(Record(value, b"other") for value in several)

    @rule(name=names, by_other=st.booleans())
    def delete(self, name: str, by_other: bool) -> None:
        if name not in self.model:
            return
        topic = self.topic(name)
        self.model.pop(name)
        if by_other:
            self.tell("delete", name, 0, [])
        else:
            topic.delete()
        assert name not in self.store.topics
        with pytest.raises(TopicDeleted):
            topic.partition(0).append(b"x")
        if name in self.followers:
            follower, _ = self.followers.pop(name)
            with pytest.raises(TopicDeleted):
                list(follower)

    @rule(name=names)
    def flush(self, name: str) -> None:
        topic = self.topic(name)
        topic.flush()
        for p, expected in enumerate(self.model[name]):
            part = topic.partition(p)
            assert part.durable_offset == len(expected)
            assert part.wait_durable(timeout=0)

    @rule(how=st.sampled_from(["close", "topics first", "with"]))
    def reopen(self, how: str) -> None:
        if how == "topics first":
            for name in self.model:
                self.topic(name).close()
        if how == "with":
            with self.store:
                pass
        self.store.close()
        self.followers.clear()
        self.store = falaj.open(self.path)

    # --- Moves that read it ----------------------------------------------------------------------

    @rule(name=names, p=partitions, data=st.data())
    def look_at_one(self, name: str, p: int, data: st.DataObject) -> None:
        topic, expected = self.part(name, p)
        i = data.draw(st.integers(-len(expected) - 1, len(expected)))
        if -len(expected) <= i < len(expected):
            record = topic[i]
            self.same(record, expected[i])
            assert record.offset == i % len(expected)
            self.old.append((record.value, expected[i].value))
        else:
            with pytest.raises(OffsetOutOfRange):
                topic[i]

    @rule(name=names, p=partitions, data=st.data())
    def look_at_some(self, name: str, p: int, data: st.DataObject) -> None:
        topic, expected = self.part(name, p)
        wanted = data.draw(st.slices(len(expected)))
        self.same_list(topic[wanted], expected[wanted])
        n = data.draw(st.integers(0, 20))
        self.same_list(topic.last(n), expected[-n:] if n else [])
        start = data.draw(st.integers(0, len(expected)))
        self.same_list(topic.read(start, n), expected[start : start + n])

    @rule(name=names, p=partitions, data=st.data())
    def look_by_time(self, name: str, p: int, data: st.DataObject) -> None:
        topic, expected = self.part(name, p)
        highest = list(accumulate((r.timestamp_ns for r in topic), max))
        seconds = data.draw(
            st.integers(-(2**33), 2**33) | st.integers(1_700_000_000, 1_900_000_000)
        )
        first = bisect_left(highest, seconds * 10**9)
        found = topic.at(datetime.fromtimestamp(seconds, UTC))
        assert (None if found is None else found.offset) == (
            first if first < len(expected) else None
        )

    @rule(name=names, size=st.integers(1, 30))
    def read_batches(self, name: str, size: int) -> None:
        topic = self.topic(name)
        for p, expected in enumerate(self.model[name]):
            found: list[bytes | None] = []
            for batch in topic.partition(p).batches(size):
                assert batch.offsets[0] == len(found)
                found.extend(batch.to_list())
            assert found == [record.value for record in expected]
        assert sum(len(batch) for batch in topic.batches(size)) == len(topic)

    @rule(name=names)
    def follow(self, name: str) -> None:
        """Resume where the follower of this topic stood; the first one starts at the beginning."""
        topic = self.topic(name)
        follower, seen = self.followers.setdefault(
            name, (topic.follow(timeout=0), [0] * TOPICS[name])
        )
        for record in follower:
            self.same(record, self.model[name][record.partition][record.offset])
            assert record.offset == seen[record.partition]
            seen[record.partition] += 1
        assert seen == [len(expected) for expected in self.model[name]]

    @rule(name=names, p=partitions, data=st.data())
    def follow_from_somewhere(self, name: str, p: int, data: st.DataObject) -> None:
        topic, expected = self.part(name, p)
        start = data.draw(st.integers(0, len(expected)))
        self.same_list(topic.follow(start, timeout=0), expected[start:])
        with topic.follow("latest", timeout=0) as follower:
            assert list(follower) == []
            topic.append(b"news")
            expected.append(Record(b"news"))
            self.same_list(follower, expected[-1:])

    @rule(name=names, p=partitions)
    def read_in_another_process(self, name: str, p: int) -> None:
        _, expected = self.part(name, p)
        found = self.tell("read", name, p % TOPICS[name], [])
        assert found == [record.value.hex() for record in expected]

    @rule(read=st.sampled_from(["mmap", "pread"]))
    def read_in_a_read_only_store(self, read: Any) -> None:
        with falaj.open(self.path, read_only=True, io=read) as store:
            self.is_all_there(store)

    @rule()
    def back_up_and_go_on_in_the_copy(self) -> None:
        copy = self.place / "copy"
        self.store.backup(copy)
        with falaj.open(copy, read_only=True) as store:
            self.is_all_there(store)
        with falaj.open(copy) as store:
            self.is_all_there(store)
            for name, expected in self.model.items():
                assert store.any_topic(name).partition(0).append(b"copied") == len(expected[0])
        shutil.rmtree(copy)

    @rule()
    def verify(self) -> None:
        assert self.store.verify()["findings"] == []

    # --- What always holds -----------------------------------------------------------------------

    def is_all_there(self, store: falaj.Store) -> None:
        assert list(store.topics) == sorted(self.model)
        for name, expected in self.model.items():
            topic = store.any_topic(name, codec="raw")
            for p, wanted in enumerate(expected):
                self.same_list(topic.partition(p), wanted)

    @invariant()
    def it_is_the_lists(self) -> None:
        self.is_all_there(self.store)
        for name, expected in self.model.items():
            topic = self.topic(name)
            assert len(topic) == sum(map(len, expected))
            merged: list[list[int]] = [[] for _ in expected]
            for record in topic:
                merged[record.partition].append(record.offset)
            assert merged == [list(range(len(wanted))) for wanted in expected]
            for p, wanted in enumerate(expected):
                part = topic.partition(p)
                assert (part.start_offset, part.end_offset, part.visible_offset) == (
                    0,
                    len(wanted),
                    len(wanted),
                )
                assert part.durable_offset <= len(wanted)
        assert all(view == value for view, value in self.old)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.place)
            assert all(view == value for view, value in self.old)


@pytest.fixture
def other(path: Path) -> Iterator[Child]:
    with child(path, OTHER_PROCESS) as started:
        yield started


@pytest.mark.timeout(1200)
def test_a_store_is_lists_whatever_is_done_to_it(
    other: Child, budget: Callable[[int, int], int]
) -> None:
    Against.other = other
    examples = budget(FEW, MANY)
    run_state_machine_as_test(
        Against,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            derandomize=examples == FEW,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
