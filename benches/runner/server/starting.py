"""From the start of the server to its first acknowledged record; and after a kill under load."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import falaj
from runner.results import Measured
from runner.server import programs

if TYPE_CHECKING:
    from pathlib import Path

    from runner.server.programs import Programs, Running
    from runner.sizes import Sizes

CONNECTIONS = 4
TOPIC = "loaded"
# Long enough for any load: it ends when the server is killed.
_LOAD_S = 600


def _append(running: Running, topic: str) -> None:
    running.ask("POST", f"/v1/topics/{topic}/records", b"first")


def measure(of: Programs, place: Path, sizes: Sizes) -> list[Measured]:
    """Start the server on many topics; then kill it under load, and start it again."""
    return [*_starts(of, place / "many", sizes), _restarts(of, place / "killed", sizes)]


def _starts(of: Programs, store: Path, sizes: Sizes) -> list[Measured]:
    with falaj.open(store) as opened:
        for number in range(sizes.served_topics):
            opened.topic(f"topic-{number}", codec="bytes").append(b"before")
    taken, memory = [], []
    for _ in range(sizes.rounds):
        begin = time.perf_counter_ns()
        with programs.server(of.server, store) as running:
            _append(running, "topic-0")
            taken.append(time.perf_counter_ns() - begin)
            memory.append(running.memory("VmRSS") / 1e6)
    return [Measured("start", taken), Measured("start_memory", memory, unit="MB")]


def _restarts(of: Programs, store: Path, sizes: Sizes) -> Measured:
    taken = []
    acknowledged = 0
    for _ in range(sizes.rounds):
        with programs.server(of.server, store) as running:
            _append(running, TOPIC)
            words = ("load", running.port, f"/v1/topics/{TOPIC}/records", running.token)
            load = subprocess.Popen(
                [of.doors, *map(str, words), "", str(CONNECTIONS), "1", str(_LOAD_S)],
                stdout=subprocess.PIPE,
            )
            time.sleep(sizes.post_s)  # sleep: the load runs meanwhile
            running.process.kill()
            running.process.wait()
            begin = time.perf_counter_ns()
            with programs.server(of.server, store) as again:
                _append(again, TOPIC)
                taken.append(time.perf_counter_ns() - begin)
        printed, _ = load.communicate()
        acknowledged += 2 + int(printed.split(b'"requests":')[1].split(b",")[0])
    with falaj.open(store, read_only=True) as opened, opened.topic(TOPIC) as topic:
        if topic.end_offset < acknowledged:
            lost = acknowledged - topic.end_offset
            raise AssertionError(f"{lost} acknowledged records are lost")
    return Measured("restart", taken)
