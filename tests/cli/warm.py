"""The program started in no time: forked from a process that has imported it already.

A Python process takes some 0.1 seconds of a core to start the program, and these tests start it
some seven hundred times. A forked program gets its arguments, directory, umask, environment and
standard streams from the caller, as a new process does. It ends through the interpreter's own exit.
A test of the start itself starts `PROGRAM` (cli/shell.py).

The process that is forked ends with the tests, when the other end of its socket closes.
"""

import contextlib
import gc
import io
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

_LARGEST = 1 << 16
"""Bytes of a request. A socket takes more, but not much more."""
_NUMBER = struct.Struct("=q")


class Warm:
    """A process that has imported the program, and forks copies of itself."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        subprocess.Popen(
            [sys.executable, __file__, str(inside.fileno())],
            pass_fds=[inside.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
        ).returncode = 0  # no one waits for it: it ends after this process
        inside.close()

    def run(
        self,
        argv: list[str],
        folder: Path,
        environment: Mapping[str, str],
        given: bytes,
        deadline_s: float,
    ) -> "subprocess.CompletedProcess[bytes] | None":
        """Run the program in pipes; None if the request is too large."""
        umask = os.umask(0o77)
        os.umask(umask)
        asked = json.dumps([argv, str(folder), dict(environment), umask]).encode()
        if len(asked) > _LARGEST:
            return None
        with _pipe() as stdin, _pipe() as stdout, _pipe() as stderr, _pipe() as answer:
            inside = [stdin[0], stdout[1], stderr[1], answer[1]]
            socket.send_fds(self._socket, [asked], [end.fileno() for end in inside])
            for end in inside:
                end.close()
            pid = _NUMBER.unpack(answer[0].read(_NUMBER.size))[0]
            with ThreadPoolExecutor(3) as pool:
                pool.submit(_give, stdin[1], given)
                out, err = pool.submit(stdout[0].read), pool.submit(stderr[0].read)
                ended = select.poll()  # not `select`, which takes no descriptor above 1,023
                ended.register(answer[0], select.POLLIN)
                late = not ended.poll(deadline_s * 1000)
                if late:
                    os.kill(pid, signal.SIGKILL)
                code = _NUMBER.unpack(answer[0].read(_NUMBER.size))[0]
                done = subprocess.CompletedProcess(argv, code, out.result(), err.result())
        if late:
            raise subprocess.TimeoutExpired(argv, deadline_s, done.stdout, done.stderr)
        return done


@contextlib.contextmanager
def _pipe() -> "Iterator[tuple[io.FileIO, io.FileIO]]":
    """Make a pipe; return its reading end and its writing end."""
    read, write = os.pipe()
    with io.FileIO(read, "rb") as reader, io.FileIO(write, "wb") as writer:
        yield reader, writer


def _give(stdin: io.FileIO, given: bytes) -> None:
    """Write a whole standard input, as far as it is read."""
    rest = memoryview(given)
    with stdin, contextlib.suppress(BrokenPipeError):
        while rest:
            rest = rest[stdin.write(rest) :]


# --- The rest runs in the process that is forked --------------------------------------------------


def _serve(requests: socket.socket) -> None:
    """Fork a program for each request, until the tests end."""
    from falaj.cli import main, registry

    # A command imports what it needs when it runs.
    for name in registry.NAMES:
        registry.load(name)
    sys.argv = ["falaj", "topic", "list", "-s", "/dev/null"]
    with (
        open(os.devnull, "w") as nobody,
        contextlib.redirect_stderr(nobody),
        contextlib.suppress(SystemExit),
    ):
        main()
    gc.freeze()  # forked processes share these objects, as long as none changes them
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for a minder
    while True:
        asked, ends, _, _ = socket.recv_fds(requests, _LARGEST + 1, 4)
        if not asked:
            return
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _mind(asked, ends)
        for end in ends:
            os.close(end)


def _mind(asked: bytes, ends: list[int]) -> NoReturn:
    """Fork the program, send its process id, wait for its end, send that."""
    *streams, answer = ends
    pid = os.fork()
    if pid == 0:
        os.close(answer)
        _become(asked, streams)
    for end in streams:
        os.close(end)
    os.write(answer, _NUMBER.pack(pid))
    _, status = os.waitpid(pid, 0)
    os.write(answer, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _become(asked: bytes, streams: list[int]) -> NoReturn:
    """Become the program, as if it had been started so."""
    argv, folder, environment, umask = json.loads(asked)
    for number, end in enumerate(streams):
        os.dup2(end, number)
        os.close(end)
    os.chdir(folder)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = argv
    from falaj.cli import main

    with (
        open(0) as sys.stdin,
        open(1, "w") as sys.stdout,
        open(2, "w", buffering=1, errors="backslashreplace") as sys.stderr,
    ):
        main()
    sys.exit()


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
