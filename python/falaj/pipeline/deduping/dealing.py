"""Records sent to Spark's tasks by their ids, so that all copies of an id meet in one task.

Owns the form in which they travel: one row of Spark's holds the columns of thousands of records as
bytes. So Spark's exchange moves a few large rows, and neither Java nor Python touches single
records. Invariant: records with equal ids reach the same task, whichever task read them.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy
import pyarrow
from pyarrow import compute

from falaj.pipeline.base.buffers import array_of, numbers_of, slices_of
from falaj.pipeline.deduping.copies import Records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["DEALT", "IDS", "deal", "gather", "hashed"]

IDS = ("id", "partition", "offset", "timestamp")
"""The columns that are dealt."""
DEALT = (
    "task INT, without_id BIGINT, seen BOOLEAN, partition INT, hashes BINARY, times BINARY, "
    "offsets BINARY, lengths BINARY, ids BINARY"
)
"""A row of records of one partition. `without_id` counts records without an id, which no row has:
they are no copies of any."""
_ROWS = 500_000
_BYTES = 32 << 20
"""How many records, and bytes of ids, a task collects before it deals them."""
_WORDS = 8
"""How many words of 8 bytes of an id are hashed one by one."""
_FACTOR = numpy.uint64(0x9E3779B97F4A7C15)


def deal(
    batches: Iterable[pyarrow.RecordBatch], seen: bool, tasks: int
) -> Iterator[pyarrow.RecordBatch]:
    """Divide records by their ids: each set of batches yields one row for each task.

    Args:
        batches: Have the columns `id`, `partition`, `offset` and `timestamp`; all of one partition.
        seen: Whether these records are in the target.
        tasks: How many tasks there are.

    Yields:
        Rows of `DEALT`.
    """
    held: list[pyarrow.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + len(batch), size + batch["id"].nbytes
        if rows >= _ROWS or size >= _BYTES:
            yield _dealt(held, seen, tasks)
            held, rows, size = [], 0, 0
    yield _dealt(held, seen, tasks)


def _dealt(held: list[pyarrow.RecordBatch], seen: bool, tasks: int) -> pyarrow.RecordBatch:
    whole = pyarrow.concat_batches(held) if held else _NONE
    some = whole.filter(compute.is_valid(whole["id"])) if whole["id"].null_count else whole
    hashes = hashed(some["id"])
    # The upper half chooses the task; the multiplication mixed it best.
    task = (((hashes >> numpy.uint64(32)) * numpy.uint64(tasks)) >> numpy.uint64(32)).astype(
        numpy.uint16
    )
    order = numpy.argsort(task, kind="stable")
    ends = numpy.concatenate(([0], numpy.cumsum(numpy.bincount(task, minlength=tasks))))
    ids = some["id"].take(array_of(order))
    bounds = _bounds(ids)
    partition = whole["partition"][0].as_py() if len(whole) else 0
    without = numpy.zeros(tasks, numpy.int64)
    without[0] = 0 if seen else len(whole) - len(some)
    columns = [
        array_of(numpy.arange(tasks, dtype=numpy.int32)),
        array_of(without),
        array_of(numpy.full(tasks, seen)),
        array_of(numpy.full(tasks, partition, dtype=numpy.int32)),
        *(
            slices_of(values[order], ends)
            for values in (
                hashes,
                numbers_of(some["timestamp"]),
                numbers_of(some["offset"]),
            )
        ),
        slices_of(numpy.diff(bounds).astype(numpy.int32), ends),
        slices_of(_data(ids), bounds[ends] - bounds[0]),
    ]
    return pyarrow.RecordBatch.from_arrays(columns, names=_NAMES)


_NONE = pyarrow.RecordBatch.from_arrays(
    [
        pyarrow.nulls(0, pyarrow.binary()),
        pyarrow.nulls(0, pyarrow.int32()),
        pyarrow.nulls(0, pyarrow.int64()),
        pyarrow.nulls(0, pyarrow.timestamp("us", "UTC")),
    ],
    names=IDS,
)
_NAMES = [column.split()[0] for column in DEALT.split(", ")]


def _bounds(ids: pyarrow.BinaryArray) -> numpy.ndarray:
    """Find where in the bytes of a column each id begins, and where the last one ends."""
    wide = pyarrow.types.is_large_binary(ids.type)
    kind = numpy.int64 if wide else numpy.int32
    places = numpy.frombuffer(ids.buffers()[1] or b"\0" * kind().itemsize, kind)
    return places[ids.offset : ids.offset + len(ids) + 1].astype(numpy.int64)


def _data(ids: pyarrow.BinaryArray) -> numpy.ndarray:
    bounds = _bounds(ids)
    return numpy.frombuffer(ids.buffers()[2] or b"", numpy.uint8)[bounds[0] : bounds[-1]]


def gather(batches: Iterable[pyarrow.RecordBatch]) -> tuple[Records, int]:
    """Combine the records that were sent to a task.

    Args:
        batches: Rows of `DEALT`.

    Returns:
        The records, and how many records without an id were read.
    """
    found: dict[str, list[numpy.ndarray]] = {name: [] for name in _TYPES}
    without = 0
    for batch in batches:
        without += compute.sum(batch["without_id"]).as_py()
        for n in range(len(batch)):
            row = {
                name: numpy.frombuffer(batch[name][n].as_buffer(), kind)
                for name, kind in _PACKED.items()
            }
            count = len(row["hashes"])
            row["seen"] = numpy.full(count, batch["seen"][n].as_py())
            row["partitions"] = numpy.full(count, batch["partition"][n].as_py(), numpy.int32)
            for name, values in row.items():
                found[name].append(values)
    whole = {
        name: numpy.concatenate(parts) if parts else numpy.empty(0, _TYPES[name])
        for name, parts in found.items()
    }
    places = numpy.concatenate(([0], numpy.cumsum(whole.pop("lengths"), dtype=numpy.int64)))
    buffers = [None, pyarrow.py_buffer(places), pyarrow.py_buffer(whole.pop("ids"))]
    ids = pyarrow.Array.from_buffers(pyarrow.large_binary(), len(places) - 1, buffers)
    return Records(ids=ids, **whole), without


_PACKED = {
    name: numpy.dtype(kind)
    for name, kind in (
        ("hashes", numpy.uint64),
        ("times", numpy.int64),
        ("offsets", numpy.int64),
        ("lengths", numpy.int32),
        ("ids", numpy.uint8),
    )
}
_TYPES = {**_PACKED, "seen": numpy.dtype(bool), "partitions": numpy.dtype(numpy.int32)}


def hashed(ids: pyarrow.BinaryArray) -> numpy.ndarray:
    """Hash ids, all of them together, one word of 8 bytes after the other.

    The bytes of an id after the 64th enter the hash only by their CRC-32. `copies.decide` compares
    ids whose hashes are equal, so a collision only costs time.

    Args:
        ids: The ids; none is null.

    Example:
        >>> one, two, three = hashed(pyarrow.array([b"EWR", b"JFK", b"EWR"], pyarrow.binary()))
        >>> bool(one == two), bool(one == three)
        (False, True)
    """
    bounds = _bounds(ids)
    starts, lengths = bounds[:-1] - bounds[0], numpy.diff(bounds)
    data = numpy.concatenate((_data(ids), numpy.zeros(8, numpy.uint8)))
    words = numpy.ndarray((len(data) - 7,), "<u8", data, strides=(1,))  # from each byte on
    found = lengths.astype(numpy.uint64) * _FACTOR
    shortest = int(lengths.min()) if len(lengths) else 0
    for at in range(0, min(_WORDS * 8, int(lengths.max(initial=0))), 8):
        rows = slice(None) if at < shortest else numpy.flatnonzero(lengths > at)
        own = words[starts[rows] + at]
        if at + 8 > shortest:  # bytes behind the id do not count
            own <<= numpy.maximum(at + 8 - lengths[rows], 0).astype(numpy.uint64) << numpy.uint64(3)
        found[rows] = _mixed(found[rows] ^ own)
    long = numpy.flatnonzero(lengths > _WORDS * 8)
    rests = [
        zlib.crc32(data[starts[n] + _WORDS * 8 : starts[n] + lengths[n]].tobytes()) for n in long
    ]
    found[long] = _mixed(found[long] ^ numpy.array(rests, numpy.uint64))
    return found


def _mixed(words: numpy.ndarray) -> numpy.ndarray:
    words *= _FACTOR
    words ^= words >> numpy.uint64(32)
    words *= _FACTOR
    return words
