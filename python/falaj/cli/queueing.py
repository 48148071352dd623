"""The verb `queues`: what is waiting, out and given up in the work queues of a store."""

import json
import sys
from typing import Annotated, Any

import typer

from falaj.cli import options
from falaj.cli.exits import Exit, Stop, code_of, say, worst
from falaj.cli.opened import raw_topic
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, table
from falaj.errors import Corrupt, Error
from falaj.stores import Store

__all__ = ["queues"]

_COLUMNS = (
    Column("name", "queue"),
    Column("topic", "topic"),
    Column("waiting", "waiting", number=True),
    Column("leased", "out", number=True),
    Column("returned", "back", number=True),
    Column("done", "done", number=True),
    Column("dead", "dead", number=True),
    Column("trimmed", "trimmed", number=True),
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
    dead and trimmed, separated by tabs.
    """
    access = options.access_of(context)
    with access.store(store) as opened:
        known = opened.queues()
    if reset is not None:
        if reset in known and not yes:
            raise Stop(f"forgetting queue {reset} cannot be undone: add --yes if you mean it")
        with access.store(store, "w") as opened:
            opened.delete_queue(reset)
        return
    code, rows = Exit.DONE, []
    if known:
        with access.store(store, "w") as opened:
            for name, topic in known.items():
                try:
                    rows.append(_row(opened, name, topic))
                except Error as error:
                    say(f"queue {name}: {error}")
                    code = worst(code, code_of(error))
    if as_json:
        for row in rows:
            print(json.dumps(row))
    else:
        table(_COLUMNS, rows)
        if not known and is_terminal(sys.stdout):
            print(f"{store} has no queues yet")
    if code:
        raise typer.Exit(code)


def _row(store: Store, name: str, topic: str) -> dict[str, Any]:
    if not topic:
        damaged = Corrupt(f"its state cannot be read; `falaj queues --reset {name}` forgets it")
        damaged.remedy = "repair"
        raise damaged
    if topic not in store.topics():
        raise Error(f"its topic {topic!r} is not there; `falaj queues --reset {name}` forgets it")
    with raw_topic(store, topic) as found, store.queue(name, found) as queue:
        return dict(queue.info())
