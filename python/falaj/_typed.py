"""Typed codecs: a class of your own as the codec of a topic, stored as JSON.

Owns how an instance of a dataclass becomes JSON and comes back, and the lines that pydantic and
msgspec need. Invariant: reading returns an equal value for all that `append` accepts. Fields of a
dataclass are checked once, when the codec is made; a type that JSON cannot represent is refused
then. A class whose own code runs when it is made is compared at each append, as models are. Imports
neither pydantic nor msgspec before one of their classes is given. The topic's codec stays "json":
every reader of JSON reads it, and the class is the reader's choice.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import inspect
import sys
import types
import typing
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from falaj._documents import is_odd
from falaj.errors import InvalidArgument

__all__ = ["class_of", "is_class", "pair_of"]

Json = Callable[[Any], bytes]
Change = Callable[[Any], Any]


#: The class of each function that decodes, for pickles of records: such functions do not pickle.
_CLASSES: weakref.WeakKeyDictionary[Change, type[Any]] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class Form:
    """How values of a type are stored: `kinds` are the kinds of JSON that they become."""

    takes: Callable[[Any], bool]
    put: Change
    get: Change
    kinds: frozenset[str]


def is_class(asked: object) -> bool:
    """Return whether it is a class that can be a codec."""
    return isinstance(asked, type) and (
        hasattr(asked, "model_validate_json")
        or hasattr(asked, "__struct_fields__")
        or dataclasses.is_dataclass(asked)
    )


def class_of(decode: Change) -> type[Any] | None:
    """Return the class that a function of `pair_of` decodes; None for any other function."""
    try:
        return _CLASSES.get(decode)
    except TypeError:  # an object of a user that has no hash, or no weak references
        return None


def pair_of(kind: type[Any], to_json: Json, from_json: Change) -> tuple[Json, Change]:
    """Make the two callables of a class, and remember the class.

    Args:
        kind: A dataclass, a model of pydantic, or a Struct of msgspec.
        to_json: Makes JSON of dicts, lists and scalars.
        from_json: Reads it.

    Raises:
        InvalidArgument: A field has a type that JSON cannot represent, or the class is not made
            of its fields.
    """
    encode, decode = _made(kind, to_json, from_json)
    _CLASSES[decode] = kind
    return encode, decode


def _made(kind: type[Any], to_json: Json, from_json: Change) -> tuple[Json, Change]:
    def expect(raw: bytes) -> None:
        to_json(from_json(raw))

    if hasattr(kind, "model_validate_json"):
        return _checked(
            kind,
            lambda value: value.model_dump_json(by_alias=True).encode(),
            kind.model_validate_json,
            expect,
        )
    if hasattr(kind, "__struct_fields__"):
        json = sys.modules["msgspec"].json  # the class is made of it, so it is there

        return _checked(kind, json.Encoder().encode, json.Decoder(kind).decode, expect)
    forms = _Forms()
    form = forms.of(kind, kind.__name__)

    def encode(value: Any) -> bytes:
        if type(value) is not kind:
            raise TypeError(_not_one(kind, value))
        try:
            return to_json(form.put(value))
        except RecursionError:
            raise InvalidArgument(
                f"this {kind.__name__} holds itself, or is nested too deeply for JSON"
            ) from None

    def decode(raw: bytes) -> Any:
        return form.get(from_json(raw))

    return (encode, decode) if forms.are_plain else _checked(kind, encode, decode, expect)


def _not_one(kind: type[Any], value: Any) -> str:
    return f"a topic of {kind.__name__} takes {kind.__name__}, not {type(value).__name__}"


def _checked(kind: type[Any], dump: Json, load: Change, expect: Change) -> tuple[Json, Change]:
    """Compare the value that would be read with the given one: classes have lossy settings.

    `expect` refuses JSON that the codec json would not make.
    """

    def encode(value: Any) -> bytes:
        if type(value) is not kind:
            raise TypeError(_not_one(kind, value))
        try:
            raw = dump(value)
            if is_odd(raw):
                expect(raw)
        except Exception as error:
            raise InvalidArgument(f"this {kind.__name__} cannot become JSON: {error}") from error
        try:
            again = load(raw)
        except Exception as error:
            raise InvalidArgument(
                f"reading would not give this {kind.__name__} back: {error}"
            ) from error
        if not _alike(again, value):
            raise InvalidArgument(
                f"reading would not give this {kind.__name__} back: {again!r} is not {value!r}"[
                    :500
                ]
            )
        return raw

    return encode, load


def _alike(one: Any, other: Any) -> bool:
    """Compare values; those of a class without a comparison by their fields."""
    if one == other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    fields = _fields(one)
    return fields is not None and _alike(fields, _fields(other))


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of an instance whose class compares by them, or does not compare.

    None where the class has a comparison of its own, which counts.
    """
    kind = type(value)
    names: Iterable[str] | None = None
    if dataclasses.is_dataclass(kind):
        names = (field.name for field in dataclasses.fields(kind))
    elif hasattr(kind, "__struct_fields__"):
        names = kind.__struct_fields__
    elif hasattr(kind, "__attrs_attrs__"):  # a field of a Struct may hold one
        names = (field.name for field in kind.__attrs_attrs__)
    elif hasattr(kind, "model_validate_json"):
        names = (*vars(value), "__pydantic_extra__", "__pydantic_private__")
    if names is None or not (_is_made_for(kind, "__eq__") or _is_of_a_library(kind.__eq__)):
        return None
    return {name: getattr(value, name, None) for name in names}


