"""Whole numbers of any type are accepted wherever one is needed; bools and floats are not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import falaj
from falaj.errors import Error


class Two:
    """A number only by `__index__`."""

    def __index__(self) -> int:
        return 2


def in_a_transaction(store: falaj.Store, n: Any) -> Any:
    with store.transaction() as tx:
        tx.append("four", b"", partition=n)
        tx.commit_cursor([falaj.Cursor("c", n, n)], into="four")
    assert tx.offsets is not None
    return tx.offsets["four"]


def of_a_consumer(store: falaj.Store, n: Any, **start: Any) -> Any:
    with store.consumer("group", "six", auto_commit=False, **start) as member:
        return [record.offset for record in member.poll(n, timeout=0)]


def sought(store: falaj.Store, n: Any) -> Any:
    with store.consumer("seeker", ["six", "four"], auto_commit=False) as member:
        member.seek(0, topic="four", partition=n)
        member.seek(n, topic="six")
        return len(member.poll(10, timeout=0))


CALLS: dict[str, Callable[[falaj.Store, Any, Any], Any]] = {
    "an offset": lambda _, six, n: six[n].offset,
    "an offset of a partition": lambda store, _, n: (
        store.partitioned_topic("four")[(n, 0)].partition
    ),
    "an offset in a partition": lambda store, _, n: (
        store.partitioned_topic("six", partitions=1)[0, n].offset
    ),
    "a slice": lambda _, six, n: [record.offset for record in six[n:]],
    "the end of a slice": lambda _, six, n: [record.offset for record in six[:n]],
    "the step of a slice": lambda _, six, n: [record.offset for record in six[::n]],
    "read from": lambda _, six, n: [record.offset for record in six.read(n, 2)],
    "read so many": lambda _, six, n: len(six.read(0, n)),
    "last": lambda _, six, n: len(six.last(n)),
    "batches": lambda _, six, n: [len(batch) for batch in six.batches(n)],
    "batches of a slice": lambda _, six, n: [len(batch) for batch in six[:3].batches(n)],
    "follow": lambda _, six, n: [record.offset for record in six.follow(n, timeout=0)],
    "to_arrow": lambda _, six, n: six.to_arrow(n)["offset"].to_pylist(),
    "to_arrow up to": lambda _, six, n: six.to_arrow(0, n)["offset"].to_pylist(),
    "rows of a batch": lambda _, six, n: [len(b) for b in six.to_reader(batch_rows=n)],
    "scan": lambda _, six, n: six.scan(n, 5).to_table(["offset"]).to_pylist(),
    "trim": lambda _, six, n: six.trim(before_offset=n, dry_run=True)["firsts"],
    "wait_durable": lambda _, six, n: six.wait_durable(n, timeout=5),
    "partition": lambda store, _, n: store.partitioned_topic("four").partition(n).partitions,
    "append": lambda store, _, n: (
        store.partitioned_topic("four").append(b"", partition=n).partition
    ),
    "extend": lambda store, _, n: list(store.partitioned_topic("four").extend([b""], partition=n)),
    "tombstone": lambda store, _, n: (
        store.partitioned_topic("four").tombstone("k", partition=n).partition
    ),
    "a transaction": lambda store, _, n: in_a_transaction(store, n),
    "a sequence": lambda _, six, n: six.append(b"", producer="p", sequence=n),
    "what is expected": lambda store, _, n: store.topic("two").append(b"", expect=n),
    "a token": lambda _, six, n: six.commit_bulk_load("job", [], idempotency_key=("series", n))[
        "committed"
    ],
    "a cursor": lambda _store, _, n: falaj.Cursor("c", n).offset,
    "poll": lambda store, _, n: of_a_consumer(store, n),
    "a consumer's start": lambda store, _, n: of_a_consumer(store, 9, start=n),
    "seek": lambda store, _, n: sought(store, n),
    "take": lambda store, six, n: len(store.queue("jobs", six).take(n, timeout=0)),
    "max_attempts": lambda store, six, n: store.queue("j", six, max_attempts=n).max_attempts,
    "partitions": lambda store, _, n: store.partitioned_topic("new", partitions=n).partitions,
    "retention_records": lambda _, six, n: six.configure(retention_records=n)["records"],
    "retention_bytes": lambda _, six, n: six.configure(retention_bytes=n)["bytes"],
    "memory": lambda store, _, n: store.topic("kept", compacted=True).compact(memory=n)["removed"],
}


@pytest.fixture
def six(store: falaj.Store) -> Any:
    topic: Any = store.topic("six")
    topic.extend([b"%d" % n for n in range(6)])
    store.topic("two").extend([b"0", b"1"])
    store.partitioned_topic("four", partitions=4).extend([b"x"], partition=2)
    return topic


@pytest.mark.parametrize("given", [np.int64(2), np.uint8(2), np.array(2), Two()])
@pytest.mark.parametrize("call", CALLS)
def test_any_whole_number_is_taken_as_pythons_own_is(
    path: Any, store: falaj.Store, six: falaj.Topic[Any], call: str, given: Any
) -> None:
    found = CALLS[call](store, six, given)
    with falaj.open(path.with_name("other")) as other:
        topic: Any = other.topic("six")
        topic.extend([b"%d" % n for n in range(6)])
        other.topic("two").extend([b"0", b"1"])
        other.partitioned_topic("four", partitions=4).extend([b"x"], partition=2)
        assert found == CALLS[call](other, topic, 2)


@pytest.mark.parametrize("given", [True, np.bool_(True), 2.0, np.float64(2), "2", [2]])
@pytest.mark.parametrize("call", CALLS)
def test_a_bool_a_float_and_text_are_no_whole_numbers(
    store: falaj.Store, six: falaj.Topic[Any], call: str, given: Any
) -> None:
    with pytest.raises((TypeError, Error)):
        CALLS[call](store, six, given)
