"""The programs that are measured: the server, the bare handler, chukcha. Each on a free port.

`Programs` names them. `rust/server/benches/doors` is the bare handler, the load and the follower.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long a program may take until it answers, and how often it is asked.
_PATIENCE_S = 30.0
_ASK_S = 0.001


@dataclass(frozen=True)
class Programs:
    """Paths of the programs; chukcha may be missing."""

    server: Path
    doors: Path
    chukcha: Path | None

    def run(self, *words: object) -> dict[str, Any]:
        """Run a load or a follower to its end; return what it measured."""
        command = [str(self.doors), *map(str, words)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@dataclass(frozen=True)
class Running:
    """A program that serves a port of loopback."""

    process: subprocess.Popen[str]
    port: int
    token: str = ""

    def processor_ns(self) -> int:
        """Return the processor time that the process has used, by its own clock."""
        # The number of another process's clock, as clock_getcpuclockid(3) makes it.
        return time.clock_gettime_ns((~self.process.pid << 3) | 2)

    def memory(self, kind: str) -> int:
        """Return bytes of memory: `VmRSS`, or `RssAnon` for what no file backs."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{kind}:\s+(\d+) kB", status)
        assert found
        return int(found[1]) << 10

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Send a request; return the body of the answer."""
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)
        with contextlib.closing(asked):
            asked.request(method, path, body, {"Authorization": f"Bearer {self.token}"})
            answer = asked.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {text.decode()}")
            return text


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.communicate()


@contextmanager
def server(program: Path, store: Path) -> Iterator[Running]:
    """Start the server on a store, and kill it in the end."""
    command = [str(program), str(store), "--http", "127.0.0.1:0", "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with _ended(process):
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        yield Running(process, port, (store / "server/token").read_text())


@contextmanager
def bare(program: Path, fifo: Path) -> Iterator[Running]:
    """Start the bare handler; its stream is what comes out of the FIFO."""
    process = subprocess.Popen([program, "bare", fifo], stdout=subprocess.PIPE, text=True)
    with _ended(process):
        assert process.stdout is not None
        yield Running(process, json.loads(process.stdout.readline())["port"])


@contextmanager
def chukcha(program: Path, folder: Path) -> Iterator[Running]:
    """Start chukcha: one instance, which replicates nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir()
    flags = ["--instance", "one", "--dirname", str(folder), "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen([str(program), *flags], stderr=subprocess.DEVNULL, text=True)
    with _ended(process):
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(_ASK_S)  # sleep: it says nowhere that it is ready
        yield Running(process, port)
