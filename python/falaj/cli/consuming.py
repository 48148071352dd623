"""The verbs `consumers` and `seek`: who reads what, how far behind, and where to go on.

Owns their rows; what a consumer is and who may move its cursors is for the library.
"""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from falaj.cli import options
from falaj.cli.exits import Stop, told
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, rows_of, table
from falaj.cli.units import place
from falaj.errors import NoSuchConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from falaj.admin import ConsumerInfo, MemberInfo

__all__ = ["COLUMNS", "consumers", "idle", "rows", "seek"]

COLUMNS = (
    Column("consumer", "consumer"),
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("committed", "committed", number=True),
    Column("lag", "lag", number=True),
    Column("owner", "owner"),
)


def consumers(
    context: options.Context,
    store: options.StoreArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="CONSUMER", help="Only this consumer.")
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete it, if nobody has it open.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """List consumers: how far each has read, how far it is behind, and who has what."""
    access = options.access_of(context)
    if delete:
        if name is None:
            raise Stop("--delete is for one consumer: name it")
        with access.store(store, "w") as opened:
            opened.delete_consumer(name)
        return
    with access.store(store) as opened:
        found = opened.info()["consumers"]
    if name is not None:
        found = [consumer for consumer in found if consumer["name"] == name]
        if not found:
            raise NoSuchConsumer(
                f"there is no consumer {name!r} in {store}; `falaj consumers` lists what there is"
            )
    if as_json:
        for consumer in found:
            print(json.dumps(consumer))
    elif is_terminal(sys.stdout):
        table(COLUMNS, rows(found))
    else:
        rows_of(None, COLUMNS, rows(found))
    if code := told((consumer["error"], consumer["remedy"]) for consumer in found):
        raise typer.Exit(code)


def rows(found: "list[ConsumerInfo]") -> list[dict[str, Any]]:
    """Make a row for each partition of each consumer, and for each member that has none."""
    return [row for consumer in found for row in _rows_of(consumer)]


def _rows_of(consumer: "ConsumerInfo") -> "Iterator[dict[str, Any]]":
    for cursor in consumer["cursors"]:
        yield {
            "consumer": consumer["name"],
            "topic": cursor["topic"],
            "partition": cursor["partition"],
            "committed": cursor["committed"],
            "lag": cursor["lag"],
            "owner": _owner(cursor["owner"]),
        }
    for member in idle(consumer):
        nothing = dict.fromkeys(column.member for column in COLUMNS)
        yield nothing | {"consumer": consumer["name"], "owner": _owner(member)}


def idle(consumer: "ConsumerInfo") -> "list[MemberInfo]":
    """The members that have no partition: there are too many, or one waits for its share."""
    owners = [cursor["owner"] for cursor in consumer["cursors"]]
    return [member for member in consumer["members"] if member not in owners]


def _owner(owner: "MemberInfo | None") -> str:
    if owner is None:
        return "nobody"
    return "held" if owner["process"] is None else f"process {owner['process']}"


def seek(
    context: options.Context,
    store: options.StoreArgument,
    name: Annotated[str, typer.Argument(metavar="CONSUMER", help="Name of the consumer.")],
    topic: options.TopicArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="PLACE", help="earliest, latest, an offset, -10, or a time: 2h ago."
        ),
    ],
    partition: options.PartitionOption = None,
) -> None:
    """Set where a consumer goes on, while nobody has it open."""
    where: Any = to if to in ("earliest", "latest") else place(to)
    with options.access_of(context).store(store, "w") as opened:
        done = opened.reset_consumer(name, topic, where, partition=partition)
    for number, offset in done.items():
        print(name, topic, number, offset, sep="\t")
