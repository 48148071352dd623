"""Take-over: a writer is killed while it holds the lock; how soon does the next append succeed?

The writer is first stopped, repeatedly, until it holds the lock at that moment. So there is
something to take over in every round. The clock begins at the kill. The lower bound is the same
with a bare flock: the time that the kernel takes to end such a process and close its files.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import time
from typing import TYPE_CHECKING

import falaj
from falaj.errors import LockTimeout
from runner.results import Measured
from runner.workers import Worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from runner.sizes import Sizes

# Large values: the longer the copy, the sooner a stop meets it.
_VALUE_BYTES = 256 << 10
# Attempts to stop it with the lock: one in a few succeeds.
_TRIES_MAX = 1_000
_ATTEMPT_S = 0.05


def _victim(connection: Connection, path: str) -> None:
    """In a worker: append until killed."""
    with falaj.open(path, sync="none") as store:
        append = store.topic("t", codec="raw").append
        value = bytes(_VALUE_BYTES)
        append(value)
        connection.send("ready")
        while True:
            append(value)


def _holder(connection: Connection, path: str) -> None:
    """In a worker: hold a flock until killed."""
    with open(path, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        connection.send("ready")
        connection.recv()


def _catch(victim: Worker, attempt: falaj.Topic[memoryview], chance: random.Random) -> None:
    """Stop the writer while it holds the lock."""
    for _ in range(_TRIES_MAX):
        time.sleep(chance.uniform(0.0005, 0.002))  # sleep: a random moment
        os.kill(victim.pid, signal.SIGSTOP)
        try:
            attempt.append(b"is it held?")
        except LockTimeout:
            return
        os.kill(victim.pid, signal.SIGCONT)
    raise TimeoutError("the writer was never stopped with the lock")


def measure(place: Path, sizes: Sizes) -> list[Measured]:
    """Kill writers and holders of a bare flock, in turns."""
    chance = random.Random(sizes.seed)
    ours: list[float] = []
    floor: list[float] = []
    for i in range(sizes.kills):
        # A store each: the writers' records are thrown away with it.
        path = str(place / f"dying-{i}")
        with (
            falaj.open(path, sync="none", lock_timeout=_ATTEMPT_S) as hasty,
            falaj.open(path, sync="none") as store,
        ):
            attempt, topic = hasty.topic("t", codec="raw"), store.topic("t", codec="raw")
            topic.append(b"first")
            victim = Worker(_victim, path)
            victim.answer()
            _catch(victim, attempt, chance)
            begin = time.perf_counter_ns()
            victim.process.kill()
            topic.append(b"next")
            ours.append(time.perf_counter_ns() - begin)
            victim.process.join()
        floor.append(_let_go(str(place / f"lock-{i}")))
    return [Measured("take_over", ours, floor)]


def _let_go(path: str) -> float:
    holder = Worker(_holder, path)
    holder.answer()
    with open(path, "rb") as file:
        begin = time.perf_counter_ns()
        holder.process.kill()
        fcntl.flock(file, fcntl.LOCK_EX)
        taken = time.perf_counter_ns() - begin
    holder.process.join()
    return taken