def _is_of_a_library(method: Any) -> bool:
    """Return whether msgspec, pydantic or attrs made a method."""
    owner = getattr(method, "__objclass__", method)  # the class of one that is written in C
    code = getattr(method, "__code__", None)
    return str(owner.__module__).partition(".")[0] in ("msgspec", "pydantic") or (
        code is not None and code.co_filename.startswith("<attrs generated ")
    )


def _is_made_for(kind: type[Any], name: str) -> bool:
    """Return whether a method is that of `object`, or one that `dataclasses` made."""
    found = getattr(kind, name)
    code = getattr(found, "__code__", None)
    return found is getattr(object, name) or (
        code is not None and code.co_qualname.startswith("__create_fn__.")
    )


def _is_plain_class(kind: type[Any], names: Iterable[str]) -> bool:
    """Return whether an instance that is made of its fields has them and is equal.

    This is so where none of its code runs: what `dataclasses` made only sets and compares.
    """
    found = (inspect.getattr_static(kind, name, None) for name in names)
    return (
        type(kind).__call__ is type.__call__
        and all(_is_made_for(kind, name) for name in _MADE)
        and not hasattr(kind, "__post_init__")
        and all(
            type(each) is types.MemberDescriptorType or not hasattr(each, "__get__")
            for each in found
        )
    )


#: The methods that say what an instance has, after it was made of its fields.
_MADE = ("__new__", "__init__", "__setattr__", "__getattribute__", "__eq__")


