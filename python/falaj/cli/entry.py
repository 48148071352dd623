"""`main`, which the script `falaj` calls: it may find that the extra `cli` is not installed."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]

_WITHOUT_EXTRA = "falaj: the command line needs typer and rich: pip install 'falaj[cli]'\n"
_USAGE = 2


def main() -> None:
    """Run the program with the process's arguments, and exit with its code."""
    _open_what_was_closed()
    try:
        import rich  # noqa: F401  # only to know that it is there
        import typer  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name not in ("rich", "typer"):
            raise
        sys.stderr.write(_WITHOUT_EXTRA)
        sys.exit(_USAGE)
    from falaj.cli.app import run

    sys.exit(run())


def _open_what_was_closed() -> None:
    """Lead standard streams to nowhere where the process was begun without them.

    Else the first files of a store would get their numbers, and what is meant for a stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # gets the lowest number
