"""Codecs: conversions between Python values and the bytes of records.

A codec has a name, which the topic stores, so that no program reads JSON as text by mistake.
`encode` makes bytes from a value; `decode` gets `bytes`. Records keep their bytes until `value` is
used.

Invariant: for json, msgpack, str and bytes, `decode` returns an equal value for all that `encode`
accepts, except tuples, which return as lists. Values that the formats would accept and not return
are refused before encoding (rust/py/src/plain.rs).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from falaj import _core
from falaj._checks import text
from falaj.errors import InvalidArgument, MissingExtra, named

if TYPE_CHECKING:
    from collections.abc import Callable
    from json import JSONEncoder

    Pair = tuple[Callable[[Any], Any] | None, Callable[[bytes], Any] | None]

T = TypeVar("T")

__all__ = ["JSON", "RAW", "Codec", "resolver"]

#: Python reads whole numbers of more digits only after a change of its limit.
_DIGITS = 4300
_PLAIN = {str, int, float, bool, type(None)}


class Codec(Generic[T]):
    """A codec of your own: a name, and a pair of callables.

    falaj does not check that `decode` returns what `encode` was given: that is your part.

    Example:
        >>> celsius = Codec("celsius", lambda t: f"{t:.1f}".encode(), lambda raw: float(raw))
        >>> celsius.decode(celsius.encode(21.55))
        21.6
    """

    __slots__ = ("decode", "encode", "name")

    def __init__(
        self, name: str, encode: Callable[[T], bytes], decode: Callable[[bytes], T]
    ) -> None:
        from falaj._functions import plain_function  # few have a codec of their own

        self.name = text(name, "the name of a codec")
        for what, each in (("encode", encode), ("decode", decode)):
            if not callable(each):
                raise TypeError(f"{what} is a function of a value, not {named(each)}")
            plain_function(each, what)
        self.encode = encode
        self.decode = decode

    def __repr__(self) -> str:
        return f"falaj.Codec({self.name!r}, {self.encode!r}, {self.decode!r})"


class _Raw(Codec[memoryview]):
    """The class of `RAW`, which is recognised by identity: copies and pickles of it are itself."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name, self.encode, self.decode = "any", bytes, memoryview

    def __reduce__(self) -> str:
        return "RAW"


#: Reads any topic without its codec: values are views of the payloads. Records appended through
#: such a handle are stored as they are given. It creates no topic.
RAW: Codec[memoryview] = _Raw()


class JSON(Codec[Any]):
    """The codec `"json"` with a function for values that JSON does not have.

    The result of `default` is stored, and reading returns it: a `Decimal` that became text returns
    as text. The topic's codec is "json", so every reader of JSON reads it.

    Args:
        default: Gets each value that is no dict, list, tuple, str, int, float, bool or None, nor of
            a class derived from them. Returns something that JSON has, or raises `TypeError`. Keys
            of dicts are text, as for "json".

    Example:
        >>> from datetime import date
        >>> days = store.topic("days", codec=JSON(default=date.isoformat))
        >>> days.append({"day": date(2026, 11, 27)})
        0
        >>> days[0].value
        {'day': '2026-11-27'}
    """

    __slots__ = ()

    def __init__(self, *, default: Callable[[Any], Any]) -> None:
        if not callable(default):
            raise TypeError(f"default is a function of a value, not {type(default).__name__}")
        super().__init__("json", _Changing(default), _json()[1])


