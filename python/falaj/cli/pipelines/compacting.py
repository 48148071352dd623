"""The verb `falaj pipeline compact`: options into a `CompactConfig`."""

from typing import TYPE_CHECKING, Annotated

import typer

from falaj.cli import options, piping

if TYPE_CHECKING:
    from falaj.cli.piping import Loaded

__all__ = ["NAME", "verb"]

NAME = "compact"


def verb(
    context: options.Context,
    store: piping.StoreArgument = None,
    topic: piping.TopicArgument = None,
    delete_retention: Annotated[
        float | None,
        typer.Option("--delete-retention", metavar="SECONDS", help="Keep tombstones; a day."),
    ] = None,
    seal: Annotated[
        bool | None, typer.Option("--seal", help="Begin a new file first, to look at all.")
    ] = None,
    config: piping.ConfigOption = None,
    spark: piping.SparkOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Leave of all records with the same key the last one; offsets stay.

    Others read and write meanwhile. The topic has to be marked compacted.
    """
    given = {
        "store": store,
        "topic": topic,
        "delete_retention": delete_retention,
        "seal": seal,
    }
    piping.run(context, _load, given, config=config, spark=spark, as_json=as_json)


def _load() -> "Loaded":
    from falaj.pipeline import CompactConfig, compact

    return CompactConfig, compact
