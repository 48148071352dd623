"""`main`, which the script `falaj` calls."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the program with the process's arguments, and exit with its code."""
    _open_what_was_closed()
    from falaj.cli.app import run

    sys.exit(run())


def _open_what_was_closed() -> None:
    """Lead standard streams to nowhere where the process started without them.

    Otherwise the first files of a store would get their numbers, and what is meant for a stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # gets the lowest number
