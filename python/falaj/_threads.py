"""Threads and locks of the operating system, whatever a library made of Python's.

gevent and eventlet make `threading` and `_thread` begin green threads. One of those would hold up
all others while it waits, and runs only when the others let it. So this uses a `_thread` of its
own. The thread of `_wait` and the heartbeat of `_work` begin here.
"""

from __future__ import annotations

from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Lock
    from types import ModuleType

__all__ = ["begin_thread", "new_lock"]


def _own() -> ModuleType:
    spec = BuiltinImporter.find_spec("_thread")
    assert spec is not None, "the module is part of the interpreter"
    own = module_from_spec(spec)
    BuiltinImporter.exec_module(own)
    return own


_THREAD = _own()


def begin_thread(run: Callable[..., None], *given: Any, begun: list[int] | None = None) -> None:
    """Run a function in a thread of the operating system.

    Args:
        run: The function.
        *given: Its arguments.
        begun: Gets the number of the thread. No exception of a signal's handler comes between the
            start and that, since both are one call in C.
    """
    ([] if begun is None else begun).extend(map(_THREAD.start_new_thread, (run,), (given,)))


def new_lock() -> Lock:
    """Make a lock that holds up threads of the operating system."""
    made: Lock = _THREAD.allocate_lock()
    return made
