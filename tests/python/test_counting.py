"""Counts are of records that exist, even where compaction left gaps."""

import asyncio
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj import metrics
from falaj.errors import OffsetOutOfRange, RecordCompacted

THERE = [0, 1, 2, 5002]


@pytest.fixture
def prices(store: falaj.Store) -> falaj.Topic[Any]:
    """Four records; the last one has the offset 5002."""
    topic: falaj.Topic[Any] = store.topic(
        "prices", codec="str", compacted=True, segment_bytes=1 << 16, sync="none"
    )
    topic.extend([(b"a", "1"), (b"b", "2"), (b"c", "3")])
    for _ in range(50):
        topic.extend([(b"d", "4")] * 100)
    topic.compact(seal=True)
    assert offsets(topic) == THERE
    return topic


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


def test_a_limit_by_number_keeps_as_many_records_on_a_compacted_topic(
    store: falaj.Store, prices: falaj.Topic[Any]
) -> None:
    for limit, kept in ((1000, THERE), (4, THERE), (3, THERE[1:]), (1, THERE[3:])):
        prices.configure(retention_records=limit)
        store.maintain()
        assert offsets(prices) == kept


def test_a_trim_by_number_keeps_as_many_records_on_a_compacted_topic(
    prices: falaj.Topic[Any],
) -> None:
    assert prices.trim(before_offset=-1000)["firsts"] == {0: 0}
    assert offsets(prices) == THERE
    assert prices.trim(before_offset=-2, dry_run=True)["firsts"] == {0: 2}
    assert prices.trim(before_offset=-2)["firsts"] == {0: 2}
    assert offsets(prices) == THERE[2:]
    assert prices.trim(before_offset=-(2**70))["firsts"] == {0: 2}


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 1000, 2**70])
def test_a_negative_start_is_so_many_records_wherever_one_is_taken(
    prices: falaj.Topic[Any], n: int
) -> None:
    wanted = THERE[-n:]
    assert offsets(prices.last(n)) == wanted
    assert offsets(prices.follow(-n, timeout=0)) == wanted
    assert offsets(prices[-n:]) == wanted
    assert prices.to_arrow(-n)["offset"].to_pylist() == wanted
    assert prices.scan(-n).to_table(columns=["offset"])["offset"].to_pylist() == wanted
    assert prices.count(-n) == len(wanted)

    async def followed() -> list[int]:
        return [record.offset async for record in prices.afollow(-n, timeout=0)]

    assert asyncio.run(followed()) == wanted


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 1000])
def test_a_consumer_begins_and_seeks_so_many_records_before_the_end(
    store: falaj.Store, prices: falaj.Topic[Any], n: int
) -> None:
    with store.consumer("billing", [prices], start=-n) as billing:
        assert offsets(billing.poll(10, timeout=0)) == THERE[-n:]
        billing.seek(-1)
        assert offsets(billing.poll(10, timeout=0)) == [5002]
        billing.seek(-n)
        assert offsets(billing.poll(10, timeout=0)) == THERE[-n:]
    store.seek_group("billing", "prices", to=-n)
    with store.consumer("billing", [prices]) as billing:
        assert billing.lag == len(THERE[-n:])


def test_a_negative_end_leaves_out_so_many_records(prices: falaj.Topic[Any]) -> None:
    assert prices.to_arrow("earliest", -1)["offset"].to_pylist() == [0, 1, 2]
    assert prices.to_arrow("earliest", -3)["offset"].to_pylist() == [0]
    assert prices.to_arrow("earliest", -5)["offset"].to_pylist() == []
    assert offsets(prices[:-1]) == [0, 1, 2]
    assert offsets(prices[-3:-1]) == [1, 2]
    assert offsets(prices[:-9]) == []
    assert offsets(prices.read(-3, 2)) == [1, 2]
    with pytest.raises(OffsetOutOfRange):
        prices.read(-5, 2)


def test_a_negative_index_is_a_record_that_is_there(prices: falaj.Topic[Any]) -> None:
    assert [prices[-n].offset for n in (1, 2, 3, 4)] == [5002, 2, 1, 0]
    for n in (5, 5003, 5004, 2**70):
        with pytest.raises(OffsetOutOfRange):
            prices[-n]
    with pytest.raises(RecordCompacted):
        prices[5001]
    # Also where the very last offsets are gone.
    prices.tombstone(b"d")
    prices.compact(seal=True)
    prices.compact(delete_retention=0)
    assert (prices.end_offset, prices[-1].offset, offsets(prices.last(1))) == (5004, 2, [2])
    some = prices[1:]
    assert [some[-n].offset for n in (1, 2)] == [2, 1]
    with pytest.raises(IndexError):
        some[-3]
    assert offsets(some[-1:]) == [2]
    assert offsets(some[:-1]) == [1]
    assert offsets(some[-9:]) == [1, 2]


