"""What becomes of a line: the value of a record, and its key.

Owns which codecs a line can be turned into. A JSON line is stored as it was written, once it is
known to be JSON: numbers are not rounded, members not reordered.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falaj.cli.exits import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Maker", "Pair", "maker_of"]

Pair = tuple[bytes | None, bytes]


@dataclass(frozen=True, slots=True)
class Maker:
    """How lines become records.

    Attributes:
        pair: Turns a line into (key, value), or raises ValueError with the reason.
        skips_blank: Whether blank lines are between records, and not records.
    """

    pair: Callable[[bytes], Pair]
    skips_blank: bool


def maker_of(codec: str, ndjson: bool, key_field: str | None) -> Maker:
    """Choose how lines become records of a topic.

    Raises:
        Stop: The topic's values cannot be made of lines.
    """
    if codec == "msgpack":
        return Maker(_msgpack(key_field), True)
    if codec not in ("bytes", "str", "json"):
        raise Stop(
            f"the topic holds {codec} values, which the command line cannot make: append them from "
            "Python"
        )
    if ndjson or codec == "json":
        return Maker(lambda line: _json_line(line, key_field)[:2], True)
    return Maker(_text if codec == "str" else _bytes, False)


def _bytes(line: bytes) -> Pair:
    return None, line


def _text(line: bytes) -> Pair:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 ({error.reason} at byte {error.start})") from None
    return None, line


def _json_line(line: bytes, key_field: str | None) -> tuple[bytes | None, bytes, Any]:
    _text(line)
    try:
        value = _parsed(line.decode())
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None
    return _key(value, key_field), line.strip(), value


@dataclass(frozen=True, slots=True)
class _Long:
    """A whole number of thousands of digits, of which Python makes none: as written."""

    digits: str


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Only now: it asks for each number, and hardly any has so many digits.
        return json.loads(text, parse_constant=_no_constant, parse_int=_whole)


def _whole(digits: str) -> int | _Long:
    try:
        return int(digits)
    except ValueError:
        return _Long(digits)


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
    if isinstance(key, _Long):
        return key.digits.encode()
    text = key if isinstance(key, str) else json.dumps(key)
    return text.encode("utf-8", "surrogatepass")


def _too_long(number: object) -> None:
    raise ValueError("a number of thousands of digits")


def _msgpack(key_field: str | None) -> Callable[[bytes], Pair]:
    try:
        import msgpack
    except ModuleNotFoundError:
        raise Stop("the codec msgpack needs a package: pip install 'falaj[msgpack]'") from None

    def pair(line: bytes) -> Pair:
        key, _, value = _json_line(line, key_field)
        try:
            return key, msgpack.packb(value, default=_too_long)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"does not fit msgpack ({error})") from None

    return pair
