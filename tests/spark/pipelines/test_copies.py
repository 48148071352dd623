"""Which copies `dedupe` keeps, against the rule told in plain Python, without Spark."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.errors import InvalidArgument
from falaj.pipeline import copies


class Row(NamedTuple):
    """A record as `decide` gets it."""

    id: bytes | None
    seen: bool
    at: int
    partition: int
    offset: int


_ROWS = pyarrow.schema(
    [
        ("id", pyarrow.binary()),
        ("seen", pyarrow.bool_()),
        ("at", pyarrow.int64()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
    ]
)


def decided(
    rows: list[Row], window: int | None, last: bool, size: int = 3
) -> tuple[set[tuple[int, int]], dict[bytes, int], int]:
    """Places that are kept, how many of each id are dropped, and how many are replaced."""
    turn = -1 if last else 1
    ordered = sorted(
        rows,
        key=lambda r: (r.id or b"", not r.seen, turn * r.at, turn * r.partition, turn * r.offset),
    )
    columns = list(map(list, zip(*ordered, strict=True))) or [[] for _ in Row._fields]
    table = pyarrow.table(dict(zip(Row._fields, columns, strict=True)), _ROWS)
    kept, dropped, replaced = {(r.partition, r.offset) for r in rows if not r.seen}, {}, 0
    counted = without = 0
    for batch in copies.decide(table.to_batches(size), window, last):
        for row in batch.to_pylist():
            if row["left_out"]:
                kept.remove((row["partition"], row["offset"]))
            elif row["id"] is None:
                counted, without = counted + row["kept"], without + row["without_id"]
            else:
                replaced += row["replaced"]
                if row["dropped"]:
                    dropped[row["id"]] = row["dropped"]
    assert counted == len(kept)
    assert without == sum(row.id is None for row in rows)
    return kept, dropped, replaced


def told(
    rows: list[Row], window: int | None, last: bool
) -> tuple[set[tuple[int, int]], dict[bytes, int], int]:
    """The same by the rule, pair by pair."""
    kept, dropped, replaced = set(), {}, 0

    def near(one: Row, two: Row) -> bool:
        return window is None or abs(one.at - two.at) < window

    for id_, group in groupby(sorted(rows, key=lambda r: r.id or b""), key=lambda r: r.id):
        mine = list(group)
        if id_ is None:
            kept |= {(row.partition, row.offset) for row in mine}
            continue
        seen = [row for row in mine if row.seen]
        new = sorted((r for r in mine if not r.seen), key=lambda r: (r.at, r.partition, r.offset))
        chosen: list[Row] = []
        for row in reversed(new) if last else new:
            others = chosen if last else chosen + seen
            if not any(near(row, other) for other in others):
                chosen.append(row)
        kept |= {(row.partition, row.offset) for row in chosen}
        if len(new) > len(chosen):
            dropped[id_] = len(new) - len(chosen)
        if last:
            replaced += sum(any(near(row, other) for other in chosen) for row in seen)
    return kept, dropped, replaced


@st.composite
def topics(draw: st.DrawFn) -> list[Row]:
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from([None, *(b"%d" % n for n in range(1, 20)), b"a", b"b", b"a"]),
                st.booleans(),
                st.integers(-5, 40),
                st.integers(0, 1),
            ),
            max_size=30,
        )
    )
    return [
        Row(id_, seen and id_ is not None, at, part, n)
        for n, (id_, seen, at, part) in enumerate(rows)
    ]


@settings(deadline=None)
@given(topics(), st.none() | st.integers(1, 12), st.booleans(), st.integers(1, 40))
def test_the_copies_that_stay_are_those_of_the_rule(
    rows: list[Row], window: int | None, last: bool, size: int
) -> None:
    assert decided(rows, window, last, size) == told(rows, window, last)


@settings(deadline=None)
@given(topics(), st.integers(1, 12), st.booleans())
def test_what_is_kept_is_a_window_apart_and_what_is_dropped_is_nearer_than_that_to_it(
    rows: list[Row], window: int, last: bool
) -> None:
    new = [row for row in rows if not row.seen]
    places, _, _ = decided(new, window, last)
    kept = [row for row in new if (row.partition, row.offset) in places]
    for row in new:
        others = [
            o for o in kept if o.id == row.id and o is not row and abs(o.at - row.at) < window
        ]
        if row.id is None:
            others = []
        assert bool(others) != (row in kept)


def test_windows_are_counted_from_the_copy_that_is_kept() -> None:
    rows = [Row(b"a", False, at, 0, at) for at in (0, 4, 9, 10, 14, 20)]
    assert decided(rows, 10, last=False)[0] == {(0, 0), (0, 10), (0, 20)}
    assert decided(rows, 10, last=True)[0] == {(0, 20), (0, 10), (0, 0)}
    assert decided(rows, 11, last=True)[0] == {(0, 20), (0, 9)}


def test_what_earlier_runs_kept_is_a_copy_before_and_behind() -> None:
    rows = [Row(b"a", at == 10, at, 0, at) for at in (0, 6, 10, 14, 15)]
    assert decided(rows, 5, last=False) == ({(0, 0), (0, 15)}, {b"a": 2}, 0)
    assert decided(rows, 5, last=True) == ({(0, 15), (0, 6), (0, 0)}, {b"a": 1}, 1)


@pytest.mark.parametrize("by", ["", "offset", "header:", "json:", "keys", "header"])
def test_what_no_record_can_be_told_by_is_refused(by: str) -> None:
    with pytest.raises(InvalidArgument, match="by is key, value"):
        copies.check(by)
