"""POSTs of records, in turns: the server, a bare handler, chukcha.

The bare handler reads a body and answers. chukcha's `/write` writes the lines of a body to a file.
Both sides get the same bodies from the same load, and answer before anything is on the disk.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from runner.results import SECOND_NS, Measured
from runner.server import programs

if TYPE_CHECKING:
    from pathlib import Path

    from runner.server.programs import Programs, Running
    from runner.sizes import Sizes


class Case(NamedTuple):
    """A kind of requests."""

    key: str
    content_type: str
    connections: int
    one: bool
    beside_chukcha: bool = True


CASES = (
    Case("post_many", "text/plain", 4, one=False),
    Case("post_one", "text/plain", 16, one=True),
    Case("post_json", "application/x-ndjson", 4, one=False, beside_chukcha=False),
)


class Subject(NamedTuple):
    """A program that takes the requests, and where it takes them."""

    name: str
    running: Running
    path: str


def _turn(of: Programs, case: Case, subject: Subject, sizes: Sizes) -> tuple[float, float]:
    """Run one turn; return nanoseconds per record, by the clock and of the server's processor."""
    records, running = 1 if case.one else sizes.batch, subject.running
    used = running.processor_ns()
    found = of.run(
        *("load", running.port, subject.path, running.token, case.content_type),
        *(case.connections, records, sizes.post_s),
    )
    used = running.processor_ns() - used
    count = found["requests"] * records
    return found["seconds"] * SECOND_NS / count, used / count


def measure(of: Programs, place: Path, sizes: Sizes) -> list[Measured]:
    """Measure all cases; the first round of each is thrown away."""
    measured = []
    os.mkfifo(place / "fifo")
    with ExitStack() as stack:
        ours = stack.enter_context(programs.server(of.server, place / "events"))
        bare = stack.enter_context(programs.bare(of.doors, place / "fifo"))
        chukcha = of.chukcha and stack.enter_context(
            programs.chukcha(of.chukcha, place / "chukcha")
        )
        for case in CASES:
            subjects = [
                Subject("ours", ours, f"/v1/topics/{case.key}/records"),
                Subject("bare", bare, "/write"),
            ]
            if chukcha and case.beside_chukcha:
                subjects.append(Subject("chukcha", chukcha, f"/write?category={case.key}"))
            measured += _case(of, case, subjects, sizes)
    return measured


def _case(of: Programs, case: Case, subjects: list[Subject], sizes: Sizes) -> list[Measured]:
    rounds: dict[str, list[tuple[float, float]]] = {subject.name: [] for subject in subjects}
    for number in range(sizes.rounds + 1):
        for i in range(len(subjects)):
            subject = subjects[(i + number) % len(subjects)]
            taken = _turn(of, case, subject, sizes)
            if number > 0:
                rounds[subject.name].append(taken)
    measured = []
    for name, suffix in (("bare", ""), ("chukcha", "_chukcha")):
        if name in rounds:
            for at, kind in enumerate(("", "_cpu")):
                ours = [taken[at] for taken in rounds["ours"]]
                beside = [taken[at] for taken in rounds[name]]
                measured.append(Measured(f"{case.key}{suffix}{kind}", ours, beside))
    return measured
