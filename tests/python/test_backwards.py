"""Reading newest first, and what Python would fall back to if a class does not say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damaging import flip

import falaj
from falaj.errors import CorruptData, OffsetOutOfRange

SEGMENT = 1 << 16


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


@pytest.fixture
def orders(store: falaj.Store) -> falaj.Topic[memoryview]:
    topic = store.topic("orders", segment_bytes=SEGMENT, sync="none")
    for n in range(1000):
        topic.append(b"%0300d" % n)
    return topic


def test_reversed_is_newest_first_also_after_a_trim(orders: falaj.Topic[memoryview]) -> None:
    assert offsets(reversed(orders)) == list(range(999, -1, -1))
    for before in (1, 700, 999):
        orders.trim(before_offset=before)
        assert offsets(reversed(orders)) == list(range(999, before - 1, -1))
        assert [record.to_bytes() for record in reversed(orders)] == [
            b"%0300d" % n for n in range(999, before - 1, -1)
        ]
    orders.trim(before_offset=1000)
    assert offsets(reversed(orders)) == []
    orders.append(b"x")
    assert offsets(reversed(orders)) == [1000]


def test_reversed_sees_what_was_there_when_it_began_and_ends_where_a_trim_has_been(
    orders: falaj.Topic[memoryview],
) -> None:
    back = reversed(orders)
    orders.append(b"later")
    orders.trim(before_offset=850)
    assert offsets(back) == list(range(999, 849, -1))
    back = reversed(orders)
    assert next(back).offset == 1000
    orders.trim(before_offset=900)
    assert offsets(back) == list(range(999, 899, -1))


def test_reversed_leaves_out_what_compaction_removed(store: falaj.Store) -> None:
    prices = store.topic("prices", compacted=True, segment_bytes=SEGMENT)
    for n in range(3000):
        prices.append(b"%d" % n, key=b"%d" % (n % 7 if n < 2900 else n))
    prices.tombstone(b"3")
    assert prices.compact(seal=True)["removed"] > 2800
    there = offsets(prices)
    assert offsets(reversed(prices)) == there[::-1]
    prices.trim(before_offset=there[3])
    assert offsets(reversed(prices)) == there[:2:-1]
    half = slice(there[3], None, None)
    assert offsets(reversed(prices[half])) == there[:2:-1]
    assert offsets(prices[::-1]) == there[:2:-1]
    assert offsets(prices[::2]) == [n for n in there[3:] if n % 2 == there[3] % 2]
    assert offsets(prices[::-3]) == [
        n for n in there[:2:-1] if n % 3 == (prices.end_offset - 1) % 3
    ]


def test_several_partitions_are_read_newest_first_by_time(store: falaj.Store) -> None:
    parted = store.partitioned_topic("parted", partitions=3)
    for n in range(200):
        parted.append(b"%d" % n, partition=n * 7 % 3, timestamp_ns=n // 5 * 10**9)
    places = [(record.partition, record.offset) for record in parted]
    assert [(r.partition, r.offset) for r in reversed(parted)] == places[::-1]
    parted.partition(1).trim(before_offset=20)
    places = [(record.partition, record.offset) for record in parted]
    assert [(r.partition, r.offset) for r in reversed(parted)] == places[::-1]
    part = parted.partition(1)
    assert offsets(reversed(part)) == list(range(part.end_offset - 1, 19, -1))


def test_a_durable_handle_goes_back_from_what_is_durable(store: falaj.Store) -> None:
    topic = store.topic("t", sync="none")
    topic.extend([b"a", b"b"])
    topic.flush()
    topic.append(b"c")
    seen = store.topic("t", visibility="durable")
    assert offsets(reversed(seen)) == list(range(seen.end_offset))[::-1]


def test_behind_corruption_everything_is_read_newest_first(
    orders: falaj.Topic[memoryview], store: falaj.Store
) -> None:
    (first, *_) = sorted(Path(store.path).glob("logs/orders@*/*.log"))
    where = first.read_bytes().index(b"%0300d" % 50) + 200
    orders.close()
    flip(first, where)
    back = reversed(store.topic("orders"))
    for n in range(999, 50, -1):
        assert next(back).offset == n
    with pytest.raises(CorruptData):
        next(back)


def test_a_slice_that_goes_back_says_that_what_it_began_with_was_trimmed(
    orders: falaj.Topic[memoryview],
) -> None:
    for of in (orders[::-1], orders[900::-3]):
        back = iter(of)
        next(back)
        orders.trim(before_offset=orders.start_offset + 500)
        with pytest.raises(OffsetOutOfRange, match="no record"):
            list(back)


CONTAINERS: dict[str, Callable[[falaj.Store, falaj.Topic[Any]], Any]] = {
    "topic": lambda _, topic: topic,
    "partition": lambda store, _: store.partitioned_topic("parted", partitions=2).partition(1),
    "partitions": lambda store, _: store.partitioned_topic("parted", partitions=2),
    "slice": lambda _, topic: topic[1:],
    "backwards": lambda _, topic: topic[::-1],
    "reversed": lambda _, topic: reversed(topic),
    "reversed partitions": lambda store, _: reversed(
        store.partitioned_topic("parted", partitions=2)
    ),
    "batches": lambda _, topic: topic.batches(),
    "batches of partitions": lambda store, _: store.partitioned_topic(
        "parted", partitions=2
    ).batches(),
    "batch": lambda _, topic: next(topic.batches()),
    "records": lambda _, topic: iter(topic),
    "records of a batch": lambda _, topic: iter(next(topic.batches())),
    "records of a consumer": lambda store, _: store.consumer("c", "orders").follow(),
    "follower": lambda _, topic: topic.follow(),
    "consumer": lambda store, _: store.consumer("c", "orders"),
}


@pytest.mark.parametrize("what", CONTAINERS)
def test_in_is_refused_wherever_it_would_compare_records(
    store: falaj.Store, topic: falaj.Topic[Any], what: str
) -> None:
    topic.extend([b"a", b"b"])
    container = CONTAINERS[what](store, topic)
    for item in (b"a", 0, "a", None, topic[1]):
        with pytest.raises(TypeError, match=r"`in` does not search .* any\(record.value"):
            item in container  # noqa: B015
        with pytest.raises(TypeError, match="does not search"):
            item not in container  # noqa: B015


def test_in_is_refused_by_a_reader_and_finds_only_jobs_in_a_batch_of_them(
    store: falaj.Store, topic: falaj.Topic[Any]
) -> None:
    topic.extend([b"a", b"b"])
    reader: Any = topic.to_reader()
    with pytest.raises(TypeError, match="does not search a reader"):
        b"a" in reader  # noqa: B015
    jobs: Any = store.queue("jobs", topic).take(2)
    first = jobs[0]
    assert first in jobs
    assert first not in jobs[1:]
    for item in (b"a", 0, None):
        with pytest.raises(TypeError, match="looks for a job"):
            item in jobs  # noqa: B015


@pytest.mark.parametrize("what", ["store", "queue"])
def test_what_holds_no_records_is_no_container_for_python_either(
    store: falaj.Store, topic: falaj.Topic[Any], what: str
) -> None:
    holder: Any = store if what == "store" else store.queue("orders")
    wrongs: list[Callable[[], object]] = [lambda: b"a" in holder, lambda: reversed(holder)]
    if what == "store":  # iterating over a queue takes its jobs, and waits for more
        wrongs.append(lambda: list(holder))
    for wrong in wrongs:
        with pytest.raises(TypeError):
            wrong()
