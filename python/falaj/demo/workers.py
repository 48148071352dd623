"""The demo's processes, seen from the one that runs it.

Each is a program of its own (`python -m falaj.demo.producer` …), not a fork, because that is what
people run. All their messages come in one queue, so that the demo waits in one place. The end of a
process is a message like any other. No process outlives the demo, whatever happens.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

from falaj.demo.failed import Failed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Crew", "Worker"]

# With 336,776 flights in 15 seconds no process is silent for longer than a few seconds.
SILENCE_SECONDS_MAX = 60.0


class Worker:
    """One process."""

    def __init__(self, inbox: queue.Queue[tuple[Worker, Any]], name: str, *command: object) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close
        self._process = subprocess.Popen(
            [sys.executable, "-m", *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(inbox,), daemon=True)
        self._reader.start()

    def say(self, **message: object) -> None:
        """Send the process a message."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End it at once, with SIGKILL: it can do nothing more."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it if it still runs, and close its pipes."""
        self.kill()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe
            pipe.close()

    def last_words(self) -> str:
        """Return the last line that it wrote to standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _read(self, inbox: queue.Queue[tuple[Worker, Any]]) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            inbox.put((self, json.loads(line)))
        inbox.put((self, {"exit": self._process.wait()}))


class Crew:
    """All processes of one step; a context manager that ends them.

    Args:
        quiet_seconds: How much longer than usual all of them may be silent.
    """

    def __init__(self, quiet_seconds: float = 0.0) -> None:
        self._silence_seconds_max = SILENCE_SECONDS_MAX + quiet_seconds
        self._inbox: queue.Queue[tuple[Worker, Any]] = queue.Queue()
        self._hired: list[Worker] = []
        self._running: set[Worker] = set()

    def start(self, name: str, *command: object) -> Worker:
        """Start a process: a module and its arguments."""
        worker = Worker(self._inbox, name, *command)
        self._hired.append(worker)
        self._running.add(worker)
        return worker

    def kill(self, worker: Worker) -> None:
        """Kill one on purpose: its end and its last messages are then ignored."""
        self._running.discard(worker)
        worker.kill()

    def messages(self) -> Iterator[tuple[Worker, dict[str, Any]]]:
        """Yield their messages, for as long as one runs.

        Raises:
            Failed: One ended badly, or all fell silent.
        """
        while self._running:
            worker, message = self._next()
            if worker not in self._running:
                continue
            if "exit" not in message:
                yield worker, message
            elif message["exit"] == 0:
                self._running.discard(worker)
            else:
                raise Failed(
                    f"the process {worker.name} ended with code {message['exit']}: "
                    f"{worker.last_words()}"
                )

    def _next(self) -> tuple[Worker, dict[str, Any]]:
        try:
            return self._inbox.get(timeout=self._silence_seconds_max)
        except queue.Empty:
            names = ", ".join(sorted(worker.name for worker in self._running))
            raise Failed(
                f"nothing was heard of {names} for {self._silence_seconds_max:.0f} seconds"
            ) from None

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_exception: object) -> None:
        for worker in self._hired:
            worker.close()
