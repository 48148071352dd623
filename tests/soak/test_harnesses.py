"""Each real harness resumes from its files, and an interruption causes no finding.

Needs the programs of `make proof-programs`; without them, the harnesses' own tests run a little of
each.
"""

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from soak import sources
from soak.harnesses import ROOT, Job, Turn, everything

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PROGRAMS = (
    "shipped/release/falaj-sim",
    "storm/models/falaj-storm",
    "shipped/release/falaj-hostile",
)
# One of each kind. The others have a test of their own.
JOBS = (
    *("explore-0", "kill", "power", "flips-mapped-closed", "faults"),
    *("ship-kills-1", "ship-replies"),
)
SECONDS = 0.5


def pieces(job: Job, home: Path) -> list[tuple[int, str]]:
    """Run a job twice, from one state file."""
    ended = []
    for number in range(2):
        scratch = home / f"{job.name}-{number}"
        scratch.mkdir()
        turn = Turn(77, number, SECONDS, home / job.name, scratch)
        command = job.command(turn)
        if "--kills" in command:  # the rounds of a short storm are short: one for each piece
            command[command.index("--kills") + 1] = str(4 + 4 * number)
            command[command.index("--records") + 1] = str(1_000 + 1_000 * number)
        done = subprocess.run(command, capture_output=True, text=True, timeout=250)
        ended.append((done.returncode, done.stdout + done.stderr))
    return ended


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_every_harness_goes_on_with_what_it_kept(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    sources.copy(ROOT, programs)
    for name in PROGRAMS:
        shutil.copy2(TARGET / name, programs)
    jobs = [job for job in everything(programs).jobs if job.name in JOBS]
    assert len(jobs) == len(JOBS)
    with ThreadPoolExecutor(3) as pool:
        for job, ended in zip(jobs, pool.map(lambda job: pieces(job, tmp_path), jobs), strict=True):
            assert all(code == 0 or "NOT RUN" in said for code, said in ended), (job.name, ended)
    counts = json.loads((tmp_path / "faults.json").read_text())
    assert counts["next"] > 0
    assert not counts["findings"]
    assert json.loads((tmp_path / "kill.json").read_text())["rounds"] == 2
    assert json.loads((tmp_path / "ship-kills-1.json").read_text())["rounds"] == 2
    assert json.loads((tmp_path / "ship-replies.json").read_text())["worlds"] >= 2
