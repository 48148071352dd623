"""`falaj maintain`: retention enforced on all topics, and unfinished clean-ups finished."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Command
from falaj.cli.exits import Stop, told
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, table
from falaj.cli.units import count, size

if TYPE_CHECKING:
    from falaj._retention import Maintenance
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "maintain"]


def maintain(access: Access, dry_run: bool, as_json: bool) -> None:
    """Enforce retention."""
    if dry_run:
        access.expect_no_place()
    with access.store(writes=not dry_run) as opened:
        done = opened.maintain(dry_run=dry_run)
    if as_json:
        print(json.dumps(done))
    else:
        _tell(done)
    of_logs = ((log["problem"], log["error_class"]) for log in done["logs"])
    if code := told((*zip(done["problems"], done["error_classes"], strict=True), *of_logs)):
        raise Stop.silent(code)


_CUTS = (
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("first_before", "start", number=True),
    Column("first", "now", number=True),
    Column("limit", "limit"),
    Column("needed", "kept for groups", number=True),
)


def _tell(done: Maintenance) -> None:
    cuts = [cut for log in done["logs"] for cut in log["cuts"]]
    rows = [{**cut, "needed": cut["needed"] or None} for cut in cuts]
    table(_CUTS, rows)
    if not is_terminal(sys.stdout):
        return
    segments = sum(log["segments"] for log in done["logs"])
    freed = sum(log["bytes"] for log in done["logs"])
    gone = "would be removed" if done["dry_run"] else "removed"
    print(
        f"{count(segments, 'segment')}, {size(freed)} {gone}; the store takes {size(done['bytes'])}"
    )


COMMAND = Command(
    maintain,
    "Enforce retention on all topics, and finish clean-ups.",
    (),
    (*options.LOCAL, options.DRY_RUN, options.AS_JSON._replace(help="Print it as JSON.")),
    "For cron. Processes that write to a topic enforce its retention themselves. Trims and "
    "deletions that a crash interrupted are finished.",
)
