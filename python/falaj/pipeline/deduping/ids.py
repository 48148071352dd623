"""The ids of records: what copies of each other have in common, by the setting `by` of `dedupe`.

Owns how an id is made of a record, in batches and without Java. Invariant: records that differ in
what `by` names have different ids. So a member of JSON is what is written, text with a mark before
it, and a strict parser reads it. In a value that is not UTF-8 or not JSON there is none. The last
of several members with one name counts, as for `falaj append --key-field`. `copies` decides which
records stay.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow
from pyarrow import compute

from falaj.errors import InvalidArgument
from falaj.pipeline.base.buffers import numbers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bare", "check", "columns", "ids", "path_of"]

_PLAIN = ("key", "value", "key+value")
_NAMED = re.compile(r"(header|json):(.+)", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\['([^']+)'\]|\[([0-9]{1,9})\]")


def check(by: str) -> None:
    """Refuse a setting `by` that names no id.

    Raises:
        InvalidArgument: It is none of the known words, and no header or field.
    """
    if by in _PLAIN:
        return
    named = _NAMED.fullmatch(by)
    if not named:
        raise InvalidArgument(
            f"by is key, value, key+value, header:NAME or json:FIELD, not {by!r}: what two records "
            "have in common that are copies of each other"
        )
    if named[1] == "json":
        path_of(named[2])


def columns(by: str) -> str:
    """Name the columns that an id is made of, with their types; nothing else is read for it."""
    if by in ("key", "value"):
        return f"{by} BINARY"
    if by == "key+value":
        return "key BINARY, value BINARY"
    if by.startswith("header:"):
        return "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    return "value BINARY"


def ids(by: str, batch: pyarrow.RecordBatch) -> pyarrow.Array:
    """Make the ids of the records in a batch; null where a record has none.

    Args:
        by: As `check` allows it. A key and a header are ids as they are, a value by its SHA-256.
        batch: Has the columns that `columns` names.
    """
    if by == "key":
        return batch["key"]
    kind, _, name = by.partition(":")
    if kind == "header":
        return _first(batch["headers"], name)
    values = batch["value"].to_pylist()
    if kind == "json":
        path = path_of(name)
        told = [None if value is None else _member(value, path) for value in values]
    elif kind == "value":
        told = [None if value is None else _sha(value) for value in values]
    else:
        pairs = zip(batch["key"].to_pylist(), values, strict=True)
        told = [
            None if key is value is None else _sha(_told(key) + _told(value))
            for key, value in pairs
        ]
    return pyarrow.array(told, pyarrow.binary())


def bare(by: str, id_: bytes) -> bytes:
    """Take the mark off an id, for people.

    Example:
        >>> bare("json:id", b'"p1'), bare("json:id", b"1"), bare("key", b'"')
        (b'p1', b'1', b'"')
    """
    return id_.removeprefix(_TEXT) if by.startswith("json:") else id_


def _sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _told(part: bytes | None) -> bytes:
    """Write length and bytes, so that two pairs never look alike; null differs from empty."""
    return b"-" if part is None else b"%d:%b" % (len(part), part)


def _first(headers: pyarrow.ListArray, name: str) -> pyarrow.Array:
    """Take the first header of a name of each record."""
    pairs = headers.flatten()
    mine = numbers_of(compute.equal(pairs.field("key"), name).fill_null(False))
    places = numpy.flatnonzero(mine)
    rows = numbers_of(compute.list_parent_indices(headers).cast("int64"))[places]
    rows, first = numpy.unique(rows, return_index=True)
    at = numpy.full(len(headers), -1)
    at[rows] = places[first]
    return pairs.field("value").take(pyarrow.array(at, mask=at < 0))


# --- Members of JSON -----------------------------------------------------------------------------


@cache
def path_of(field: str) -> Sequence[str | int]:
    """Read a FIELD of `json:FIELD`: the names of members, and places in arrays.

    Raises:
        InvalidArgument: It is no path of names and places.

    Example:
        >>> path_of("order.id"), path_of("$.lines[0]['the id']")
        (('order', 'id'), ('lines', 0, 'the id'))
    """
    text = field[1:] if field.startswith("$") else f".{field}"
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if not step or step[1] == "*":
            raise InvalidArgument(
                f"json:{field} names no member of JSON: it is a name, or a path of names and "
                "places, as json:order.id or json:$.lines[0]['the id']"
            )
        steps.append(int(step[3]) if step[3] else step[1] or step[2])
        at = step.end()
    return tuple(steps)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not in JSON")


_TEXT = b'"'
"""The mark of an id that is text: no number, no other word and no JSON in brackets begins so."""
# A number is bytes, as it is written: so it is no text.
_DECODE = json.JSONDecoder(
    parse_int=str.encode, parse_float=str.encode, parse_constant=_no_constant
).decode


def _member(value: bytes, path: Sequence[str | int]) -> bytes | None:
    """Find a member, as an id; None where a value is no JSON, or has none, or null."""
    try:
        found = _walk(_DECODE(value.decode()), path)
        if isinstance(found, str):
            return _TEXT + found.encode("utf-8", "surrogatepass")
        if found is None or isinstance(found, bytes):
            return found
        return _written(found).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return None


def _walk(found: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        if isinstance(step, str):
            found = found.get(step) if isinstance(found, dict) else None
        else:
            found = found[step] if isinstance(found, list) and step < len(found) else None
    return found


def _written(value: Any) -> str:
    """Write JSON without blanks, and its numbers as they were."""
    if isinstance(value, dict):
        members = (f"{json.dumps(name)}:{_written(each)}" for name, each in value.items())
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    return value.decode() if isinstance(value, bytes) else json.dumps(value)
