"""Options of the pipelines that follow a topic, `aggregate` and `join`, worded once."""

from typing import TYPE_CHECKING, Annotated

import typer

from falaj import times
from falaj.cli import units

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "BatchOption",
    "CheckpointOption",
    "IntoOption",
    "KeyOption",
    "OnBadOption",
    "OnCorruptOption",
    "OnLossOption",
    "ParquetOption",
    "PartitionsOption",
    "SchemaOption",
    "StartOption",
    "TriggerOption",
    "moment",
]

CheckpointOption = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="FOLDER", help="Where the job keeps how far it is."),
]
IntoOption = Annotated[
    str | None, typer.Option("--into", metavar="TOPIC", help="Topic that results go to, as JSON.")
]
ParquetOption = Annotated[
    str | None, typer.Option("--parquet", metavar="FOLDER", help="Folder that results go to.")
]
SchemaOption = Annotated[
    str | None,
    typer.Option("--schema", metavar="FIELDS", help='Fields of values: "carrier STRING, n INT".'),
]
PartitionsOption = Annotated[
    int | None, typer.Option("--partitions", metavar="N", help="Of a new topic; 1.")
]
TriggerOption = Annotated[
    str | None,
    typer.Option("--trigger", metavar="WHEN", help='available-now, or how often: "10 seconds".'),
]
StartOption = Annotated[
    str | None,
    typer.Option("--start", metavar="WHEN", help="earliest, latest, an offset or a time."),
]
BatchOption = Annotated[
    int | None, typer.Option("--batch", metavar="N", help="Most records of a micro-batch.")
]
KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="SQL", help="The key of a result's record.")
]
OnCorruptOption = Annotated[
    str | None,
    typer.Option("--on-corrupt", metavar="fail|skip", help="What a record that is bad does."),
]
OnBadOption = Annotated[
    str | None,
    typer.Option("--on-bad", metavar="fail|skip|TOPIC", help="What an unreadable value does."),
]
OnLossOption = Annotated[
    str | None,
    typer.Option("--on-loss", metavar="fail|continue", help="What records that are gone do."),
]


def moment(text: str | None) -> "str | int | datetime | None":
    """Read where to begin: a word or an offset, else a time.

    Raises:
        Invalid: It is none of them.
    """
    if text is None or text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdecimal():
        return int(text)
    return times.from_ns(units.moment(text))
