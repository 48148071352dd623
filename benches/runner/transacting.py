"""Transactions: a record to each of two topics of a log, alone, with a cursor, and durably."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import falaj
from runner.beside import clocked
from runner.floors import MappedFile
from runner.results import Measured

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from falaj._arguments import Sync
    from runner.sizes import Sizes

_TURNS = 10
"""Turns of durable transactions and of their lower bound in a round."""


def measure(place: Path, sizes: Sizes) -> list[Measured]:
    """Write to both topics at once, repeatedly."""
    value = b"v" * sizes.value_bytes
    with falaj.open(place / "store", sync="none") as store:
        source = store.topic("source", codec="raw")
        for _ in range(sizes.read_records // sizes.batch):
            source.extend([value] * sizes.batch)
        paid, audit = (store.topic(name, log="shop", codec="raw") for name in ("paid", "audit"))

        def write(times: int, sync: Sync = "none") -> None:
            for _ in range(times):
                with store.transaction(sync=sync) as tx:
                    tx.append(paid, value)
                    tx.append(audit, value)

        alone: list[float] = []
        moved: list[float] = []
        with store.consumer("worker", [source], cursor_in="shop") as worker:
            for number in range(sizes.rounds + 1):
                began = time.perf_counter_ns()
                write(sizes.lookups)
                told = time.perf_counter_ns()
                worker.seek("earliest")
                for _record, _ in zip(worker, range(sizes.lookups), strict=False):
                    with store.transaction() as tx:
                        tx.append(paid, value)
                        tx.append(audit, value)
                        tx.commit_cursor(worker)
                if number > 0:
                    alone.append((told - began) / sizes.lookups)
                    moved.append((time.perf_counter_ns() - told) / sizes.lookups)
        durable, floor_ns = _durable(place, sizes, lambda: write(sizes.durable, "durable"))
    return [
        Measured("transaction", alone),
        Measured("transaction_with_cursor", moved),
        Measured("transaction_durable", durable, floor_ns),
    ]


def _durable(
    place: Path, sizes: Sizes, write: Callable[[], None]
) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    floor_ns: list[float] = []
    floor = MappedFile(place / "durable-floor")
    for _ in range(sizes.rounds):
        # In short turns: a disk has good and bad moments, and each contestant must meet them all.
        turns = [(floor.run(sizes.durable), clocked(write)) for _ in range(_TURNS)]
        floor_ns.append(sum(turn[0] for turn in turns) / _TURNS)
        ours.append(sum(turn[1] for turn in turns) / _TURNS / sizes.durable)
    floor.close()
    return ours, floor_ns