class _Forms:
    """The forms of all types in one class, each made once: a class may refer to itself."""

    def __init__(self) -> None:
        self._made: dict[type[Any], Form] = {}
        #: Whether none of the classes has code that could change its fields.
        self.are_plain = True

    def of(self, hint: Any, where: str) -> Form:
        """Return the form of a type.

        Args:
            hint: The annotation.
            where: Class and field, for a refusal.
        """
        if hint is None or hint is types.NoneType:
            return _NONE
        if hint is Any or hint is object:
            return _ANY
        if isinstance(hint, typing.NewType):
            return self.of(hint.__supertype__, where)
        origin, given = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self.of(given[0], where)
        if origin is typing.Literal:
            return _literal(given, where)
        if origin in (typing.Union, types.UnionType):
            return self._union([self.of(each, where) for each in given], hint, where)
        kind = origin or hint
        if kind in (list, set, frozenset):
            return self._sequence(kind, self.of(given[0], where) if given else _ANY)
        if kind is tuple:
            return self._tuple(given, where)
        if kind is dict:
            return self._dict(given, where)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _enum(kind, where)
        if found := _SCALARS.get(kind):
            return found
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and not given:
            return self._dataclass(kind)
        raise InvalidArgument(
            f"{where} is {_name(hint)}, which JSON does not give back: use text, numbers, lists, "
            "dicts, times, enums or dataclasses, or give a falaj.Codec(name, encode, decode)"
        )

    def _dataclass(self, kind: type[Any]) -> Form:
        if kind in self._made:
            return self._made[kind]
        fields: dict[str, Form] = {}
        form = Form(
            lambda value: type(value) is kind,
            lambda value: {
                name: _put(each, getattr(value, name), name) for name, each in fields.items()
            },
            lambda found: kind(
                **{n: fields[n].get(v) for n, v in _object(found).items() if n in fields}
            ),
            frozenset(("object",)),
        )
        self._made[kind] = form
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except (NameError, AttributeError, TypeError, SyntaxError) as error:
            raise InvalidArgument(
                f"the annotations of {kind.__name__} cannot be read ({error}): define what they "
                "name in the module of the class"
            ) from None
        for field in dataclasses.fields(kind):
            where = f"{kind.__name__}.{field.name}"
            if not field.init:
                raise InvalidArgument(f"{where} has init=False, so reading could not set it")
            fields[field.name] = self.of(hints[field.name], where)
        self.are_plain = self.are_plain and _is_plain_class(kind, fields)
        try:
            inspect.signature(kind).bind(**dict.fromkeys(fields))
        except TypeError as error:
            raise InvalidArgument(
                f"{kind.__name__} cannot be made of its fields {', '.join(fields)} ({error}), so "
                "reading could not: let its __init__ take them, or give a falaj.Codec(name, "
                "encode, decode)"
            ) from None
        except ValueError:
            self.are_plain = False  # it does not say what it takes
        return form

    @staticmethod
    def _union(forms: list[Form], hint: Any, where: str) -> Form:
        kinds = [kind for form in forms for kind in form.kinds]
        if len(kinds) != len(set(kinds)):
            raise InvalidArgument(
                f"{where} is {_name(hint)}, and two of these are the same in JSON: reading could "
                "not say which one a value was"
            )

        def put(value: Any) -> Any:
            return next(form for form in forms if form.takes(value)).put(value)

        def get(found: Any) -> Any:
            kind = _kind(found)
            for form in forms:
                if kind in form.kinds:
                    return form.get(found)
            raise ValueError(f"{where} is {_name(hint)}, not {found!r}")

        return Form(lambda v: any(form.takes(v) for form in forms), put, get, frozenset(kinds))

    @staticmethod
    def _sequence(kind: Any, each: Form) -> Form:
        return Form(
            lambda value: type(value) is kind and all(map(each.takes, value)),
            lambda value: [each.put(item) for item in value],
            lambda found: kind(each.get(item) for item in _array(found)),
            frozenset(("array",)),
        )

    def _tuple(self, given: tuple[Any, ...], where: str) -> Form:
        if not given or given[-1] is Ellipsis:
            return self._sequence(tuple, self.of(given[0], where) if given else _ANY)
        forms = [self.of(each, where) for each in given]
        return Form(
            lambda value: (
                type(value) is tuple
                and len(value) == len(forms)
                and all(form.takes(item) for form, item in zip(forms, value, strict=True))
            ),
            lambda value: [form.put(item) for form, item in zip(forms, value, strict=True)],
            lambda found: tuple(
                form.get(item) for form, item in zip(forms, _array(found), strict=True)
            ),
            frozenset(("array",)),
        )

    def _dict(self, given: tuple[Any, ...], where: str) -> Form:
        if given and given[0] is not str:
            raise InvalidArgument(f"{where} has keys of {_name(given[0])}: keys of JSON are str")
        each = self.of(given[1], where) if given else _ANY
        return Form(
            lambda value: (
                type(value) is dict
                and all(type(key) is str and each.takes(item) for key, item in value.items())
            ),
            lambda value: {key: each.put(item) for key, item in value.items()},
            lambda found: {key: each.get(item) for key, item in _object(found).items()},
            frozenset(("object",)),
        )


