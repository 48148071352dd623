"""Two processes that append to one topic, one record per call, each as fast as it can."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import falaj
from runner import machine
from runner.results import SECOND_NS, Measured
from runner.workers import Worker, told

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from runner.sizes import Sizes

# Appends between two looks at the clock.
_STRIDE = 100
# They get the time of the start so long before it, so that both begin at once.
_NOTICE_NS = 20_000_000


def _writer(connection: Connection, path: str, value: bytes) -> None:
    """In a worker: append from one moment to another; return how many."""
    with falaj.open(path, sync="none") as store:
        append = store.topic("shared", codec="raw").append
        append(value)
        connection.send("ready")
        while times := told(connection):
            begin, end = times
            while time.perf_counter_ns() < begin:
                pass
            count = 0
            while time.perf_counter_ns() < end:
                for _ in range(_STRIDE):
                    append(value)
                count += _STRIDE
            connection.send(count)


def measure(place: Path, sizes: Sizes) -> list[Measured]:
    """Measure both together and one alone, in turns."""
    path, value = str(place / "contention"), b"v" * sizes.value_bytes
    length_ns = int(sizes.contention_s * SECOND_NS)
    with falaj.open(path), Worker(_writer, path, value) as one, Worker(_writer, path, value) as two:
        one.answer(), two.answer()  # each says that it is ready

        def run(*workers: Worker) -> list[int]:
            machine.warm(sizes.fresh_bytes)
            begin = time.perf_counter_ns() + _NOTICE_NS
            for worker in workers:
                worker.tell((begin, begin + length_ns))
            return [worker.answer() for worker in workers]

        run(one, two)
        rounds = [(run(one), run(one, two)) for _ in range(sizes.rounds)]
    return [
        Measured(
            "two_processes",
            ours=[length_ns / max(1, sum(both)) for _, both in rounds],
            floor=[length_ns / max(1, alone) for (alone,), _ in rounds],
        ),
        Measured(
            "two_processes_share",
            ours=[min(both) / max(1, sum(both)) for _, both in rounds],
            unit="share",
        ),
    ]
