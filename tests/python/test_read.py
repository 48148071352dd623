"""Offsets are positions in history: the promises of reading by offset, slice, time and batch."""

import itertools
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

import falaj
from falaj.errors import InvalidArgument, OffsetOutOfRange

SIZE = 20


@pytest.fixture
def filled(store: falaj.Store) -> falaj.Topic[memoryview]:
    topic = store.topic("filled", codec="raw")
    for i in range(0, SIZE, 2):
        topic.extend(
            [falaj.NewRecord(b"%d" % j, timestamp_ns=(1000 + j) * 10**9) for j in (i, i + 1)]
        )
    return topic


def numbers(records: Any) -> list[int]:
    return [int(record.to_bytes()) for record in records]


def test_indexes_count_from_the_beginning_and_from_the_end(
    filled: falaj.Topic[memoryview],
) -> None:
    expected = list(range(SIZE))
    for i in range(-SIZE, SIZE):
        assert numbers([filled[i]]) == [expected[i]]


@pytest.mark.parametrize("index", [SIZE, SIZE + 1, -SIZE - 1, 2**63, 2**64, -(2**70)])
def test_an_offset_that_is_not_there_is_an_index_error_with_the_bounds(
    filled: falaj.Topic[memoryview], index: int
) -> None:
    with pytest.raises(IndexError) as caught:
        filled[index]
    assert isinstance(caught.value, OffsetOutOfRange)
    assert (caught.value.first, caught.value.end) == (0, SIZE)


@pytest.mark.parametrize("index", ["1", 1.0, None, (1, 2, 3)])
def test_an_index_that_is_no_offset_is_a_type_error(
    filled: falaj.Topic[memoryview], index: Any
) -> None:
    with pytest.raises(TypeError):
        filled[index]


BOUNDS = [None, 0, 1, 7, SIZE - 1, SIZE, SIZE + 5, -1, -7, -SIZE, -SIZE - 5]


@pytest.mark.parametrize("step", [None, 1, 2, 7, -1, -3])
@pytest.mark.parametrize("start", BOUNDS)
def test_slices_are_those_of_a_list(
    filled: falaj.Topic[memoryview], start: int | None, step: int | None
) -> None:
    expected = list(range(SIZE))
    for stop in BOUNDS:
        wanted = slice(start, stop, step)
        records = filled[wanted]
        assert numbers(records) == expected[wanted]
        assert len(records) == len(expected[wanted])
        assert records.offsets == range(SIZE)[wanted]


def test_a_slice_is_lazy_and_ends_where_the_topic_ended(filled: falaj.Topic[memoryview]) -> None:
    rest = filled[15:]
    filled.append(b"99")
    assert numbers(rest) == [15, 16, 17, 18, 19]
    assert numbers(rest) == [15, 16, 17, 18, 19]
    assert numbers(rest[1:3]) == [16, 17]
    assert numbers([rest[-1]]) == [19]
    assert next(value for batch in rest.batches() for value in batch.to_list()) == b"15"
    with pytest.raises(IndexError):
        rest[5]


def test_a_slice_with_a_step_of_zero_is_refused(filled: falaj.Topic[memoryview]) -> None:
    with pytest.raises(ValueError, match="zero"):
        filled[::0]


def test_a_plain_for_sees_what_was_committed_when_it_began(
    filled: falaj.Topic[memoryview],
) -> None:
    seen = []
    for record in filled:
        filled.append(b"more")
        seen.append(int(record.to_bytes()))
    assert seen == list(range(SIZE))
    assert len(filled) == 2 * SIZE


def test_a_topic_is_true_even_when_it_is_empty(topic: falaj.Topic[memoryview]) -> None:
    assert topic
    assert len(topic) == 0
    assert (topic.start_offset, topic.end_offset, topic.visible_offset) == (0, 0, 0)
    assert list(topic) == []
    assert list(topic.batches()) == []
    assert topic.last() == []


