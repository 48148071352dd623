"""A topic against a plain list: whatever is done to it, by this process or another."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from children import Child, child
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import falaj

EXAMPLES = 40
STEPS = 30
SEGMENT_BYTES = 1 << 16
LARGE = 12_000
"""Bytes of a value, of which a segment takes five: so topics roll."""

OTHER_PROCESS = """
while line := hear():
    path, command, text = line.split("|")
    with falaj.open(path) as store:
        topic = store.topic("model", codec="bytes")
        value = bytes.fromhex(text)
        if command == "append":
            say(topic.append(value, key=b"other"))
        else:
            say(len(topic), int(all(topic[i] for i in (0, -1)) if len(topic) else True))
"""

Model = list[tuple[bytes, bytes | None, tuple[tuple[str, bytes | None], ...], int | None]]
values = st.binary(max_size=40)
keys = st.none() | st.binary(max_size=5)
header_lists = st.lists(st.tuples(st.text(max_size=3), st.none() | values), max_size=3)
event_times = st.none() | st.integers(-(2**33), 2**33)
records = st.tuples(values, keys, header_lists.map(tuple), event_times)


def new_record(record: Any) -> falaj.NewRecord:
    value, key, headers, time = record
    return falaj.NewRecord(value, key, headers, time)


class Against(RuleBasedStateMachine):
    """The moves, and what must hold after each."""

    other: Child

    @initialize()
    def begin(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.path = Path(self.place.name) / "store"
        self.model: Model = []
        self.old: list[tuple[memoryview, bytes]] = []
        self.open()
        self.follower = self.topic.follow(timeout=0)
        self.followed = 0

    def open(self, mode: Any = "w") -> None:
        self.store = falaj.open(self.path, mode)
        self.topic = self.store.topic("model", codec="bytes", segment_bytes=SEGMENT_BYTES)

    @rule(value=values)
    def append_a_value(self, value: bytes) -> None:
        assert self.topic.append(value) == len(self.model)
        self.model.append((value, None, (), None))

    @rule(record=records)
    def append_a_record(self, record: Any) -> None:
        value, key, headers, time = record
        assert self.topic.append(value, key, headers, time) == len(self.model)
        self.model.append(record)

    @rule(several=st.lists(values, min_size=1, max_size=20))
    def extend_by_values(self, several: list[bytes]) -> None:
        begin = len(self.model)
        assert self.topic.extend(several) == range(begin, begin + len(several))
        self.model.extend((value, None, (), None) for value in several)

    @rule(several=st.lists(records, min_size=1, max_size=5))
    def extend_by_records(self, several: list[Any]) -> None:
        begin = len(self.model)
        offsets = self.topic.extend([new_record(record) for record in several])
        assert offsets == range(begin, begin + len(several))
        self.model.extend(several)

    @rule(n=st.integers(1, 8), together=st.booleans())
    def roll(self, n: int, together: bool) -> None:
        value = bytes([n]) * LARGE
        if together:
            for _ in range(n):
                self.topic.extend([value])
        else:
            for _ in range(n):
                self.topic.append(value)
        self.model.extend([(value, None, (), None)] * n)

    @rule(value=values)
    def append_from_another_process(self, value: bytes) -> None:
        self.other.tell(f"{self.path}|append|{value.hex()}")
        assert int(self.other.hear()) == len(self.model)
        self.model.append((value, b"other", (), None))

    @rule()
    def count_in_another_process(self) -> None:
        self.other.tell(f"{self.path}|count|")
        assert self.other.hear() == f"{len(self.model)} 1"

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()
        self.follower = self.topic.follow(self.followed, timeout=0)

    @rule()
    def flush(self) -> None:
        self.topic.flush()
        assert self.topic.durable == len(self.model)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def look_at_one(self, data: st.DataObject) -> None:
        i = data.draw(st.integers(-len(self.model), len(self.model) - 1))
        self.same(self.topic[i], self.model[i])
        self.old.append((self.topic[i].value, self.model[i][0]))

    @rule(data=st.data())
    def look_at_a_slice(self, data: st.DataObject) -> None:
        wanted = data.draw(st.slices(len(self.model)))
        found = self.topic[wanted]
        assert len(found) == len(self.model[wanted])
        for record, expected in zip(found, self.model[wanted], strict=True):
            self.same(record, expected)

    @rule()
    def follow(self) -> None:
        for record in self.follower:
            self.same(record, self.model[self.followed])
            self.followed += 1
        assert self.followed == len(self.model)

    @rule(size=st.integers(1, 30))
    def read_batches(self, size: int) -> None:
        read = [value for batch in self.topic.batches(size) for value in batch.to_list()]
        assert read == [value for value, *_ in self.model]

    @rule()
    def read_in_a_read_only_store(self) -> None:
        with falaj.open(self.path, "r") as store:
            for record, expected in zip(store.topic("model"), self.model, strict=True):
                self.same(record, expected)

    def same(self, record: Any, expected: Any) -> None:
        value, key, headers, time = expected
        assert (record.bytes(), record.key, record.headers) == (value, key, headers)
        if time is not None:
            assert record.timestamp_ns == time * 10**9

    @invariant()
    def it_is_the_list(self) -> None:
        assert (self.topic.first, self.topic.end, len(self.topic)) == (
            0,
            len(self.model),
            len(self.model),
        )
        assert [record.bytes() for record in self.topic] == [value for value, *_ in self.model]
        assert [record.offset for record in self.topic] == list(range(len(self.model)))
        assert all(view == value for view, value in self.old)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.place.cleanup()
            self.it_was_never_hurt()

    def it_was_never_hurt(self) -> None:
        assert all(view == value for view, value in self.old)


@pytest.fixture
def other(path: Path) -> Iterator[Child]:
    with child(path, OTHER_PROCESS) as started:
        yield started


@pytest.mark.timeout(300)
def test_a_topic_is_a_list_whatever_is_done_to_it(other: Child) -> None:
    Against.other = other
    run_state_machine_as_test(
        Against,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
