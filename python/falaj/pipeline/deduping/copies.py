"""The rule of `dedupe`: which copies stay (`decide`). `ids` says what an id is.

The rule goes through the copies of an id in the order of their times. Copies of one time come by
partition and offset. Where the last copy wins, the order is reversed. The first copy is kept and
begins a window; copies less than a window away from it are left out. The next copy after those is
kept and begins another window. Without a window the first copy is kept and no other.

Invariant: two kept copies of an id are at least a window apart. Each copy that is left out is less
than a window from one that is kept. `decide` sees all copies of an id together. It compares hashes
first, and then the ids of those records alone that share a hash. So it never compares most ids, and
two ids with one hash still count as two.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy
import pyarrow
from pyarrow import compute

from falaj.pipeline.base.buffers import array_of, numbers_of

__all__ = ["Decided", "Records", "decide"]


@dataclass(frozen=True)
class Records:
    """Records that have an id, in columns of one length.

    Attributes:
        hashes: Hashes of the ids; equal ids have equal hashes.
        ids: The ids.
        seen: Whether the record is in the target already.
        times: The times of the records.
        partitions: The partition of each record.
        offsets: The offset of each record.
    """

    hashes: numpy.ndarray
    ids: pyarrow.Array
    seen: numpy.ndarray
    times: numpy.ndarray
    partitions: numpy.ndarray
    offsets: numpy.ndarray


@dataclass(frozen=True)
class Decided:
    """The decision of `decide`.

    Attributes:
        left_out: The rows of those that are left out.
        replaced: How many records of the target have a newer copy among those that are kept.
        repeated: The ids with most copies left out: their number, the partition and offset of one,
            and the id.
    """

    left_out: numpy.ndarray
    replaced: int
    repeated: list[tuple[int, int, int, bytes]]


def decide(records: Records, window: int | None, last: bool, top: int = 0) -> Decided:
    """Decide which records are left out.

    Args:
        records: Has all copies of each id.
        window: The window, in the unit of `times`; None for all times.
        last: Whether the last one wins.
        top: How many ids are reported.
    """
    several = _several(records.hashes)
    group = _groups(records.hashes[several], records.ids.take(array_of(several)))
    taken = [column[several] for column in (records.offsets, records.partitions, records.times)]
    if last:
        taken = [-column for column in taken]
    # First come the seen ones of an id, then the others in the order in which they are taken.
    order = numpy.lexsort((*taken, ~records.seen[several], group))
    rows, group = several[order], group[order]
    starts = numpy.flatnonzero(numpy.diff(group, prepend=-1))
    if not len(rows):
        return Decided(rows, 0, [])
    seen = records.seen[rows]
    unseen = starts + numpy.add.reduceat(seen, starts, dtype=numpy.int64)
    ends = numpy.append(starts[1:], len(rows))
    if window is None:
        left_out, replaced = _all_but_one(seen, starts, unseen, ends, last)
    else:
        left_out, replaced = _windows(records.times[rows], starts, unseen, ends, window, last)
    dropped = numpy.add.reduceat(left_out, starts, dtype=numpy.int64)
    some = numpy.flatnonzero(dropped)
    some = some[_most(dropped[some], records, rows[unseen[some]])[:top]]
    repeated = [
        (int(n), int(records.partitions[row]), int(records.offsets[row]), records.ids[row].as_py())
        for n, row in zip(dropped[some], rows[unseen[some]].tolist(), strict=True)
    ]
    return Decided(rows[left_out], replaced, repeated)


def _several(hashes: numpy.ndarray) -> numpy.ndarray:
    """Find the rows that share their hash with another one; rows of one hash come together."""
    order = numpy.argsort(hashes)
    ordered = hashes[order]
    same = numpy.zeros(len(ordered) + 1, bool)
    numpy.equal(ordered[1:], ordered[:-1], out=same[1:-1])
    return order[same[1:] | same[:-1]]


def _groups(hashes: numpy.ndarray, ids: pyarrow.Array) -> numpy.ndarray:
    """Number the ids of rows that are sorted by hash; equal ids get equal numbers."""
    if not len(hashes):
        return hashes.astype(numpy.int64)
    new = hashes[1:] != hashes[:-1]
    alike = numbers_of(compute.equal(ids.slice(0, len(ids) - 1), ids.slice(1)))
    if (alike | new).all():
        return numpy.concatenate(([0], numpy.cumsum(new)))
    return numbers_of(ids.dictionary_encode().indices)  # two ids have one hash


def _most(dropped: numpy.ndarray, records: Records, rows: numpy.ndarray) -> numpy.ndarray:
    """Sort ids by how many of their copies are left out, the most first."""
    return numpy.lexsort((records.offsets[rows], records.partitions[rows], -dropped))


def _all_but_one(
    seen: numpy.ndarray,
    starts: numpy.ndarray,
    unseen: numpy.ndarray,
    ends: numpy.ndarray,
    last: bool,
) -> tuple[numpy.ndarray, int]:
    """Keep the first record of each id, and none if an earlier run kept one that came before."""
    keeps = unseen < ends
    if not last:
        keeps &= unseen == starts
    left_out = ~seen
    left_out[unseen[keeps]] = False
    return left_out, int((unseen - starts)[keeps].sum()) if last else 0


def _windows(
    times: numpy.ndarray,
    starts: numpy.ndarray,
    unseen: numpy.ndarray,
    ends: numpy.ndarray,
    window: int,
    last: bool,
) -> tuple[numpy.ndarray, int]:
    """Go through the copies of each id, window by window."""
    left_out = numpy.zeros(len(times), bool)
    replaced = 0
    at = times.tolist()
    for start, first, end in zip(starts.tolist(), unseen.tolist(), ends.tolist(), strict=True):
        seen = sorted(at[start:first])
        kept: list[int] = []
        for row in range(first, end):
            near = kept and abs(at[row] - kept[-1]) < window
            if near or (not last and seen and _near(seen, at[row], window)):
                left_out[row] = True
            else:
                kept.append(at[row])
        if last and kept and seen:
            kept.reverse()
            replaced += sum(_near(kept, each, window) for each in seen)
    return left_out, replaced


def _near(times: list[int], at: int, window: int) -> bool:
    """Tell whether one of these ascending times is less than a window away."""
    place = bisect_left(times, at)
    return any(abs(times[n] - at) < window for n in (place - 1, place) if 0 <= n < len(times))
