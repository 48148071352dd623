"""`python -m falaj.demo`: the demo where the program `falaj` is not on PATH."""

from __future__ import annotations

import argparse
import sys

from falaj.demo import run
from falaj.errors import Error


def main() -> int:
    """Read the arguments and run the demo; return its exit code."""
    parser = argparse.ArgumentParser(prog="falaj demo", description=(run.__doc__ or "")[:62])
    parser.add_argument("path", nargs="?", default="falaj-demo", help="folder to leave it in")
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long to append")
    arguments = parser.parse_args()
    try:
        run(arguments.path, flights=arguments.flights, seconds=arguments.seconds)
    except Error as error:
        print(f"falaj: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
