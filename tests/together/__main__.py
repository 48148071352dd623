"""Run the machine for some time: `python -m together --seed N [--seconds S | --lists L]`.

Each seed is `LISTS` lists of moves. A finding ends the run, with the moves shortened and the
command that reproduces it.
"""

import argparse
import sys
import time
import traceback

from together.machine import run

LISTS = 20
"""Lists of a seed; few, so that a failure is reproduced in a minute."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=0.0, help="continue with the next seeds")
    parser.add_argument("--lists", type=int, default=LISTS)
    given = parser.parse_args()
    end, seed, lists = time.monotonic() + given.seconds, given.seed, 0
    while True:
        try:
            run(seed, given.lists)
        except BaseException as found:
            if isinstance(found, KeyboardInterrupt):
                raise
            traceback.print_exc()
            print(f"FOUND with seed {seed}: python -m together --seed {seed} --lists {given.lists}")
            return 1
        lists, seed = lists + given.lists, seed + 1
        print(f"combined: {lists} lists of moves, the last of seed {seed - 1}", flush=True)
        if time.monotonic() >= end:
            return 0


if __name__ == "__main__":
    sys.exit(main())
