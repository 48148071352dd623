"""Every part of the server's benchmark runs, at a tiny size: figures mean nothing here."""

from pathlib import Path

import pytest

from runner.server.__main__ import PARTS
from runner.server.programs import Programs
from runner.server.rows import REFERENCES, ROWS
from runner.sizes import TINY
from server.doors import PROGRAM

DOORS = PROGRAM.parent / "examples/doors"


@pytest.mark.skipif(not DOORS.exists(), reason="NOT TESTED: cargo test builds examples/doors")
@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_the_servers_benchmark_gives_rows_that_its_table_knows(
    part: str, tmp_path: Path
) -> None:
    measured = PARTS[part](Programs(PROGRAM, DOORS, None), tmp_path, TINY)
    known = {row.key for row in (*ROWS, *REFERENCES)}
    assert measured
    assert {one.name for one in measured} <= known
    for one in measured:
        # So few followers need no memory and no time.
        assert one.name.startswith("idle_") or all(figure > 0 for figure in one.ours), one
