"""`falaj topic compact`: the last record of each key kept, in this process."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.paint import is_terminal
from falaj.cli.progress import bar
from falaj.cli.units import count, size
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from falaj._compaction import CompactReport
    from falaj.cli.stores import Access

#: The remedies that the library and a server name for a topic that is not marked.
_REMEDIES = (
    "make it with compacted=True, or mark it by configure(compacted=True)",
    'send PATCH with {"compacted": true} first',
)

__all__ = ["COMMAND", "compact", "remedy_of_the_shell", "show"]


def compact(access: Access, topic: str, delete_retention: float, seal: bool, as_json: bool) -> None:
    """Compact a topic."""
    with (
        access.topic(topic, writes=True) as opened,
        bar(f"compact {topic}") as advance,
        remedy_of_the_shell(topic),
    ):
        done = opened.compact(
            delete_retention=delete_retention,
            seal=seal,
            progress=lambda done, total: advance(done, total=max(total, done)),
        )
    show(topic, done, as_json)


@contextmanager
def remedy_of_the_shell(topic: str) -> Iterator[None]:
    """Let the error for a topic that is not marked name the command that marks it."""
    try:
        yield
    except InvalidArgument as error:
        sentence = str(error)
        for remedy in _REMEDIES:
            mark = f"mark it with `falaj topic config {topic} --compacted`"
            sentence = sentence.replace(remedy, mark)
        error.args = (sentence,)
        raise


def show(topic: str, done: CompactReport, as_json: bool) -> None:
    """Print what a compaction did."""
    if as_json:
        print(json.dumps({"topic": topic, **done}))
        return
    before, after = done["bytes_before"], done["bytes_after"]
    if is_terminal(sys.stdout):
        removed = count(done["removed"], "record")
        print(f"{removed} removed from topic {topic}; {size(before)} became {size(after)}")
    else:
        print(topic, done["removed"], before, after, sep="\t")


COMMAND = Command(
    compact,
    "Keep only the latest record of each key, per partition.",
    (options.TOPIC,),
    (
        *options.ACCESS,
        Option(
            "--delete-retention",
            "delete_retention",
            "Keep tombstones for so long: 1d (the default), 0.",
            "SPAN",
            options.span_from,
            86_400.0,
        ),
        Option(
            "--seal",
            "seal",
            "Begin a new file first, so that all records are looked at.",
            default=False,
        ),
        options.AS_JSON._replace(help="Print what was done as JSON."),
    ),
    "The topic must be marked: `falaj topic config TOPIC --compacted`. Other processes may read "
    "and write meanwhile, and offsets stay. The newest file is not looked at.",
)
