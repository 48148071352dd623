"""Checks of arguments that Python would take as something else, such as text as True.

Each refuses a wrong value before anything changes, in a sentence that names the argument. Whole
numbers and durations are in `_numbers`; what the compiled half takes is checked there.
Functions of users are checked in `_functions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from falaj.errors import InvalidArgument, NotWritable, TopicFinished, named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from falaj._any_topic import AnyTopic

__all__ = ["choice", "flag", "function", "mapping", "name", "optional_flag", "text", "writable"]


def flag(value: Any, what: str) -> bool:
    """Check True or False.

    Raises:
        TypeError: It is neither; text such as "no" is true in Python.
    """
    if value is True or value is False:
        return bool(value)
    raise TypeError(f"{what} is True or False, not {named(value)}")


def optional_flag(value: Any, what: str) -> bool | None:
    """Check True or False, or None for the default."""
    return None if value is None else flag(value, what)


def choice(value: Any, what: str, *words: str | None) -> Any:
    """Check that a value is one of some words; None may be one of them.

    Raises:
        InvalidArgument: It is none of them.
    """
    if (value is None or type(value) is str) and value in words:
        return value
    shown = ["None" if word is None else f'"{word}"' for word in words]
    raise InvalidArgument(f"{what} is {', '.join(shown[:-1])} or {shown[-1]}, not {named(value)}")


def function(value: Any, what: str) -> None:
    """Check a function, or None.

    Raises:
        TypeError: It cannot be called.
    """
    if value is not None and not callable(value):
        raise TypeError(f"{what} is a function, not {named(value)}")


def writable(topic: AnyTopic[Any], what: str) -> None:
    """Check that a topic can be appended to.

    Raises:
        NotWritable: Its store is open for reading.
        TopicFinished: It is finished.
    """
    if not topic.store.writable:
        raise NotWritable(
            f"{what} is topic {topic.name!r} of a store that is open for reading: give a topic of "
            "a store that is open for writing"
        )
    if topic.finished:
        raise TopicFinished(f"{what} is topic {topic.name!r}, which is finished: give another")


def name(value: Any, what: str) -> str:
    """Check that a name is text; the engine says which characters a name may have.

    Raises:
        TypeError: It is no text.
    """
    if isinstance(value, str):
        return value
    raise TypeError(f"{what} is text, not {type(value).__name__}")


def text(value: Any, what: str) -> str:
    """Check text.

    Raises:
        TypeError: It is no text.
        InvalidArgument: It holds half a character.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} is text, not {named(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{what} is text, and {value!r} is not UTF-8: it holds half a character"
        ) from None
    return value


def mapping(value: Any, what: str, of: str) -> Mapping[Any, Any]:
    """Check a dict or the like.

    Raises:
        TypeError: It is none.
    """
    if not hasattr(value, "items"):
        raise TypeError(f"{what} is a dict of {of}, not {named(value)}")
    found: Mapping[Any, Any] = value
    return found
