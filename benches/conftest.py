"""Fixtures for the benchmarks of one process; see runner/beside.py and runner/sizes.py."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from runner.beside import Beside


@pytest.fixture
def beside(benchmark: BenchmarkFixture) -> Beside:
    return Beside(benchmark)
