"""The measurement of the systems: in turns, each for the same short time, in several rounds.

A turn lasts a fixed time, since the systems differ by a factor of hundreds. In each round every
system has one turn, and the order rotates, so other load on the machine meets all of them.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner import machine
from runner.peers.subjects import PEERS, Peer, served
from runner.results import SECOND_NS, Measured
from runner.workers import Worker, told

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

    from runner.sizes import Sizes

# Both sides of a race begin together, this long after the signal.
_NOTICE_NS = 50_000_000
PROCESSES = 4


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    key: str
    title: str
    durable: bool
    batch: int = 1
    """Records of a call."""
    stride: int = 1
    """Calls between two looks at the clock."""
    processes: int = 1
    reads: bool = False


ROWS = (
    Row("append", "append, one per call", durable=False, stride=50),
    Row("append_together", "… four processes together", durable=False, stride=50, processes=4),
    Row("extend", "append, 1,000 per call", durable=False, batch=1_000),
    Row("read", "read every record in order", durable=False, reads=True),
    Row("append_durable", "append, one per call", durable=True),
    Row("append_durable_together", "… four processes together", durable=True, processes=4),
    Row("extend_durable", "append, 1,000 per call", durable=True, batch=1_000),
)


def _fill_for(peer: Peer, row: Row, value: bytes, length_ns: int) -> tuple[int, int]:
    """Append until the time is over; return the records, and the nanoseconds that it took."""
    append, extend, values = peer.append, peer.extend, [value] * row.batch
    count, begin = 0, time.perf_counter_ns()
    while (taken := time.perf_counter_ns() - begin) < length_ns:
        if row.batch > 1:
            extend(values)
            count += row.batch
        else:
            for _ in range(row.stride):
                append(value)
            count += row.stride
    return count, taken


def _writer(connection: Connection, name: str, folder: Path, row: Row, value: bytes) -> None:
    """In a worker: append from one moment on, for a given time."""
    peer = PEERS[name](folder, row.durable)
    peer.append(value)
    connection.send("ready")
    while asked := told(connection):
        begin, length_ns = asked
        while time.perf_counter_ns() < begin:
            pass
        connection.send(_fill_for(peer, row, value, length_ns)[0])
    peer.close()


def _turns(
    name: str, row: Row, folder: Path, sizes: Sizes, stack: ExitStack
) -> Callable[[], float]:
    """Open a system for a row; return what runs one turn and gives its nanoseconds per record."""
    folder.mkdir(parents=True)
    stack.enter_context(served(name, folder, row.durable))
    value, length_ns = b"v" * sizes.value_bytes, int(sizes.peer_s * SECOND_NS)
    if row.processes > 1:
        workers = [
            stack.enter_context(Worker(_writer, name, folder, row, value))
            for _ in range(row.processes)
        ]
        for worker in workers:
            worker.answer()  # it is ready

        def together() -> float:
            begin = time.perf_counter_ns() + _NOTICE_NS
            for worker in workers:
                worker.tell((begin, length_ns))
            count: int = sum(worker.answer() for worker in workers)
            return length_ns / max(1, count)

        return together
    peer = PEERS[name](folder, row.durable)
    stack.callback(peer.close)
    if row.reads:
        values = [value] * sizes.batch
        for _ in range(0, sizes.peer_records, sizes.batch):
            peer.extend(values)
        expected = len(value) * sizes.peer_records

        def read() -> float:
            begin = time.perf_counter_ns()
            if (found := peer.read()) != expected:
                raise AssertionError(f"{name} read {found} bytes, not {expected}")
            return (time.perf_counter_ns() - begin) / sizes.peer_records

        return read

    def fill() -> float:
        count, taken = _fill_for(peer, row, value, length_ns)
        return taken / count

    return fill


def measure(row: Row, names: list[str], place: Path, sizes: Sizes) -> list[Measured]:
    """Measure one row for these systems, in turns; the first round is thrown away."""
    rounds: list[list[float]] = []
    with ExitStack() as stack:
        turns = [_turns(name, row, place / name, sizes, stack) for name in names]
        for number in range(sizes.rounds + 1):
            taken = [0.0] * len(names)
            for i in range(len(names)):
                at = (i + number) % len(names)
                machine.warm(sizes.peer_fresh_bytes)
                taken[at] = turns[at]()
            rounds.append(taken)
    return [
        Measured(f"{row.key}: {name}", [taken[at] for taken in rounds[1:]], unit="ns")
        for at, name in enumerate(names)
    ]
