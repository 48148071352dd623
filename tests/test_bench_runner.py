"""Every part of the benchmark runner runs, at a tiny size: figures mean nothing here."""

from pathlib import Path

import pytest

from runner import analysing, machine
from runner.__main__ import PARTS
from runner.peers import measuring as peers
from runner.peers import page, subjects
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
        # A difference may have either sign. An idle follower uses no time in so short a run, and
        # one of two processes may not run at all.
        is_free = one.name in {"start_many_segments", "follow_idle", "two_processes_share"}
        assert is_free or all(figure > 0 for figure in one.ours)


def test_polars_and_duckdb_are_measured_and_agree_with_parquet(tmp_path: Path) -> None:
    measured = analysing.measure(tmp_path, TINY)
    known = {row.key for row in (*SPARK_ROWS, *SPARK_REFERENCES)}
    assert {one.name for one in measured} <= known
    assert all(figure > 0 for one in measured for figure in (*one.ours, *one.floor))


@pytest.mark.parametrize("row", peers.ROWS, ids=lambda row: row.key)
def test_each_alternative_that_is_installed_keeps_what_it_is_given(
    row: peers.Row, tmp_path: Path
) -> None:
    names = subjects.installed()
    assert names[:3] == ["falaj", "file + flock", "SQLite"]
    measured = peers.measure(row, names, tmp_path, TINY)
    assert [one.name for one in measured] == [f"{row.key}: {name}" for name in names]
    assert all(figure > 0 for one in measured for figure in one.ours)
    summary = page.figures("a machine", subjects.versions(), {one.name: one for one in measured})
    assert row.title in page.text(summary)
    assert row.title in page.markdown(summary)


@pytest.mark.parametrize("name", subjects.installed())
def test_an_alternative_reads_what_was_appended_one_by_one_and_together(
    name: str, tmp_path: Path
) -> None:
    with subjects.served(name, tmp_path, durable=False):
        peer = subjects.PEERS[name](tmp_path, False)
        peer.append(b"one")
        peer.extend([b"two", b"three"])
        assert peer.read() == 11
        peer.close()


def test_the_machine_is_described_without_its_name(tmp_path: Path) -> None:
    about = machine.describe(tmp_path)
    assert "cores (" in about
    assert "GiB" in about
    name = Path("/proc/sys/kernel/hostname").read_text().strip()
    assert name not in about.split()


def test_warming_frees_what_it_touched() -> None:
    machine.warm(0)
    machine.warm(TINY.warm_bytes)
