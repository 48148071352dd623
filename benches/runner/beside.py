"""Our work beside its lower bound, round by round, under pytest-benchmark.

The lower bound runs between our rounds, so that other load on the machine meets both.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from runner import machine
from runner.sizes import FULL, TINY, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

    Work = Callable[[], object]


def clocked(work: Work) -> int:
    """Run something, and return the nanoseconds that it took."""
    begin = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - begin


class Beside:
    """Times our work under pytest-benchmark; the lower bound runs before each round of it."""

    def __init__(self, benchmark: BenchmarkFixture) -> None:
        """Take a test's fixture."""
        self._benchmark = benchmark
        self.sizes: Sizes = FULL if benchmark.enabled else TINY

    def __call__(
        self,
        ours: Work,
        bound: Work,
        records: int,
        prepare: Work = lambda: None,
        fresh_bytes: int = 0,
    ) -> None:
        """Measure both.

        Args:
            ours: A round of ours.
            bound: A round of the lower bound.
            records: How many records either is.
            prepare: Runs untimed before each of our rounds.
            fresh_bytes: Memory that such a round takes from the machine.
        """
        floor_ns: list[float] = []

        def setup() -> None:
            floor_ns.append(clocked(bound) / records)
            prepare()
            machine.warm(fresh_bytes)

        self._benchmark.pedantic(  # type: ignore[no-untyped-call]
            ours, setup=setup, rounds=self.sizes.rounds, warmup_rounds=1
        )
        info = self._benchmark.extra_info
        info["records"], info["floor_ns"] = records, floor_ns[-self.sizes.rounds :]
