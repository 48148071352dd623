"""Faulty replies cost nothing that was acknowledged; worlds repeat, and find planted mistakes."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from falaj.errors import CorruptData
from falaj.ship import driver, objects
from falaj.ship import shipper as shipper_module
from falaj.ship.protocol import Reading, Shipping
from ship.explore import planted
from ship.replies.__main__ import played
from ship.replies.witness import Broken
from ship.replies.world import STEPS

TESTS = Path(__file__).parents[1]
FAULTS = 2_000


def test_faulty_replies_lose_nothing_and_no_view_differs(tmp_path: Path) -> None:
    seed = random.randrange(2**31)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ship.replies", "--seed", str(seed)),
            *("--faults", str(FAULTS), "--seconds", "60", "--state", str(tmp_path / "state.json")),
        ],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(TESTS), "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "state.json").read_text())
    assert told["faults"] > FAULTS / 8
    for name in ("lost", "reply", "late", "twice", "busy", "claims", "fenced", "restored"):
        assert told[name] > 5, told
    assert told["copies"] > told["worlds"]
    assert told["copied processes"] > 1
    assert told["given up"] > told["worlds"]


def test_a_world_repeats_with_its_seed() -> None:
    first, again = played(11, 60), played(11, 60)
    assert first == again
    assert played(12, 60) != first


def _not_awaited(uploads: objects.Uploads, key: str, body: bytes) -> None:
    uploads.origin.put_new(key, body)


def _without_last_look(goal: Literal["end"], until: int | None = None) -> Reading:
    return planted.NoLastLook(goal, until)


PLANTED: dict[str, tuple[object, str, object]] = {
    "409 believed": (shipper_module, "Shipping", planted.Believes409),
    "early delete": (shipper_module, "Shipping", planted.DeletesEarly),
    "deleted claims": (shipper_module, "Shipping", planted.DeletesClaims),
    "a second look without a consequence": (
        *(shipper_module, "Shipping"),
        lambda: Shipping(planted.NeverStartsOver("claim")),
    ),
    "a restore without the last look": (driver, "Reading", _without_last_look),
    "a twin's number taken for its own": (shipper_module, "Shipping", planted.MineByClaim),
    "a twin's number passed over": (shipper_module, "Shipping", planted.Continues),
    "a store that is not compared with its place": (
        *(shipper_module, "expect_same_history"),
        lambda *given: None,
    ),
    "a number before its packs": (objects.Uploads, "_until_there", _not_awaited),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[mistake])
    found = []
    for seed in range(12):
        try:
            played(seed, STEPS)
        except (Broken, CorruptData) as error:
            found.append(str(error))
            break
    assert found
