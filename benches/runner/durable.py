"""Durable appends: one thread beside F, and processes that share each other's syncs."""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import fmean
from typing import TYPE_CHECKING

import falaj
from runner.beside import clocked
from runner.floors import MappedFile
from runner.results import Measured
from runner.workers import Worker, told

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from runner.sizes import Sizes


# Turns of each contestant in a round.
TURNS = 10
# A round ends early on a disk so slow that it would take longer than this.
ROUND_S_MAX = 2.0


def _append(topic: falaj.Topic[memoryview], records: int, value: bytes) -> None:
    append = topic.append
    for _ in range(records):
        append(value)


def _writer(connection: Connection, path: str, value: bytes) -> None:
    """In a worker: append a given number of records durably, repeatedly until stopped."""
    with falaj.open(path, sync="durable") as store:
        topic = store.topic("durable", codec="raw")
        connection.send("ready")
        while records := told(connection):
            _append(topic, records, value)
            connection.send(records)


def measure(place: Path, sizes: Sizes) -> list[Measured]:
    """Measure one thread, F, and all processes together, in turns on one topic."""
    value, path = b"v" * sizes.value_bytes, str(place / "durable")
    one_ns: list[float] = []
    floor_ns: list[float] = []
    together_ns: list[float] = []
    with ExitStack() as stack:
        topic = stack.enter_context(falaj.open(path, sync="durable")).topic("durable", codec="raw")
        floor = MappedFile(place / "durable-floor")
        stack.callback(floor.close)
        workers = [
            stack.enter_context(Worker(_writer, path, value)) for _ in range(sizes.processes)
        ]
        for worker in workers:
            worker.answer()

        def together() -> None:
            for worker in workers:
                worker.tell(sizes.durable)
            for worker in workers:
                worker.answer()

        def one() -> None:
            _append(topic, sizes.durable, value)

        for _ in range(sizes.rounds + 1):
            # In short turns: a disk has good and bad moments, and each contestant must meet them
            # all.
            took: list[tuple[float, int, int]] = []
            begin = time.monotonic()
            while len(took) < TURNS and time.monotonic() - begin < ROUND_S_MAX:
                took.append((floor.run(sizes.durable), clocked(one), clocked(together)))
            floor_ns.append(fmean(turn[0] for turn in took))
            one_ns.append(fmean(turn[1] for turn in took) / sizes.durable)
            together_ns.append(fmean(turn[2] for turn in took) / (sizes.durable * sizes.processes))
    return [
        Measured("python_durable", one_ns[1:], floor_ns[1:]),
        Measured("python_durable_together", together_ns[1:], one_ns[1:]),
        Measured("fdatasync", floor_ns[1:]),
    ]
