"""The verb `queues`: what is waiting, out and given up in the work queues of a store."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from falaj.cli import options
from falaj.cli.exits import Stop, say, told
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, table

if TYPE_CHECKING:
    from falaj.admin import QueueState

__all__ = ["COLUMNS", "queues", "rows"]

COLUMNS = (
    Column("name", "queue"),
    Column("topic", "topic"),
    Column("waiting", "waiting", number=True),
    Column("leased", "out", number=True),
    Column("returned", "back", number=True),
    Column("done", "done", number=True),
    Column("dead", "dead", number=True),
    Column("trimmed", "trimmed", number=True),
    Column("holders", "holders"),
)


def queues(
    context: options.Context,
    store: options.StoreArgument,
    reset: Annotated[
        str | None,
        typer.Option("--reset", metavar="QUEUE", help="Forget a queue: all its jobs to be done."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """List the work queues of a store.

    In a pipe: name, topic, jobs that nobody had yet, that are out, that came back, that are done,
    dead and trimmed, and who has them, separated by tabs.
    """
    access = options.access_of(context)
    with access.store(store) as opened:
        found = opened.info()["queues"]
    if reset is not None:
        if not yes and any(queue["name"] == reset for queue in found):
            raise Stop(f"forgetting queue {reset} cannot be undone: add --yes if you mean it")
        with access.store(store, "w") as opened:
            opened.delete_queue(reset)
        return
    whole = [queue for queue in found if not queue["error"]]
    if as_json:
        for queue in whole:
            print(json.dumps(queue))
    else:
        table(COLUMNS, rows(whole))
        if not found and is_terminal(sys.stdout):
            print(f"{store} has no queues yet")
    for queue in found:
        if not queue["error"] and queue["waiting"] is None:
            gone = f"its topic {queue['topic']!r} is not there"
            say(f"queue {queue['name']}: {gone}; `falaj queues --reset {queue['name']}` forgets it")
    problems = [
        (queue["error"] and f"queue {queue['name']}: {queue['error']}", queue["remedy"])
        for queue in found
    ]
    if code := told(problems):
        raise typer.Exit(code)


def rows(found: "list[QueueState]") -> list[dict[str, Any]]:
    """Make a row for each queue."""
    return [{**queue, "holders": _holders(queue["holders"])} for queue in found]


def _holders(holders: dict[str, int]) -> str:
    return ", ".join(f"{holder}: {jobs}" for holder, jobs in holders.items())
