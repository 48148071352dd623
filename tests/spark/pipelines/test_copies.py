"""The copies that `dedupe` keeps, against the rule in plain Python, without Spark."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import numpy
import pyarrow
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.pipeline.deduping import copies
from falaj.pipeline.deduping.dealing import hashed


class Row(NamedTuple):
    """A record as `decide` gets it, and records without an id."""

    id: bytes | None
    seen: bool
    at: int
    partition: int
    offset: int


def decided(
    rows: list[Row], window: int | None, last: bool, hashes: str = "own", top: int = 100
) -> tuple[set[tuple[int, int]], dict[bytes, int], int]:
    """Places that are kept, how many of each id are dropped, and how many are replaced.

    Rows come in any order; with `hashes="one"` all ids collide, with "two" every other one does.
    """
    some = [row for row in rows if row.id is not None]
    columns = list(map(list, zip(*some, strict=True))) or [[] for _ in Row._fields]
    ids = pyarrow.array(columns[0], pyarrow.large_binary())
    own = hashed(ids)
    records = copies.Records(
        hashes={"own": own, "one": own * 0, "two": own & 1}[hashes],
        ids=ids,
        seen=numpy.array(columns[1], bool),
        times=numpy.array(columns[2], numpy.int64),
        partitions=numpy.array(columns[3], numpy.int32),
        offsets=numpy.array(columns[4], numpy.int64),
    )
    done = copies.decide(records, window, last, top)
    gone = {(some[row].partition, some[row].offset) for row in done.left_out.tolist()}
    assert len(gone) == len(done.left_out)
    assert not any(some[row].seen for row in done.left_out.tolist())
    kept = {(row.partition, row.offset) for row in rows if not row.seen} - gone
    dropped = {id_: n for n, *_, id_ in done.repeated}
    assert [n for n, *_ in done.repeated] == sorted(dropped.values(), reverse=True)
    for _, partition, offset, id_ in done.repeated:
        assert any(r[:2] == (id_, False) and r[3:] == (partition, offset) for r in some)
    return kept, dropped, done.replaced


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
@given(
    topics(),
    st.none() | st.integers(1, 12),
    st.booleans(),
    st.sampled_from(["own", "one", "two"]),
)
def test_the_copies_that_stay_are_those_of_the_rule_also_where_hashes_collide(
    rows: list[Row], window: int | None, last: bool, hashes: str
) -> None:
    assert decided(rows, window, last, hashes) == told(rows, window, last)


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
