"""Pipelines as processes of their own, killed for good: the next goes on where they were.

Each process starts a Spark, which takes long: `make test-proof` runs them, and one kills two.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

import falaj
from cli.shell import PROGRAM
from falaj.pipeline import exported_files
from spark.drivers import environment

if TYPE_CHECKING:
    from pathlib import Path

    from spark.pipelines.conftest import Flown

pytestmark = pytest.mark.proof

DEADLINE_S = 100
MOVES = 20

# Imports, and is killed the moment that the records are there; or, where they are, exports and is
# killed the moment that its twentieth file is in its place.
CHILD = """
import os, signal, sys
import falaj.spark.session
from falaj.pipeline import ExportConfig, ImportConfig, export, import_files
from falaj.pipeline.base import steps
from falaj.pipeline.importing import run as importing
source, folder, moves = sys.argv[1], sys.argv[2], int(sys.argv[3])

def fatal(do, left):
    def doing(*given):
        do(*given)
        left.pop()
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
    return doing

importing._Run._commit = fatal(importing._Run._commit, [0])
steps.move = fatal(steps.move, [0] * moves)
spark = falaj.spark.session.local("child")
given = dict(store=folder + "/s", into="sales", source=folder + "/in")
print(import_files(spark, ImportConfig(**given)).known, flush=True)
export(spark, ExportConfig(store=source, topic="flights", into=folder + "/lake"))
"""


def test_pipelines_that_are_killed_are_finished_by_other_processes(
    january: Flown, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for name in range(3):
        rows = "".join(f'{{"n": {n}}}\n' for n in range(1_000))
        (tmp_path / "in" / f"{name}.json").write_text(rows)
    child = [sys.executable, "-c", CHILD, str(january.store), str(tmp_path), str(MOVES)]
    ends = [
        subprocess.run(child, env=environment(), capture_output=True, timeout=DEADLINE_S)
        for _ in range(2)
    ]
    assert [end.returncode for end in ends] == [-signal.SIGKILL] * 2, ends
    assert [end.stdout for end in ends] == [b"", b"3\n"]
    with falaj.open(tmp_path / "s", read_only=True) as store, store.any_topic("sales") as topic:
        found = Counter(json.loads(record.to_bytes())["n"] for record in topic)
    assert found == dict.fromkeys(range(1_000), 3)

    assert len(list(tmp_path.glob("lake/date=*/*"))) == MOVES
    command = [PROGRAM, "pipeline", "export", "-s", str(january.store)]
    command += ["flights", "lake", "--json"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["records"], told["number"], told["resumed"]) == (0, 1, True)
    places = Counter[tuple[int, int]]()
    for path in exported_files(tmp_path / "lake"):
        columns = pyarrow.parquet.read_table(path, columns=["partition", "offset"]).to_pydict()
        places.update(zip(columns["partition"], columns["offset"], strict=True))
    assert len(places) == places.total() == january.records
