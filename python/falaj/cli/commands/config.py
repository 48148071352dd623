"""`falaj config`: the settings of a store as a whole, shown or changed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.paint import is_terminal
from falaj.cli.retention import NONE, or_none
from falaj.cli.units import size

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "config"]


def config(access: Access, retention_bytes: Any, ship_min_sync: int | None, as_json: bool) -> None:
    """Show or change the settings of a store."""
    asked: dict[str, Any] = {}
    if retention_bytes is not None:
        asked["retention_bytes"] = None if retention_bytes == NONE else retention_bytes
    if ship_min_sync is not None:
        asked["ship_min_sync"] = ship_min_sync
    with access.store(writes=bool(asked)) as opened:
        if asked:
            opened.configure(**asked)
        told = opened.info()
    limit, places = told["retention_bytes"], told["ship_min_sync"]
    if as_json:
        print(json.dumps({"retention_bytes": limit, "ship_min_sync": places}))
    elif is_terminal(sys.stdout):
        print("no limit" if limit is None else f"all logs together are kept to {size(limit)}")
        if places > 1:
            print(f"sync=remote waits for {places} places")
    else:
        print("retention_bytes", NONE if limit is None else limit, sep="\t")
        print("ship_min_sync", places, sep="\t")


COMMAND = Command(
    config,
    "Show or change the settings of a store as a whole.",
    (),
    (
        *options.LOCAL,
        Option(
            "--retention-bytes",
            "retention_bytes",
            "All logs together keep about so much: 10G, or none.",
            "SIZE",
            or_none(options.size_from),
        ),
        Option(
            "--ship-min-sync",
            "ship_min_sync",
            "Places that must have a record before an append in sync=remote returns (1 at first).",
            "N",
            options.whole(1),
        ),
        options.AS_JSON._replace(help="Print the settings as one JSON object."),
    ),
    "Settings of a topic are for `falaj topic config`.",
)
