"""Requests that no signal ends, each in a thread that its caller can leave.

Owns the threads, and how long a caller waits. A library such as obstore returns when it has an
answer, and looks at no signal and at no `stop` meanwhile. So each of its requests runs in a thread
of this module. The caller's wait ends with the answer, with the exception of a signal's handler, or
as its `Waits` say. The request goes on alone then, and its result is dropped. Invariant: a request
that writes is never left because it takes long. Its outcome is unknown, so it is left only where
its caller ends, as if the process died then. `objects.Patience` makes the `Waits`, `bucket` the
requests.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NoAnswer", "Stopped", "Waits", "ask", "with_waits_of_this_thread"]

LOOK_S = 0.1
"""Seconds after which a wait looks whether it is to end."""
IDLE_S = 30.0
"""Seconds after which a thread without work ends."""

T = TypeVar("T")


class Stopped(Exception):
    """The process was asked to stop while it waited for the place."""


class NoAnswer(Exception):
    """A request got no answer for so many seconds, and was left alone."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Waits:
    """How long a thread waits for the answers to its requests, as a context manager.

    Args:
        seconds: For how long a place may be silent; None is without end.
        last_s: Seconds that a request may still take once it is to stop.
        is_stopped: Tells whether it is to stop.
    """

    def __init__(
        self, seconds: float | None, last_s: float, is_stopped: Callable[[], bool]
    ) -> None:
        self._seconds, self._last_s, self._is_stopped = seconds, last_s, is_stopped
        self._heard = time.monotonic()
        self._outer: Waits | None = None

    def __enter__(self) -> Waits:
        """Let the requests of this thread wait like this."""
        self._outer, _own.waits = _own.waits, self
        return self

    def __exit__(self, *_: object) -> None:
        """Let them wait as before."""
        _own.waits = self._outer

    def wait(self, request: _Request[Any], least_s: float, writes: bool) -> None:
        """Wait for a request.

        Raises:
            Stopped: It is to stop.
            NoAnswer: The place was silent for too long.
        """
        ends: float | None = None
        silence = None if writes or self._seconds is None else max(self._seconds, least_s)
        look = LOOK_S if silence is None else min(LOOK_S, silence)
        while not request.done.acquire(timeout=look):
            now = time.monotonic()
            if self._is_stopped():
                ends = now + self._last_s if ends is None else ends
                if now >= ends:
                    raise Stopped
            if silence is not None and now - max(self._heard, request.heard) >= silence:
                raise NoAnswer(silence)
        self._heard = time.monotonic()


class _Own(threading.local):
    """The waits of each thread."""

    waits: Waits | None = None


_own = _Own()


def with_waits_of_this_thread(call: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Return a function for other threads, whose requests wait as those of this thread do."""
    waits = _own.waits

    def work(given: bytes) -> T:
        before, _own.waits = _own.waits, waits
        try:
            return call(given)
        finally:
            _own.waits = before

    return work


def ask(
    send: Callable[[Callable[[], None]], T], *, least_s: float = 0.0, writes: bool = False
) -> T:
    """Send a request in another thread, and return or raise what it does.

    Args:
        send: Sends it. It gets a function to call at each part of an answer.
        least_s: Seconds of silence that are no reason to leave it.
        writes: Whether it changes the place; it is not left for silence then.

    Raises:
        Stopped: The wait is to stop.
        NoAnswer: The place was silent for too long.
    """
    request = _Request(send)
    if not _begin(request):
        return send(request.hear)
    if _own.waits is None:
        request.done.acquire()
    else:
        _own.waits.wait(request, least_s, writes)
    return request.result()


class _Request(Generic[T]):
    """A request, and its outcome once `done` can be acquired."""

    __slots__ = ("_error", "_found", "_send", "done", "heard")

    def __init__(self, send: Callable[[Callable[[], None]], T]) -> None:
        self._send: Callable[[Callable[[], None]], T] | None = send
        self._error: BaseException | None = None
        self.heard = time.monotonic()
        self.done = threading.Lock()
        self.done.acquire()

    def hear(self) -> None:
        """Note a part of an answer."""
        self.heard = time.monotonic()

    def run(self) -> None:
        """Send it, and keep the outcome."""
        assert self._send is not None
        try:
            self._found = self._send(self.hear)
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits
            self._error = error
        self._send = None

    def result(self) -> T:
        """Return or raise the outcome."""
        error, self._error = self._error, None
        if error is None:
            return self._found
        try:
            raise error
        finally:
            del error  # its traceback has this frame


# --- The threads ----------------------------------------------------------------------------------

# Those of `concurrent.futures` would hold up the end of the process until each has its answer. No
# lock is here, since a collector may close a view inside it: each step on the list is one call.
_Work = queue.SimpleQueue[_Request[Any]]
_idle: list[_Work] = []


def _begin(request: _Request[Any]) -> bool:
    """Give a request to a thread; False if the process ends, and begins no threads any more."""
    try:
        work = _idle.pop()
    except IndexError:
        work = queue.SimpleQueue()
        thread = threading.Thread(target=_work, args=(work,), name="falaj-bucket", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
    work.put(request)
    return True


def _work(work: _Work) -> None:
    while True:
        try:
            request = work.get(timeout=IDLE_S)
        except queue.Empty:
            try:
                _idle.remove(work)
            except ValueError:
                continue  # a request is on its way here
            return
        request.run()
        _idle.append(work)  # first: the next request of the same caller finds this thread
        request.done.release()
        del request


os.register_at_fork(after_in_child=_idle.clear)  # its parent's threads are not in a child
