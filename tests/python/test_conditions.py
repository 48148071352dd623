"""Conditional appends: no record twice, and none if another writer was faster."""

import pickle
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import DuplicateSequence, InvalidArgument, OffsetConflict, OutOfOrderSequence

COUNTER = """
import random
topic = falaj.open(path).topic("counts", codec="str", segment_bytes=65536)
for _ in range(200):
    while True:
        seen = topic.end_offset
        value = int(topic[-1].value) + 1 if seen else 1
        try:
            topic.append(str(value), expect=seen)
            break
        except falaj.errors.OffsetConflict as lost:
            assert lost.expected == seen < lost.next
say("done")
"""

PRODUCER = """
topic = falaj.open(path).topic("jobs", codec="str", segment_bytes=65536, sync="none")
name, sequence = hear().split()
producer = falaj.ExpiringProducer(name) if name == "expiring" else name
sequence = int(sequence)
while True:
    offset = topic.append(f"{name} {sequence}" + " " * 200, producer=producer, sequence=sequence)
    say(sequence, offset)
    sequence += 1
"""


def test_a_repeat_is_answered_with_the_offset_of_the_first(store: falaj.Store) -> None:
    topic = store.topic("t")
    assert topic.append(b"a", producer="p", sequence=5) == 0
    assert topic.append(b"b", key=b"k", producer="p", sequence=6, sync="durable") == 1
    assert topic.append(b"a", producer="p", sequence=5) == 0
    assert topic.append(b"b", producer="p", sequence=6) == 1
    assert topic.extend([b"c", b"d"], producer="p", sequence=7) == range(2, 4)
    assert topic.extend([b"c", b"d"], producer="p", sequence=7) == range(2, 4)
    assert [bytes(record.value) for record in topic] == [b"a", b"b", b"c", b"d"]


def test_a_gap_and_an_old_repeat_are_refused_and_nothing_is_appended(store: falaj.Store) -> None:
    topic = store.topic("t")
    for sequence in range(10):
        topic.append(b"x", producer="p", sequence=sequence)
    with pytest.raises(OutOfOrderSequence, match="10 comes next") as early:
        topic.append(b"x", producer="p", sequence=11)
    assert early.value.next == 10
    unknown = "sequence 4 of producer .* is older than the last five, which are remembered"
    with pytest.raises(DuplicateSequence, match=unknown):
        topic.append(b"x", producer="p", sequence=4)
    topic.append(b"x", producer="late", sequence=10)
    with pytest.raises(DuplicateSequence, match="or the producer began with a later one"):
        topic.append(b"x", producer="late", sequence=4)
    assert topic.append(b"x", producer="p", sequence=5) == 5
    assert topic.end_offset == 11


def test_an_append_that_expects_another_offset_is_a_conflict(store: falaj.Store) -> None:
    topic = store.topic("t")
    assert topic.append(b"x", expect=0) == 0
    assert topic.extend([b"y", b"z"], expect=1) == range(1, 3)
    with pytest.raises(OffsetConflict, match="next offset is 3, not 1") as lost:
        topic.append(b"x", expect=1)
    assert (lost.value.expected, lost.value.next) == (1, 3)
    with pytest.raises(OffsetConflict):
        topic.append(b"x", expect=4)
    assert topic.end_offset == 3


def test_a_repeat_is_one_whatever_it_expects(store: falaj.Store) -> None:
    topic = store.topic("t")
    for _ in range(2):
        assert topic.append(b"x", producer="p", sequence=0, expect=0) == 0


def test_half_a_condition_is_refused(store: falaj.Store) -> None:
    topic = store.topic("t")
    with pytest.raises(InvalidArgument, match="go together"):
        topic.append(b"x", producer="p")
    with pytest.raises(InvalidArgument, match="go together"):
        topic.extend([b"x"], sequence=1)
    wrong: Any = 5
    for call in (topic.last_sequence, lambda name: topic.append(b"x", producer=name, sequence=1)):
        with pytest.raises(TypeError, match="ExpiringProducer, not int"):
            call(wrong)
    with pytest.raises(InvalidArgument, match="1 to 1024 bytes"):
        topic.append(b"x", producer="", sequence=1)
    with pytest.raises(InvalidArgument, match=r"a sequence is a number from 0 to .*, not -1"):
        topic.append(b"x", producer="p", sequence=-1)
    assert topic.end_offset == 0


def test_a_producers_records_without_keys_stay_in_one_partition(store: falaj.Store) -> None:
    topic = store.partitioned_topic("t", partitions=4)
    first = topic.append(b"x", producer="p", sequence=0)
    assert topic.append(b"x", producer="p", sequence=0) == first
    keyed = [(b"%d" % i, b"x") for i in range(20)]
    ranges = topic.extend(keyed, producer="p", sequence=1)
    assert isinstance(ranges, dict)
    assert len(ranges) == 4
    assert topic.extend(keyed, producer="p", sequence=1) == ranges
    with pytest.raises(InvalidArgument, match="one partition"):
        topic.extend(keyed, expect=5)


