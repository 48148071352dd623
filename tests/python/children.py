"""Child processes for tests: Python programs that get their input one line at a time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import falaj

PRELUDE = """
import os, sys, falaj
def say(*words):
    # Not by print: a signal handler may write in the middle of it.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def hear():
    return sys.stdin.readline().strip()
path = sys.argv[1]
"""


class Child:
    """A Python process that runs a program, with `path`, `say` and `hear` defined."""

    def __init__(
        self,
        path: Path,
        program: str,
        python: str = sys.executable,
        before: Sequence[str] = (),
        **environment: str,
    ) -> None:
        self.process = subprocess.Popen(
            [*before, python, "-W", "error", "-c", PRELUDE + program, os.fspath(path)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> str:
        """Read the next line that it writes; raise with its error if it ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(self.process.stderr.read())
        return line.strip()

    def tell(self, line: str = "") -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill it, as the kernel does when memory is short."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, timeout: float = 30) -> tuple[int, str, str]:
        """Wait for its end; return its exit code, the rest of its output, and its errors."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


@contextmanager
def child(
    path: Path,
    program: str,
    python: str = sys.executable,
    before: Sequence[str] = (),
    **environment: str,
) -> Iterator[Child]:
    """Run a program in a process of its own, which is killed afterwards.

    `before` is a command that runs it, such as `unshare`; `environment` is added to ours.
    """
    started = Child(path, program, python, before, **environment)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.kill()
        for pipe in (started.process.stdin, started.process.stdout, started.process.stderr):
            if pipe is not None:
                pipe.close()


def run(path: Path, program: str, python: str = sys.executable) -> str:
    """Run a program to its end, which must be successful, and return its output."""
    with child(path, program, python) as started:
        code, out, err = started.end()
        assert (code, err) == (0, ""), err
        return out


def ends_within(limit_s: float, end: Callable[[], float]) -> bool:
    """True if something ends in time, at one of five tries.

    A busy machine delays single tries; a call that waits for a clock tick, or in vain, is always
    late.
    """
    return any(end() < limit_s for _ in range(5))


def stop_in_the_middle_of_an_append(pid: int, topic: falaj.Topic[Any]) -> None:
    """Stop a process that appends all the time at a moment when it holds the lock."""
    for _ in range(20_000):
        # One that is stopped again before it runs would never come to the lock.
        before, until = topic.end_offset, time.monotonic() + 10
        while topic.end_offset == before and time.monotonic() < until:
            pass
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        if _lock_is_held(topic):
            return
        os.kill(pid, signal.SIGCONT)
    raise AssertionError("the process was never stopped with the lock")


def _lock_is_held(topic: falaj.Topic[Any]) -> bool:
    """Look at the lock word in the control page."""
    (control,) = topic.store.path.glob(f"logs/{topic.name}@*/control")
    with control.open("rb") as page:
        page.seek(_LOCK_WORD)
        return bool(page.read(4)[0] & 1)


_LOCK_WORD = 128
"""The append lock's position, by docs/FORMAT.md."""
