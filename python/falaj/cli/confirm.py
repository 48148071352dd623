"""The question before a command does something that cannot be undone."""

from __future__ import annotations

import signal
import sys

from falaj.cli.exits import Stop
from falaj.cli.paint import is_terminal

__all__ = ["confirm"]


def confirm(question: str, what: str, yes: bool) -> None:
    """Ask a person, or require `--yes`. Call it with nothing open, so that Ctrl-C may end it.

    Raises:
        Stop: The answer is no, or no person can be asked.
    """
    if yes:
        return
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise Stop(f"{what} cannot be undone: add --yes if you mean it")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Stop("nothing was deleted")
