"""Arguments of pipelines that read a range of a topic, and write another."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from falaj import times
from falaj.cli import options
from falaj.cli.exits import Stop
from falaj.cli.units import moment, span_from

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "FromOption",
    "IntoArgument",
    "SinceOption",
    "ToOption",
    "TopOption",
    "UntilOption",
    "range_of",
    "seconds",
]

IntoArgument = Annotated[str | None, typer.Argument(metavar="INTO", help="The topic to write.")]
FromOption = options.FromOption
SinceOption = options.SinceOption
ToOption = Annotated[
    int | None, typer.Option("--to", metavar="OFFSET", help="End before this offset.")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="End before a time.")
]
TopOption = Annotated[int | None, typer.Option("--top", metavar="N", help="How many to tell; 10.")]


def range_of(
    first: int | None, since: str | None, stop: int | None, until: str | None
) -> dict[str, Any]:
    """Turn four options into what a config calls `start` and `end`.

    Raises:
        Stop: Two of them say the same.
        Invalid: One is no time.
    """
    if first is not None and since is not None:
        raise Stop("--from and --since both say where to begin: give one of them")
    if stop is not None and until is not None:
        raise Stop("--to and --until both say where to end: give one of them")
    start = first if since is None else _moment(since)
    return {"start": start, "end": stop if until is None else _moment(until)}


def _moment(text: str) -> "datetime":
    return times.from_ns(moment(text))


def seconds(text: str | None) -> float | None:
    """Read a span of time, if there is one."""
    return None if text is None else span_from(text)
