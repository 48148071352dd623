"""`falaj pipeline dedupe`: a topic into another with each record once.

Owns the verb's options; what they mean is in `falaj.pipeline.deduping`.
"""

from typing import Annotated

import typer

from falaj.cli import options, piping, spans

__all__ = ["NAME", "verb"]

NAME = "dedupe"


def verb(
    context: options.Context,
    store: piping.StoreArgument = None,
    topic: piping.TopicArgument = None,
    into: spans.IntoArgument = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="WHAT", help="key, value, key+value, header:NAME, json:FIELD"),
    ] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="WHICH", help="first or last, by time.")
    ] = None,
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="SPAN", help="Copies further apart are both kept: 1h."),
    ] = None,
    start: spans.StartOption = None,
    end: spans.EndOption = None,
    on_loss: Annotated[
        str | None,
        typer.Option("--on-loss", metavar="HOW", help="fail, or continue behind what was trimmed."),
    ] = None,
    top: spans.TopOption = None,
    config: piping.ConfigOption = None,
    spark: piping.SparkOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Copy a topic without repeats."""

    def load() -> "piping.Loaded":
        from falaj.pipeline.deduping import DedupeConfig, dedupe

        return DedupeConfig, dedupe

    given = {
        "store": store,
        "topic": topic,
        "into": into,
        "by": by,
        "keep": keep,
        "window": spans.seconds(window),
        "start": piping.place(start),
        "end": piping.place(end),
        "on_loss": on_loss,
        "top": top,
    }
    piping.run(context, load, given, config=config, spark=spark, as_json=as_json)
