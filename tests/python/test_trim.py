"""`topic.trim`: trimmed records are gone for every reader, and no others are."""

import asyncio
import gc
import itertools
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import InvalidArgument, NotWritable, OffsetOutOfRange

SEGMENT = 1 << 16
VALUE = 500


def value(n: int) -> bytes:
    return b"%06d" % n + bytes(VALUE - 6)


@pytest.fixture
def orders(store: falaj.Store) -> falaj.Topic[memoryview]:
    topic = store.topic("orders", segment_bytes=SEGMENT, sync="none")
    for n in range(600):
        topic.append(value(n), timestamp_ns=n * 10**9)
    return topic


def segments(store: falaj.Store) -> int:
    return len(list(Path(store.path).glob("logs/orders@*/*.log")))


def test_a_trim_hides_what_lies_before_and_removes_whole_files(
    orders: falaj.Topic[memoryview],
) -> None:
    before = segments(orders.store)
    report = orders.trim(before_offset=450)
    assert report["firsts"] == {0: 450}
    assert report["segments"] >= 2
    assert report["bytes"] > 0
    assert segments(orders.store) == before - report["segments"]
    assert (orders.start_offset, orders.end_offset, len(orders)) == (450, 600, 150)
    assert [record.offset for record in orders] == list(range(450, 600))
    assert [record.offset for record in orders[-2:]] == [598, 599]
    assert sum(len(batch) for batch in orders.batches()) == 150
    assert next(orders.follow(timeout=0)).offset == 450
    first = orders.at("1970-01-01T00:00:00Z")
    assert first is not None
    assert first.offset == 450
    for gone in (0, 449):
        with pytest.raises(OffsetOutOfRange, match="450") as caught:
            orders[gone]
        assert caught.value.first == 450
        with pytest.raises(OffsetOutOfRange):
            orders.read(gone, 1)
        with pytest.raises(OffsetOutOfRange):
            next(orders.follow(gone))
    assert orders.append(b"more") == 600


def test_a_place_is_an_offset_from_either_end_or_a_time(orders: falaj.Topic[memoryview]) -> None:
    assert orders.trim(before_offset=10)["firsts"] == {0: 10}
    assert orders.trim(before_offset=5)["firsts"] == {0: 10}, "it must only rise"
    assert orders.trim(before_time=datetime.fromtimestamp(20, UTC))["firsts"] == {0: 20}
    assert orders.trim(before_time="1970-01-01T00:00:30Z")["firsts"] == {0: 30}
    assert orders.trim(before_time="1970-01-01T00:00:40Z")["firsts"] == {0: 40}
    assert orders.trim(before_offset=-550)["firsts"] == {0: 50}
    assert orders.trim(before_time="2001-09-09T01:46:40Z")["firsts"] == {0: 600}, (
        "all records are older"
    )
    assert (orders.start_offset, orders.end_offset) == (600, 600)


def test_a_dry_run_says_what_would_go_and_changes_nothing(
    orders: falaj.Topic[memoryview],
) -> None:
    before = segments(orders.store)
    planned = orders.trim(before_offset=450, dry_run=True)
    assert (orders.start_offset, segments(orders.store)) == (0, before)
    done = orders.trim(before_offset=450)
    assert (planned["firsts"], planned["segments"]) == (done["firsts"], done["segments"])


def test_what_is_no_place_is_refused_and_nothing_changes(
    orders: falaj.Topic[memoryview], store: falaj.Store
) -> None:
    for dry_run in (True, False):
        with pytest.raises(OffsetOutOfRange):
            orders.trim(before_offset=601, dry_run=dry_run)
    with pytest.raises(InvalidArgument, match="time zone"):
        orders.trim(before_time=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError):
        orders.trim(before_offset=True)
    pair = store.partitioned_topic("pair", partitions=2)
    pair.extend([b"a", b"b"], partition=1)
    with pytest.raises(TypeError, match="before_offset"):
        pair.trim(before_offset=1)  # type: ignore[call-arg]
    with falaj.open(store.path, read_only=True) as reader, pytest.raises(NotWritable):
        reader.topic("orders").trim(before_offset=1)
    assert (orders.start_offset, len(pair)) == (0, 2)


