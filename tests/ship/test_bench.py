"""Every part of the benchmark of places runs, at a tiny size: figures mean nothing here."""

from pathlib import Path

import pytest

from runner.bucket.__main__ import PARTS
from runner.bucket.places import places
from runner.bucket.rows import REFERENCES, ROWS
from runner.sizes import TINY


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_the_benchmark_of_places_gives_rows_that_its_table_knows(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{here / 'benches'}:{here / 'tests'}")
    work = tmp_path / "work"
    work.mkdir()
    with places(tmp_path) as found:
        measured = PARTS[part](found, work, TINY)
    known = {row.key for row in (*ROWS, *REFERENCES)}
    assert measured
    assert {one.name for one in measured} <= known
    for one in measured:
        assert one.name.startswith(("idle_", "memory")) or all(figure > 0 for figure in one.ours)
