"""Simulated time, waits, random bytes and threads, so that a run repeats with its seed.

Owns what the modules of shipping take from the machine, for the length of a block. A wait takes no
time and moves the clock. Work for other threads is done at once, by the one thread that there is.
"""

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import Any
from unittest.mock import patch

from falaj.ship import driver, memory, objects, shipper

BEGIN_S = 1_800_000_000.0
CALL_S = 1e-4


class Clock:
    """A clock that moves when it is asked, and by waits.

    Attributes:
        now: Seconds since 1970; also those of the monotonic clock.
        alarms: Called with the time whenever it moved.
    """

    def __init__(self) -> None:
        self.now = BEGIN_S
        self.alarms: list[Callable[[float], None]] = []

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        for alarm in self.alarms:
            alarm(self.now)

    def time(self) -> float:
        """Return the time, which passes meanwhile."""
        self.now += CALL_S
        return self.now

    monotonic = time

    def time_ns(self) -> int:
        """Return the time in nanoseconds."""
        return round(self.time() * 1e9)


class Waits(Event):
    """An event that is never set, and whose waits move the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        """Let the time pass."""
        assert timeout is not None, "a wait without end"
        self._clock.move(timeout)
        return self.is_set()


class AtOnce(Executor):
    """An executor that does each piece of work when it is given."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Do it."""
        done: Future[Any] = Future()
        try:
            done.set_result(work(*given, **named))
        except BaseException as error:  # noqa: BLE001  # as threads of a pool do
            done.set_exception(error)
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: there is nothing left."""


@contextmanager
def simulated(seed: int) -> Iterator[Clock]:
    """Simulate all that shipping takes from the machine, for a block."""
    clock, bytes_of = Clock(), random.Random(seed).randbytes
    with ExitStack() as patched:
        for module in (driver, memory, objects, shipper):
            patched.enter_context(patch.object(module, "time", clock))
        for pooled in (objects, shipper):
            patched.enter_context(patch.object(pooled, "ThreadPoolExecutor", AtOnce))
        patched.enter_context(patch.object(os, "urandom", bytes_of))
        yield clock
