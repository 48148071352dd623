"""Records come out as they went in: whole, in order and at the offset that was returned."""

import itertools
import mmap
from array import array
from datetime import UTC, datetime
from typing import Any

import pytest

import falaj
from falaj.errors import AppendTooLarge, InvalidArgument


def values(topic: falaj.Topic[Any]) -> list[bytes]:
    return [record.to_bytes() for record in topic]


def test_append_returns_the_offset_at_which_the_record_is_found(
    topic: falaj.Topic[memoryview],
) -> None:
    offsets = [topic.append(b"%d" % i) for i in range(100)]
    assert offsets == list(range(100))
    assert [topic[i].to_bytes() for i in range(100)] == [b"%d" % i for i in range(100)]


def test_extend_returns_the_range_of_its_offsets(topic: falaj.Topic[memoryview]) -> None:
    topic.append(b"before")
    assert topic.extend([b"a", b"b"]) == range(1, 3)
    assert topic.extend(bytes([i]) for i in range(3)) == range(3, 6)
    assert values(topic) == [b"before", b"a", b"b", b"\0", b"\1", b"\2"]


def test_everything_that_belongs_to_a_record_is_kept(topic: falaj.Topic[memoryview]) -> None:
    when = datetime(2026, 11, 20, 8, 0, 0, 123456, tzinfo=UTC)
    topic.append(b"v", b"k", headers=[("a", b"1"), ("b", None), ("a", b"2")], timestamp=when)
    record = topic[0]
    assert (record.to_bytes(), record.key) == (b"v", b"k")
    assert record.headers == (("a", b"1"), ("b", None), ("a", b"2"))
    assert (record.timestamp, record.topic, record.partition) == (when, "orders", 0)
    assert record.timestamp_ns == 1_795_161_600_123_456_000


def test_a_record_without_a_time_has_that_of_its_append(topic: falaj.Topic[memoryview]) -> None:
    before = datetime.now(UTC)
    topic.append(b"single")
    topic.extend([b"batched"])
    # A single append uses the kernel's tick, which may be 10 ms late.
    for record in topic:
        assert abs((record.timestamp - before).total_seconds()) < 5


@pytest.mark.parametrize("plain_before", [0, 3])
def test_extend_takes_values_pairs_new_records_and_records(
    topic: falaj.Topic[memoryview], plain_before: int
) -> None:
    topic.extend([falaj.NewRecord(b"old", b"key", headers={"h": b"1"}, timestamp_ns=5 * 10**9)])
    old = topic[0]
    plain = [b"plain"] * plain_before
    given: Any = [
        *plain,
        (b"k", b"pair"),
        b"no key",
        falaj.NewRecord(b"new", timestamp_ns=7 * 10**9),
        old,
    ]
    offsets = topic.extend(given)
    assert offsets == range(1, 5 + plain_before)
    *first, pair, unkeyed, new, copied = topic[1:]
    assert [record.to_bytes() for record in first] == plain
    assert (pair.key, pair.to_bytes()) == (b"k", b"pair")
    assert (unkeyed.key, unkeyed.to_bytes()) == (None, b"no key")
    assert (new.to_bytes(), new.timestamp_ns) == (b"new", 7_000_000_000)
    assert (copied.to_bytes(), copied.key, copied.headers) == (b"old", b"key", (("h", b"1"),))
    assert copied.timestamp_ns == 5_000_000_000


@pytest.mark.parametrize("given", [bytearray(b"abc"), memoryview(b"xabcx")[1:4], b"abc"])
def test_any_buffer_is_taken(topic: falaj.Topic[memoryview], given: Any) -> None:
    topic.append(given, key=given, headers={"h": given})
    topic.extend([given, (given, given)])
    assert values(topic) == [b"abc"] * 3
    assert (topic[0].key, topic[0].headers, topic[2].key) == (b"abc", (("h", b"abc"),), b"abc")


