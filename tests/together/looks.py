"""Every way of reading a partition, compared with its list.

`partition` reads one partition in all these ways. The numbers in calls (the last n, a start) are
few, and near the edges.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import falaj
from falaj.cli.ranges import Range
from falaj.errors import OffsetOutOfRange, RecordCompacted
from together.model import Partition, Record
from together.values import same

Topic = falaj.Topic[Any]


def is_record(read: Any, offset: int, wanted: Record) -> None:
    """Compare one record with the expected one."""
    assert read.offset == offset
    assert (read.key, read.headers) == (wanted.key, wanted.headers), f"offset {offset}"
    assert read.timestamp_ns == wanted.time_ns, f"offset {offset}"
    assert read.is_tombstone == (read.raw is None) == wanted.is_tombstone, (
        f"offset {offset}: {read!r}, {wanted}"
    )
    assert same(read.value, wanted.value), f"offset {offset}: {read.value!r}, {wanted.value!r}"


def are(read: Iterable[Any], offsets: list[int], part: Partition, how: str) -> None:
    """Compare several records with the expected ones."""
    found = list(read)
    assert [record.offset for record in found] == offsets, f"{how}: {offsets} are wanted"
    for record in found:
        is_record(record, record.offset, part.records[record.offset])


def _edges(numbers: list[int], beyond: int) -> list[int]:
    """Choose a few numbers of a list, near its edges."""
    chosen = {*numbers[:2], *numbers[-2:], *numbers[len(numbers) // 2 :][:1], beyond}
    return sorted(chosen)


def one_by_one(topic: Topic, part: Partition) -> None:
    there = part.there()
    for offset in _edges(there, part.end):
        if offset < part.end:
            is_record(topic[offset], offset, part.records[offset])
    for offset in sorted(part.taken)[:2]:
        if offset >= part.first:
            with pytest.raises(RecordCompacted):
                topic[offset]
    for gone in (part.end, part.end + 7, *([part.first - 1] if part.first else [])):
        with pytest.raises(OffsetOutOfRange):
            topic[gone]
    for n in _edges(list(range(1, len(there) + 1)), 1)[:4]:
        if there:
            is_record(topic[-n], there[-n], part.records[there[-n]])


def forwards(topic: Topic, part: Partition) -> None:
    are(topic, part.there(), part, "iteration")
    are(topic[:], part.there(), part, "[:]")
    for size in (1, 3, 8192):
        found = [record for batch in topic.batches(size) for record in batch]
        are(found, part.there(), part, f"batches({size})")
        count = sum(len(batch) for batch in topic.batches(size))
        assert count == len(part.there()), f"lengths of batches({size})"


def backwards(topic: Topic, part: Partition) -> None:
    backwards = part.there()[::-1]
    are(reversed(topic), backwards, part, "reversed")
    are(topic[::-1], backwards, part, "[::-1]")
    are(
        topic[::-2],
        [o for o in range(part.end - 1, part.first - 1, -2) if o in backwards],
        part,
        "[::-2]",
    )


def membership(topic: Topic, part: Partition) -> None:
    """A topic is not a list: `in` is refused, as it could only compare values one by one."""
    if part.there():
        with pytest.raises(TypeError):
            part.records[part.there()[0]].value in topic  # noqa: B015


def from_the_end(topic: Topic, part: Partition) -> None:
    """The last n records are n, whichever call asks for them."""
    there = part.there()
    for n in _edges(list(range(1, len(there) + 1)), len(there) + 1):
        wanted = there[-n:]
        are(topic.last(n), wanted, part, f"last({n})")
        if n:
            are(topic.follow(-n, timeout=0), wanted, part, f"follow({-n})")
            arrow(topic, part, wanted, start=-n)
        if n and n <= len(there):
            are(topic[-n:], wanted, part, f"[{-n}:]")
            are(topic[:-n], there[: len(there) - n], part, f"[:{-n}]")
            are(topic.read(-n, n), wanted, part, f"read({-n}, {n})")
            shown = (r for each in Range(start=-n).of(topic) for r in each.records())
            are(shown, wanted, part, f"falaj cat --from {-n}")
            shown = (r for each in Range(stop=-n).of(topic) for r in each.records())
            are(shown, there[: len(there) - n], part, f"falaj cat --to {-n}")


def from_offsets(topic: Topic, part: Partition) -> None:
    for start in _edges(list(range(part.first, part.end)), part.end):
        wanted = part.behind(start)
        are(topic.follow(start, timeout=0), wanted, part, f"follow({start})")
        are(topic.read(start, 2), wanted[:2], part, f"read({start}, 2)")
        are(topic[start:], wanted, part, f"[{start}:]")
        are(topic[start : start + 2], [o for o in wanted if o < start + 2], part, "[a:b]")
        arrow(topic, part, wanted, start=start)
    are(topic.follow("latest", timeout=0), [], part, "follow latest")


def by_time(topic: Topic, part: Partition) -> None:
    times = sorted({part.records[o].time_ns for o in part.there()})
    for time_ns in _edges(times, 2 * 10**18):
        when = "1970-01-01T00:00:00Z" if time_ns < 0 else _iso(time_ns)
        wanted = part.at(max(time_ns, 0))
        found = topic.at(when)
        assert (None if found is None else found.offset) == (
            wanted if wanted < part.end else None
        ), f"at({when})"
        are(topic.follow(when, timeout=0), part.behind(wanted), part, f"follow({when})")


def _iso(time_ns: int) -> str:
    from datetime import UTC, datetime, timedelta

    whole = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=time_ns // 10**9)
    return whole.strftime("%Y-%m-%dT%H:%M:%S") + f".{time_ns % 10**9:09}Z"


def arrow(topic: Topic, part: Partition, wanted: list[int], **start: Any) -> None:
    found = topic.to_arrow(columns=["offset", "key"], **start)
    assert found["offset"].to_pylist() == wanted, f"to_arrow({start})"
    assert found["key"].to_pylist() == [part.records[o].key for o in wanted]


def columns(topic: Topic, part: Partition) -> None:
    """Tables, and streams of them, have the same rows."""
    arrow(topic, part, part.there())
    found = [
        n for batch in topic.to_reader(columns=["offset"]) for n in batch["offset"].to_pylist()
    ]
    assert found == part.there(), "to_reader"
    values = topic.to_arrow(columns=["value"])["value"]
    assert [value is None for value in values.to_pylist()] == [
        part.records[o].is_tombstone for o in part.there()
    ], "null values of a table"


def scans(topic: Topic, part: Partition) -> None:
    scan = topic.scan()
    assert scan.to_table(columns=["offset"])["offset"].to_pylist() == part.there(), "scan"
    assert scan.count_rows() == len(part.there()), "count_rows"


def numbers(topic: Topic, part: Partition) -> None:
    assert (topic.start_offset, topic.end_offset, topic.visible_offset) == (
        part.first,
        part.end,
        part.end,
    )
    assert len(topic) == part.end - part.first
    assert topic.count() == len(part.there())
    assert part.first <= topic.durable_offset <= part.end or topic.durable_offset <= part.first


Way = Callable[[Topic, Partition], None]
WAYS: list[Way] = [
    numbers,
    forwards,
    one_by_one,
    from_the_end,
    from_offsets,
    by_time,
    backwards,
    membership,
    columns,
    scans,
]


def partition(topic: Topic, part: Partition, ways: Iterable[Way]) -> None:
    """Read a partition in some ways."""
    for way in ways:
        way(topic, part)
