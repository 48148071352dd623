"""Lines that are JSON: checked without rounding anything, and the key that is in one.

Invariant: what is kept as it was written has a value that the codec json takes.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from falaj._documents import is_odd
from falaj.codecs import resolver

__all__ = ["check_document", "check_readable", "check_text", "json_key", "value_of"]

_DIGITS = sys.int_info.default_max_str_digits
_encode: Any = resolver("json")[1]("json")[0]


def check_text(line: bytes) -> bytes:
    """Return a line that is UTF-8.

    Raises:
        ValueError: It is not.
    """
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 ({error.reason} at byte {error.start})") from None
    return line


def json_key(line: bytes, field: str | None) -> bytes | None:
    """Check that a line is JSON, and find its key.

    Args:
        line: The line.
        field: The member that is the key.

    Raises:
        ValueError: It is no JSON, or the member cannot be a key.
    """
    # As text a number is what was written, whatever it is as a number.
    return _key(_read(_AS_WRITTEN, line), field)


def check_document(line: bytes) -> None:
    """Check that a line is JSON whose value the codec json takes.

    Raises:
        ValueError: It is not.
    """
    if not is_odd(line):
        _read(_PLAIN, line)
        return
    value = _read(_EXACT, line)
    try:
        _encode(value)
    except ValueError as error:
        raise ValueError(f"does not fit json ({error})") from None


def check_readable(line: bytes) -> None:
    """Check that a line is JSON with numbers that Python reads, whatever their size.

    Raises:
        ValueError: It is not.
    """
    _read(_READABLE, line)


def value_of(line: bytes) -> Any:
    """Read a line of JSON that is stored otherwise: it has no member twice, and exact numbers.

    Raises:
        ValueError: It is none.
    """
    return _read(_UNIQUE, line)


class _Refused(ValueError):
    """It is JSON, and cannot be kept; the text says why."""


def _read(decoder: json.JSONDecoder, line: bytes) -> Any:
    text = check_text(line).decode()
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except _Refused as error:
        raise ValueError(str(error)) from None
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None


def _readable(digits: str) -> str:
    if len(digits.lstrip("-")) > _DIGITS:
        raise _Refused(
            f"has a whole number of {len(digits.lstrip('-'))} digits, and Python reads up to "
            f"{_DIGITS} of them: write it as text"
        )
    return digits


def _whole(digits: str) -> int:
    return int(_readable(digits))


def _real(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _Refused(f"has {text}, which is larger than any number of 64 bits: write it as text")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Refused(f"has the member {twice!r} twice in an object: leave out one of them")
    return members


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not in JSON")


_AS_WRITTEN = json.JSONDecoder(parse_constant=_no_constant, parse_int=str, parse_float=str)
_READABLE = json.JSONDecoder(parse_constant=_no_constant, parse_int=_readable, parse_float=str)
_PLAIN = json.JSONDecoder(parse_constant=_no_constant)
_EXACT = json.JSONDecoder(parse_constant=_no_constant, parse_int=_whole, parse_float=_real)
_UNIQUE = json.JSONDecoder(
    parse_constant=_no_constant,
    parse_int=_whole,
    parse_float=_real,
    object_pairs_hook=_unique,
)


def _key(value: Any, field: str | None) -> bytes | None:
    if field is None:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"is no JSON object, so it has no field {field!r}")
    key = value.get(field)
    if isinstance(key, dict | list):
        raise ValueError(f"has an object or array in the field {field!r}, which cannot be a key")
    if key is None:
        return None
    text = key if isinstance(key, str) else json.dumps(key)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"has half a character in the field {field!r}, which cannot be a key"
        ) from None
