"""Run rounds of the storm: `python -m ship.storm --seed N [--seconds S | --kills K] --dir D`.

A round has its own seed, directory, store and place, and is judged at its end. A finding ends the
run with 1, and its directory stays. With `--state` the next call goes on behind the rounds before.
"""

import argparse
import json
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ship.storm.account import read
from ship.storm.judge import judge
from ship.storm.rounds import Found, Round, apart

KILLS = 200
NUMBERS = 80
"""Kills of a round, and numbers of it that are restored."""


def played(base: Path, seed: int, kills: int, numbers: int, until: float) -> dict[str, Any]:
    """Play a round and judge it; return what was done.

    Raises:
        Found: A promise was broken.
    """
    base.mkdir(parents=True)
    round_ = Round(base, seed)
    began = time.monotonic()
    round_.run(kills, until)
    ended = time.monotonic()
    apart(base / "judge.err", lambda: judge(base, random.Random(seed), numbers))
    judged, told = base / "judged", read(base / "account")
    done = {
        "kills": round_.kills,
        "numbers": int(judged.read_text()) if judged.exists() else 0,
        "states_read": len(told.saw) + len(told.followed),
        "points": dict(round_.points),
        "storming_s": ended - began,
        "judging_s": time.monotonic() - ended,
    }
    shutil.rmtree(base)
    return done


def add(state: dict[str, Any], done: dict[str, Any]) -> None:
    """Count a round."""
    points = Counter(state["points"])
    points.update(done["points"])
    state["points"] = dict(sorted(points.items()))
    for name in ("kills", "numbers", "storming_s", "judging_s"):
        state[name] += done[name]
    state["kills_at_points"] = sum(
        count for point, count in points.items() if not point.endswith("at any time")
    )
    state["kills_of_readers"] = sum(
        count for point, count in points.items() if point.startswith(("reader", "follower"))
    )
    state["states_read"] = state.get("states_read", 0) + done["states_read"]
    state["rounds"] += 1


def put(path: Path | None, state: dict[str, Any]) -> None:
    """Keep the state, whole or not at all."""
    if path is not None:
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(state, indent=1))
        beside.replace(path)


def main() -> int:
    """Run rounds; return 1 for a finding."""
    parser = argparse.ArgumentParser(prog="python -m ship.storm", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--kills", type=int, default=1 << 60)
    parser.add_argument("--kills-a-round", type=int, default=KILLS)
    parser.add_argument("--numbers", type=int, default=NUMBERS, help="restored after a round")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--state", type=Path, help="file that counts, and is gone on from")
    given = parser.parse_args()
    state: dict[str, Any] = dict.fromkeys(
        ("rounds", "kills", "kills_at_points", "numbers", "storming_s", "judging_s"), 0
    ) | {"points": {}}
    if given.state is not None and given.state.exists():
        state = json.loads(given.state.read_text())
    until, most = time.monotonic() + given.seconds, state["kills"] + given.kills
    while time.monotonic() < until and state["kills"] < most:
        seed = given.seed + state["rounds"]
        base = given.dir / f"round{seed}"
        kills = min(given.kills_a_round, most - state["kills"])
        try:
            done = played(base, seed, kills, given.numbers, until)
        except Found as found:
            print(f"FOUND in the round with seed {seed}, kept in {base}: {found}")
            print(f"again: python -m ship.storm --seed {seed} --kills {kills} --dir {given.dir}")
            return 1
        add(state, done)
        put(given.state, state)
        points = sum(not point.endswith("at any time") for point in state["points"])
        print(
            f"storm of shipping: {state['kills']} kills, {state['kills_at_points']} at {points}"
            f" points, {state['kills_of_readers']} of readers, {state['numbers']} numbers restored,"
            f" {state['states_read']} states read, {state['rounds']} rounds",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
