"""The verbs that are about a store as a whole: `topics`, `trim`, `delete`, `demo`."""

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from falaj.cli import options
from falaj.cli.exits import Exit, Stop, code_of, say, worst
from falaj.cli.opened import Access, raw_topic
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, table
from falaj.cli.units import count, place, show_time, size
from falaj.errors import Error, NoSuchTopic
from falaj.stores import Store

__all__ = ["delete", "demo", "topics", "trim"]


def topics(
    context: options.Context, store: options.StoreArgument, as_json: options.JsonOption = False
) -> None:
    """List the topics of a store.

    In a pipe: name, codec, partitions, records and time of the last one, separated by tabs.
    """
    code = Exit.DONE
    rows = []
    with options.access_of(context).store(store) as opened:
        for name in opened.topics():
            try:
                rows.append(_row(opened, name))
            except Error as error:
                # One that cannot be read must not hide the others.
                say(f"topic {name}: {error}")
                code = worst(code, code_of(error))
    if as_json:
        for row in rows:
            print(json.dumps(row))
    else:
        table(_COLUMNS, rows)
        if not rows and is_terminal(sys.stdout) and code is Exit.DONE:
            print(f"{store} has no topics yet")
    if code:
        raise typer.Exit(code)


_COLUMNS = (
    Column("topic", "topic"),
    Column("codec", "codec"),
    Column("partitions", "partitions", number=True),
    Column("records", "records", number=True),
    Column("last", "last record"),
)


def _row(store: Store, name: str) -> dict[str, Any]:
    with raw_topic(store, name) as topic:
        parts = [topic.partition(number) for number in topic.partitions]
        newest = [record.timestamp_ns for part in parts for record in part.last(1)]
        return {
            "topic": name,
            "codec": topic.codec,
            "partitions": len(parts),
            "records": topic.count(),
            "last": show_time(max(newest), "iso") if newest else None,
        }


def trim(
    context: options.Context,
    store: options.StoreArgument,
    topic: options.TopicArgument,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="PLACE",
            help="First to keep: an offset, -10 (the last ten), or a time: 7d.",
        ),
    ],
    partition: options.PartitionOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Let go of the oldest records of a topic, for everybody.

    Files go as soon as none of their records is left.
    """
    access = options.access_of(context)
    first = place(before)
    with access.store(store) as opened:
        if topic not in opened.topics():
            raise NoSuchTopic(
                f"there is no topic {topic!r} in {store}; nothing was trimmed, and `falaj topics` "
                "lists what there is"
            )
    with access.store(store, "r" if dry_run else "w") as opened, raw_topic(opened, topic) as found:
        part = found if partition is None else found.partition(partition)
        done = part.trim(first, dry_run=dry_run)
    if as_json:
        print(json.dumps({"topic": topic, "dry_run": dry_run, **done}))
    elif is_terminal(sys.stdout):
        for number, first in done["firsts"].items():
            begins = "would begin" if dry_run else "begins"
            print(f"topic {topic} partition {number} {begins} with offset {first:,}")
        gone = "would be removed" if dry_run else "removed"
        print(f"{count(done['segments'], 'segment')}, {size(done['bytes'])} {gone}")
    else:
        for number, first in done["firsts"].items():
            print(topic, number, first, done["segments"], done["bytes"], sep="\t")


def delete(
    context: options.Context,
    store: options.StoreArgument,
    topic: options.TopicArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a topic and all its records, for everybody.

    Asks first, on a terminal; elsewhere it wants --yes.
    """
    access = options.access_of(context)
    with access.store(store) as opened:
        if topic not in opened.topics():
            raise NoSuchTopic(
                f"there is no topic {topic!r} in {store}; nothing was deleted, and `falaj topics` "
                "lists what there is"
            )
    if not yes:
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise Stop(f"deleting topic {topic} cannot be undone: add --yes if you mean it")
        question = f"Delete topic {topic}{_how_much(access, store, topic)}?"
        # Nothing is open now, so Ctrl-C may end it on the spot.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not typer.confirm(question, err=True):
            raise Stop("nothing was deleted")
    with access.store(store, "w") as opened:
        opened.delete(topic)


def _how_much(access: Access, store: Path, topic: str) -> str:
    """How many records would go, where that can be found out: damage must not hinder deleting."""
    try:
        with access.topic(store, topic) as opened:
            return f" with {count(opened.count(), 'record')}"
    except Error:
        return ""


def demo(
    store: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", parser=options.path, help="Where store and report are left."
        ),
    ] = Path("falaj-demo"),
    flights: Annotated[
        int | None, typer.Option("--flights", metavar="N", help="Only the first N flights.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="How long the producers take.")
    ] = 15.0,
) -> None:
    r"""Watch falaj at work on the 336,776 flights that left New York in 2013.

    Three producers, a follower, a killed process, a Spark job, a report. Needs falaj\[demo].
    """
    from falaj.demo import Failed, run

    try:
        run(store, flights=flights, seconds=seconds)
    except Failed as failed:
        raise Stop(str(failed), Exit.DAMAGE) from None
