"""Objects below `s/` and `k/`: made of bytes, named by their hash, put in parallel.

Owns the threads that put, and the bound of bytes in flight. Invariant: an object has the hash and
the claim of its name, and `put` returns only when the place has it. So a number may refer to it. A
place that does not answer is asked again while `patience` lasts; what it refuses is raised.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from falaj.errors import Error, ObjectMissing, RetryableError
from falaj.ship.requests import LOOK_S, Stopped, Waits
from falaj.ship.shapes import SALT, object_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from falaj.ship.origin import Origin

__all__ = ["IN_FLIGHT", "THREADS", "InFlight", "Patience", "Stopped", "Uploads", "salted"]

THREADS = 4
IN_FLIGHT = 64 << 20
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.05, 5.0
_COMPARED_BELOW = 1 << 20

T = TypeVar("T")


class Patience:
    """Ask a place again while it does not answer.

    Args:
        seconds: For how long; None is until `stop` is set.
        stop: Ends each wait.
        notice: Called with the error before each wait.
        last_s: Seconds that a request under way may still take once `stop` is set.
    """

    def __init__(
        self,
        seconds: float | None,
        stop: threading.Event,
        notice: Callable[[Error], None] = lambda error: None,
        last_s: float = 0.0,
    ) -> None:
        self.seconds, self.stop, self.notice, self.last_s = seconds, stop, notice, last_s
        self._own: threading.Event | None = None

    def apart(self) -> Patience:
        """Return one whose waits `end` ends, too."""
        made = Patience(self.seconds, self.stop, self.notice, self.last_s)
        made._own = threading.Event()
        return made

    def within(self, seconds: float) -> Patience:
        """Return one for other seconds, which the same `stop` ends."""
        return Patience(seconds, self.stop, self.notice, self.last_s)

    def end(self) -> None:
        """End the waits of one that is `apart`, and of no other."""
        assert self._own is not None
        self._own.set()

    def __call__(self, ask: Callable[[], T]) -> T:
        """Return what `ask` returns, after as many attempts as it takes.

        Raises:
            RetryableError: The patience ended.
            Stopped: `stop` was set, or it was ended.
        """
        began, pause = time.monotonic(), _PAUSE_FIRST_S
        waits = Waits(self.seconds, self.last_s, self._is_stopped)
        while True:
            try:
                with waits:
                    return ask()
            except RetryableError as error:
                spent = time.monotonic() - began
                if self.seconds is not None and spent + pause > self.seconds:
                    raise
                self.notice(error)
            if self._is_stopped_within(pause):
                raise Stopped
            pause = min(pause * 2, _PAUSE_MOST_S)

    def _is_stopped(self) -> bool:
        return self.stop.is_set() or (self._own is not None and self._own.is_set())

    def _is_stopped_within(self, seconds: float) -> bool:
        if self._own is None:
            return self.stop.wait(seconds)
        while seconds > 0:
            if self._own.is_set() or self.stop.wait(min(seconds, LOOK_S)):
                return True
            seconds -= LOOK_S
        return self._own.is_set()


class InFlight:
    """A bound of bytes that are in memory at a time; one larger object alone is let through."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0
        self._changed = threading.Condition()

    def take(self, size: int) -> int:
        """Wait until so many bytes may be in memory; return what to `give` back."""
        size = min(size, self._most)
        with self._changed:
            self._changed.wait_for(lambda: self._taken + size <= self._most)
            self._taken += size
        return size

    def give(self, size: int) -> None:
        """Give bytes back."""
        with self._changed:
            self._taken -= size
            self._changed.notify_all()


def salted(body: bytes) -> bytes:
    """Put random bytes before a body, so that no two objects of a claim have one name."""
    return os.urandom(SALT) + body


class Uploads:
    """Puts objects of one claim, several at a time."""

    def __init__(self, origin: Origin, claim: int, patience: Patience, in_flight: int) -> None:
        self.origin, self.claim, self.patience = origin, claim, patience
        self.sizes: dict[str, int] = {}  # of the objects that no number or checkpoint has yet
        self._named = 0
        self._pool = ThreadPoolExecutor(THREADS, "falaj-ship")
        self._in_flight = InFlight(in_flight)

    def put(self, kind: str, body: bytes) -> str:
        """Put an object and return its key, once the place has it."""
        key = object_key(kind, self.claim, hashlib.sha256(body).hexdigest())
        self.patience(lambda: self._until_there(key, body))
        self.sizes[key] = len(body)
        return key

    def forget(self, keys: Iterable[str]) -> None:
        """Forget the sizes of objects that a number or a checkpoint in the place has now."""
        self._named += sum(self.sizes.pop(key, None) is not None for key in keys)

    @property
    def count(self) -> int:
        """Count the objects that this process put."""
        return self._named + len(self.sizes)

    def _until_there(self, key: str, body: bytes) -> None:
        while not self.origin.put_new(key, body):
            if self._is_there(key, body):
                return
            if self.patience.stop.wait(_PAUSE_FIRST_S):
                raise Stopped

    def _is_there(self, key: str, body: bytes) -> bool:
        """Look whether the place has the object; its name says its bytes."""
        if len(body) <= _COMPARED_BELOW:
            return self.origin.get(key) == body
        try:
            whole = self.origin.root + key
            return self.origin.place.get_range(whole, len(body) - 1, len(body)) == body[-1:]
        except ObjectMissing:
            return False

    def start(self, kind: str, size: int, make: Callable[[], bytes]) -> Future[str]:
        """Make and put an object in another thread, when its bytes may be in memory."""
        taken = self._in_flight.take(size)

        def work() -> str:
            try:
                return self.put(kind, make())
            finally:
                self._in_flight.give(taken)

        try:
            return self._pool.submit(work)
        except RuntimeError:
            self._in_flight.give(taken)
            raise

    def close(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown(cancel_futures=True)


def all_of(futures: Iterable[Future[T]]) -> list[T]:
    """Return the results of all in order; the first error is raised once none is under way."""
    listed = list(futures)
    wait(listed, return_when=FIRST_EXCEPTION)
    wait(listed)
    return [future.result() for future in listed]
