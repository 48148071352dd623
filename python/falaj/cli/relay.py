"""The output of Spark's processes: kept back while it starts, then passed on to stderr."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from falaj.cli.paint import Paint

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Relay"]


class Relay:
    """Output of Spark's processes: held until it is decided, then passed on a line at a time."""

    def __init__(self) -> None:
        import secrets
        import threading

        read, self._write = os.pipe2(os.O_CLOEXEC)
        self._mark = f"\0{secrets.token_hex(8)}"
        self._seen = threading.Event()
        threading.Thread(target=self._pass_on, args=(read,), daemon=True).start()

    @contextmanager
    def instead_of_ours(self) -> Iterator[None]:
        """Let processes that start in the body have it for stdout and stderr."""
        sys.stdout.flush()
        sys.stderr.flush()
        saved = [os.dup(1), os.dup(2)]
        os.dup2(self._write, 1)
        os.dup2(self._write, 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, number)
                os.close(copy)

    def decide(self, *, show: bool) -> None:
        """Show or forget what was said so far; returns when that is done."""
        self._tell("+" if show else "-")

    def drain(self) -> None:
        """Wait until all is passed on that was said so far."""
        self._tell("=")

    def _tell(self, word: str) -> None:
        # The writer may still be there and hold the pipe open, so that it has no end.
        self._seen.clear()
        os.write(self._write, f"\n{self._mark}{word}\n".encode())
        self._seen.wait()

    def _pass_on(self, read: int) -> None:
        held: list[str] | None = []
        with os.fdopen(read, encoding="utf-8", errors="replace") as lines:
            for line in (line.rstrip("\n") for line in lines):
                if line.startswith(self._mark):
                    for kept in held or () if line.endswith("+") else ():
                        self._print(kept)
                    held = held if line.endswith("=") else None
                    self._seen.set()
                elif line and held is not None:
                    held.append(line)
                elif line:
                    self._print(line)

    @staticmethod
    def _print(line: str) -> None:
        print(Paint.of(sys.stderr).harmless(line), file=sys.stderr, flush=True)
