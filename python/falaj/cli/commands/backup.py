"""`falaj backup`: a copy of a store while other processes write to it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Argument, Command
from falaj.cli.exits import Stop, told
from falaj.cli.paint import is_terminal
from falaj.cli.progress import bar
from falaj.cli.units import count, size

if TYPE_CHECKING:
    from falaj._store import Store
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "backup", "copied"]


def backup(access: Access, to: str, as_json: bool) -> None:
    """Copy a store."""
    access.expect_no_place()
    with access.store() as opened:
        copied(opened, to, "backup", as_json)


def copied(store: Store, to: str, what: str, as_json: bool) -> None:
    """Copy an open store, and say what was copied.

    Raises:
        Stop: The copy is there, and so is what was corrupt.
    """
    with bar(f"{what} to {to}") as advance:
        done = store.backup(to, lambda done, total: advance(done, total=max(total, done)))
    if as_json:
        print(json.dumps(done))
    elif is_terminal(sys.stdout):
        parts = f"{count(done['topics'], 'topic')}, {count(done['segments'], 'segment')}"
        print(f"copied {parts}, {size(done['bytes'])} to {to}")
    if code := told(zip(done["problems"], done["error_classes"], strict=True)):
        raise Stop.silent(code)


COMMAND = Command(
    backup,
    "Copy a store while other processes write to it.",
    (Argument("to", "TO", "A directory that is missing or empty.", read=options.path),),
    (*options.LOCAL, options.AS_JSON._replace(help="Print what was copied as JSON.")),
    "The copy holds what was committed when it began, and appears whole or not at all.",
)
