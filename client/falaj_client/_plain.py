"""Bytes as arguments: values, keys and the values of headers.

Invariant: memory counts as bytes only if its owner says that it is single bytes in one row.
Numbers, arrays of them and NumPy's text have memory too, which other programs would read as
something else.
"""

from __future__ import annotations

from typing import Any

from falaj_client.errors import InvalidArgument

__all__ = ["is_record", "plain_bytes", "text_or_bytes"]

VALUE = "a value"


def plain_bytes(given: Any, what: str, takes: str = "bytes") -> bytes:
    """Return `bytes` unchanged, or a copy of another object's bytes.

    Args:
        given: The object.
        what: The subject of an error.
        takes: What it must be, for an error.

    Raises:
        TypeError: It has no single bytes.
    """
    if isinstance(given, bytes | bytearray):
        return bytes(given)
    view = _memory_of(given)
    if view is None or is_record(given) or _is_number(given):
        raise TypeError(
            f"{what} is {takes}, not {type(given).__name__}: {_remedy(given, what, takes)}"
        )
    if view.ndim != 1 or view.format.removeprefix("<") not in ("B", "b", "c"):
        raise TypeError(
            f"{what} is {takes}, not {type(given).__name__}: its items are no single bytes in one "
            "row; give .tobytes() to keep its memory as it is"
        )
    return view.tobytes()


def text_or_bytes(given: Any, what: str) -> bytes:
    """Do the same, and encode text as UTF-8.

    Raises:
        InvalidArgument: The text holds half a character.
        TypeError: It is neither.
    """
    if not isinstance(given, str):
        return plain_bytes(given, what, "text or bytes")
    try:
        return given.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what} is kept as UTF-8, which has no half characters") from None


def is_record(given: Any) -> bool:
    """Return whether it is a record that was read, or a new one: of this package, or of falaj."""
    return hasattr(given, "is_tombstone") and hasattr(given, "timestamp_ns")


def _memory_of(given: Any) -> memoryview | None:
    try:
        return memoryview(given)
    except (TypeError, BufferError, ValueError):  # the last: a type that no format has
        return None


def _is_number(given: Any) -> bool:
    """Return True for a number or a date of NumPy, which shows its bytes."""
    return not isinstance(given, memoryview) and getattr(given, "ndim", None) == 0


def _remedy(given: Any, what: str, takes: str) -> str:
    if what != VALUE:
        return f"give {takes}"
    if given is None:
        return "to delete a key, call tombstone(key)"
    if is_record(given):
        return "extend([record]) takes all of it, and record.value is its value alone"
    if isinstance(given, str):
        return 'call .encode() on it, or open the topic with codec="str"'
    return 'encode it, or open the topic with a codec, such as codec="json"'
