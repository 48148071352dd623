"""Followers of the server that wait and get nothing: memory and processor time for each.

Each follower is a connection with a stream of events. Workers hold the clients' ends, since a
process may have only so many open files. The server's own limit bounds how many followers there
are: the table says how many it allowed. `make bench-server` runs this.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import falaj

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

FOLLOWERS = 20_000
WORKERS = 4
IDLE_S = 10.0
BYTES_MAX = 16 << 10
CORE_MAX = 0.01
# Open files of the server besides followers: the store's, the runtime's, those of the measurement.
SPARE_FILES = 200


def _hold(connection: Connection, port: int, token: str, followers: int, offset: int) -> None:
    """In a worker: open followers, and count the answers that come in the end."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_open_files(), _open_files()))
    request = (
        f"GET /v1/topics/idle/records?from={offset} HTTP/1.1\r\nHost: localhost\r\n"
        f"Accept: text/event-stream\r\nAuthorization: Bearer {token}\r\n\r\n"
    ).encode()
    with contextlib.ExitStack() as held, selectors.DefaultSelector() as ready:
        for _ in range(followers):
            client = held.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(request)
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
            ready.register(client, selectors.EVENT_READ)
        connection.send(followers)
        connection.recv()
        answered = 0
        while answered < followers:
            for key, _ in ready.select():
                answering = key.fileobj
                assert isinstance(answering, socket.socket)
                if b"\ndata: " in answering.recv(1 << 16):
                    ready.unregister(answering)
                    answered += 1
        connection.send(answered)


def _open_files() -> int:
    """Return the most open files that a process may have here."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def _anonymous(pid: int) -> int:
    """Memory of a process that no file backs, bytes."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def _processor_s(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _waiting(port: int, token: str) -> int:
    request = Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with urlopen(request) as answer:
        found = re.search(r"falaj_server_followers (\d+)", answer.read().decode())
    return int(found[1]) if found else 0


def measure(program: str, place: Path, followers: int) -> tuple[float, float, float]:
    """Return bytes of memory per follower, the part of a core of all, and seconds of waking."""
    with falaj.open(place / "events") as store, contextlib.ExitStack() as running:
        topic = store.topic("idle")
        server = running.enter_context(
            subprocess.Popen(
                [program, place / "events", "--http", "127.0.0.1:0", "--log-level", "error"],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        running.callback(server.terminate)
        assert server.stdout is not None
        port = int(server.stdout.readline().rpartition(":")[2])
        token = (place / "events/server/token").read_text()
        _waiting(port, token)  # what the first request allocates is not a follower's
        before = _anonymous(server.pid)
        context = get_context("fork")
        ends = []
        for _ in range(WORKERS):
            ours, theirs = context.Pipe()
            each = (theirs, port, token, followers // WORKERS, topic.end_offset)
            worker = context.Process(target=_hold, args=each)
            worker.start()
            running.callback(worker.join)
            ends.append(ours)
        total = sum(end.recv() for end in ends)
        while _waiting(port, token) < total:
            time.sleep(0.05)  # sleep: the server counts its followers when it is asked
        memory = (_anonymous(server.pid) - before) / total
        begin, used = time.monotonic(), _processor_s(server.pid)
        time.sleep(IDLE_S)  # sleep: this is what is measured
        core = (_processor_s(server.pid) - used) / (time.monotonic() - begin)
        begin = time.monotonic()
        topic.append(b"news")
        for end in ends:
            end.send(None)
        assert sum(end.recv() for end in ends) == total
        return memory, core, time.monotonic() - begin


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="the server")
    parser.add_argument("--followers", type=int, default=FOLLOWERS)
    given = parser.parse_args()
    followers = min(given.followers, _open_files() - SPARE_FILES) // WORKERS * WORKERS
    if followers < given.followers:
        sys.stdout.write(f"{followers:,} followers, since `ulimit -Hn` is {_open_files():,}\n")
    with tempfile.TemporaryDirectory() as place:
        memory, core, waking_s = measure(given.program, Path(place), followers)
    rows = (
        ("memory of an idle follower", f"{memory / 1024:.1f} KiB", "≤ 16 KiB", memory <= BYTES_MAX),
        ("processor time of all", f"{core * 100:.2f} % of a core", "< 1 %", core < CORE_MAX),
        ("one append answers all", f"{waking_s:.2f} s", "–", True),
    )
    lines = [f"| {followers:,} idle followers | ours | target | |", "|---|---|---|---|"]
    for title, ours, target, met in rows:
        lines.append(f"| {title} | {ours} | {target} | {'met' if met else '**missed**'} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
