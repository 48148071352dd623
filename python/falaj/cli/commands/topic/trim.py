"""`falaj topic trim`: the oldest records of a topic deleted."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.exits import Stop
from falaj.cli.paint import is_terminal
from falaj.cli.stores import partitions_of
from falaj.cli.units import count, size

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "show", "trim", "trimmed"]


def trim(
    access: Access, topic: str, before: Any, partition: int | None, dry_run: bool, as_json: bool
) -> None:
    """Delete the oldest records of a topic."""
    with access.topic(topic, writes=not dry_run) as found:
        part = found if partition is None else partitions_of(found, partition)[0]
        done = trimmed(part, before, dry_run=dry_run)
    show(topic, done, dry_run, as_json)


def trimmed(part: Any, before: Any, **options: bool) -> dict[str, Any]:
    """Trim a topic, or one partition of it, before an offset or a time.

    Raises:
        Stop: An offset is of one partition, and the topic has several.
    """
    if not isinstance(before, int):
        return dict(part.trim(before_time=before, **options))
    if len(part.partitions) == 1:
        return dict(part.trim(before_offset=before, **options))
    raise Stop(
        f"topic {part.name} has {len(part.partitions)} partitions, each with offsets of its own: "
        "choose one with --partition, or give a time"
    )


def show(topic: str, done: dict[str, Any], dry_run: bool, as_json: bool) -> None:
    """Print what a trim did; only that of a directory knows files and bytes."""
    freed = [done["segments"], done["bytes"]] if "segments" in done else []
    if as_json:
        print(json.dumps({"topic": topic, "dry_run": dry_run, **done}))
    elif is_terminal(sys.stdout):
        for number, first in done["firsts"].items():
            begins = "would begin" if dry_run else "begins"
            print(f"topic {topic} partition {number} {begins} with offset {first:,}")
        if freed:
            gone = "would be removed" if dry_run else "removed"
            print(f"{count(done['segments'], 'segment')}, {size(done['bytes'])} {gone}")
    else:
        for number, first in done["firsts"].items():
            print(topic, number, first, *freed, sep="\t")


COMMAND = Command(
    trim,
    "Delete the oldest records of a topic, for all readers.",
    (options.TOPIC,),
    (
        *options.ACCESS,
        Option(
            "--before",
            "before",
            "First to keep: an offset, -10 (the last ten), or a time: 7d (ago).",
            "PLACE",
            options.place,
            needed=True,
        ),
        options.PARTITION,
        options.DRY_RUN,
        options.AS_JSON._replace(help="Print what was done as JSON."),
    ),
    "This cannot be undone. A file is removed once it holds no record that is kept.",
)
