"""`falaj topic create`: new topics, and the store if there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from falaj import _retention
from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.commands.append import CREATING
from falaj.cli.exits import Stop
from falaj.cli.retention import NAMES, RETENTION, changes
from falaj.cli.stores import NewTopic, raw_topic

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "create"]


def create(
    access: Access,
    topics: list[str],
    codec: str | None,
    partitions: int | None,
    segment_bytes: int | None,
    sync_interval_ms: int | None,
    log: str | None,
    **settings: Any,
) -> None:
    """Create topics."""
    wanted = NewTopic(codec, partitions, segment_bytes, sync_interval_ms, log=log)
    for name in topics:
        wanted.check(name)
    given = changes({name: settings[name] for name in NAMES})
    _retention.changes({name: limit for name, limit in given.items() if name != "compacted"})
    with access.store(creates=True) as opened:
        for name in topics:
            if name in opened.topics:
                raise Stop(
                    f"topic {name} exists already in {opened.path}: `falaj topic config` changes it"
                )
        for name in topics:
            with raw_topic(opened, name, wanted) as topic:
                if given:
                    topic.configure(**given)


COMMAND = Command(
    create,
    "Create topics, and the store where there is none.",
    (options.TOPICS,),
    (
        *options.ACCESS,
        *CREATING,
        Option("--log", "log", "The log it lives in; by default one of its own.", "LOG"),
        *RETENTION,
    ),
    "Topics of one log share its files, and a transaction may write to all of them at once.",
)
