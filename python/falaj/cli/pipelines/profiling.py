"""`falaj pipeline profile`: what is in a topic, in figures, and as a page.

Owns the verb's options; what they mean is in `falaj.pipeline.profiling`.
"""

from typing import Annotated

import typer

from falaj.cli import options, piping, spans

__all__ = ["NAME", "verb"]

NAME = "profile"


def verb(
    context: options.Context,
    store: piping.StoreArgument = None,
    topic: piping.TopicArgument = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write a page with plots, too.")
    ] = None,
    start: spans.StartOption = None,
    end: spans.EndOption = None,
    top: spans.TopOption = None,
    config: piping.ConfigOption = None,
    spark: piping.SparkOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Tell of rates, sizes, keys and gaps, as a page too."""

    def load() -> "piping.Loaded":
        from falaj.pipeline.profiling import ProfileConfig, profile

        return ProfileConfig, profile

    given = {
        "store": store,
        "topic": topic,
        "html": html,
        "start": piping.place(start),
        "end": piping.place(end),
        "top": top,
    }
    piping.run(context, load, given, config=config, spark=spark, as_json=as_json)
