"""`falaj metrics`: a store in numbers, as Prometheus reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Command
from falaj.metrics import exposition

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "metrics"]


def metrics(access: Access, as_json: bool) -> None:
    """Print metrics."""
    with access.store() as opened:
        found = opened.metrics()
    print(json.dumps(found) if as_json else exposition(found), end="\n" if as_json else "")


COMMAND = Command(
    metrics,
    "Print metrics in the text format of Prometheus.",
    (),
    (*options.LOCAL_READS, options.AS_JSON._replace(help="Print all of it as one JSON object.")),
)
