"""Records from lines as `falaj cat --json` prints them, so that a dump can be loaded again.

Invariant: dump and load keep a record's key, value, headers, time and partition, and whether it is
a tombstone. Its offset is the next one of the topic. A JSON value keeps its text; bytes that are
not text come from the members `…_base64`.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any

from falaj import _time
from falaj._records import NewRecord
from falaj.cli.documents import check_readable
from falaj.cli.exits import Stop
from falaj.cli.values import Made, packed
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["loader"]

_SPACE = " \t\r\n"
_MEMBERS = frozenset(
    ("topic", "partition", "offset", "time", "key", "key_base64", "headers", "tombstone")
) | {"value", "value_base64"}
_HEADER = frozenset(("name", "value", "value_base64"))
_INTEGER = re.compile(r"-?\d{1,30}", re.ASCII)
_UNIX = re.compile(r"(-?\d{1,30})\.(\d+)", re.ASCII)


class _Number(str):
    """The text of a number."""

    __slots__ = ()


# Numbers stay text, so that none is rounded, and none is too long.
_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number)


def loader(codec: str) -> Callable[[bytes], Made]:
    """Make what turns a line into a record of a topic with this codec.

    Raises:
        Stop: The command line cannot check the values of such a topic.
    """
    check = _check_of(codec)
    is_json = codec == "json"

    def make(line: bytes) -> Made:
        found, value = _members(line)
        strange = found.keys() - _MEMBERS
        if strange:
            raise ValueError(f"has a member {min(strange)!r}, which no record has")
        key, headers = _bytes_of(found, "key"), _headers(found.get("headers"))
        time, partition = _moment(found.get("time")), _partition(found.get("partition"))
        if _is_tombstone(found):
            if key is None:
                raise ValueError("is a tombstone without a key")
            record = NewRecord.tombstone(key, headers=headers, timestamp_ns=time)
            return Made(record, 0, partition)
        payload = _bytes_of(found | {"value": value} if is_json else found, "value")
        if payload is None:
            raise ValueError("has no value that is text, and no value_base64")
        check(payload)
        return Made(
            NewRecord(payload, key, headers=headers, timestamp_ns=time), len(payload), partition
        )

    return make


def _members(line: bytes) -> tuple[dict[str, Any], str | None]:
    """Read the members of an object, and the text of its member `value` as it was written."""
    try:
        return _scan(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 ({error.reason} at byte {error.start})") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error})") from None


def _scan(text: str) -> tuple[dict[str, Any], str | None]:
    found: dict[str, Any] = {}
    value = None
    at = _skip(text, _expect(text, 0, "{", "a record is a JSON object"))
    is_over = text[at : at + 1] == "}"
    while not is_over:
        at = _skip(text, at)
        if text[at : at + 1] != '"':
            raise json.JSONDecodeError("the name of a member is missing", text, at)
        name, at = _DECODER.raw_decode(text, at)
        if name in found:
            raise ValueError(f"has the member {name!r} twice")
        begin = _skip(text, _expect(text, at, ":", "a colon is missing"))
        found[name], at = _DECODER.raw_decode(text, begin)
        if name == "value":
            value = text[begin:at]
        at = _skip(text, at)
        is_over = text[at : at + 1] == "}"
        if not is_over:
            at = _expect(text, at, ",", "a comma is missing")
    if text[at + 1 :].strip(_SPACE):
        raise json.JSONDecodeError("there is more behind the object", text, at + 1)
    return found, value


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _expect(text: str, at: int, letter: str, why: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != letter:
        raise json.JSONDecodeError(why, text, at)
    return at + 1


def _bytes_of(found: dict[str, Any], name: str) -> bytes | None:
    """Read a member that is text, or Base64 under the other name."""
    text, coded = found.get(name), found.get(f"{name}_base64")
    if coded is not None:
        if text is not None:
            raise ValueError(f"has both {name} and {name}_base64: leave out one of them")
        try:
            if type(coded) is str:
                return b64decode(coded, validate=True)
        except ValueError:
            pass
        raise ValueError(f"has a {name}_base64 that is no Base64")
    if text is None:
        return None
    if type(text) is not str:
        raise ValueError(
            f"has a {name} that is no text"
            + ("; only a topic of JSON (--codec json) takes it" if name == "value" else "")
        )
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"has a {name} with half a character, which is no text") from None


def _is_tombstone(found: dict[str, Any]) -> bool:
    given = found.get("tombstone")
    if given is not True:
        if given is None or given is False:
            return False
        raise ValueError("has a tombstone that is neither true nor false")
    if (found.get("value"), found.get("value_base64")) != (None, None):
        raise ValueError("is a tombstone and has a value: leave out one of them")
    return True


def _headers(given: Any) -> list[tuple[str, bytes | None]] | None:
    if given is None:
        return None
    if not isinstance(given, list):
        raise ValueError("has headers that are no array")
    read = []
    for each in given:
        if not isinstance(each, dict) or type(each.get("name")) is not str:
            raise ValueError("has a header without a name")
        if strange := each.keys() - _HEADER:
            raise ValueError(f"has a header with a member {min(strange)!r}, which no header has")
        try:
            each["name"].encode()
        except UnicodeEncodeError:
            raise ValueError("has a header whose name has half a character") from None
        read.append((each["name"], _bytes_of(each, "value")))
    return read


def _moment(given: Any) -> int | None:
    """Read a time in any form that `--time-format` has; None is now."""
    if given is None:
        return None
    try:
        if isinstance(given, _Number):
            return _time.expect_ns(_whole(given))
        if parts := _UNIX.fullmatch(str(given)):
            return _time.expect_ns(int(parts[1]) * 10**9 + int(parts[2][:9].ljust(9, "0")))
        return _time.to_ns(given)
    except (InvalidArgument, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"has no time that can be read ({error})") from None


def _whole(given: str) -> int:
    if not _INTEGER.fullmatch(given):
        raise ValueError(
            f'a number is a whole one of nanoseconds, not {given[:40]}; write seconds as "1.5"'
        )
    return int(given)


def _partition(given: Any) -> int | None:
    if given is None:
        return None
    if not isinstance(given, _Number) or not given.isdecimal() or len(given) > 9:
        raise ValueError(f"has no partition of the number {given}")
    return int(given)


def _check_of(codec: str) -> Callable[[bytes], object]:
    if codec == "bytes":
        return len
    if codec == "str":
        return _check_text
    if codec == "json":
        return check_readable
    if codec != "msgpack":
        raise Stop(
            f"the topic holds {codec} values, which the command line cannot check: append them "
            "from Python, or copy the store with `falaj backup`"
        )
    unpack = packed().unpackb

    def check(payload: bytes) -> None:
        try:
            unpack(payload)
        except Exception as error:  # noqa: BLE001  # msgpack has many
            raise ValueError(f"has a value that is no msgpack ({error})") from None

    return check


def _check_text(payload: bytes) -> None:
    try:
        payload.decode()
    except UnicodeDecodeError:
        raise ValueError("has a value that is not UTF-8, and the topic holds text") from None
