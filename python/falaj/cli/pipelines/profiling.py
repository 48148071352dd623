"""`falaj pipeline profile`: what is in a topic, in figures, and as a page.

Owns the verb's options; what they mean is in `falaj.pipeline.profiling`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from falaj.cli import options, piping, spans

if TYPE_CHECKING:
    from falaj.pipeline.frame import Config

__all__ = ["NAME", "verb"]

NAME = "profile"


def verb(
    context: options.Context,
    store: piping.StoreArgument = None,
    topic: piping.TopicArgument = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots, too.")
    ] = None,
    first: spans.FromOption = None,
    since: spans.SinceOption = None,
    stop: spans.ToOption = None,
    until: spans.UntilOption = None,
    top: spans.TopOption = None,
    config: piping.ConfigOption = None,
    spark: piping.SparkOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Tell of rates, sizes, keys and gaps, as a page too."""

    def load() -> "tuple[type[Config], piping.Verb]":
        from falaj.pipeline.profiling import ProfileConfig, profile

        return ProfileConfig, profile

    given = {
        "store": store,
        "topic": topic,
        "html": html,
        **spans.range_of(first, since, stop, until),
        "top": top,
    }
    piping.run(context, load, given, config=config, spark=spark, as_json=as_json)