def test_what_changes_after_the_append_does_not_change_the_record(
    topic: falaj.Topic[memoryview],
) -> None:
    changing = bytearray(b"before")
    topic.append(changing)
    topic.extend([changing])
    changing[:] = b"after!"
    assert values(topic) == [b"before", b"before"]


def test_an_empty_value_is_a_record(topic: falaj.Topic[memoryview]) -> None:
    topic.append(b"")
    topic.extend([b"", (b"k", b"")])
    assert values(topic) == [b""] * 3
    assert [len(view or b"") for batch in topic.batches() for view in batch.values] == [0] * 3


def test_an_extend_that_fails_in_the_middle_appends_nothing(
    topic: falaj.Topic[memoryview],
) -> None:
    def breaking() -> Any:
        yield b"first"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        topic.extend(breaking())
    with pytest.raises(TypeError):
        topic.extend([b"first", "text"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        topic.extend([b"first", (b"k", b"v"), (b"k", 5)])  # type: ignore[list-item]
    assert len(topic) == 0
    assert topic.append(b"next") == 0


def test_a_record_that_is_too_large_is_refused_and_the_limit_named(store: falaj.Store) -> None:
    small = store.topic("small", segment_bytes=1 << 16)
    with pytest.raises(AppendTooLarge, match="16384"):
        small.append(bytes(20_000))
    with pytest.raises(AppendTooLarge, match="16384"):
        small.extend([bytes(10_000)] * 2)
    small.append(bytes(16_000))
    assert len(small) == 1


def test_an_extend_without_end_is_stopped_at_the_limit(store: falaj.Store) -> None:
    small = store.topic("small", segment_bytes=1 << 16)
    for endless in (itertools.repeat(b"x"), itertools.repeat((b"k", b"x"))):
        with pytest.raises(AppendTooLarge):
            small.extend(endless)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("text", r"\.encode\(\)"),
        (5, "codec"),
        (None, r"tombstone\(key\)"),
        ({"a": 1}, "json"),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error_with_a_remedy(
    topic: falaj.Topic[memoryview], given: Any, said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        topic.append(given)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": 5},
        {"headers": {"a": 5}},
        {"headers": {5: b"x"}},
        {"headers": "ab"},
        {"headers": 5},
        {"time": object()},
        {"time": True},
        {"partition": "0"},
        {"unknown": 1},
    ],
)
def test_a_keyword_of_the_wrong_type_is_a_type_error(
    topic: falaj.Topic[memoryview], wrong: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        topic.append(b"x", **wrong)
    assert len(topic) == 0


def a_map_of_memory() -> mmap.mmap:
    return mmap.mmap(-1, 8)


@pytest.mark.parametrize(
    "one", [b"bytes", "text", {"a": 1}, 5, array("B", b"bytes"), a_map_of_memory()]
)
def test_extend_with_a_single_value_is_a_type_error(
    topic: falaj.Topic[memoryview], one: Any
) -> None:
    with pytest.raises(TypeError):
        topic.extend(one)
    assert len(topic) == 0


def test_a_naive_time_is_refused_in_words(topic: falaj.Topic[memoryview]) -> None:
    for naive in (datetime(2026, 11, 20), "2026-11-20T08:00:00"):  # noqa: DTZ001  # that is the point
        with pytest.raises(InvalidArgument, match="time zone"):
            topic.append(b"x", timestamp=naive)


def test_records_roll_over_many_segments_without_a_gap(store: falaj.Store) -> None:
    small = store.topic("small", segment_bytes=1 << 16)
    expected = [b"%d" % i * (1 + i % 50) for i in range(5000)]
    for value in expected[:2500]:
        small.append(value)
    for i in range(2500, 5000, 10):
        small.extend(expected[i : i + 10])
    assert values(small) == expected
    assert [value for batch in small.batches(100) for value in batch.to_list()] == expected
    assert [small[i].to_bytes() for i in range(0, 5000, 97)] == expected[::97]
