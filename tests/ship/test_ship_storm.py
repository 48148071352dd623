"""Writers, shippers, readers and restores are killed: each number restores and reads exactly."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ship.storm.points import ALL, Points

TESTS = Path(__file__).parents[1]
KILLS, KILLS_A_ROUND = 300, 100


def storm(base: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program."""
    return subprocess.run(
        [sys.executable, "-m", "ship.storm", "--dir", str(base), *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        timeout=110,
    )


def test_every_number_of_a_place_survives_kills_of_all_that_use_it(
    tmp_path: Path,
) -> None:
    seed = random.randrange(2**31)
    done = storm(
        tmp_path / "rounds",
        *("--seed", str(seed), "--kills", str(KILLS), "--kills-a-round", str(KILLS_A_ROUND)),
        *("--seconds", "60", "--numbers", "20", "--state", str(tmp_path / "state.json")),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "state.json").read_text())
    assert told["kills"] >= 100
    assert told["kills_at_points"] > told["kills"] / 5
    assert told["numbers"] >= 15
    assert told["kills_of_readers"] >= 15
    assert told["states_read"] >= 10
    assert list((tmp_path / "rounds").iterdir()) == []


def test_a_storm_goes_on_from_its_state(tmp_path: Path) -> None:
    words = ("--seed", "7", "--kills", "20", "--state", str(tmp_path / "state.json"))
    for rounds in (1, 2):
        assert storm(tmp_path / "rounds", *words).returncode == 0
        told = json.loads((tmp_path / "state.json").read_text())
        assert (told["rounds"], told["kills"] >= 20 * rounds) == (rounds, True)


@pytest.mark.parametrize("actor", ALL)
def test_each_point_kills_the_process_that_meets_it(
    actor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: killed.append(given))
    for name in ALL[actor]:
        points = Points(name, 2)
        for met in (name, "another"):
            points.meet(met)
        assert killed == []
        points.meet(name)
        assert killed == [(os.getpid(), signal.SIGKILL)]
        killed.clear()
