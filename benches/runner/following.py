"""A follower that waits in another process: how soon it has a record, and what it costs.

The writer stamps each record with the monotonic clock, which all processes share, right before it
appends. The follower reads the clock when it holds the record. The lower bound is a pipe between
the same two processes. The cost of the follower is the kernel's count for the whole process.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

import falaj
from runner.results import SECOND_NS, Measured
from runner.workers import Worker, told

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

    from runner.sizes import Sizes

_STAMP = 8
# Points of the latency curve that are kept for plots, as shares of the records.
CURVE = [i / 100 for i in range(1, 100)] + [0.995, 0.999]


def _now() -> int:
    return time.perf_counter_ns()


def _follower(connection: Connection, path: str) -> None:
    """In a worker: take a given number of records, and return how long each took."""
    with falaj.open(path) as store:
        records = iter(store.topic("followed", codec="raw").follow(start="latest"))
        connection.send("ready")
        while count := told(connection):
            taken = []
            for _ in range(count):
                stamp = bytes(next(records).value[:_STAMP])
                taken.append(_now() - int.from_bytes(stamp, "little"))
            connection.send(taken)


def _reader(connection: Connection, fifo: str) -> None:
    """In a worker: the same from a pipe."""
    fd = os.open(fifo, os.O_RDONLY)
    connection.send("ready")
    while count := told(connection):
        taken = []
        for _ in range(count):
            stamp = os.read(fd, _STAMP)
            taken.append(_now() - int.from_bytes(stamp, "little"))
        connection.send(taken)


def _pace(hz: int, count: int, put: Callable[[bytes], object]) -> None:
    """Append stamps at a fixed rate."""
    begin = _now()
    for i in range(count):
        while (ahead := begin + i * SECOND_NS // hz - _now()) > 0:
            time.sleep(ahead / SECOND_NS)  # sleep: the rate is part of the task
        put(_now().to_bytes(_STAMP, "little"))


def measure(place: Path, sizes: Sizes) -> list[Measured]:
    """Measure the follower, the pipe and idling, in turns."""
    path, fifo = str(place / "follow"), str(place / "pipe")
    os.mkfifo(fifo)
    count = max(1, int(sizes.follow_s * sizes.follow_hz))
    with (
        falaj.open(path, sync="none") as store,
        Worker(_follower, path) as follower,
        Worker(_reader, fifo) as reader,
    ):
        topic, pipe = store.topic("followed", codec="raw"), os.open(fifo, os.O_WRONLY)
        padding = bytes(sizes.value_bytes - _STAMP)
        follower.answer(), reader.answer()  # each says that it is ready

        def run(worker: Worker, put: Callable[[bytes], object]) -> tuple[list[int], float]:
            worker.tell(count)
            begin, cpu = _now(), worker.cpu_ns()
            _pace(sizes.follow_hz, count, put)
            taken = worker.answer()
            return taken, (worker.cpu_ns() - cpu) / (_now() - begin)

        def idle() -> float:
            follower.tell(1)
            time.sleep(0.05)  # sleep: until it has fallen asleep itself
            cpu = follower.cpu_ns()
            time.sleep(sizes.idle_s)  # sleep: this is what is measured
            used = follower.cpu_ns() - cpu
            topic.append(_now().to_bytes(_STAMP, "little"))
            follower.answer()
            return used / sizes.idle_s

        def follow() -> tuple[list[int], float]:
            return run(follower, lambda stamp: topic.append(stamp + padding))

        def read() -> tuple[list[int], float]:
            return run(reader, lambda stamp: os.write(pipe, stamp))

        follow(), read()  # the first round is thrown away
        rounds = [(follow(), read(), idle()) for _ in range(sizes.rounds)]
        os.close(pipe)
    ours = [taken for (taken, _), _, _ in rounds]
    pipes = [taken for _, (taken, _), _ in rounds]
    curves = {"curve": _curve(ours), "floor_curve": _curve(pipes)}
    p99 = [_quantile(taken, 0.99) for taken in ours]
    return [
        Measured(
            "follow_p50", [statistics.median(t) for t in ours],
            [statistics.median(t) for t in pipes], extra=curves,
        ),
        Measured("follow_p99", p99, [_quantile(taken, 0.99) for taken in pipes]),
        Measured("follow_cpu", [cpu for (_, cpu), _, _ in rounds], unit="share"),
        Measured("follow_idle", [used for _, _, used in rounds]),
    ]  # fmt: skip


def _quantile(taken: list[int], share: float) -> float:
    ordered = sorted(taken)
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])


def _curve(rounds: list[list[int]]) -> list[float]:
    every = [latency for taken in rounds for latency in taken]
    return [_quantile(every, share) for share in CURVE]
