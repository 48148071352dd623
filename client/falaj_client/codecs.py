"""The codecs, which make bytes of values: the built-in ones, and `Codec` for one of your own.

A codec has the same name and the same bytes as in the package falaj. So a value that a client
appends is the value that a native reader gets. A value that the codec could not give back is
refused before it is sent.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from falaj_client._plain import VALUE, plain_bytes
from falaj_client.errors import InvalidArgument, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

__all__ = ["RAW", "Codec", "is_built_in", "resolve"]

#: Most lists and dicts inside one another; more are refused by readers.
_DEEPEST = 128
#: Whole numbers of this many bits have at most 4300 digits, which Python reads.
_LONGEST = 14_284


@dataclass(frozen=True)
class Codec(Generic[T]):
    """A codec of your own: its name, and functions from values to bytes and back.

    Example:
        >>> Codec("upper", str.encode, lambda raw: raw.decode().upper()).decode(b"tea")
        'TEA'
    """

    name: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]


def resolve(asked: str | Codec[Any] | None, stored: str | None) -> Codec[Any]:
    """Find the codec of a topic.

    Args:
        asked: A name, a codec, or None for what the topic has.
        stored: The name that the topic has; None where it has no codec yet.

    Raises:
        TypeError: `asked` is neither.
        InvalidArgument: There is no such codec here.
    """
    if asked is None:
        asked = stored or "raw"
    if asked is RAW:
        return Codec(stored or "bytes", _encode_bytes, bytes)
    if not isinstance(asked, str):
        parts = [getattr(asked, part, None) for part in ("name", "encode", "decode")]
        if not isinstance(parts[0], str) or not all(map(callable, parts[1:])):
            raise TypeError(
                "codec is a name, or falaj_client.Codec(name, encode, decode), not "
                f"{type(asked).__name__}"
            )
        if parts[0] in _BUILT_IN:
            raise InvalidArgument(
                f"{parts[0]!r} is one of falaj's own codecs; name yours otherwise"
            )
        return asked
    make = _BUILT_IN.get(asked)
    if make is None:
        raise InvalidArgument(
            f"the client has no codec {asked!r}: choose one of {', '.join(map(repr, _BUILT_IN))}, "
            f"or give falaj_client.Codec({asked!r}, encode, decode)"
        )
    return make()


def is_built_in(name: str) -> bool:
    """Return whether it is a codec whose refusals are sentences."""
    return name in _BUILT_IN


def _encode_bytes(value: Any) -> bytes:
    return plain_bytes(value, VALUE)


def _encode_str(value: Any) -> bytes:
    if value is None:
        raise TypeError("None is no text: to delete a key, call tombstone(key)")
    if not isinstance(value, str):
        raise TypeError(f"a topic of str takes str, not {type(value).__name__}: make it text")
    return _utf8(value)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"text is kept as UTF-8, which has no half characters: replace {text[error.start]!r}"
        ) from None


def _encode_json(value: Any) -> bytes:
    _expect(value, 0, "json")
    return _utf8(_JSON.encode(value))


def _not_json(value: Any) -> Any:
    raise TypeError(f"JSON has no {type(value).__name__}: make it text, a number, a list or a dict")


_JSON = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_not_json
)


def _msgpack() -> Codec[Any]:
    try:
        import msgpack
    except ImportError:
        raise MissingExtra(
            "the codec msgpack needs a package: pip install 'falaj-client[msgpack]'"
        ) from None

    def encode(value: Any) -> bytes:
        _expect(value, 0, "msgpack")
        try:
            packed: bytes = msgpack.packb(value)
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"text is kept as UTF-8, which has no half characters: {error}"
            ) from None
        except TypeError as error:
            raise TypeError(
                f"msgpack has text, bytes, numbers, lists and dicts: make it one of them ({error})"
            ) from None
        return packed

    return Codec("msgpack", encode, msgpack.unpackb)


def _expect(value: Any, depth: int, form: str) -> None:
    """Refuse a value that a reader would not get back."""
    if value is None or isinstance(value, str | bool):
        return
    if isinstance(value, int):
        _expect_whole(value, form)
    elif isinstance(value, float):
        if form == "json" and not math.isfinite(value):
            raise InvalidArgument(f"JSON has no {value}: give None or text instead")
    elif isinstance(value, dict | list | tuple):
        if depth == _DEEPEST:
            raise InvalidArgument(
                f"the value holds itself, or lists and dicts more than {_DEEPEST} deep, which "
                "readers refuse"
            )
        if type(value) not in (dict, list, tuple):
            value = _shown(value)
        if isinstance(value, dict):
            _expect_keys(value, form)
            value = value.values()
        for each in value:
            _expect(each, depth + 1, form)
    elif form == "msgpack" and isinstance(value, memoryview):
        plain_bytes(value, "a memoryview in a value")


def _shown(value: Any) -> Any:
    """Return what the iteration of a class of its own gives, if that is what compares equal."""
    given: Any
    held: Any
    if isinstance(value, dict):
        pairs = list(value.items())
        given, count, plain, held = dict(pairs), len(pairs), "dict", dict(dict.items(value))
    else:
        base: Any = list if isinstance(value, list) else tuple
        given, plain, held = list(value), base.__name__, list(base.__iter__(value))
        count = len(given)
    if given == held and count == len(held) == len(value):
        return given
    raise InvalidArgument(
        f"{type(value).__name__} derives from {plain} and shows other items than it holds, so "
        f"reading would not give it back: give {plain}(value)"
    )


def _expect_whole(value: int, form: str) -> None:
    if form == "json" and value.bit_length() > _LONGEST:
        raise InvalidArgument(
            "Python reads whole numbers of up to 4300 digits from JSON, and the value holds a "
            "longer one: give it as text"
        )
    if form == "msgpack" and not -(1 << 63) <= value < 1 << 64:
        raise InvalidArgument(
            "msgpack has whole numbers from -2**63 to 2**64 - 1, and the value holds one beyond: "
            "give it as text"
        )


def _expect_keys(value: dict[Any, Any], form: str) -> None:
    kinds, words = ((str,), "text") if form == "json" else ((str, bytes), "text or bytes")
    for key in value:
        if not isinstance(key, kinds):
            raise TypeError(
                f"in a topic of {form} the keys of a dict are {words}, not {type(key).__name__}: "
                f"{key!r} would not be read back; make it text"
            )


#: Reads and writes the bytes of a topic of any codec, without the codec.
RAW: Codec[bytes] = Codec("", _encode_bytes, bytes)

_BUILT_IN: dict[str, Callable[[], Codec[Any]]] = {
    "raw": lambda: Codec("bytes", _encode_bytes, bytes),
    "bytes": lambda: Codec("bytes", _encode_bytes, bytes),
    "str": lambda: Codec("str", _encode_str, bytes.decode),
    "json": lambda: Codec("json", _encode_json, json.loads),
    "msgpack": _msgpack,
}
