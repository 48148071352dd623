"""Values that are JSON or text, as columns of Arrow: for scans, and for Spark's `values=json`.

Owns how a batch of values is read by Arrow, and which values are not what is wanted. Each value is
put into a list of its own first, so that nothing that stands in one can become a part of another.
The caller decides what such a value does. This module needs pyarrow.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, Literal

from falaj._checks import text
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow

__all__ = ["decode", "kept", "struct_of"]

# Infinity as a value, which Arrow and from_json read; Arrow also makes it of what is too large.
_INFINITY = re.compile(rb"[\[:,]\s*-?Inf(inity)?\s*[\],}]")


def struct_of(fields: Mapping[str, Any]) -> pyarrow.StructType:
    """Make the type of a JSON object of members and their types.

    Args:
        fields: Types of pyarrow, or their names, as `"double"`, by the names of the members.

    Raises:
        InvalidArgument: There is no such type, or JSON is not read as it.
    """
    import pyarrow

    members = []
    for name, given in fields.items():
        kind = given
        text(name, "the name of a field")
        if isinstance(given, str):
            try:
                kind = pyarrow.type_for_alias(given)
            except ValueError:
                kind = None
        if not isinstance(kind, pyarrow.DataType) or not _is_read(kind):
            raise InvalidArgument(
                f"the field {name!r} cannot be {given}: JSON is read as a type of pyarrow such as "
                "'double', 'int64', 'string', 'bool' or 'timestamp[us]', or a list or struct"
            )
        members.append(pyarrow.field(name, kind))
    return pyarrow.struct(members)


def _is_read(kind: pyarrow.DataType) -> bool:
    import pyarrow

    kinds = pyarrow.types
    if kinds.is_list(kind):
        return _is_read(kind.value_type)
    if kinds.is_struct(kind):
        names = {each.name for each in kind}
        return len(names) == kind.num_fields and all(_is_read(each.type) for each in kind)
    if kinds.is_float16(kind):
        return False
    plain = (
        kinds.is_boolean,
        kinds.is_integer,
        kinds.is_floating,
        kinds.is_decimal,
        kinds.is_string,
    )
    return any(test(kind) for test in plain) or kinds.is_date32(kind) or kinds.is_timestamp(kind)


def decode(
    values: pyarrow.Array,
    kind: Literal["binary", "string", "json"],
    wanted: pyarrow.DataType,
    corrupt_record: str | None = None,
) -> tuple[pyarrow.Array, list[int]]:
    """Turn values into what is wanted.

    Args:
        values: Binary, null for tombstones.
        kind: "string" or "json"; "binary" is never decoded.
        wanted: The type of the column.
        corrupt_record: A member of it that no value gives; None for none.

    Returns:
        The column without what cannot be read, and the rows of that.
    """
    import pyarrow

    read = _text if kind == "string" else _json
    parts, bad = [], []
    whole = wanted
    if corrupt_record is not None:
        wanted = pyarrow.struct([each for each in whole if each.name != corrupt_record])

    def attempt(start: int, length: int) -> None:
        try:
            parts.append(read(values.slice(start, length), wanted))
        except (pyarrow.ArrowInvalid, UnicodeDecodeError):
            if length == 1:
                bad.append(start)
                return
            half = length // 2
            attempt(start, half)
            attempt(start + half, length - half)

    attempt(0, len(values))
    found = pyarrow.concat_arrays([pyarrow.array([], wanted), *parts])
    return (found if corrupt_record is None else _widened(found, whole)), bad


def kept(
    found: pyarrow.Array, bad: list[int], values: pyarrow.Array, corrupt_record: str
) -> pyarrow.Array:
    """Put what could not be read back in its place: as text or bytes, in a member of the value.

    Args:
        found: What `decode` returned.
        bad: Which rows are missing in it.
        values: What was read.
        corrupt_record: Name of the member; text in it has U+FFFD for what is not UTF-8.

    Returns:
        As many rows as values.
    """
    import pyarrow

    raw = [values[row].as_py() for row in bad]
    if pyarrow.types.is_string(found.type.field(corrupt_record).type):
        raw = [each.decode("utf-8", "replace") for each in raw]
    rows = pyarrow.array([{corrupt_record: each} for each in raw], found.type)
    # Rows of `found` in their places, those of `rows` in between.
    left, lacking, missing = iter(range(len(found))), iter(range(len(found), len(values))), set(bad)
    places = [next(lacking if row in missing else left) for row in range(len(values))]
    return pyarrow.concat_arrays([found, rows]).take(pyarrow.array(places, pyarrow.int64()))


def _widened(found: pyarrow.Array, whole: pyarrow.DataType) -> pyarrow.Array:
    """Give a struct the members that it lacks, as nulls."""
    import pyarrow

    parts = dict(zip((each.name for each in found.type), found.flatten(), strict=True))
    columns = [
        parts[each.name] if each.name in parts else pyarrow.nulls(len(found), each.type)
        for each in whole
    ]
    return pyarrow.StructArray.from_arrays(columns, fields=list(whole), mask=found.is_null())


def _text(values: pyarrow.Array, wanted: pyarrow.DataType) -> pyarrow.Array:
    return values.cast(wanted)  # refuses what is not UTF-8


def _json(values: pyarrow.Array, wanted: pyarrow.DataType) -> pyarrow.Array:
    import pyarrow
    from pyarrow import compute, json

    if not len(values):
        return pyarrow.array([], wanted)
    lines = [
        b'{"v":[null]}' if value is None else b'{"v":[%b]}' % value for value in values.to_pylist()
    ]
    text = b"\n".join(lines)
    readable = _as_arrow_reads(wanted)
    table = json.read_json(
        io.BytesIO(text),
        read_options=json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=json.ParseOptions(
            explicit_schema=pyarrow.schema([("v", pyarrow.list_(readable))]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    lists = table["v"].combine_chunks()
    if (
        len(lists) != len(values)
        or compute.any(compute.not_equal(compute.list_value_length(lists), 1)).as_py()
    ):
        raise pyarrow.ArrowInvalid("a value is no JSON document, or several")
    found = lists.flatten()
    found.validate(full=True)  # text in it is UTF-8
    if _is_infinite(found) and not all(map(_INFINITY.search, lines)):
        raise pyarrow.ArrowInvalid("a number is too large for its type, or may be")
    return _as_wanted(found, wanted)


def _as_arrow_reads(wanted: pyarrow.DataType) -> pyarrow.DataType:
    """Say as what to read that which Arrow does not read from JSON as Spark does.

    Dates it takes for numbers, and of times it refuses more than microseconds. It takes a member
    that cannot be null for one that is missing where the whole object is.
    """
    import pyarrow

    kinds = pyarrow.types
    if kinds.is_date(wanted) or kinds.is_timestamp(wanted):
        return pyarrow.string()
    if kinds.is_list(wanted):
        field = wanted.value_field
        return pyarrow.list_(field.with_type(_as_arrow_reads(field.type)))
    if kinds.is_struct(wanted):
        members = [f.with_type(_as_arrow_reads(f.type)).with_nullable(True) for f in wanted]
        return pyarrow.struct(members)
    return wanted


def _as_wanted(found: pyarrow.Array, wanted: pyarrow.DataType) -> pyarrow.Array:
    """Turn what was read as `_as_arrow_reads` says into what is wanted."""
    import pyarrow

    kinds = pyarrow.types
    if found.type.equals(wanted):
        return found
    if kinds.is_struct(wanted):
        parts = [_as_wanted(f, w.type) for f, w in zip(found.flatten(), wanted, strict=True)]
        for part, member in zip(parts, wanted, strict=True):
            if not member.nullable and part.null_count > found.null_count:
                raise pyarrow.ArrowInvalid(f"the member {member.name!r} is null")
        return pyarrow.StructArray.from_arrays(parts, fields=list(wanted), mask=found.is_null())
    if kinds.is_list(wanted):
        inside = _as_wanted(found.values, wanted.value_type)
        return pyarrow.ListArray.from_arrays(
            found.offsets, inside, type=wanted, mask=found.is_null()
        )
    if kinds.is_timestamp(wanted):
        return _times(found, wanted)
    return found.cast(wanted)


def _times(text: pyarrow.Array, wanted: pyarrow.DataType) -> pyarrow.Array:
    """Read ISO times: cut to microseconds, as from_json does; in UTC where they name no zone.

    A type without a zone gets them in UTC.
    """
    import pyarrow
    from pyarrow import compute

    for pattern, instead in (
        (r"(:\d\d\.\d{6})\d+", r"\1"),
        (r"^(\d{4}-\d\d-\d\d)$", r"\1T00"),
        (r"([T ]\d\d[:.\d]*)$", r"\1Z"),  # Arrow wants a zone everywhere, or nowhere
    ):
        text = compute.replace_substring_regex(text, pattern=pattern, replacement=instead)
    return text.cast(pyarrow.timestamp(wanted.unit, wanted.tz or "UTC")).cast(wanted)


def _is_infinite(found: pyarrow.Array) -> bool:
    """Say whether a number in it is infinite."""
    import pyarrow
    from pyarrow import compute

    kinds = pyarrow.types
    if kinds.is_struct(found.type):
        return any(map(_is_infinite, found.flatten()))
    if kinds.is_list(found.type):
        return _is_infinite(found.flatten())
    return kinds.is_floating(found.type) and bool(compute.any(compute.is_inf(found)).as_py())
