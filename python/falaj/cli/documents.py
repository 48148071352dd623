"""Lines that are JSON: checked without rounding anything, and the key that is in one."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["check_text", "json_key", "readable"]

DIGITS = sys.int_info.default_max_str_digits
"""Digits of the longest whole number that Python reads from JSON."""


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


def json_key(line: bytes, field: str | None, *, strict: bool = False) -> bytes | None:
    """Check that a line is JSON, and find its key.

    Args:
        line: The line.
        field: The member that is the key.
        strict: Whether a number that Python would not read is refused.

    Raises:
        ValueError: It is no JSON, or the member cannot be a key.
    """
    check_text(line)
    number = readable if strict and len(line) > DIGITS else str
    try:
        # As text a number is what was written, whatever it is as a number.
        value = json.loads(
            line.decode(), parse_constant=_no_constant, parse_int=number, parse_float=str
        )
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except _TooLong as error:
        raise ValueError(str(error)) from None
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None
    return _key(value, field)


class _TooLong(ValueError):
    """A number has more digits than Python reads."""


def readable(digits: str) -> str:
    """Return the digits of a whole number that Python reads.

    Raises:
        ValueError: They are too many.
    """
    if len(digits.lstrip("-")) > DIGITS:
        raise _TooLong(
            f"has a whole number of {len(digits.lstrip('-'))} digits, and Python reads up to "
            f"{DIGITS} of them: write it as text"
        )
    return digits


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not in JSON")


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
    return text.encode("utf-8", "surrogatepass")