def test_slices_of_topics_without_gaps_are_as_those_of_lists(store: falaj.Store) -> None:
    numbers = store.topic("numbers", codec="json")
    numbers.extend(list(range(7)))
    bounds = [None, -99, -8, -7, -3, -1, 0, 2, 7, 9]
    as_list = list(range(7))
    for start in bounds:
        for stop in bounds:
            for step in (None, 1, 2, -1, -3):
                wanted = as_list[start:stop:step]
                found = numbers[start:stop:step]
                assert [record.value for record in found] == wanted, (start, stop, step)
                assert [record.value for record in found[-2:]] == wanted[-2:]


def test_lags_and_waiting_jobs_are_records(store: falaj.Store, prices: falaj.Topic[Any]) -> None:
    queue = store.queue("work", prices)
    with store.consumer("billing", [prices], start="earliest") as billing:
        for committed, left in ((0, 4), (1, 3), (3, 1), (2500, 1), (5002, 1), (5003, 0)):
            billing.commit(committed)
            assert billing.lag == left
            info = store.info()
            assert info["groups"][0]["partitions"][0]["lag"] == left
            told = store.metrics()
            assert told["groups"]["billing"]["partitions"][0]["lag"] == left
            assert f'partition="0"}} {left}\n' in metrics.exposition(told)
    for waiting in (4, 3, 2, 1):
        assert queue.info()["ready"] == waiting
        assert store.info()["queues"][0]["ready"] == waiting
        assert store.metrics()["queues"]["work"]["ready"] == waiting
        job = queue.take()[0]
        job.ack()
    assert (queue.info()["ready"], store.info()["queues"][0]["ready"]) == (0, 0)


def test_a_lag_is_none_where_the_topic_is_gone_or_another_has_its_name(
    store: falaj.Store, prices: falaj.Topic[Any]
) -> None:
    with store.consumer("billing", [prices], start="earliest") as billing:
        billing.commit(2)
    prices.delete()
    assert store.info()["groups"][0]["partitions"][0]["lag"] is None
    store.topic("prices").append(b"another")
    assert store.info()["groups"][0]["partitions"][0]["lag"] is None


def test_what_stays_for_consumers_is_told_in_records(
    store: falaj.Store, prices: falaj.Topic[Any]
) -> None:
    with store.consumer("billing", [prices], start="earliest") as billing:
        billing.commit(1)
    prices.configure(retention_records=1, retention_waits=True)
    cut = store.maintain()["logs"][0]["cuts"][0]
    assert (cut["first"], cut["wanted"], cut["needed"]) == (1, 5002, 2)


def test_records_are_counted_in_ranges_and_over_partitions(store: falaj.Store) -> None:
    prices = store.partitioned_topic(
        "prices", codec="str", compacted=True, partitions=2, sync="none"
    )
    for number in range(1000):
        prices.append("4", key=b"%d" % (number % 5), partition=number % 2)
    prices.compact(seal=True)
    assert (prices.count(), len(prices)) == (10, 1000)
    assert "10 records" in repr(prices)
    one = prices.partition(1)
    there = set(offsets(one))
    below = [0, *accumulate(offset in there for offset in range(500))]
    for start in range(0, 501, 7):
        for end in range(start, 501, 11):
            assert one.count(start, end) == below[end] - below[start]
    assert (one.count(490), one.count(end=495), one.count(-3), one.count(9, 2)) == (5, 0, 3, 0)
    assert one.count(0, 2**70) == 5
    with pytest.raises(TypeError):
        prices.count(3)  # type: ignore[call-arg]


def test_without_compaction_counts_are_those_of_offsets(store: falaj.Store) -> None:
    numbers = store.topic("numbers", codec="json")
    numbers.extend(list(range(9)))
    numbers.trim(before_offset=2)
    assert (numbers.count(), numbers.count(4), numbers.count(0, 5)) == (7, 5, 3)
    assert (numbers[-7].offset, numbers[-1].offset) == (2, 8)
    with pytest.raises(OffsetOutOfRange):
        numbers[-8]
    assert offsets(numbers[-99:]) == list(range(2, 9))


def test_another_process_that_had_the_store_open_counts_what_is_left(
    store: falaj.Store, path: Path
) -> None:
    prices = store.topic("prices", codec="str", compacted=True, sync="none")
    for number in range(500):
        prices.append("4", key=b"%d" % (number % 5))
    prices.flush()
    with falaj.open(path, read_only=True) as reader, reader.topic("prices") as seen:
        assert (seen.count(), seen[-7].offset) == (500, 493)
        prices.compact(seal=True)
        assert seen.count() == 5
        assert offsets(seen.last(3)) == [497, 498, 499]
        with pytest.raises(OffsetOutOfRange):
            seen[-7]


def test_a_place_by_time_is_still_a_place_by_time(prices: falaj.Topic[Any]) -> None:
    assert prices.trim(before_time=datetime(1990, 1, 1, tzinfo=UTC))["firsts"] == {0: 0}
    assert offsets(prices.follow("1990-01-01T00:00Z", timeout=0)) == THERE
