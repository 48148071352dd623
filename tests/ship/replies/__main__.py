"""Run worlds of faulty replies: `python -m ship.replies --seed N [--seconds S | --faults F]`.

A world has its own seed. A finding ends the run with 1, and the line tells how to see it again.
With `--state` the next call goes on behind the worlds before.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from ship.replies.simulated import simulated
from ship.replies.world import STEPS, World


def played(seed: int, steps: int) -> Counter[str]:
    """Play a world to its end; return what was done."""
    with tempfile.TemporaryDirectory() as folder, simulated(seed) as clock:
        world = World(Path(folder, "store"), seed, clock)
        for _ in range(steps):
            world.step()
        world.end()
        return world.counts


def main() -> int:
    """Play worlds; return 1 for a finding."""
    parser = argparse.ArgumentParser(prog="python -m ship.replies", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--faults", type=int, default=1 << 60, help="end after so many")
    parser.add_argument("--steps", type=int, default=STEPS, help="events of a world")
    parser.add_argument("--state", type=Path, help="file that counts, and is gone on from")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    if given.state is not None and given.state.exists():
        counts.update(json.loads(given.state.read_text()))
    until, most = time.monotonic() + given.seconds, counts["faults"] + given.faults
    while time.monotonic() < until and counts["faults"] < most:
        seed = given.seed + counts["worlds"]
        try:
            counts.update(played(seed, given.steps))
        except Exception:  # noqa: BLE001  # whatever it is, it is a finding
            traceback.print_exc(file=sys.stdout)
            again = f"python -m ship.replies --seed {seed} --steps {given.steps} --faults 1"
            print(f"FOUND in the world with seed {seed}: {again}")
            return 1
        counts["worlds"] += 1
        if given.state is not None:
            beside = given.state.with_suffix(".new")
            beside.write_text(json.dumps(dict(sorted(counts.items())), indent=1))
            beside.replace(given.state)
        if counts["worlds"] % 10 == 0 or counts["faults"] >= most:
            print(f"faulty replies: {dict(sorted(counts.items()))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
