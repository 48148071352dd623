"""What a new process pays before its first append.

The figure is a whole process, interpreter start included; `import_ns` in the JSON is the median of
what the import alone took, clocked inside those processes.
"""

import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

ROUNDS = 15
IMPORT_MS_MAX = 1_000  # a hang, not a bar: the bars are ratios, see README.md
PROGRAM = """
from time import perf_counter_ns
begin = perf_counter_ns()
import falaj
print(perf_counter_ns() - begin)
"""


def import_ns() -> int:
    """Import falaj in a new process and return the nanoseconds that took there."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True)
    return int(done.stdout)


def test_import_in_a_new_process(benchmark: "BenchmarkFixture") -> None:
    imports_ns: list[int] = []
    benchmark.pedantic(  # type: ignore[no-untyped-call]
        lambda: imports_ns.append(import_ns()), rounds=ROUNDS, warmup_rounds=1
    )
    benchmark.extra_info["import_ns"] = statistics.median(imports_ns)
    assert statistics.median(imports_ns) < IMPORT_MS_MAX * 1_000_000
