"""Records dealt to tasks by their ids, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.pipeline.deduping import dealing

if TYPE_CHECKING:
    from collections.abc import Iterator

IDS = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=140)


def batches(ids: list[bytes | None], partition: int, size: int) -> Iterator[pyarrow.RecordBatch]:
    for first in range(0, len(ids), size):
        some = ids[first : first + size]
        places = range(first, first + len(some))
        columns = {
            "id": pyarrow.array([b"before", *some], pyarrow.binary())[1:],
            "partition": pyarrow.array([partition] * len(some), pyarrow.int32()),
            "offset": pyarrow.array(places, pyarrow.int64()),
            "timestamp": pyarrow.array([7 * n for n in places], pyarrow.timestamp("us", "UTC")),
        }
        yield pyarrow.RecordBatch.from_pydict(columns)


@settings(deadline=None)
@given(
    st.lists(IDS, max_size=40),
    st.lists(IDS, max_size=40),
    st.integers(1, 9),
    st.integers(1, 7),
)
def test_each_record_with_an_id_comes_to_one_task_and_its_copies_come_to_the_same(
    new: list[bytes | None], old: list[bytes | None], tasks: int, size: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dealing, "_ROWS", 2 * size)
        rows = [
            *dealing.deal(batches(new, 3, size), False, tasks),
            *dealing.deal(batches(old, 1, size), True, tasks),
        ]
    found = []
    task_of: dict[bytes, tuple[int, int]] = {}
    without = 0
    for task in range(tasks):
        mine = [row.filter(pyarrow.compute.equal(row["task"], task)) for row in rows]
        assert all(len(row) == 1 for row in mine)
        records, count = dealing.gather(mine)
        without += count
        columns = (records.seen, records.partitions, records.offsets, records.times, records.hashes)
        ids = records.ids.to_pylist()
        for id_, *place, hash_ in zip(ids, *(column.tolist() for column in columns), strict=True):
            assert task_of.setdefault(id_, (task, hash_)) == (task, hash_)
            found.append((id_, *place))
    dealt = [(id_, False, 3, n, 7 * n) for n, id_ in enumerate(new) if id_ is not None]
    dealt += [(id_, True, 1, n, 7 * n) for n, id_ in enumerate(old) if id_ is not None]
    assert sorted(found) == sorted(dealt)
    assert without == new.count(None)


def test_ids_that_differ_in_one_bit_or_in_length_have_different_hashes() -> None:
    whole = bytes(range(1, 90))
    ids = {whole[:length] for length in range(len(whole) + 1)}
    ids |= {b"\0" * length for length in range(65)}
    for place in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            ids.add(bytes(changed))
    found = dealing.hashed(pyarrow.array(sorted(ids), pyarrow.binary()))
    assert len(set(found.tolist())) == len(ids)


def test_ids_are_spread_evenly_over_tasks() -> None:
    ids: list[bytes | None] = [b"order-%08d" % n for n in range(20_000)]
    [row] = dealing.deal(batches(ids, 0, len(ids)), False, 16)
    counts = [len(packed) // 8 for packed in row["hashes"].to_pylist()]
    assert sum(counts) == len(ids)
    assert max(counts) < 1.25 * len(ids) / 16
