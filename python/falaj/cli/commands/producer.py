"""`falaj producer`: the producers that a topic remembers, for appends that are repeated."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

from falaj._time import to_ns
from falaj.cli import options
from falaj.cli.arguments import Argument, Command, Group, Option
from falaj.cli.exits import Stop
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, objects, table
from falaj.cli.units import count, show_time

if TYPE_CHECKING:
    from falaj._producers import Producer
    from falaj.cli.stores import Access

__all__ = ["GROUP"]

_COLUMNS = (
    Column("producer", "producer"),
    Column("sequence", "sequence", number=True),
    Column("partition", "partition", number=True),
    Column("offset", "offset", number=True),
    Column("last", "last append"),
    Column("kind", "kind"),
)
_ID = re.compile(r"id:([0-9a-f]{16})")


def list_(access: Access, topic: str, as_json: bool) -> None:
    """Print a row for each producer."""
    with access.topic(topic) as found:
        known = found.producers()
    rows = [
        {
            "producer": f"id:{each.id}",
            "sequence": each.sequence,
            "partition": each.partition,
            "offset": each.offset,
            "last": None if each.time is None else show_time(to_ns(each.time), "iso"),
            "kind": "expiring" if each.expiring else "named",
        }
        for each in known
    ]
    if as_json:
        objects(rows)
    else:
        table(_COLUMNS, rows)
        if not rows and is_terminal(sys.stdout):
            print(f"topic {topic} remembers no producers")


def forget(
    access: Access, topic: str, producers: list[str], before: int | None, as_json: bool
) -> None:
    """Forget producers."""
    if not producers and before is None:
        raise Stop("say which producers: their names, or --before TIME")
    with access.topic(topic) as found:
        known = found.producers()
    gone = [*_named(producers, known), *_idle(before, known)]
    with access.topic(topic, writes=True) as found:
        done = found.forget_producer(*gone)
    if as_json:
        print(json.dumps({"topic": topic, "forgotten": done}))
    elif is_terminal(sys.stdout):
        print(f"{count(done, 'producer')} forgotten")
    else:
        print(topic, done, sep="\t")


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


def _idle(before: int | None, known: list[Producer]) -> list[Producer]:
    if before is None:
        return []
    return [each for each in known if each.time is None or to_ns(each.time) < before]


GROUP = Group(
    "List and forget the producers that a topic remembers.",
    {
        "list": Command(
            list_,
            "List producers: last sequence, its offset, its time.",
            (options.TOPIC,),
            (*options.LOCAL_READS, options.AS_JSON),
            "Names are kept as hashes, so a producer is shown as id: and 16 digits.",
        ),
        "forget": Command(
            forget,
            "Forget producers that append no more.",
            (
                options.TOPIC,
                Argument(
                    "producers",
                    "PRODUCER",
                    "Name of a producer, or id:... as listed.",
                    many=True,
                    needed=False,
                ),
            ),
            (
                *options.LOCAL,
                Option(
                    "--before",
                    "before",
                    "All that did not append since this time: 30d (ago).",
                    "TIME",
                    options.moment,
                ),
                options.AS_JSON._replace(help="Print how many were forgotten as JSON."),
            ),
            "--before also forgets producers whose last record is no longer there.",
        ),
    },
)
