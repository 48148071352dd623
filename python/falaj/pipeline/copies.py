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

    from pyspark.sql import Column

__all__ = ["DECIDED", "HASHED", "check", "decide", "id_of"]

DECIDED = (
    "partition INT, offset BIGINT, kept BOOLEAN, size BIGINT, dropped BIGINT, replaced BIGINT, "
    "id BINARY"
)
"""Rows of `decide`: a record that is kept, without its id; or, not `kept`, an id with how many of
its copies were dropped, and how many that earlier runs kept have got a newer one, beside the place
of one of them."""

_SCHEMA = pyarrow.schema(
    [
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("kept", pyarrow.bool_()),
        ("size", pyarrow.int64()),
        ("dropped", pyarrow.int64()),
        ("replaced", pyarrow.int64()),
        ("id", pyarrow.binary()),
    ]
)
HASHED = ("value", "key+value")
"""By what an id is a hash, and tells people nothing."""
_WORDS = ("key", *HASHED)
_ROUNDED = r"[0-9]\.[0-9]|Infinity|(?<![0-9.])0(?![0-9.])"
"""What Spark may have made of a number with a fraction or an exponent, or of -0."""
_DOUBLE = (
    r'\G((?:[^"0-9\-]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|(?!-0(?![0-9]))-?[0-9]++(?![.eE]))*+)'
    r"(-?[0-9][0-9.eE+\-]*+)"
)
"""In JSON the next such number, and what is before it: text, and whole numbers."""
_NAMED = re.compile(r"(header|json):(.+)", re.DOTALL)


def check(by: str) -> None:
    """Refuse what no record can be told by.

    Raises:
        InvalidArgument: It is none of the words, and no header or field.
    """
    if by not in _WORDS and not _NAMED.fullmatch(by):
        raise InvalidArgument(
            f"by is key, value, key+value, header:NAME or json:FIELD, not {by!r}: what two records "
            "have in common that are copies of each other"
        )


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
        """Count what earlier runs kept, and of which a newer copy is kept now."""
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
    """Columns of what is told."""

    def __init__(self) -> None:
        self.columns: list[list[int | bool | bytes | None]] = [[] for _ in _SCHEMA]

    def add(self, *row: int | bool | bytes | None) -> None:
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)

    def end(self, copies: _Copies | None) -> None:
        """Tell of copies of which no more come."""
        if copies is not None and (copies.dropped or copies.replaced()):
            self.add(*copies.first, False, 0, copies.dropped, copies.replaced(), copies.id)

    def batch(self) -> pyarrow.RecordBatch:
        arrays = [
            pyarrow.array(column, kind.type)
            for column, kind in zip(self.columns, _SCHEMA, strict=True)
        ]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def decide(
    batches: Iterable[pyarrow.RecordBatch], window: int | None, last: bool
) -> Iterator[pyarrow.RecordBatch]:
    """Say which records are kept.

    Args:
        batches: Rows of `id`, `seen` (whether an earlier run kept it), `at` (its time),
            `partition`, `offset` and `size`. Those of an id stand together: first the seen ones,
            then the others in the order in which they are taken.
        window: In the unit of `at`; None for all times.
        last: Whether the last one wins.

    Yields:
        Rows as `DECIDED` says.
    """
    copies: _Copies | None = None
    for batch in batches:
        rows = _Rows()
        columns = (batch.column(n).to_pylist() for n in range(batch.num_columns))
        for id_, seen, at, partition, offset, size in zip(*columns, strict=True):
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
            else:
                copies.keep(at)
                rows.add(partition, offset, True, size, 0, 0, None)
        yield rows.batch()
    rows = _Rows()
    rows.end(copies)
    yield rows.batch()
