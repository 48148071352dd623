"""Workers of a queue that take and ack 100 jobs at a time: one, and four together."""

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

WORKERS = 4
_BATCH = 100
# More jobs than all workers do in a round.
_JOBS_PER_S = 3_000_000
_NOTICE_NS = 20_000_000


def _worker(connection: Connection, path: str) -> None:
    """In a worker: take and ack from one moment to another; return how many."""
    with falaj.open(path, sync="none") as store:
        connection.send("ready")
        while (asked := told(connection)) is not None:
            begin, end, name = asked
            count = 0
            with store.queue(name, topic="jobs") as queue:
                while time.perf_counter_ns() < begin:
                    pass
                while time.perf_counter_ns() < end:
                    jobs = queue.take(_BATCH, timeout=0)
                    queue.ack(jobs)
                    count += len(jobs)
            connection.send(count)


def measure(place: Path, sizes: Sizes) -> list[Measured]:
    """Measure one and four together, in turns; each round has a queue of its own."""
    path, value = str(place / "queueing"), b"v" * sizes.value_bytes
    length_ns = int(sizes.contention_s * SECOND_NS)
    with falaj.open(path) as store:
        jobs = store.topic("jobs", sync="none")
        for _ in range(max(1, int(sizes.contention_s * _JOBS_PER_S) // 1000)):
            jobs.extend([value] * 1000)
        jobs.flush()
        workers = [Worker(_worker, path) for _ in range(WORKERS)]
        for worker in workers:
            worker.answer()  # it is ready

        def run(name: str, these: list[Worker]) -> float:
            machine.warm(sizes.fresh_bytes)
            begin = time.perf_counter_ns() + _NOTICE_NS
            for worker in these:
                worker.tell((begin, begin + length_ns, name))
            done: int = sum(worker.answer() for worker in these)
            return length_ns / max(1, done)

        try:
            rounds = []
            for i in range(sizes.rounds):
                alone = run(f"one{i}", workers[:1])
                rounds.append((alone, run(f"four{i}", workers)))
        finally:
            for worker in workers:
                worker.__exit__(None, None, None)
    return [
        Measured("queue_one", ours=[alone for alone, _ in rounds]),
        Measured(
            "queue_four",
            ours=[together for _, together in rounds],
            floor=[alone for alone, _ in rounds],
        ),
    ]
