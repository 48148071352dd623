"""`falaj pipeline dedupe`: a topic into another with each record once.

Owns the verb's options; what they mean is in `falaj.pipeline.deduping`.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from falaj.cli import options, piping, spans

if TYPE_CHECKING:
    from falaj.pipeline.frame import Config

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
    first: spans.FromOption = None,
    since: spans.SinceOption = None,
    stop: spans.ToOption = None,
    until: spans.UntilOption = None,
    on_loss: Annotated[
        str | None,
        typer.Option("--on-loss", metavar="HOW", help="fail, or skip what was trimmed unread."),
    ] = None,
    top: spans.TopOption = None,
    config: piping.ConfigOption = None,
    spark: piping.SparkOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Copy a topic without repeats."""

    def load() -> "tuple[type[Config], piping.Verb]":
        from falaj.pipeline.deduping import DedupeConfig, dedupe

        return DedupeConfig, dedupe

    given = {
        "store": store,
        "topic": topic,
        "into": into,
        "by": by,
        "keep": keep,
        "window": spans.seconds(window),
        **spans.range_of(first, since, stop, until),
        "on_loss": on_loss,
        "top": top,
    }
    piping.run(context, load, given, config=config, spark=spark, as_json=as_json)
