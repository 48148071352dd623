"""Followers of the server that wait and get nothing: memory and processor time for each.

Each follower is a connection with a stream of events. Workers hold the clients' ends, since a
process may have only so many open files. `ulimit -Hn` bounds how many followers there are.
"""

from __future__ import annotations

import contextlib
import re
import resource
import selectors
import socket
import sys
import time
from multiprocessing import get_context
from typing import TYPE_CHECKING

import falaj
from runner.results import Measured
from runner.server import programs

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from runner.server.programs import Programs, Running
    from runner.sizes import Sizes

WORKERS = 4
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


def _waiting(running: Running) -> int:
    found = re.search(r"falaj_server_followers (\d+)", running.ask("GET", "/metrics").decode())
    return int(found[1]) if found else 0


def measure(of: Programs, place: Path, sizes: Sizes) -> list[Measured]:
    """Measure memory per follower, the part of a core that all take, and how soon all wake."""
    followers = min(sizes.followers, _open_files() - SPARE_FILES) // WORKERS * WORKERS
    if followers < sizes.followers:
        sys.stderr.write(f"{followers:,} followers, since `ulimit -Hn` is {_open_files():,}\n")
    store = place / "followed"
    with (
        falaj.open(store) as opened,
        contextlib.ExitStack() as workers,
        programs.server(of.server, store) as running,
    ):
        topic = opened.topic("idle")
        topic.append(b"first")
        _waiting(running)  # what the first request allocates is not a follower's
        before = running.memory("RssAnon")
        context = get_context("fork")
        ends = []
        for _ in range(WORKERS):
            ours, theirs = context.Pipe()
            each = (theirs, running.port, running.token, followers // WORKERS, topic.end_offset)
            worker = context.Process(target=_hold, args=each)
            worker.start()
            workers.callback(worker.join)
            ends.append(ours)
        total = sum(end.recv() for end in ends)
        while _waiting(running) < total:
            time.sleep(0.05)  # sleep: the server counts its followers when it is asked
        memory = (running.memory("RssAnon") - before) / total
        begin, used = time.monotonic_ns(), running.processor_ns()
        time.sleep(sizes.idle_followers_s)  # sleep: this is what is measured
        core = (running.processor_ns() - used) / (time.monotonic_ns() - begin)
        begin = time.monotonic_ns()
        topic.append(b"news")
        for end in ends:
            end.send(None)
        assert sum(end.recv() for end in ends) == total
        woken = time.monotonic_ns() - begin
    return [
        Measured("idle_memory", [memory / 1024], unit="KiB"),
        Measured("idle_cpu", [core], unit="share"),
        Measured("idle_wake", [woken], unit="ns"),
    ]