def test_many_processes_that_expect_what_they_saw_count_without_a_gap(path: Path) -> None:
    with child(path, COUNTER) as one, child(path, COUNTER) as two, child(path, COUNTER) as three:
        for counter in (one, two, three):
            assert counter.hear() == "done"
    topic = falaj.open(path, read_only=True).topic("counts", codec="str")
    assert [record.value for record in topic] == [str(i + 1) for i in range(600)]


def test_a_killed_producer_that_repeats_its_appends_has_each_once(
    path: Path,
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    reached = {"p": 0, "expiring": 0}
    with falaj.open(path):
        for _ in range(12):
            for name, sequence in reached.items():
                with child(path, PRODUCER) as producer:
                    said = 0
                    producer.tell(f"{name} {sequence}")
                    for _ in range(chance.randrange(1, 200)):
                        said, _ = map(int, producer.hear().split())
                    producer.process.send_signal(signal.SIGKILL)
                    assert producer.process.stdout is not None
                    rest = producer.process.stdout.read().split("\n")[:-1]
                    heard = [int(line.split()[0]) for line in rest]
                    # At most one append had no answer; repeats of the last five are recognised.
                    reached[name] = max(0, max([said, *heard]) - chance.randrange(4))
    topic = falaj.open(path).topic("jobs", codec="str")
    found = [str(record.value).split() for record in topic]
    for name, sequence in reached.items():
        own = [int(number) for who, number in found if who == name]
        assert own == list(range(len(own))), f"seed {seed}: {Counter(own).most_common(3)}"
        assert len(own) > sequence


def test_producers_are_listed_and_forgotten_by_name_or_as_listed(store: falaj.Store) -> None:
    topic = store.topic("t")
    assert topic.producers() == []
    for name, sequence in [("p", 5), ("p", 6), ("q", 0)]:
        topic.append(b"x", producer=name, sequence=sequence)
    last = {known.sequence: known for known in topic.producers()}
    assert {known.offset for known in last.values()} == {1, 2}
    assert last[0].time == topic[2].timestamp
    assert topic.forget_producer(last[0], "nobody") == 1
    assert topic.append(b"x", producer="q", sequence=0) == 3
    assert topic.forget_producer("p", "q") == 2
    assert topic.producers() == []
    assert topic.last_sequence("p") is None
    with pytest.raises(InvalidArgument, match="not int"):
        topic.forget_producer(7)  # type: ignore[arg-type]


def test_an_expiring_producer_is_given_as_one_and_is_another_than_a_named_one(
    store: falaj.Store,
) -> None:
    topic = store.topic("t")
    session = falaj.ExpiringProducer("p")
    assert (session.name, repr(session)) == ("p", 'ExpiringProducer("p")')
    assert session == pickle.loads(pickle.dumps(session)) != "p"
    assert len({session, falaj.ExpiringProducer("p"), falaj.ExpiringProducer("q")}) == 2
    assert topic.append(b"x", producer=session, sequence=5) == 0
    assert topic.append(b"x", producer="p", sequence=0) == 1
    assert topic.append(b"x", producer=session, sequence=5) == 0
    assert topic.extend([b"y", b"z"], producer=session, sequence=6) == range(2, 4)
    assert topic.tombstone(b"k", producer=session, sequence=7) == 4
    with store.transaction(producer=session, sequence=8) as tx:
        tx.append(topic, b"in a transaction")
    assert (topic.last_sequence(session), topic.last_sequence("p")) == (8, 0)
    kinds = {known.sequence: known.expiring for known in topic.producers()}
    assert kinds == {8: True, 0: False}
    assert topic.forget_producer(session) == 1
    assert (topic.last_sequence(session), topic.last_sequence("p")) == (None, 0)
    with pytest.raises(InvalidArgument, match="name has 1 to"):
        topic.append(b"x", producer=falaj.ExpiringProducer(""), sequence=1)
    with pytest.raises(TypeError):
        falaj.ExpiringProducer(7)  # type: ignore[arg-type]


def test_thousands_of_starts_of_expiring_producers_leave_a_topic_that_appends(
    store: falaj.Store,
) -> None:
    topic = store.topic("t", segment_bytes=65536, sync="none")
    topic.append(b"x", producer="named", sequence=0)
    for i in range(1, 2001):
        assert topic.append(b"x", producer=falaj.ExpiringProducer(f"{i}"), sequence=0) == i
    assert topic.append(b"x", producer="named", sequence=0) == 0
    assert topic.append(b"x", producer=falaj.ExpiringProducer("2000"), sequence=0) == 2000
    assert len(topic.producers()) <= 65
