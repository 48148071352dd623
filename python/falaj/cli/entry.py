"""`main`, which the script `falaj` calls: it may find that the extra `cli` is not installed."""

from __future__ import annotations

import sys

__all__ = ["main"]

_WITHOUT_EXTRA = "falaj: the command line needs typer and rich: pip install 'falaj[cli]'\n"
_USAGE = 2


def main() -> None:
    """Run the program with the process's arguments, and exit with its code."""
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
