"""Delivery to consumers: whatever fails, no record is committed that no caller got."""

from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import CorruptData, OffsetOutOfRange


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


def filled(path: Path, records: int = 300, name: str = "orders") -> None:
    with falaj.open(path) as store, store.topic(name) as topic:
        for n in range(records):
            topic.append(b"record %03d" % n)


def hurt(
    path: Path, record: int, back: int = 0, by: bytes = b"RECORD", topic: str = "orders"
) -> None:
    """Overwrite a record's value on disk, or the bytes before it."""
    (segment,) = path.glob(f"logs/{topic}@*/*.log")
    at = segment.read_bytes().index(b"record %03d" % record) - back
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(by)


def test_a_poll_hands_out_what_lies_before_damage_and_then_tells_of_it(path: Path) -> None:
    filled(path)
    hurt(path, 150)
    with falaj.open(path) as store, store.consumer("billing", "orders") as billing:
        assert offsets(billing.poll(500, timeout=0)) == list(range(150))
        assert billing.position() == 150
        for _ in range(2):
            with pytest.raises(CorruptData):
                billing.poll(500, timeout=0)
            assert billing.position() == 150


def test_damage_in_one_topic_hides_nothing_of_another_from_who_commits(path: Path) -> None:
    filled(path, 10)
    filled(path, 10, "audit")
    hurt(path, 5, topic="audit")
    found = {"orders": 0, "audit": 0}

    def read(billing: Any) -> None:
        while records := billing.poll(timeout=0):
            for record in records:
                found[record.topic] += 1

    with falaj.open(path) as store, store.consumer("billing", list(found)) as billing:
        with pytest.raises(CorruptData):
            read(billing)
        billing.commit()
        assert found["audit"] == 5
        assert {name: billing.committed(name) for name in found} == found


def test_auto_commit_commits_nothing_of_the_poll_or_batch_that_is_just_returned(path: Path) -> None:
    filled(path)
    with falaj.open(path) as store:
        billing = store.consumer("billing", "orders", auto_commit=0.0)
        reserve = store.consumer("billing", "orders", auto_commit=0.0)
        assert offsets(billing.poll(100, timeout=0)) == list(range(100))
        assert billing.committed() == 0
        assert offsets(billing.poll(50, timeout=0)) == list(range(100, 150))
        assert billing.committed() == 100
        batches = billing.batches(size=10, timeout=0)
        end = next(batches).offsets[-1] + 1
        assert billing.committed() == 150
        next(batches)
        assert billing.committed() == end
        at = next(billing.follow(timeout=0)).offset
        assert billing.committed() == at
        reserve.close()


def test_a_commit_ahead_of_what_was_handed_out_goes_on_from_there(path: Path) -> None:
    filled(path, 10)
    with falaj.open(path) as store, store.consumer("billing", "orders") as billing:
        assert offsets(billing.poll(1, timeout=0)) == [0]
        billing.commit(5)
        assert (billing.position(), billing.committed()) == (5, 5)
        billing.commit()
        assert billing.committed() == 5
        assert offsets(billing.poll(2, timeout=0)) == [5, 6]
        billing.commit(6)  # not ahead: what was delivered stays so
        assert (billing.position(), billing.committed()) == (7, 6)
        assert offsets(billing.poll(timeout=0)) == [7, 8, 9]


def test_what_is_gone_is_told_of_its_partition_and_the_others_stay_where_they_are(
    path: Path,
) -> None:
    filled(path, 1)
    with falaj.open(path) as store:
        audit = store.partitioned_topic("audit", partitions=3)
        for n in range(30):
            audit.append(b"%d" % n, partition=n % 3)
        billing = store.consumer("billing", ["orders", "audit"])
        billing.commit(5, topic="audit", partition=1)
        billing.close()
        audit.partition(2).trim(before_offset=4)
        billing = store.consumer("billing", ["orders", "audit"])
        with pytest.raises(OffsetOutOfRange, match="partition 2, has no record 0") as told:
            billing.poll(timeout=0)
        gone = told.value
        assert (gone.topic, gone.partition, gone.offset, gone.first) == ("audit", 2, 0, 4)
        assert 'seek("earliest", topic="audit", partition=2)' in gone.__notes__[0]
        billing.seek("earliest", topic=gone.topic, partition=gone.partition)
        assert [billing.position("audit", p) for p in range(3)] == [0, 5, 4]
        assert len(billing.poll(timeout=0)) == 1 + 10 + 5 + 6


