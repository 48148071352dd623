"""What becomes of a line: the value of a record, and its key.

Owns which codecs a line can be turned into. A JSON line is stored as it was written, once it is
known to be JSON: numbers are not rounded, members not reordered. So is a key: it is the text of its
member in the line.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falaj.cli.exits import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Maker", "Pair", "maker_of"]

#: What of a record is in a line: its key, and its value; None for a tombstone.
Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Maker:
    """How lines become records.

    Attributes:
        pair: Turns a line into (key, value), or raises ValueError with the reason.
        skips_blank: Whether blank lines are between records, and not records.
    """

    pair: Callable[[bytes], Pair]
    skips_blank: bool


def maker_of(codec: str, ndjson: bool, key_field: str | None, tombstones: bool = False) -> Maker:
    """Choose how lines become records of a topic, or the keys of tombstones.

    Raises:
        Stop: The topic's values cannot be made of lines.
    """
    if tombstones:
        return Maker(_tombstone(key_field), True)
    if codec == "msgpack":
        return Maker(_msgpack(key_field), True)
    if codec not in ("bytes", "str", "json"):
        raise Stop(
            f"the topic holds {codec} values, which the command line cannot make: append them from "
            "Python"
        )
    if ndjson or codec == "json":
        return Maker(lambda line: (_json_key(line, key_field), line.strip()), True)
    return Maker(_text if codec == "str" else _bytes, False)


def _bytes(line: bytes) -> Pair:
    return None, line


def _text(line: bytes) -> Pair:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 ({error.reason} at byte {error.start})") from None
    return None, line


def _json_key(line: bytes, field: str | None) -> bytes | None:
    """Check that a line is JSON, and find its key."""
    _text(line)
    try:
        # As text a number is what was written, whatever it is as a number.
        value = json.loads(
            line.decode(), parse_constant=_no_constant, parse_int=str, parse_float=str
        )
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None
    return _key(value, field)


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


def _tombstone(key_field: str | None) -> Callable[[bytes], Pair]:
    if key_field is None:
        return lambda line: (line, None)

    def pair(line: bytes) -> Pair:
        key = _json_key(line, key_field)
        if key is None:
            raise ValueError(f"has no field {key_field!r}, so it names no key to delete")
        return key, None

    return pair


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        raise ValueError("a number of thousands of digits") from None


def _real(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is larger than any number of 64 bits")
    return number


def _msgpack(key_field: str | None) -> Callable[[bytes], Pair]:
    try:
        import msgpack
    except ModuleNotFoundError:
        raise Stop("the codec msgpack needs a package: pip install 'falaj[msgpack]'") from None

    def pair(line: bytes) -> Pair:
        key = _json_key(line, key_field)
        try:
            value = json.loads(line.decode(), parse_int=_whole, parse_float=_real)
            return key, msgpack.packb(value)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"does not fit msgpack ({error})") from None

    return pair
