"""`falaj restore`: a store made of a backup."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Argument, Command
from falaj.cli.commands.backup import copied
from falaj.cli.exits import Stop

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "restore"]


def restore(access: Access, backup: str, as_json: bool) -> None:
    """Copy a backup to where the store is to be."""
    to = access.path
    if not os.path.isdir(backup):
        raise Stop(f"there is no backup at {backup}: check the path")
    with access._replace(given=backup).store() as opened:
        copied(opened, to, "restore", as_json)


COMMAND = Command(
    restore,
    "Make a store of a backup.",
    (Argument("backup", "BACKUP", "Directory of the backup.", read=options.path),),
    (*options.ACCESS, options.AS_JSON._replace(help="Print what was copied as JSON.")),
    "The store's directory must be missing or empty: restore replaces nothing. The store appears "
    "whole or not at all, and is the same store: committed offsets and checkpoints stay valid.",
)