def test_read_and_last_return_lists(filled: falaj.Topic[memoryview]) -> None:
    assert numbers(filled.read(3, 4)) == [3, 4, 5, 6]
    assert numbers(filled.read(-2, 100)) == [18, 19]
    assert filled.read(SIZE, 5) == []
    assert numbers(filled.last()) == [19]
    assert numbers(filled.last(3)) == [17, 18, 19]
    assert numbers(filled.last(100)) == list(range(SIZE))
    for wrong in (SIZE + 1, -SIZE - 1):
        with pytest.raises(OffsetOutOfRange):
            filled.read(wrong, 1)
    with pytest.raises(InvalidArgument):
        filled.read(0, -1)
    with pytest.raises(InvalidArgument):
        filled.last(-1)


@pytest.mark.parametrize(
    ("seconds", "offset"), [(0, 0), (1000, 0), (1000.5, 1), (1007, 7), (1019, 19), (1019.001, None)]
)
def test_at_finds_the_first_record_at_or_after_a_time(
    filled: falaj.Topic[memoryview], seconds: float, offset: int | None
) -> None:
    found = filled.at(datetime.fromtimestamp(seconds, UTC))
    assert (None if found is None else found.offset) == offset


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_batches_hold_every_record_once_in_order(
    filled: falaj.Topic[memoryview], size: int
) -> None:
    batches = list(filled.batches(size))
    assert all(len(batch) >= min(size, 2) for batch in batches[:-1])
    assert [o for batch in batches for o in batch.offsets] == list(range(SIZE))
    expected = [b"%d" % i for i in range(SIZE)]
    assert [value for batch in batches for value in batch.to_list()] == expected
    assert [bytes(view or b"") for batch in batches for view in batch.values] == expected
    assert [r.offset for batch in batches for r in batch] == list(range(SIZE))
    for batch in batches:
        n = len(batch.values)
        assert [bytes(batch.values[i] or b"") for i in range(-n, n)] == batch.to_list() * 2
        with pytest.raises(IndexError):
            batch.values[n]
    with pytest.raises(InvalidArgument):
        filled.batches(0)


def test_views_of_a_batch_outlast_their_successors(filled: falaj.Topic[memoryview]) -> None:
    views = [view for batch in filled.batches() for view in batch.values]
    assert [int(bytes(view or b"")) for view in views] == list(range(SIZE))
    assert all(view.readonly for view in views)


def test_records_are_equal_when_they_are_the_same_record(
    filled: falaj.Topic[memoryview], store: falaj.Store
) -> None:
    again = store.topic("filled")
    assert filled[3] == again[3]
    assert hash(filled[3]) == hash(again[3])
    assert filled[3] != filled[4]
    assert filled[3] != b"3"
    assert len({*filled, *again}) == SIZE


def test_reprs_tell_what_a_thing_is(filled: falaj.Topic[memoryview], store: falaj.Store) -> None:
    assert repr(filled) == '<falaj.Topic "filled", codec bytes, offsets 0 up to 20>'
    assert repr(filled[3]) == "<Record filled[3] b'3'>"
    assert repr(filled[2:5]) == "<falaj.Slice filled[2:5]>"
    assert repr(next(filled.batches())) == "<Batch filled of 20 records, offsets 0 to 19>"
    assert repr(store) == f'<falaj.Store "{store.path}">'
    assert repr(falaj.NewRecord(b"v", b"k")) == "NewRecord(b'v', key=b'k')"
    store.close()
    assert "closed" in repr(store)
    assert repr(filled) == '<falaj.Topic "filled", codec bytes, closed>'


