"""`falaj pipeline join`: records enriched from a table, into a topic and into Parquet.

Owns the verb's options; what they mean is in `falaj.pipeline.joining`. Those that `aggregate` has,
too, are in `falaj.cli.flowing`.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from falaj.cli import flowing, options, piping

if TYPE_CHECKING:
    from falaj.pipeline.frame import Config

__all__ = ["NAME", "verb"]

NAME = "join"


def verb(
    context: options.Context,
    store: piping.StoreArgument = None,
    topic: piping.TopicArgument = None,
    checkpoint: flowing.CheckpointOption = None,
    into: flowing.IntoOption = None,
    parquet: flowing.ParquetOption = None,
    schema: flowing.SchemaOption = None,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="PATH", help="A Parquet, CSV or JSON file, or a folder."),
    ] = None,
    table_topic: Annotated[
        str | None,
        typer.Option("--table-topic", metavar="TOPIC", help="Or a topic: last value of each key."),
    ] = None,
    table_schema: Annotated[
        str | None,
        typer.Option("--table-schema", metavar="FIELDS", help="Fields of that topic's values."),
    ] = None,
    table_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--table-column", metavar="SQL", help="A column of the table: name AS airline; repeat."
        ),
    ] = None,
    null: Annotated[
        str | None, typer.Option("--null", metavar="TEXT", help="What is missing in CSV: NA.")
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="SQL", help="What is equal: carrier, or dest = faa; repeat."),
    ] = None,
    how: Annotated[
        str | None,
        typer.Option("--how", metavar="HOW", help="left: keep what fits nothing; inner: don't."),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="SQL", help="A column of the results; may be repeated."),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Read the table anew when it changed.")
    ] = False,
    no_broadcast: Annotated[
        bool,
        typer.Option("--no-broadcast", help="The table is too large for an executor's memory."),
    ] = False,
    partitions: flowing.PartitionsOption = None,
    trigger: flowing.TriggerOption = None,
    start: flowing.StartOption = None,
    end: Annotated[
        str | None,
        typer.Option("--end", metavar="WHEN", help="Of --trigger batch: an offset or a time."),
    ] = None,
    batch: flowing.BatchOption = None,
    key: flowing.KeyOption = None,
    on_corrupt: flowing.OnCorruptOption = None,
    on_bad: flowing.OnBadOption = None,
    on_loss: flowing.OnLossOption = None,
    config: piping.ConfigOption = None,
    spark: piping.SparkOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Enrich a topic's records from a table, each once."""

    def load() -> "tuple[type[Config], piping.Verb]":
        from falaj.pipeline.joining import JoinConfig, join

        return JoinConfig, join

    given = {
        "store": store,
        "topic": topic,
        "checkpoint": checkpoint,
        "into": into,
        "parquet": parquet,
        "schema": schema,
        "table": table,
        "table_topic": table_topic,
        "table_schema": table_schema,
        "table_columns": table_columns,
        "null": null,
        "on": on,
        "how": how,
        "select": select,
        "reload": reload or None,
        "broadcast": False if no_broadcast else None,
        "partitions": partitions,
        "trigger": trigger,
        "start": flowing.moment(start),
        "end": flowing.moment(end),
        "batch": batch,
        "key": key,
        "on_corrupt": on_corrupt,
        "on_bad": on_bad,
        "on_loss": on_loss,
    }
    piping.run(context, load, given, config=config, spark=spark, as_json=as_json)
