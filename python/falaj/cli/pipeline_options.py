"""Options that several pipelines have, worded once. Their names are the fields' of the configs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj import _time
from falaj.cli import options, units
from falaj.cli.arguments import Argument, Option
from falaj.cli.arguments import text as utf8

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["END", "FLOW", "INTO", "PARTITIONS", "START", "TOP", "mode", "text"]


def text(flag: str, metavar: str, told: str, to: str = "", *, many: bool = False) -> Option:
    """Make an option that goes to the config as it is."""
    read = str if metavar in ("FILE", "FOLDER", "PATH") else utf8
    return Option(flag, to or flag.strip("-").replace("-", "_"), told, metavar, read, many=many)


def mode(flag: str, told: str, *words: str) -> Option:
    """Make an option that is one of some words; the config says which."""
    return text(flag, "|".join(words), told)


def _place(given: str) -> int | str | datetime:
    """Read where to begin or end: a word, an offset, or a time as other commands take it."""
    return given if given in ("earliest", "latest") else units.place(given)


def moment(given: str) -> str | int | datetime:
    """Read where to begin: a word or an offset, else a time.

    Raises:
        InvalidArgument: It is none of them.
    """
    if given in ("earliest", "latest"):
        return given
    if given.isascii() and given.isdecimal():
        return int(given)
    return _time.from_ns(units.moment(given))


INTO = Argument("into", "INTO", "The topic to write.")
START = Option("--start", "start", "Where it begins (earliest).", "PLACE", _place)
END = Option("--end", "end", "Where it ends (as of now).", "PLACE", _place)
TOP = Option("--top", "top", "How many to tell (10).", "N", options.whole(-1000))
PARTITIONS = Option(
    "--partitions",
    "partitions",
    "Partitions of a topic that is created (1).",
    "N",
    options.whole(-1000),
)
#: Options of `aggregate` and `join`, which follow a topic.
FLOW = (
    text("--checkpoint", "FOLDER", "Where the pipeline keeps its progress."),
    text("--into", "TOPIC", "Topic that results go to, as JSON."),
    text("--parquet", "FOLDER", "Folder that results go to, as Parquet."),
    text("--schema", "FIELDS", "Fields of values: 'carrier STRING, n INT'."),
    PARTITIONS,
    text("--trigger", "WHEN", "available-now, or how often: '10 seconds'."),
    Option("--start", "start", "earliest, latest, an offset or a time.", "WHEN", moment),
    Option("--batch", "batch", "Most records of a micro-batch.", "N", options.whole(-1000)),
    text("--key", "SQL", "The key of a result's record."),
    mode("--on-corrupt", "How to handle corrupt records.", "fail", "skip"),
    mode("--on-bad", "How to handle malformed values.", "fail", "skip", "TOPIC"),
    mode("--on-loss", "How to handle missing records.", "fail", "continue"),
)