def test_a_reader_tells_where_it_stands(
    filled: falaj.Topic[memoryview], store: falaj.Store
) -> None:
    records = filled[2:5]
    iterator = iter(records)
    assert repr(iterator) == '<falaj.Records of "filled", offsets 2 up to 5>'
    next(iterator)
    assert repr(iterator) == '<falaj.Records of "filled", offsets 3 up to 5>'
    with filled.follow(7) as follower:
        next(follower)
        assert repr(follower) == '<falaj.Follower of "filled", from offset 8 on>'
    assert repr(follower) == '<falaj.Follower of "filled", closed>'
    assert repr(filled.afollow(3)) == '<falaj.AsyncFollower of "filled", from offset 3 on>'
    several = store.partitioned_topic("several", partitions=2)
    several.extend([b"x"] * 3, partition=1)
    assert repr(iter(several)) == '<falaj.Records of "several" 2 partitions, 3 records left>'
    assert (
        repr(several.follow()) == '<falaj.Follower of "several" 2 partitions, from offsets 0, 0 on>'
    )
    waiting = filled.follow("latest")
    thread = threading.Thread(target=list, args=(waiting,))
    thread.start()
    while repr(waiting) != '<falaj.Follower of "filled", in use>':
        pass
    waiting.close()
    thread.join()
    part = several.partition(1).follow("latest")
    assert repr(part) == '<falaj.Follower of "several" partition 1, from offset 3 on>'
    consumer = store.consumer("c", [filled])
    consumers = '<falaj.Consumer "c" of filled, 1 partition>'
    assert repr(consumer.follow()) == f"<falaj.Consumed of {consumers}>"
    assert repr(consumer.afollow()) == f"<falaj.AsyncConsumer of {consumers}>"


@pytest.mark.parametrize("verify", [True, False])
def test_reading_without_checksums_reads_the_same(
    filled: falaj.Topic[memoryview], store: falaj.Store, verify: bool
) -> None:
    assert numbers(store.topic("filled", verify=verify)) == list(range(SIZE))


WITHIN = [None, *range(-5, 5)]
BEFORE_END = [None, *range(-6, 0)]


def expect_slices_of_a_list(
    topic: falaj.Topic[Any], bounds: list[int | None], steps: tuple[int, ...]
) -> None:
    """Compare all slices, and all slices of these, with those of a list of the records."""
    all_of = [record.offset for record in topic]
    seen: set[tuple[int, int, int]] = set()
    for start, stop, step in itertools.product(bounds, bounds, steps):
        outer, expected = topic[start:stop:step], all_of[start:stop:step]
        assert [record.offset for record in outer] == expected, (start, stop, step)
        of = outer.offsets
        if (of.start, of.stop, of.step) in seen:
            continue
        seen.add((of.start, of.stop, of.step))
        for inner in itertools.product(bounds, bounds, steps):
            place = slice(*inner)
            found = [record.offset for record in outer[place]]
            assert found == expected[place], (start, stop, step, inner)


def test_slices_of_slices_are_those_of_a_list(topic: falaj.Topic[Any]) -> None:
    expect_slices_of_a_list(topic, WITHIN, (1, -1, 2, -2))
    topic.extend([b"x"] * 4)
    expect_slices_of_a_list(topic, WITHIN, (1, -1, 2, -2))


def test_slices_of_slices_of_a_trimmed_topic_are_those_of_a_list(topic: falaj.Topic[Any]) -> None:
    topic.extend([b"x"] * 6)
    topic.trim(before_offset=2)
    expect_slices_of_a_list(topic, BEFORE_END, (1, -1, 2, -2))


def test_negative_bounds_of_slices_of_slices_pass_over_gaps(store: falaj.Store) -> None:
    topic = store.topic("gaps", codec="str", compacted=True)
    topic.extend([(key, key) for key in "aabbccd"])
    topic.compact(seal=True)
    assert [record.offset for record in topic] == [1, 3, 5, 6]
    expect_slices_of_a_list(topic, BEFORE_END, (1, -1))
    for outer in (topic[2:6], topic[2:], topic[5:0:-1], topic[4::-1]):
        expected = [record.offset for record in outer]
        for place in itertools.starmap(slice, itertools.product(BEFORE_END, BEFORE_END, (1, -1))):
            assert [record.offset for record in outer[place]] == expected[place], (outer, place)


def test_a_slice_of_a_slice_takes_any_whole_numbers(filled: falaj.Topic[memoryview]) -> None:
    for of in (filled[:], filled[::-1], filled[::2]):
        assert list(of[-(10**40) : 10**40]) == list(of)
        with pytest.raises(TypeError, match="bounds"):
            of[1.0:]
