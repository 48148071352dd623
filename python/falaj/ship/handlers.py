"""`pass_on`, `ignored`, `closed`: what a signal's handler raised, apart from what a call did.

Python runs the handlers of signals between any two steps of the main thread. So `except OSError`
around some steps also meets what a handler raised there, such as a `TimeoutError` at a deadline.
The program that set the handler waits for exactly that exception. Narrow `try` blocks are not
enough: a handler also runs where a system call returns. So all of `falaj.ship` that catches errors
of calls asks here, and raises the exception of a handler again as it is.

A generator that is left unfinished is closed by its finalizer, where Python prints exceptions and
goes on. So a listing is read in a block of `closed`.

Python calls a handler with the frame that it interrupted, which is the caller of the handler's own
frame. No other function gets its caller's frame as an argument. This tells a handler, also one that
set another in its place before it raised.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from types import FrameType, TracebackType

__all__ = ["closed", "ignored", "is_handlers", "pass_on", "remove_tree"]

T = TypeVar("T")

_VARARGS = 0x04  # inspect.CO_VARARGS, without that import


def is_handlers(error: BaseException) -> bool:
    """Tell whether a signal's handler raised an exception that was caught."""
    at = error.__traceback__
    while at is not None:
        if _is_handler(at.tb_frame):
            return True
        at = at.tb_next
    return False


def _is_handler(frame: FrameType) -> bool:
    caller, code = frame.f_back, frame.f_code
    if caller is None:
        return False
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[: count + bool(code.co_flags & _VARARGS)]
    if not names or str(frame.f_globals.get("__name__")).startswith("falaj.ship."):
        return False  # the values of a frame that is asked for them live longer
    for name in names:
        value = frame.f_locals.get(name)
        if value is caller or (type(value) is tuple and any(each is caller for each in value)):
            return True
    return False


def pass_on(error: BaseException) -> None:
    """Raise an exception that was caught again if a signal's handler raised it."""
    if is_handlers(error):
        raise error


class ignored:  # noqa: N801  # as contextlib.suppress
    """As `contextlib.suppress`, but for what a signal's handler raised."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return isinstance(error, self._kinds) and not is_handlers(error)


class closed(Generic[T]):  # noqa: N801  # as contextlib.closing
    """As `contextlib.closing`, for an iterator that may be a generator."""

    def __init__(self, iterator: Iterator[T]) -> None:
        self._iterator = iterator

    def __enter__(self) -> Iterator[T]:
        """Return the iterator."""
        return self._iterator

    def __exit__(self, *_: object) -> None:
        """Close it, if it is a generator."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory with all that is in it, as far as that can be."""
    if sys.version_info >= (3, 12):
        shutil.rmtree(path, onexc=lambda call, name, error: pass_on(error))
    else:
        shutil.rmtree(path, onerror=lambda call, name, failed: pass_on(failed[1]))