class _Changing:
    """Encodes for `JSON`; it pickles if `default` does."""

    __slots__ = ("_default", "_encode", "_finished")

    def __init__(self, default: Callable[[Any], Any]) -> None:
        from falaj._functions import finished, plain_function  # few give a default

        plain_function(default, "default")
        self._default, self._finished = default, finished
        self._encode, _ = _json()

    def __reduce__(self) -> tuple[type[_Changing], tuple[Callable[[Any], Any]]]:
        return _Changing, (self._default,)

    def __call__(self, value: Any) -> bytes:
        try:
            return self._encode(self._change(self._shown(value)))
        except RecursionError:
            raise InvalidArgument(
                f"{named(value)} has no end: default returns again what JSON does not have; let it "
                "return text, a number or a list"
            ) from None

    @staticmethod
    def _shown(value: Any) -> Any:
        """Refuse a dict or list that shows other items than it has, before it is built again."""
        _core._expect_json(value, False)
        return value

    def _change(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, dict):
            return {key: self._change(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._change(each) for each in value]
        if isinstance(value, str | int | float):
            return value  # as "json" writes it: a number of NumPy, a member of an enum
        return self._change(self._shown(self._finished(self._default(value), "default")))


def resolver(
    asked: str | Codec[Any] | type[Any] | None,
) -> tuple[str | None, Callable[[str], Pair]]:
    """Return the name of the requested codec, and a function that finds its callables."""
    if asked is None:
        return None, _stored
    if asked is RAW:
        return None, lambda _: (None, None)
    if isinstance(asked, str) and asked == "raw":
        return "bytes", lambda _: (None, None)
    if isinstance(asked, JSON):
        json_pair: Pair = (asked.encode, asked.decode)
        return asked.name, lambda _: json_pair
    if isinstance(asked, type):
        typed = _typed(asked)
        return "json", lambda _: typed
    if isinstance(asked, Codec):
        if asked.name in _BUILT_IN:
            raise InvalidArgument(
                f"{asked.name!r} is one of falaj's own codecs; name yours otherwise"
            )
        pair: Pair = (asked.encode, asked.decode)
        return asked.name, lambda _: pair
    if not isinstance(asked, str):
        raise TypeError(
            "codec is a name, a class of your own or a falaj.Codec(name, encode, decode), not "
            f"{named(asked)}"
        )
    pair = _built_in(asked)
    return asked, lambda _: pair


def _typed(kind: type[Any]) -> Pair:
    from falaj import _typed as typed  # most topics have no class

    if not typed.is_class(kind):
        raise TypeError(
            f"the class {kind.__name__} cannot be a codec: give a dataclass, a model of pydantic, "
            "a Struct of msgspec, or falaj.Codec(name, encode, decode)"
        )
    encode, decode = _json()
    return typed.pair_of(kind, encode, decode)


def _stored(name: str) -> Pair:
    if name == "bytes":
        return None, None
    if name == "pickle":
        raise InvalidArgument(
            "the topic holds pickles, which run code when they are read: if you trust its writers, "
            'open it with codec="pickle"'
        )
    if name not in _BUILT_IN:
        raise InvalidArgument(
            f"the topic has the codec {name!r}, which is not one of falaj's own: open it with "
            f"codec=falaj.Codec({name!r}, encode, decode)"
        )
    return _built_in(name)


def _built_in(name: str) -> Pair:
    make = _BUILT_IN.get(name)
    if make is None:
        raise InvalidArgument(
            f"there is no codec {name!r}: choose one of {', '.join(map(repr, _BUILT_IN))}, or give "
            "falaj.Codec(name, encode, decode)"
        )
    return make()


def _raw() -> Pair:
    return None, None


def _bytes() -> Pair:
    return None, bytes


def _half(error: UnicodeEncodeError) -> InvalidArgument:
    return InvalidArgument(
        "text is kept as UTF-8, which has no half characters: replace "
        f"{error.object[error.start]!r}"
    )


def _encode_str(value: str) -> bytes:
    if value is None:
        raise TypeError(
            "None is no text: to delete a key, call tombstone(key), or give extend() a "
            "NewRecord.tombstone(key)"
        )
    if not isinstance(value, str):
        raise TypeError(f"a topic of str takes str, not {type(value).__name__}: make it text")
    try:
        return str.encode(value)
    except UnicodeEncodeError as error:
        raise _half(error) from None


def _str() -> Pair:
    return _encode_str, bytes.decode


def _not_json(value: Any) -> Any:
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    raise TypeError(
        f"JSON has no {name}: make it text, a number, a list or a dict, or open "
        "the topic with codec=falaj.JSON(default=…)"
    )


def _json() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    import json  # a topic of bytes does not need it

    # Not orjson where it is there: what a topic holds must not depend on what is installed. And no
    # NaN, which is not JSON, so that other readers can rely on it. A value that holds itself was
    # refused before it comes there.
    encoder = json.JSONEncoder(
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
        check_circular=False,
        default=_not_json,
    )
    text, dumps, expect = encoder.encode, _kept(encoder), _core._expect_json

    def encode(value: Any) -> bytes:
        try:
            if isinstance(value, str):
                return text(value).encode()
            expect(value, False)
            raw = dumps(value).encode()
        except UnicodeEncodeError as error:
            raise _half(error) from None
        except ValueError:
            expect(value, True)
            raise
        if len(raw) > _DIGITS and not 0 < sys.get_int_max_str_digits() <= _DIGITS:
            expect(value, True)  # this process may write longer numbers than others read
        return raw

    return encode, json.loads


def _kept(encoder: JSONEncoder) -> Callable[[Any], str]:
    """Cache what `encoder.encode` makes in C for each value, at the cost of a small value."""
    from json import encoder as own

    probe: Any = {"text": ['\x00"\u00fc', 1, -1.5e300, True, None, {}, []]}
    try:
        make, text = own.c_make_encoder, own.encode_basestring  # type: ignore[attr-defined]
        pieces = make(None, encoder.default, text, None, ":", ",", False, False, False)
        if "".join(pieces(probe, 0)) != encoder.encode(probe):
            return encoder.encode
    except (AttributeError, TypeError):  # it is no part of what Python promises
        return encoder.encode
    join = "".join
    return lambda value: join(pieces(value, 0))


def _msgpack() -> Pair:
    try:
        from msgpack import Packer, unpackb
    except ImportError:
        raise MissingExtra(
            "the codec msgpack needs a package: pip install 'falaj[msgpack]'"
        ) from None
    expect = _core._expect_msgpack

    def encode(value: Any) -> bytes:
        expect(value, False)
        try:
            packed: bytes = Packer().pack(value)
        except UnicodeEncodeError as error:
            raise _half(error) from None
        except TypeError as error:
            raise TypeError(
                f"msgpack has text, bytes, numbers, lists and dicts: make it one of them ({error})"
            ) from None
        except (ValueError, OverflowError):
            expect(value, True)
            raise
        return packed

    return encode, unpackb


def _pickle() -> Pair:
    import pickle

    def encode(value: Any) -> bytes:
        try:
            return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except RecursionError:
            raise InvalidArgument(
                f"{named(value)} is nested too deeply for pickle: append its parts"
            ) from None
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidArgument(
                f"{named(value)} cannot be pickled, so append plain data of it: {error}"
            ) from error

    return encode, pickle.loads


_BUILT_IN: dict[str, Callable[[], Pair]] = {
    "raw": _raw,
    "bytes": _bytes,
    "str": _str,
    "json": _json,
    "msgpack": _msgpack,
    "pickle": _pickle,
}
