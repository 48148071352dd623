"""Every part of the benchmark runner runs, at a tiny size: figures mean nothing here."""

from pathlib import Path

import pytest

from runner import analysing, machine
from runner.__main__ import PARTS
from runner.rows import REFERENCES, ROWS, SPARK_REFERENCES, SPARK_ROWS
from runner.sizes import TINY


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_the_runner_gives_rows_that_the_table_knows(
    part: str, tmp_path: Path
) -> None:
    measured = PARTS[part](tmp_path, TINY)
    known = {row.key for row in (*ROWS, *REFERENCES)}
    assert measured
    assert {one.name for one in measured} <= known
    for one in measured:
        # A difference may go either way; who sleeps as he should uses nothing in so short a time,
        # in which one of two may not come to run, either.
        is_free = one.name in {"start_many_segments", "follow_idle", "two_processes_share"}
        assert is_free or all(figure > 0 for figure in one.ours)


def test_polars_and_duckdb_are_measured_and_agree_with_parquet(tmp_path: Path) -> None:
    measured = analysing.measure(tmp_path, TINY)
    known = {row.key for row in (*SPARK_ROWS, *SPARK_REFERENCES)}
    assert {one.name for one in measured} <= known
    assert all(figure > 0 for one in measured for figure in (*one.ours, *one.floor))


def test_the_machine_is_described_without_its_name(tmp_path: Path) -> None:
    about = machine.describe(tmp_path)
    assert "cores (" in about
    assert "GiB" in about
    name = Path("/proc/sys/kernel/hostname").read_text().strip()
    assert name not in about.split()


def test_warming_frees_what_it_touched() -> None:
    machine.warm(0)
    machine.warm(TINY.warm_bytes)
