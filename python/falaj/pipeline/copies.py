"""Which of the copies of a record are kept: the rule of `dedupe`, over Arrow batches.

Owns what a copy is (`id_of`) and which copies stay (`decide`). The rule: copies are taken in the
order of their times, and of one time by partition and offset, or, where the last one wins, the
other way round. The first one is kept and begins a window; what is less than a window from it is
left out; the next copy behind that is kept and begins a window of its own. Without a window the
first one is kept and no other.

Invariant: two copies that are kept are never less than a window apart, and each one that is left
out is less than a window from one that is kept. `decide` sees all copies of an id together, and
keeps of them no more than the times of those that are kept.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy
    from pyspark.sql import Column

__all__ = ["DECIDED", "HASHED", "check", "columns", "decide", "id_of"]

DECIDED = (
    "partition INT, offset BIGINT, left_out BOOLEAN, kept BIGINT, without_id BIGINT, "
    "dropped BIGINT, replaced BIGINT, id BINARY"
)
"""Rows of `decide`, of three kinds. With `left_out` it is the place of a copy that is dropped. With
an id it counts the copies that were dropped, and those that earlier runs kept and that have a newer
one; its place is that of one of them. Others count what a task keeps, and what of it has no id."""

_SCHEMA = pyarrow.schema(
    [
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("left_out", pyarrow.bool_()),
        ("kept", pyarrow.int64()),
        ("without_id", pyarrow.int64()),
        ("dropped", pyarrow.int64()),
        ("replaced", pyarrow.int64()),
        ("id", pyarrow.binary()),
    ]
)
HASHED = ("value", "key+value")
"""By what an id is a hash, and tells people nothing."""
_WORDS = ("key", *HASHED)
_ROUNDED = r"[0-9]\.[0-9]|Infinity|(?<![0-9.])0(?![0-9.])"
"""A number as Spark may have changed it: one with a fraction or an exponent, or of -0."""
_DOUBLE = (
    r'\G((?:[^"0-9\-]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|(?!-0(?![0-9]))-?[0-9]++(?![.eE]))*+)'
    r"(-?[0-9][0-9.eE+\-]*+)"
)
"""In JSON the next such number, and what is before it: text, and whole numbers."""
_NAMED = re.compile(r"(header|json):(.+)", re.DOTALL)


def check(by: str) -> None:
    """Refuse words that name no id.

    Raises:
        InvalidArgument: It is none of the words, and no header or field.
    """
    if by not in _WORDS and not _NAMED.fullmatch(by):
        raise InvalidArgument(
            f"by is key, value, key+value, header:NAME or json:FIELD, not {by!r}: what two records "
            "have in common that are copies of each other"
        )


def columns(by: str) -> str:
    """Name the columns that an id is made of, with their types: only these are read for it."""
    if by in ("key", "value"):
        return f"{by} BINARY"
    if by == "key+value":
        return "key BINARY, value BINARY"
    if by.startswith("header:"):
        return "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    return "value BINARY"


def id_of(by: str) -> Column:
    """Make the expression that tells a record from others; null where a record has no id.

    Args:
        by: As `check` allows it.

    Returns:
        A binary column of key, value and headers.
    """
    if by == "key":
        return F.col("key")
    if by == "value":
        return F.unhex(F.sha2("value", 256))
    if by == "key+value":
        both = F.col("key").isNotNull() | F.col("value").isNotNull()
        parts = [part for name in ("key", "value") for part in _told(name)]
        return F.when(both, F.unhex(F.sha2(F.concat(*parts), 256)))
    kind, name = by.split(":", 1)
    if kind == "header":
        mine = F.filter("headers", lambda header: header["key"] == name)
        return F.try_element_at(mine, F.lit(1))["value"]
    path = name if name.startswith("$") else f"$.{name}"
    text = F.col("value").cast("string")
    found = F.get_json_object(text, path)
    # As text such a number is what was written; Spark makes a double of it, as of many others.
    exact = F.get_json_object(F.regexp_replace(text, F.lit(_DOUBLE), F.lit('$1"$2"')), path)
    return F.when(found.rlike(_ROUNDED), exact).otherwise(found).cast("binary")


def _told(name: str) -> tuple[Column, Column]:
    """Length and bytes, so that no two pairs look alike; null is not empty."""
    length = F.coalesce(F.length(name), F.lit(-1)).cast("string")
    return F.concat(length, F.lit(":")).cast("binary"), F.coalesce(name, F.lit(b""))


@dataclass(slots=True)
class _Copies:
    """Copies of one id, as they come."""

    id: bytes
    window: int | None
    last: bool
    seen: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    first: tuple[int, int] = (0, 0)
    dropped: int = 0

    def is_dropped(self, at: int) -> bool:
        """Decide about the next one."""
        if self.window is None:
            return bool(self.kept or (self.seen and not self.last))
        if self.kept and abs(at - self.kept[-1]) < self.window:
            return True
        return not self.last and _near(self.seen, at, self.window)

    def keep(self, at: int) -> None:
        """Note one that is kept."""
        if not self.last:
            self.kept.clear()  # only `replaced` asks for more than the newest
        self.kept.append(at)

    def replaced(self) -> int:
        """Count copies that earlier runs kept and that have a newer one now."""
        if not self.last or not self.kept:
            return 0
        if self.window is None:
            return len(self.seen)
        kept = sorted(self.kept)
        return sum(_near(kept, at, self.window) for at in self.seen)


def _near(times: list[int], at: int, window: int) -> bool:
    """Whether one of some times, in their order, is less than a window away."""
    place = bisect_left(times, at)
    return any(abs(times[n] - at) < window for n in (place - 1, place) if 0 <= n < len(times))


class _Rows:
    """Columns of what is decided."""

    def __init__(self) -> None:
        self.columns: list[list[int | bool | bytes | None]] = [[] for _ in _SCHEMA]

    def add(self, *row: int | bool | bytes | None) -> None:
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)

    def end(self, copies: _Copies | None) -> None:
        """Add what is known of an id that has no more copies."""
        if copies is not None and (copies.dropped or copies.replaced()):
            counts = (copies.dropped, copies.replaced())
            self.add(*copies.first, False, None, None, *counts, copies.id)

    def batch(self) -> pyarrow.RecordBatch:
        arrays = [
            pyarrow.array(column, kind.type)
            for column, kind in zip(self.columns, _SCHEMA, strict=True)
        ]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def decide(
    batches: Iterable[pyarrow.RecordBatch], window: int | None, last: bool
) -> Iterator[pyarrow.RecordBatch]:
    """Say which records are left out.

    Args:
        batches: Rows of `id`, `seen` (whether an earlier run kept it), `at` (its time),
            `partition` and `offset`. Those of an id stand together: first the seen ones, then the
            others in the order in which they are taken. Those without an id are kept.
        window: In the unit of `at`; None for all times.
        last: Whether the last one wins.

    Yields:
        Rows as `DECIDED` says.
    """
    copies: _Copies | None = None
    for batch in batches:
        rows = _Rows()
        alone, without = _alone(batch)
        kept = int(alone.sum())
        several = batch.filter(pyarrow.array(~alone))
        columns = (several.column(n).to_pylist() for n in range(several.num_columns))
        for id_, seen, at, partition, offset in zip(*columns, strict=True):
            if copies is None or copies.id != id_:
                rows.end(copies)
                copies = _Copies(id_, window, last)
            if seen:
                insort(copies.seen, at)
                continue
            if not copies.kept and not copies.dropped:
                copies.first = partition, offset
            if copies.is_dropped(at):
                copies.dropped += 1
                rows.add(partition, offset, True, None, None, None, None, None)
            else:
                copies.keep(at)
                kept += 1
        rows.add(None, None, False, kept, without, None, None, None)
        yield rows.batch()
    rows = _Rows()
    rows.end(copies)
    yield rows.batch()


def _alone(batch: pyarrow.RecordBatch) -> tuple[numpy.ndarray, int]:
    """Find the rows that are kept because no other has their id, and count those without an id.

    The first and the last row may have copies in the batches before and behind.
    """
    import numpy
    from pyarrow import compute

    ids, count = batch["id"], len(batch)
    same = compute.fill_null(compute.equal(ids.slice(0, max(count - 1, 0)), ids.slice(1)), False)
    same = numpy.concatenate(([True], same.to_numpy(zero_copy_only=False), [True]))[: count + 1]
    without = ids.is_null().to_numpy(zero_copy_only=False)
    unseen = ~batch["seen"].to_numpy(zero_copy_only=False)
    return unseen & (without | ~(same[:-1] | same[1:])), int(without.sum())
