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


def config(access: Access, retention_bytes: Any, as_json: bool) -> None:
    """Show or change the settings of a store."""
    if retention_bytes is None:
        with access.store() as opened:
            limit = opened.info()["retention_bytes"]
    else:
        limit = None if retention_bytes == NONE else retention_bytes
        with access.store(writes=True) as opened:
            opened.configure(retention_bytes=limit)
    if as_json:
        print(json.dumps({"retention_bytes": limit}))
    elif is_terminal(sys.stdout):
        print("no limit" if limit is None else f"all logs together are kept to {size(limit)}")
    else:
        print("retention_bytes", NONE if limit is None else limit, sep="\t")


COMMAND = Command(
    config,
    "Show or change the settings of a store as a whole.",
    (),
    (
        *options.ACCESS,
        Option(
            "--retention-bytes",
            "retention_bytes",
            "All logs together keep about so much: 10G, or none.",
            "SIZE",
            or_none(options.size_from),
        ),
        options.AS_JSON._replace(help="Print the settings as one JSON object."),
    ),
    "Settings of a topic are for `falaj topic config`.",
)
