"""`falaj pipeline replay`: a range of a topic into another, at a speed.

Owns the verb's options; what they mean is in `falaj.pipeline.replaying`. It runs without Spark.
"""

from typing import Annotated

import typer

from falaj.cli import options, piping, spans
from falaj.cli.exits import Stop

__all__ = ["NAME", "verb"]

NAME = "replay"


def verb(
    context: options.Context,
    store: piping.StoreArgument = None,
    topic: piping.TopicArgument = None,
    into: spans.IntoArgument = None,
    speed: Annotated[
        str | None,
        typer.Option("--speed", metavar="N", help="1 as it came, 10 ten times as fast, or max."),
    ] = None,
    start: spans.StartOption = None,
    end: spans.EndOption = None,
    shift: Annotated[
        bool | None, typer.Option("--shift/--no-shift", help="Times become those of now.")
    ] = None,
    longest_pause: Annotated[
        str | None, typer.Option("--longest-pause", metavar="SPAN", help="Wait no longer: 10s.")
    ] = None,
    resume: Annotated[
        bool | None,
        typer.Option("--resume/--no-resume", help="Go on where it was left, or begin anew."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Consumer that keeps the place.")
    ] = None,
    config: piping.ConfigOption = None,
    spark: piping.SparkOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Append a range of time to another topic, at a speed."""

    def load() -> "piping.Loaded":
        from falaj.pipeline.replaying import ReplayConfig, replay

        return ReplayConfig, replay

    given = {
        "store": store,
        "topic": topic,
        "into": into,
        "speed": _speed(speed),
        "start": piping.place(start),
        "end": piping.place(end),
        "shift": shift,
        "longest_pause": spans.seconds(longest_pause),
        "resume": resume,
        "name": name,
    }
    piping.run(context, load, given, config=config, spark=spark, as_json=as_json, needs_spark=False)


def _speed(text: str | None) -> float | str | None:
    if text is None or text == "max":
        return text
    try:
        return float(text)
    except ValueError:
        raise Stop(f"--speed is a number, or max, not {text!r}") from None
