"""Ours beside a floor, round by round, under pytest-benchmark.

The floor runs between our rounds, so that whatever else the machine does meets both.
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
    """Run something and return the nanoseconds that took."""
    begin = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - begin


class Beside:
    """Times our work under pytest-benchmark; the floor's runs before each round of it."""

    def __init__(self, benchmark: BenchmarkFixture) -> None:
        """Take the fixture of a test."""
        self._benchmark = benchmark
        self.sizes: Sizes = FULL if benchmark.enabled else TINY

    def __call__(
        self,
        ours: Work,
        floor: Work,
        records: int,
        prepare: Work = lambda: None,
        fresh_bytes: int = 0,
    ) -> None:
        """Measure.

        Args:
            ours: A round of ours.
            floor: A round of the floor.
            records: How many records either is.
            prepare: Runs untimed before each of our rounds.
            fresh_bytes: Memory that such a round takes from the machine.
        """
        floor_ns: list[float] = []

        def setup() -> None:
            floor_ns.append(clocked(floor) / records)
            prepare()
            machine.warm(fresh_bytes)

        self._benchmark.pedantic(  # type: ignore[no-untyped-call]
            ours, setup=setup, rounds=self.sizes.rounds, warmup_rounds=1
        )
        info = self._benchmark.extra_info
        info["records"], info["floor_ns"] = records, floor_ns[-self.sizes.rounds :]
