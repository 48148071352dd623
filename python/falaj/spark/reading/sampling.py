"""Members of JSON that the schema names, but no record of a sample has.

A mistyped name reads as null in every record. So before a query reads, it looks at the first and
the last records. It reports each name that none of them has, with names that are spelled like it.
"""

from __future__ import annotations

import difflib
import json
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, StructType

from falaj.errors import Error
from falaj.spark import stores
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import falaj
    from falaj.spark.reading.loss import Loss
    from falaj.spark.reading.options import ReadOptions
    from falaj.spark.reading.ranges import Range

__all__ = ["Seen", "hint", "look", "unknown", "warn"]

_RECORDS = 200
"""Records that are looked at, at either end of a range."""
_RANGES = 8
_BYTES = 4 << 20
"""Where records are large, so much of a range is enough."""
_NAMED_MAX = 10


class Seen:
    """The members that the records of a sample have, by their paths.

    Attributes:
        records: How many of them are JSON objects.
    """

    def __init__(self) -> None:
        self.records = 0
        self._members: dict[str, set[str]] = {}

    def add(self, document: Any) -> None:
        """Add the value of a record."""
        self.records += isinstance(document, dict)
        self._add("", document)

    def members(self, path: str) -> set[str] | None:
        """Return the members that objects at a path have; None if there is no object."""
        return self._members.get(path)

    def _add(self, path: str, document: Any) -> None:
        if isinstance(document, dict):
            self._members.setdefault(path, set()).update(document)
            for name, value in document.items():
                self._add(f"{path}.{name}", value)
        elif isinstance(document, list):
            for each in document:
                self._add(path, each)


def look(store: Path | str, ranges: Sequence[Range], origin: str | None = None) -> Seen:
    """Look at the first and the last records of ranges; skip what cannot be read."""
    seen = Seen()
    whole = [each for each in ranges if len(each)]
    # Some of many ranges, from everywhere: topics and partitions differ.
    chosen = whole[:: max(1, -(-len(whole) // _RANGES))]
    with suppress(Error), stores.opened(store, origin) as opened:
        for each in chosen:
            with suppress(Error), open_raw(opened, each.topic) as topic:
                for raw in _values(topic.partition(each.partition), each.start, each.end):
                    with suppress(ValueError, RecursionError):
                        seen.add(json.loads(bytes(raw)))
    return seen


def _values(part: falaj.Topic[Any], start: int, end: int) -> Iterator[memoryview]:
    start = max(start, part.start_offset)
    last = max(start, part._start_of_last(_RECORDS, end))
    first = islice(part._records(start, last), _RECORDS)
    size = 0
    for record in chain(first, part._records(last, max(last, end))):
        if record.raw is not None:
            yield record.raw
            size += len(record.raw)
        if size > _BYTES:
            return


def unknown(kind: DataType, seen: Seen, ignored: Iterable[str] = ()) -> list[str]:
    """Find the members of a type that no record of a sample has; return a sentence for each.

    Args:
        kind: The type of the value.
        seen: The sample.
        ignored: Names at the top level that do not come from JSON.
    """
    if not seen.records:
        return []
    return [
        f"{where} is in none of the {seen.records:,} records that were looked at, and null: {hint}"
        for where, hint in _unknown(kind, seen, "", frozenset(ignored))
    ]


def warn(options: ReadOptions, schema: StructType, ranges: Sequence[Range], loss: Loss) -> None:
    """Report members that the schema names, but no record of a sample has."""
    if options.values == "json" and "value" in schema.names:
        seen = look(options.store, ranges, options.origin)
        for sentence in unknown(schema["value"].dataType, seen, (options.corrupt_record,)):
            loss.warn(sentence)


def _unknown(
    kind: DataType, seen: Seen, path: str, ignored: frozenset[str]
) -> Iterator[tuple[str, str]]:
    if isinstance(kind, ArrayType):
        yield from _unknown(kind.elementType, seen, path, ignored)
    there = seen.members(path)
    if not isinstance(kind, StructType) or there is None:
        return
    for field in kind.fields:
        if field.name in there:
            yield from _unknown(field.dataType, seen, f"{path}.{field.name}", frozenset())
        elif field.name not in ignored:
            yield f"value{path}.{field.name}", hint(field.name, there)


def hint(name: str, there: Iterable[str]) -> str:
    """Suggest a member that may have been meant, or list the existing ones."""
    spelled = {each.lower(): each for each in there}
    near = difflib.get_close_matches(name.lower(), spelled, n=1)
    if near:
        return f"did you mean {spelled[near[0]]!r}?"
    names = sorted(spelled.values())
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"they have {', '.join(names[:_NAMED_MAX])}{more}" if names else "they are empty"
