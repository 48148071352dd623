"""Functions of users that falaj calls: each does its work when it is called, and awaits nothing.

The call of a coroutine function, or of a generator function, runs none of it. Where that can be
known, the function is refused before anything changes. Else what it returned is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from functools import partial, wraps
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any

from falaj._checks import function
from falaj.errors import named

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Unfinished", "callback", "finished", "plain_function"]

_UNFINISHED = (Awaitable, GeneratorType, AsyncGeneratorType)


class Unfinished(TypeError):
    """A function of the user's returned what has yet to run, such as a coroutine."""


def plain_function(value: Any, what: str) -> None:
    """Check a function that does its work when it is called, or None.

    Raises:
        TypeError: It cannot be called, or is a coroutine function or a generator function.
    """
    function(value, what)
    if value is not None and (kind := _unfinished_kind(value)) is not None:
        raise TypeError(
            f"{what} is called without await, and a {kind} would not run: it is a plain function, "
            f"not a {kind}"
        )


def _unfinished_kind(value: Any) -> str | None:
    """Return the kind of a function whose call does no work; None for a plain function."""
    import inspect  # it takes its time, and few programs have such functions

    while isinstance(value, partial):
        value = value.func
    for each in (value, type(value).__call__):
        if inspect.iscoroutinefunction(each):
            return "coroutine function"
        if inspect.isasyncgenfunction(each):
            return "async generator function"
        if inspect.isgeneratorfunction(each):
            return "generator function"
    return None


def finished(value: Any, what: str) -> Any:
    """Check what a function of the user's returned: its work is done, or was nothing to wait for.

    Raises:
        Unfinished: It is a coroutine, something else that is awaited, or a generator.
    """
    if value is None or not isinstance(value, _UNFINISHED):
        return value
    if isinstance(value, Coroutine | GeneratorType):
        with suppress(Exception):  # of its own code, if it had begun
            value.close()
    raise Unfinished(
        f"{what} returned {named(value)}, which has yet to run: it is called without await, so "
        "give a plain function that does its work"
    )


def callback(value: Callable[..., Any] | None, what: str) -> Callable[..., Any] | None:
    """Check a plain function, or None, and make one that checks each result by `finished`."""
    plain_function(value, what)
    if value is None:
        return None

    @wraps(value, updated=())
    def checked(*given: Any) -> Any:
        return finished(value(*given), what)

    return checked
