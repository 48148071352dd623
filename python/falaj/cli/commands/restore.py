"""`falaj restore`: a store made of a backup, or of what a place holds."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Argument, Command, Option
from falaj.cli.commands.backup import copied
from falaj.cli.exits import Stop, say, told
from falaj.cli.progress import bar, tell
from falaj.cli.tables import Column, table
from falaj.cli.units import show_time, size

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "restore"]

_ID = re.compile(r"[0-9a-f]{32}")
_COLUMNS = (
    Column("number", "number", number=True),
    Column("time_us", "as of", human=lambda us: show_time(us * 1000, "iso")),
    Column("topics", "topics", number=True),
    Column("segments", "segments", number=True),
    Column("bytes", "size", human=size),
    Column("path", "path"),
)


def restore(
    access: Access,
    backup: str,
    origin: str | None,
    to_number: int | None,
    to_time: int | None,
    as_json: bool,
) -> None:
    """Make a store of a backup or a place."""
    to = access.path
    if _is_place(backup):
        _from_place(backup, to, origin, to_number, to_time, as_json)
        return
    if not os.path.isdir(backup):
        raise Stop(f"there is no backup at {backup}: check the path")
    for given, name in ((origin, "--origin"), (to_number, "--to-number"), (to_time, "--to-time")):
        if given is not None:
            raise Stop(f"{name} is for places, and {backup} is a backup: leave it out")
    with access._replace(given=backup).store() as opened:
        copied(opened, to, "restore", as_json)


def _is_place(path: str) -> bool:
    """Tell a place from a backup; a backup is a store."""
    if "://" in path:
        return True
    if not os.path.isdir(path) or os.path.exists(os.path.join(path, "falaj.json")):
        return False
    return any(_ID.fullmatch(name) for name in os.listdir(path))


def _from_place(
    place: str,
    to: str,
    origin: str | None,
    to_number: int | None,
    to_time: int | None,
    as_json: bool,
) -> None:
    from falaj.ship import restore as restoring
    from falaj.ship.place import open_place

    try:
        with bar(f"restore to {to}") as advance:
            done = restoring.restore(
                open_place(place),
                to,
                origin=origin,
                to_number=to_number,
                to_time_us=None if to_time is None else to_time // 1000,
                progress=lambda done, total: advance(done, total=max(total, done)),
                resumed=lambda there, total: tell(
                    f"goes on: {size(there)} of {size(total)} are there"
                ),
            )
    except BaseException as stopped:
        for note in getattr(stopped, "__notes__", ()):
            say(note)
        raise
    if as_json:
        print(json.dumps(done))
    else:
        table(_COLUMNS, [done])
    if code := told(zip(done["problems"], done["error_classes"], strict=True)):
        raise Stop.silent(code)


COMMAND = Command(
    restore,
    "Make a store of a backup, or of a place.",
    (
        Argument(
            "backup",
            "FROM",
            "Directory of a backup, or a place: s3://…, gs://…, az://…, http://…, or its path.",
            read=options.location,
        ),
    ),
    (
        *options.LOCAL,
        Option("--origin", "origin", "Origin of a place, if it has several.", "ID"),
        Option(
            "--to-number", "to_number", "State of a place as of this number.", "N", options.whole(1)
        ),
        Option(
            "--to-time",
            "to_time",
            "State of a place by then: 5m (ago), or an ISO time.",
            "TIME",
            options.moment,
        ),
        options.AS_JSON._replace(help="Print what was copied as JSON."),
    ),
    "The store's directory must be missing or empty: restore replaces nothing. The store appears "
    "whole or not at all, and is the same store: committed offsets and checkpoints stay valid. "
    "`falaj place list` shows the origins and numbers of a place.",
)
