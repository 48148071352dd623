"""A separate process that reads stores, so that a crash or a hang is noticed.

Owns that process (questions.py), its memory limits, and its time for a store.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

QUESTIONS = Path(__file__).with_name("questions.py")
PATIENCE_S = 30.0
"""Longest time for one harmed store; it takes some ten milliseconds."""
PEAK = 256 << 20
"""Most memory that the process may have used, in bytes: it starts with 40 MiB."""


class Asker:
    """The process, from its start to its end."""

    def __init__(self) -> None:
        # Each thread's arena takes address space, which is limited.
        environment = {**os.environ, "MALLOC_ARENA_MAX": "2"}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", os.fspath(QUESTIONS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self.ear = threading.Thread(target=self._hear, daemon=True)
        self.ear.start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def ask(
        self,
        path: Path,
        story: str,
        write: Path | None = None,
        *,
        read: str = "mmap",
        repair: bool = False,
    ) -> dict[str, Any]:
        """Make it read a store, and write to a copy."""
        assert self.process.stdin is not None
        wanted = {
            "path": os.fspath(path),
            "read": read,
            "write": write and os.fspath(write),
            "repair": repair,
        }
        try:
            self.process.stdin.write(json.dumps(wanted) + "\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=PATIENCE_S)
        except BrokenPipeError:
            line = ""
        except queue.Empty:
            self.leave()
            raise AssertionError(f"{story}: no answer") from None
        if not line:
            raise AssertionError(f"{story}: died {self._died()}")
        told: dict[str, Any] = json.loads(line)
        assert told["peak"] < PEAK, f"{story}: {told['peak']} bytes of memory"
        return told

    def _died(self) -> str:
        """Close the rest of it; return how it ended, and its output."""
        self.ear.join()
        with self.process, contextlib.suppress(BrokenPipeError):
            assert self.process.stdin is not None
            assert self.process.stderr is not None
            said = self.process.stderr.read()
            self.process.stdin.close()
        return f"with {self.process.returncode}: {said}"

    def leave(self) -> None:
        """Abandon the process, whatever it does."""
        if self.process.returncode is None:
            self.process.kill()
            self._died()

    def end(self) -> None:
        self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0
