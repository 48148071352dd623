"""Options that several verbs have, worded once."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from falaj.cli.opened import Access
from falaj.cli.units import SECONDS_MAX
from falaj.errors import Invalid
from falaj.paths import local_path

__all__ = [
    "Context",
    "DurableOption",
    "FromOption",
    "GrepOption",
    "JsonOption",
    "KeysOption",
    "OffsetsOption",
    "PartitionOption",
    "RawOption",
    "SinceOption",
    "StoreArgument",
    "TimeOption",
    "TopicArgument",
    "access_of",
    "path",
    "seconds",
]

Context = typer.Context


def seconds(name: str, help_: str) -> Any:
    """Make an option that is a wait in seconds.

    Before 0.29 typer takes NaN for a number between any two.
    """
    return typer.Option(
        name, min=0.0, max=SECONDS_MAX, metavar="SECONDS", help=help_, callback=_no_nan
    )


def _no_nan(wait: float | None) -> float | None:
    if wait is not None and math.isnan(wait):
        raise typer.BadParameter("NaN is no number of seconds")
    return wait


def path(text: str) -> Path:
    """Read a path or the URL of one; `pathlib` would make a folder of any URL."""
    try:
        return Path(local_path(text))
    except Invalid as error:
        raise typer.BadParameter(str(error)) from None


StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", parser=path, help="Directory of the store.")
]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON, one object a line.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, metavar="P", help="Only this partition.")
]
FromOption = Annotated[
    int | None,
    typer.Option("--from", metavar="OFFSET", help="First offset; -10: the last ten."),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="From a time on: 5m ago, or 2026-11-20T08:00Z."),
]
GrepOption = Annotated[
    str | None,
    typer.Option("--grep", "-g", metavar="REGEX", help="Only records whose value matches."),
]
RawOption = Annotated[
    bool, typer.Option("--raw", help="Values byte for byte, with nothing between them.")
]
DurableOption = Annotated[bool, typer.Option("--durable", help="Only what is on the medium.")]
OffsetsOption = Annotated[
    bool | None, typer.Option("--offsets/--no-offsets", help="A column with offsets.")
]
KeysOption = Annotated[bool | None, typer.Option("--keys/--no-keys", help="A column with keys.")]
TimeOption = Annotated[
    str | None,
    typer.Option("--time", metavar="FORM", help="Times as iso, local, unix, ns or none."),
]


def access_of(context: Context) -> Access:
    """What was said in front of the verb."""
    access = context.obj
    return access if isinstance(access, Access) else Access()