def test_partitions_are_trimmed_one_by_one_or_all_before_a_time(store: falaj.Store) -> None:
    pair = store.partitioned_topic("pair", partitions=2)
    for n in range(10):
        pair.append(b"%d" % n, timestamp_ns=n * 10**9, partition=n % 2)
    assert pair.partition(1).trim(before_offset=2)["firsts"] == {1: 2}
    assert [r.to_bytes() for r in pair] == [b"0", b"2", b"4", b"5", b"6", b"7", b"8", b"9"]
    assert pair.trim(before_time="1970-01-01T00:00:06Z")["firsts"] == {0: 3, 1: 3}
    assert [r.to_bytes() for r in pair] == [b"6", b"7", b"8", b"9"]


def test_values_that_were_read_outlive_their_file(orders: falaj.Topic[memoryview]) -> None:
    kept, held = orders[3].value, next(orders.batches(50)).values[7]
    orders.trim(before_offset=600)
    assert segments(orders.store) == 1
    orders.close()
    gc.collect()
    assert kept is not None
    assert held is not None
    assert (bytes(kept), bytes(held)) == (value(3), value(7))


def test_a_reader_gets_an_error_for_trimmed_records_and_never_skips(
    orders: falaj.Topic[memoryview],
) -> None:
    with falaj.open(orders.store.path, read_only=True) as reader:
        following, plain = reader.topic("orders").follow(), iter(reader.topic("orders"))
        assert [next(following).offset, next(plain).offset] == [0, 0]
        orders.trim(before_offset=550)
        for reading in (following, plain):
            with pytest.raises(OffsetOutOfRange, match="550"):
                list(reading)
            with pytest.raises(OffsetOutOfRange):
                next(reading)


@pytest.mark.parametrize("at_once", [True, False])
def test_no_reader_delivers_what_was_trimmed_wherever_it_stands(
    store: falaj.Store, at_once: bool
) -> None:
    audit = store.topic("audit")
    if at_once:
        audit.extend([b"v"] * 9)
    else:
        for _ in range(9):
            audit.append(b"v")
    with falaj.open(store.path, read_only=True) as other:
        seen = other.topic("audit")
        polled, looped, batched = (
            store.consumer(name, "audit") for name in ("polled", "looped", "batched")
        )
        follow, plain, cut = seen.follow(timeout=0), iter(seen), iter(seen[:])
        tables = iter(seen.to_reader(columns=["offset"], batch_rows=3))
        assert [r.offset for r in polled.poll(3, timeout=0)] == [0, 1, 2]
        for reader in (follow, plain, cut, iter(looped), iter(batched)):
            assert [next(reader).offset for _ in range(3)] == [0, 1, 2]
        assert next(tables)["offset"].to_pylist() == [0, 1, 2]
        batch = next(iter(seen.batches(2)))
        back = reversed(seen)
        assert next(back).offset == 8
        audit.trim(before_offset=6)
        calls: list[Any] = [
            lambda: polled.poll(3, timeout=0),
            lambda: next(iter(looped)),
            lambda: next(batched.batches(3, timeout=0)),
            lambda: next(follow),
            lambda: next(plain),
            lambda: next(cut),
        ]
        for _ in range(2):
            for call in calls:
                with pytest.raises(OffsetOutOfRange, match="6 to 8") as gone:
                    call()
                assert gone.value.offset == 3
        with pytest.raises(OffsetOutOfRange, match="6 to 8"):
            next(tables)
        assert next(iter(batch)).to_bytes() == b"v", "what a program holds stays valid"
        assert [r.offset for r in back][:2] == [7, 6]
        polled.seek("earliest")
        assert [r.offset for r in polled.poll(9, timeout=0)] == [6, 7, 8]


def test_an_asynchronous_follower_delivers_nothing_that_was_trimmed(store: falaj.Store) -> None:
    audit = store.topic("audit")
    audit.extend([b"v"] * 9)

    async def read() -> None:
        follow = audit.afollow("earliest", timeout=0)
        assert (await anext(follow)).offset == 0
        audit.trim(before_offset=6)
        with pytest.raises(OffsetOutOfRange):
            await anext(follow)

    asyncio.run(read())


def test_a_trim_in_another_process_is_known_here_at_once(orders: falaj.Topic[memoryview]) -> None:
    with falaj.open(orders.store.path, read_only=True) as reader:
        read = reader.topic("orders")
        for first in itertools.accumulate([7, 1, 300]):
            program = (
                "import sys, falaj\n"
                "falaj.open(sys.argv[1]).topic('orders').trim(before_offset=int(sys.argv[2]))"
            )
            argv = [sys.executable, "-c", program, str(orders.store.path), str(first)]
            subprocess.run(argv, check=True, timeout=60)
            assert (orders.start_offset, read.start_offset) == (first, first)
