"""The verb `producers`: who appends with a sequence, and forgetting those who do no more."""

import json
import re
import sys
from typing import Annotated

import typer

from falaj.cli import options
from falaj.cli.exits import Stop
from falaj.cli.opened import raw_topic
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, table
from falaj.cli.units import count, moment, show_time
from falaj.errors import NoSuchTopic
from falaj.producers import Producer
from falaj.times import to_ns

__all__ = ["producers"]

_COLUMNS = (
    Column("producer", "producer"),
    Column("sequence", "sequence", number=True),
    Column("partition", "partition", number=True),
    Column("offset", "offset", number=True),
    Column("last", "last append"),
)
_ID = re.compile(r"id:([0-9a-f]{16})")


def producers(
    context: options.Context,
    store: options.StoreArgument,
    topic: options.TopicArgument,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            "--forget", metavar="NAME", help="Forget this one: its name, or id:… as listed."
        ),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--forget-before",
            metavar="TIME",
            help="Forget who did not append since: 30d ago; also whose last record is gone.",
        ),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """List the producers that a topic remembers, or forget some of them.

    Their names are kept as hashes alone, which is what the list shows.
    """
    access = options.access_of(context)
    with access.store(store) as opened:
        if topic not in opened.topics():
            raise NoSuchTopic(
                f"there is no topic {topic!r} in {store}; `falaj topics` lists what there is"
            )
        with raw_topic(opened, topic) as found:
            known = found.producers()
    if forget is None and before is None:
        _show(known, as_json)
        return
    gone = [*_named(forget or [], known), *_idle(before, known)]
    with access.store(store, "w") as opened, raw_topic(opened, topic) as found:
        done = found.forget_producer(*gone)
    if as_json:
        print(json.dumps({"topic": topic, "forgotten": done}))
    elif is_terminal(sys.stdout):
        print(f"{count(done, 'producer')} forgotten")
    else:
        print(topic, done, sep="\t")


def _show(known: list[Producer], as_json: bool) -> None:
    rows = [
        {
            "producer": f"id:{each.id}",
            "sequence": each.sequence,
            "partition": each.partition,
            "offset": each.offset,
            "last": None if each.time is None else show_time(to_ns(each.time), "iso"),
        }
        for each in known
    ]
    if as_json:
        for row in rows:
            print(json.dumps(row))
    else:
        table(_COLUMNS, rows)


def _named(wanted: list[str], known: list[Producer]) -> list[str | Producer]:
    by_id = {each.id: each for each in known}
    found: list[str | Producer] = []
    for name in wanted:
        listed = _ID.fullmatch(name)
        if listed is None:
            found.append(name)
        elif listed[1] in by_id:
            found.append(by_id[listed[1]])
        else:
            raise Stop(f"no producer is listed as {name}; nothing was forgotten")
    return found


def _idle(before: str | None, known: list[Producer]) -> list[Producer]:
    if before is None:
        return []
    limit = moment(before)
    return [each for each in known if each.time is None or to_ns(each.time) < limit]
