"""Worker processes that run on request, so that rounds need not start new ones.

A worker is a function of this package. It runs in a process of its own and answers over a pipe.
"""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from types import TracebackType

_SPAWN = multiprocessing.get_context("spawn")
# Longest time for an answer: a hang is an error, not a figure.
ANSWER_S_MAX = 60


class Worker:
    """A process that runs `main(connection, *arguments)`."""

    def __init__(self, main: Callable[..., None], *arguments: object) -> None:
        """Start it."""
        self.connection, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=main, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process.pid is not None
        return self.process.pid

    def tell(self, what: object) -> None:
        """Send it something."""
        self.connection.send(what)

    def answer(self) -> Any:
        """Wait for its answer."""
        if not self.connection.poll(ANSWER_S_MAX):
            raise TimeoutError(f"a worker did not answer within {ANSWER_S_MAX} s")
        return self.connection.recv()

    def ask(self, what: object) -> Any:
        """Send and wait."""
        self.tell(what)
        return self.answer()

    def cpu_ns(self) -> int:
        """Processor time of all its threads: the kernel counts it to the nanosecond."""
        return time.clock_gettime_ns((~self.pid << 3) | 2)  # what clock_getcpuclockid(3) returns

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.process.kill()
        elif self.process.is_alive():
            self.tell(None)
        self.process.join()
        self.connection.close()


def told(connection: Connection) -> Any:
    """In a worker: wait for the next request; None means the end."""
    try:
        return connection.recv()
    except EOFError:
        return None
