"""`falaj pipeline aggregate`: windows of a topic summed up, into a topic and into Parquet.

Owns the verb's options; what they mean is in `falaj.pipeline.aggregating`. Those that `join` has,
too, are in `falaj.cli.flowing`.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from falaj.cli import flowing, options, piping

if TYPE_CHECKING:
    from falaj.pipeline.frame import Config

__all__ = ["NAME", "verb"]

NAME = "aggregate"


def verb(
    context: options.Context,
    store: piping.StoreArgument = None,
    topic: piping.TopicArgument = None,
    checkpoint: flowing.CheckpointOption = None,
    into: flowing.IntoOption = None,
    parquet: flowing.ParquetOption = None,
    schema: flowing.SchemaOption = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="SPAN", help='How long one is: "1 hour".')
    ] = None,
    slide: Annotated[
        str | None,
        typer.Option("--slide", metavar="SPAN", help="How far apart they begin, if they overlap."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="SQL", help="The time that decides; record.timestamp."),
    ] = None,
    watermark: Annotated[
        str | None,
        typer.Option("--watermark", metavar="SPAN", help="How late a record may come."),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="SQL", help="A group: carrier. May be repeated."),
    ] = None,
    aggregates: Annotated[
        list[str] | None,
        typer.Option(
            "--aggregate", metavar="SQL", help='count, "sum(delay) AS minutes"; may be repeated.'
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="MODE", help="append: closed windows; update: changed."),
    ] = None,
    partitions: flowing.PartitionsOption = None,
    trigger: flowing.TriggerOption = None,
    start: flowing.StartOption = None,
    batch: flowing.BatchOption = None,
    key: flowing.KeyOption = None,
    on_corrupt: flowing.OnCorruptOption = None,
    on_bad: flowing.OnBadOption = None,
    on_loss: flowing.OnLossOption = None,
    config: piping.ConfigOption = None,
    spark: piping.SparkOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Sum windows of a stream up, each result once."""

    def load() -> "tuple[type[Config], piping.Verb]":
        from falaj.pipeline.aggregating import AggregateConfig, aggregate

        return AggregateConfig, aggregate

    given = {
        "store": store,
        "topic": topic,
        "checkpoint": checkpoint,
        "into": into,
        "parquet": parquet,
        "schema": schema,
        "window": window,
        "slide": slide,
        "time": time,
        "watermark": watermark,
        "by": by,
        "aggregates": aggregates,
        "mode": mode,
        "partitions": partitions,
        "trigger": trigger,
        "start": flowing.moment(start),
        "batch": batch,
        "key": key,
        "on_corrupt": on_corrupt,
        "on_bad": on_bad,
        "on_loss": on_loss,
    }
    piping.run(context, load, given, config=config, spark=spark, as_json=as_json)