def wipe(path: Path, first: int, last: int, topic: str = "orders") -> None:
    """Overwrite the disk with zeros from within a record to within another, headers too."""
    (segment,) = path.glob(f"logs/{topic}@*/*.log")
    image = segment.read_bytes()
    at, end = (image.index(b"record %03d" % record) for record in (first, last))
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes(end - at + 6))


def by_record(billing: Any, seen: list[Any]) -> None:
    for record in billing:
        seen.append(place(record))  # noqa: PERF401  # kept also when the next one is corrupt


def by_poll(billing: Any, seen: list[Any]) -> None:
    while records := billing.poll(20, timeout=0):
        seen += map(place, records)


def by_batch(billing: Any, seen: list[Any]) -> None:
    for batch in billing.batches(size=20, timeout=0):
        seen += map(place, batch)


def place(record: Any) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset


def read_over_damage(billing: Any, how: Any) -> tuple[list[Any], list[Any]]:
    """Read and commit all; return the places of delivered and of skipped records."""
    seen: list[Any] = []
    lost: list[Any] = []
    for _ in range(20):
        try:
            how(billing, seen)
            billing.commit()
            return seen, lost
        except CorruptData:
            for gone in billing.skip_damage():
                lost += [(gone["topic"], gone["partition"], n) for n in range(*gone["offsets"])]
    raise AssertionError("it does not get past the damage")


@pytest.mark.parametrize("how", [by_record, by_poll, by_batch])
@pytest.mark.parametrize("damage", [hurt, wipe])
@pytest.mark.parametrize("in_log", [False, True])
def test_a_consumer_goes_on_behind_damage_when_it_says_so_and_reopened_too(
    path: Path, how: Any, damage: Any, in_log: bool
) -> None:
    filled(path)
    damage(path, 150, *([153] if damage is wipe else []))
    gone = range(150, 151 if damage is hurt else 154)
    with falaj.open(path) as store:
        cursor_in = store.topic("results") if in_log else None
        billing = store.consumer("billing", "orders", cursor_in=cursor_in)
        seen, lost = read_over_damage(billing, how)
        assert seen == [("orders", 0, n) for n in range(300) if n not in gone]
        assert lost == [("orders", 0, n) for n in gone]
        assert billing.committed() == 300
        for at in (gone.start, gone.stop, gone.stop + 1, 299):
            # Back there, with another member: it does not meet the skipped records again.
            billing.seek(at)
            billing.commit()
            billing.close()
            billing = store.consumer("billing", "orders", cursor_in=cursor_in)
            seen, lost = read_over_damage(billing, how)
            assert seen == [("orders", 0, n) for n in range(max(at, gone.stop), 300)]
            assert [n for *_, n in lost] == ([*gone] if at == gone.start else [])
        billing.close()


@pytest.mark.parametrize("how", [by_record, by_poll, by_batch])
def test_damage_in_some_partitions_takes_nothing_of_the_others(path: Path, how: Any) -> None:
    with falaj.open(path) as store:
        orders, audit = (
            store.partitioned_topic(name, partitions=3) for name in ("orders", "audit")
        )
        for n in range(300):
            orders.append(b"record %03d" % n, partition=n % 3)
            audit.append(b"record %03d" % n, partition=n % 3)
    hurt(path, 60)
    hurt(path, 61)
    hurt(path, 64)
    hurt(path, 200, topic="audit")
    with falaj.open(path) as store, store.consumer("billing", ["orders", "audit"]) as billing:
        seen, lost = read_over_damage(billing, how)
        gone = [("audit", 2, 66), ("orders", 0, 20), ("orders", 1, 20), ("orders", 1, 21)]
        every = [
            (topic, p, n) for topic in ("orders", "audit") for p in range(3) for n in range(100)
        ]
        assert sorted(lost) == gone
        assert sorted(seen + lost) == sorted(every)
        assert billing.lag == 0


@pytest.mark.parametrize("how", [by_record, by_poll, by_batch])
def test_behind_damage_at_the_end_it_goes_on_with_what_comes(path: Path, how: Any) -> None:
    filled(path)
    hurt(path, 299)
    with falaj.open(path) as store, store.consumer("billing", "orders") as billing:
        seen, _ = read_over_damage(billing, how)
        assert [n for *_, n in seen] == list(range(299))
        store.topic("orders").append(b"next")
        seen, _ = read_over_damage(billing, how)
        assert [n for *_, n in seen] == [300]
        assert billing.lag == 0
