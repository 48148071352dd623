"""What the Python rows have in common: sizes, stores to read, and a floor beside each.

A row interleaves itself and its floor: one round of each in turn, after a round that touches the
memory and is thrown away. The median of ours is what pytest-benchmark reports; the floor's, and the
ratio, stand in `extra_info` of the JSON.
"""

import gc
import statistics
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

VALUE = b"v" * 100
RECORDS = 200_000
BATCH = 1_000
ROUNDS = 7

Work = Callable[[], object]


def ns_per_record(work: Work, records: int) -> float:
    """Run once, without the collector's interruptions, and return nanoseconds a record."""
    gc.collect()
    gc.disable()
    try:
        begin = perf_counter_ns()
        work()
        return (perf_counter_ns() - begin) / records
    finally:
        gc.enable()


def row(benchmark: "BenchmarkFixture", records: int, ours: Work, floor: Work | None = None) -> None:
    """Time a row; with `--benchmark-disable` run it once."""
    floors: list[float] = []

    def before() -> None:
        if floor is not None:
            floors.append(ns_per_record(floor, records))

    if benchmark.disabled:
        benchmark.pedantic(ours, rounds=1)  # type: ignore[no-untyped-call]
        before()
        return
    before()
    taken = [ns_per_record(ours, records)]
    for _ in range(ROUNDS):
        before()
        taken.append(ns_per_record(ours, records))
    median_ns, floor_ns = statistics.median(taken[1:]), statistics.median(floors[1:] or [0])
    benchmark.extra_info |= {
        "records": records,
        "ns_per_record": round(median_ns, 1),
        "rounds_ns": [round(ns, 1) for ns in taken[1:]],
        "million_a_second": round(1000 / median_ns, 2),
    }
    if floor is not None:
        benchmark.extra_info |= {
            "floor_ns": round(floor_ns, 1),
            "ratio": round(floor_ns / median_ns, 3),
        }
    # The interleaved rounds above are the measurement; this one is for pytest-benchmark's table.
    benchmark.pedantic(ours, rounds=1)  # type: ignore[no-untyped-call]
