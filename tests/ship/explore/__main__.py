"""Explore the protocol of a place at any size: `PYTHONPATH=tests python -m ship.explore --help`."""

import argparse
import sys

from falaj.ship.protocol import Reading
from ship.explore.model import Size
from ship.explore.search import Result, explore, trace, walk


def _size(given: argparse.Namespace) -> Size:
    reader = None
    if given.reader != "none":
        follows = given.reader == "follow"
        reader = Reading("follow") if follows else Reading("end", given.until)
    size = (given.shippers, given.numbers, given.checkpoints, given.late)
    return Size(*size, reader=reader, ghosts=given.ghosts)


def _shown(result: Result) -> str:
    rate = result.steps / max(result.seconds, 0.001)
    seen = f"{result.states:,} states, {result.steps:,} steps, {result.depth} deep"
    end = "to the end" if result.ended else "not to the end"
    return f"{seen}, {result.seconds:.0f} s, {rate:,.0f} steps a second, {end}"


def main() -> int:
    """Explore, print progress and the result; return 1 for a finding."""
    parser = argparse.ArgumentParser(prog="python -m ship.explore", description=__doc__)
    for name, count in [("shippers", 2), ("numbers", 4), ("checkpoints", 1), ("late", 1)]:
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--reader", choices=["none", "follow", "end"], default="none")
    parser.add_argument("--until", type=int, help="with --reader end: the number to restore")
    parser.add_argument("--ghosts", action="store_true", help="beside any number of others")
    parser.add_argument("--most", type=int, default=1 << 62, help="end after that many states")
    parser.add_argument("--walks", type=int, help="take that many random walks instead")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    size = _size(given)
    if given.walks:
        result = walk(size, seed=given.seed, walks=given.walks)
    else:
        result = explore(size, most=given.most, say=lambda line: print(line, flush=True))
    print(_shown(result))
    if result.finding:
        print(f"FINDING: {result.finding}")
        way = result.trace or trace(size).trace
        print(*(f"  {at:3} {step}" for at, step in enumerate(way, 1)), sep="\n")
    return int(bool(result.finding))


if __name__ == "__main__":
    sys.exit(main())
