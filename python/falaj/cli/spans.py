"""Arguments of pipelines that read a range of a topic, worded once."""

from typing import Annotated

import typer

from falaj.cli.units import span_from

__all__ = ["EndOption", "IntoArgument", "StartOption", "TopOption", "seconds"]

IntoArgument = Annotated[str | None, typer.Argument(metavar="INTO", help="The topic to write.")]
StartOption = Annotated[
    str | None, typer.Option("--start", metavar="PLACE", help="Where it begins; earliest.")
]
EndOption = Annotated[
    str | None, typer.Option("--end", metavar="PLACE", help="Where it ends; as of now.")
]
TopOption = Annotated[int | None, typer.Option("--top", metavar="N", help="How many to tell; 10.")]


def seconds(text: str | None) -> float | None:
    """Read a span of time, if there is one."""
    return None if text is None else span_from(text)
