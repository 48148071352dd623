"""`NewRecord` on its way: pickled, copied, shown; and calls that append nothing."""

import copy
import pickle
from typing import Any

import pytest

import falaj

GIVEN: list[Any] = [
    falaj.NewRecord({"n": 1}, "k", headers=[("a", b"1"), ("a", None)], timestamp_ns=5),
    falaj.NewRecord(None),
    falaj.NewRecord.tombstone("k", headers={"a": "1"}),
]


def fields(record: falaj.NewRecord) -> tuple[Any, ...]:
    return (
        record.value,
        record.is_tombstone,
        record.key,
        record.headers,
        record.timestamp_ns,
    )


@pytest.mark.parametrize("record", GIVEN, ids=["whole", "None", "tombstone"])
def test_a_new_record_can_be_pickled_and_copied(record: falaj.NewRecord) -> None:
    for again in (pickle.loads(pickle.dumps(record)), copy.copy(record), copy.deepcopy(record)):
        assert fields(again) == fields(record)


@pytest.mark.parametrize("value", [bytes(1 << 20), "x" * (1 << 20), list(range(100_000)), "é" * 99])
def test_the_repr_of_a_new_record_is_short(value: Any) -> None:
    assert len(repr(falaj.NewRecord(value, bytes(1000)))) < 300
    assert repr(falaj.NewRecord(b"ab", b"k")) == "NewRecord(b'ab', key=b'k')"


def test_extending_by_nothing_appends_nothing(store: falaj.Store) -> None:
    topic, parted = store.topic("t"), store.partitioned_topic("p", partitions=2)
    topic.extend([b"a", b"b"])
    nothing: list[Any] = [[], (), iter(())]
    for none in nothing:
        assert topic.extend(none) == range(2, 2)
    assert topic.extend([], producer="till", sequence=1, sync="durable") == range(2, 2)
    assert parted.extend([]) == {}
    assert parted.extend([], partition=1) == {}
    assert parted.partition(1).extend([]) == range(0)
    assert (len(topic), len(parted), topic.producers()) == (2, 0, [])


def test_a_transaction_that_extends_by_nothing_appends_nothing(store: falaj.Store) -> None:
    topic = store.topic("t")
    with store.transaction() as tx:
        tx.extend(topic, [])
    assert len(topic) == 0


def test_handles_say_what_to_give_to_other_processes(store: falaj.Store) -> None:
    for handle in (store, store.topic("t")):
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="give other processes the path"):
                use(handle)
