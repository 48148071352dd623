"""Run `falaj` as a shell does: in pipes, or on a terminal of its own.

Everything has a deadline, so that a program that hangs is a failed test.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cli.warm import Warm

PROGRAM = str(Path(sys.executable).with_name("falaj"))
DEADLINE_S = 60.0
# The machine's settings of colours, language and time must not decide a test.
_ASIDE = {"NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "TTY_COMPATIBLE", "TZ", "LC_ALL", "LANG"}
_ASIDE |= {"PYTHONUNBUFFERED"}  # under which nothing needs to be flushed
_ASIDE |= {"PYTEST_CURRENT_TEST"}  # differs for each test


@cache
def _warm(environment: tuple[tuple[str, str], ...]) -> Warm:
    """Start the program once in this environment, for all runs in it."""
    return Warm(dict(environment))


@dataclass(frozen=True)
class Ended:
    """How a program ended, and what it printed."""

    code: int
    out: str
    err: str = ""

    def sentence(self) -> str:
        """The one line on stderr, which must hold nothing else."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("falaj: "), self.err
        return lines[0].removeprefix("falaj: ")


class Shell:
    """A directory in which `falaj` runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if name not in _ASIDE}
        self.environment = {**kept, "LANG": "C.UTF-8", "TZ": "UTC"}

    def __call__(self, *arguments: str, given: bytes = b"", **changed: str) -> Ended:
        """Run it in pipes; `given` is its standard input."""
        done = self.binary(*arguments, given=given, **changed)
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def binary(
        self, *arguments: str, given: bytes = b"", **changed: str
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run it in pipes, and return its output unchanged."""
        command = [PROGRAM, *arguments]
        if not changed:  # else some of it might be read only when Python starts
            done = _warm(tuple(self.environment.items())).run(
                command, self.folder, self.environment, given, DEADLINE_S
            )
            if done:
                return done
        return subprocess.run(
            command,
            input=given,
            capture_output=True,
            cwd=self.folder,
            env={**self.environment, **changed},
            timeout=DEADLINE_S,
        )

    def ok(self, *arguments: str, given: bytes = b"") -> str:
        """Run it, expect success and silence on stderr; return its output."""
        done = self(*arguments, given=given)
        assert (done.code, done.err) == (0, ""), done
        return done.out

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start it in pipes, and return at once."""
        return subprocess.Popen(
            [PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environment,
        )

    def terminal(self, *arguments: str, **changed: str) -> "Terminal":
        """Start it on a terminal of 100 columns."""
        return Terminal([PROGRAM, *arguments], self.folder, {**self.environment, **changed})


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.seen = ""
        self._end, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self._process = subprocess.Popen(
            command,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            cwd=folder,
            env={"TERM": "xterm-256color", **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(inside)

    def wait_for(self, text: str) -> None:
        """Read on until a text was printed."""
        self._read_until(lambda: text in self.seen)
        assert text in self.seen, self.seen

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._end, text.encode())

    def end(self) -> Ended:
        """Read to the end; line ends are `\\n`."""
        self._read_until(lambda: False)
        os.close(self._end)
        return Ended(self._process.wait(DEADLINE_S), self.seen.replace("\r\n", "\n"))

    def _read_until(self, enough: Callable[[], bool]) -> None:
        until = time.monotonic() + DEADLINE_S
        while not enough():
            ready, _, _ = select.select([self._end], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                self._process.kill()
                raise TimeoutError(f"nothing more within {DEADLINE_S} s, after: {self.seen}")
            try:
                data = os.read(self._end, 1 << 16)
            except OSError:  # EIO: the program has ended
                return
            self.seen += data.decode(errors="replace")


def interrupt(process: "subprocess.Popen[bytes]") -> Ended:
    """Send Ctrl-C's signal, and wait for the end."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    return Ended(process.returncode, out.decode(), err.decode())


def flip_bit(folder: Path, topic: str, value: bytes) -> None:
    """Flip a bit of a value on the disk."""
    for log in sorted(folder.glob(f"s/logs/{topic}@*/*.log")):
        data = log.read_bytes()
        if value in data:
            with log.open("r+b") as file:
                file.seek(data.index(value))
                file.write(bytes([value[0] ^ 1]))
            return
    raise AssertionError(f"{value!r} is in no segment of {topic}")


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """When each file was last changed, and its size."""
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}
