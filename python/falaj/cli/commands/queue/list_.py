"""`falaj queue list`: the work queues of a store, and what their jobs are.

Owns the columns. A job is ready, delayed, in flight, done or dead.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Command
from falaj.cli.exits import Stop, say, told
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, objects, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from falaj._arguments import QueueInfo
    from falaj.cli.stores import Access

__all__ = ["COLUMNS", "COMMAND", "list_", "rows"]

COLUMNS = (
    Column("queue", "queue"),
    Column("topic", "topic"),
    Column("ready", "ready", number=True),
    Column("delayed", "delayed", number=True),
    Column("in_flight", "in flight", number=True),
    Column("done", "done", number=True),
    Column("dead", "dead", number=True),
    Column("trimmed", "trimmed", number=True),
    Column("holders", "holders"),
)


def rows(found: Iterable[QueueInfo]) -> list[dict[str, Any]]:
    """Make a row for each queue."""
    return [
        {
            "queue": queue["name"],
            "topic": queue["topic"],
            "ready": queue["ready"],
            "delayed": queue["delayed"],
            "in_flight": queue["in_flight"],
            "done": queue["done"],
            "dead": queue["dead"],
            "trimmed": queue["trimmed"],
            "holders": ", ".join(f"{who}: {jobs}" for who, jobs in queue["holders"].items()),
        }
        for queue in found
    ]


def list_(access: Access, as_json: bool) -> None:
    """Print a row for each queue; one that is corrupt does not hide the others."""
    with access.store() as opened:
        found = opened.info()["queues"]
    whole = [queue for queue in found if not queue["error"]]
    if as_json:
        objects(
            [
                {**row, "order": queue["order"], "holders": queue["holders"]}
                for row, queue in zip(rows(whole), whole, strict=True)
            ]
        )
    else:
        table(COLUMNS, rows(whole))
        if not found and is_terminal(sys.stdout):
            print(f"{access.path} has no queues yet")
    for queue in whole:
        if queue["ready"] is None:
            gone = f"its topic {queue['topic']!r} is not there"
            say(f"queue {queue['name']}: {gone}; `falaj queue reset {queue['name']}` forgets it")
    problems = [
        (queue["error"] and f"queue {queue['name']}: {queue['error']}", queue["error_class"])
        for queue in found
    ]
    if code := told(problems):
        raise Stop.silent(code)


COMMAND = Command(
    list_,
    "List queues: jobs that are ready, delayed, in flight, done, dead.",
    (),
    (*options.READS, options.AS_JSON),
    "Jobs that dead processes held count as ready. The column done counts offsets, with the "
    "gaps of a compacted topic. The column dead counts all jobs that "
    "were ever dead-lettered, trimmed those that retention deleted before they were done.",
)