def _put(form: Form, value: Any, name: str) -> Any:
    if not form.takes(value):
        raise TypeError(
            f"the field {name} cannot be {_short(value)}: its annotation says otherwise"
        )
    return form.put(value)


def _kind(found: Any) -> str:
    return _KINDS[type(found)]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else type(value).__name__


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _object(found: Any) -> dict[str, Any]:
    if type(found) is not dict:
        raise ValueError(f"{_short(found)} is no object of JSON")
    return found


def _array(found: Any) -> list[Any]:
    if type(found) is not list:
        raise ValueError(f"{_short(found)} is no array of JSON")
    return found


def _literal(given: tuple[Any, ...], where: str) -> Form:
    if not all(type(each) in (str, int, bool, types.NoneType) for each in given):
        raise InvalidArgument(f"{where} is a Literal of something that JSON does not give back")

    def is_one(value: Any) -> bool:
        return any(type(each) is type(value) and each == value for each in given)

    def get(found: Any) -> Any:
        if is_one(found):
            return found
        raise ValueError(f"{_short(found)} is none of {given}")

    return Form(is_one, _same, get, frozenset(map(_kind, given)))


def _enum(kind: type[enum.Enum], where: str) -> Form:
    values = [each.value for each in kind]
    if not all(type(each) in (str, int) for each in values):
        raise InvalidArgument(
            f"{where} is the enum {kind.__name__}, whose values are no text or int"
        )
    return Form(
        lambda value: type(value) is kind,
        lambda value: value.value,
        kind,
        frozenset(map(_kind, values)),
    )


def _same(value: Any) -> Any:
    return value


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is list:
        return all(map(_is_plain, value))
    if kind is dict:
        return all(type(key) is str and _is_plain(each) for key, each in value.items())
    return kind in _KINDS


def _exact(kind: type[Any], *also: type[Any]) -> Form:
    kinds = (kind, *also)

    def get(found: Any) -> Any:
        if type(found) in kinds:
            return found
        raise ValueError(f"{_short(found)} is no {kind.__name__}")

    return Form(lambda value: type(value) in kinds, _same, get, frozenset((_KINDS[kind],)))


def _as(kind: type[Any], put: Change, get: Change, *, number: bool = False) -> Form:
    """Store a type as text or a number; a value that does not come back equal is refused."""
    kept = "number" if number else "text"

    def checked(value: Any) -> Any:
        made = put(value)
        if get(made) != value:
            raise InvalidArgument(
                f"{value!r} would not come back equal: give another {kind.__name__}, and times "
                "of an hour that the clock repeats in UTC"
            )
        return made

    def read(found: Any) -> Any:
        if _KINDS[type(found)] != kept:
            raise ValueError(f"{_short(found)} is no {kind.__name__}")
        return get(found)

    return Form(lambda value: type(value) is kind, checked, read, frozenset((kept,)))


_KINDS: dict[type[Any], str] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "bool",
    types.NoneType: "null",
    list: "array",
    dict: "object",
}
_NONE = _exact(types.NoneType)
_ANY = Form(_is_plain, _same, _same, frozenset(_KINDS.values()))
_SCALARS: dict[Any, Form] = {
    str: _exact(str),
    int: _exact(int),
    bool: _exact(bool),
    float: _exact(float, int),
    bytes: _as(
        bytes, lambda v: base64.b64encode(v).decode(), lambda t: base64.b64decode(t, validate=True)
    ),
    datetime: _as(datetime, datetime.isoformat, datetime.fromisoformat),
    date: _as(date, date.isoformat, date.fromisoformat),
    time: _as(time, time.isoformat, time.fromisoformat),
    timedelta: _as(timedelta, timedelta.total_seconds, lambda n: timedelta(seconds=n), number=True),
    Decimal: _as(Decimal, str, Decimal),
    UUID: _as(UUID, str, UUID),
}
