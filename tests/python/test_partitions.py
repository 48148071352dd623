"""Partitions: a key stays in one, each has offsets of its own, and together they merge by time."""

import zlib
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj._records import Position
from falaj.errors import InvalidArgument, OffsetOutOfRange, SettingsMismatch, UnknownTopic

PARTITIONS = 4


@pytest.fixture
def parted(store: falaj.Store) -> falaj.PartitionedTopic[str]:
    return store.partitioned_topic("parted", codec="str", partitions=PARTITIONS)


def test_a_key_goes_to_the_partition_of_its_crc_32(parted: falaj.PartitionedTopic[str]) -> None:
    keys = [b"%d" % i for i in range(100)]
    for key in keys:
        position = parted.append("x", key=key)
        assert isinstance(position, Position)
        assert position.partition == zlib.crc32(key) % PARTITIONS
    ranges = parted.extend([(key, "y") for key in keys])
    assert isinstance(ranges, dict)
    for partition, offsets in ranges.items():
        here = [key for key in keys if zlib.crc32(key) % PARTITIONS == partition]
        part = parted.partition(partition)
        assert [part[offset].key for offset in offsets] == here
        assert [record.key for record in part] == here * 2


def test_records_without_a_key_take_turns(parted: falaj.PartitionedTopic[str]) -> None:
    for i in range(PARTITIONS * 10):
        parted.append(str(i))
    assert [len(parted.partition(p)) for p in parted.partitions] == [10] * PARTITIONS


def test_a_partition_can_be_forced(parted: falaj.PartitionedTopic[str]) -> None:
    assert parted.append("x", key=b"any", partition=3) == (3, 0)
    assert parted.extend(["y", (b"any", "z")], partition=3) == {3: range(1, 3)}
    assert [record.value for record in parted.partition(3)] == ["x", "y", "z"]
    for wrong in (PARTITIONS, 2**32 - 1):
        with pytest.raises(InvalidArgument, match="numbered 0 to 3"):
            parted.append("x", partition=wrong)
        with pytest.raises(InvalidArgument):
            parted.partition(wrong)
    with pytest.raises(
        InvalidArgument, match="a partition is a number from 0 to 4294967295, not -1"
    ):
        parted.append("x", partition=-1)


def test_a_position_is_an_index(parted: falaj.PartitionedTopic[str]) -> None:
    position = parted.append("x")
    assert parted[position].value == "x"
    with pytest.raises(OffsetOutOfRange):
        parted[Position(0, 99)]
    with pytest.raises(InvalidArgument):
        parted[Position(99, 0)]


def test_what_needs_one_partition_says_how_to_choose_it(
    parted: falaj.PartitionedTopic[str],
) -> None:
    for index in (0, slice(0, 1), (1, 2, 3), "0"):
        with pytest.raises(TypeError, match=r"position \(partition, offset\)"):
            parted[index]  # type: ignore[index]
    for name in ("start_offset", "read", "last", "range", "at", "wait_durable"):
        assert hasattr(falaj.Topic, name)
        assert not hasattr(parted, name)


def test_iteration_merges_by_timestamp_and_keeps_the_order_of_each(
    parted: falaj.PartitionedTopic[str],
) -> None:
    for i in range(100):
        parted.append(str(i), timestamp_ns=(1000 + i) * 10**9, partition=i * 7 % PARTITIONS)
    assert [record.value for record in parted] == [str(i) for i in range(100)]
    assert len(parted) == 100
    parted.append("late", timestamp_ns=0, partition=0)
    offsets = [record.offset for record in parted if record.partition == 0]
    assert offsets == sorted(offsets)


def test_batches_are_of_one_partition_each(parted: falaj.PartitionedTopic[str]) -> None:
    parted.extend([(b"%d" % i, str(i)) for i in range(50)])
    batches = list(parted.batches())
    assert [batch.partition for batch in batches] == list(parted.partitions)
    assert sorted(int(v or b"") for b in batches for v in b.to_list()) == list(range(50))


def test_a_view_of_a_partition_is_a_topic_of_its_own(parted: falaj.PartitionedTopic[str]) -> None:
    part = parted.partition(2)
    assert (part.append("a"), part.extend(["b", (b"key", "c")])) == (0, range(1, 3))
    assert [part[-1].value, part.start_offset, part.end_offset] == ["c", 0, 3]
    assert [record.value for record in part.follow(1, timeout=0)] == ["b", "c"]
    assert list(part.partitions) == [2]
    assert len(parted) == 3
    with pytest.raises(InvalidArgument):
        part.append("x", partition=1)


def test_an_extend_over_partitions_is_seen_whole_or_not_at_all(
    store: falaj.Store, parted: falaj.PartitionedTopic[str]
) -> None:
    def breaking() -> object:
        yield (b"1", "x")
        yield (b"2", object())

    with pytest.raises(TypeError):
        parted.extend(breaking())  # type: ignore[arg-type]
    assert len(parted) == 0


def test_a_missing_topic_whose_partitions_are_not_named_says_what_creates_it(
    store: falaj.Store, path: Path
) -> None:
    with pytest.raises(UnknownTopic, match=r"To create it, give partitions=, such as store\.part"):
        store.partitioned_topic("new")
    reader = falaj.open(path, read_only=True)
    calls: list[Any] = [
        lambda: store.partitioned_topic("new", create=False),
        lambda: reader.partitioned_topic("new"),
    ]
    for call in calls:
        with pytest.raises(UnknownTopic) as raised:
            call()
        assert "create" not in str(raised.value)


def test_a_queue_of_a_topic_with_partitions_is_refused_however_it_is_named(
    store: falaj.Store,
) -> None:
    topic: Any = store.partitioned_topic("clicks", partitions=2)
    calls: list[Any] = [
        lambda: store.queue("clicks"),
        lambda: store.queue("work", "clicks"),
        lambda: store.queue("work", topic),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match=r"has 2 partitions.* a queue needs") as raised:
            call()
        assert "partitioned_topic" not in str(raised.value)
    assert not store.queues


def test_the_number_of_partitions_is_the_topics_for_ever(store: falaj.Store) -> None:
    store.topic("one")
    with pytest.raises(SettingsMismatch, match=r"store\.topic\('one'\)"):
        store.partitioned_topic("one", partitions=2)
    for wrong in (0, 10_001):
        with pytest.raises(InvalidArgument, match="10000"):
            store.partitioned_topic("none", partitions=wrong)
