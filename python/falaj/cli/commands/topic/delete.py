"""`falaj topic delete`: topics and all their records deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Command
from falaj.cli.confirm import confirm
from falaj.cli.stores import expect_topics, raw_topic
from falaj.cli.units import count
from falaj.errors import Error

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "delete"]


def delete(access: Access, topics: list[str], yes: bool) -> None:
    """Delete topics."""
    with access.store() as opened:
        expect_topics(opened, *topics)
    for topic in topics:
        much = "" if yes else _how_much(access, topic)
        confirm(f"Delete topic {topic}{much}?", f"deleting topic {topic}", yes)
        with access.store(writes=True) as opened:
            opened.delete_topic(topic)


def _how_much(access: Access, topic: str) -> str:
    """How many records would go, where it can be found out: corruption must not hinder deleting."""
    try:
        with access.store() as opened, raw_topic(opened, topic) as found:
            return f" with {count(found.count(), 'record')}"
    except Error:
        return ""


COMMAND = Command(
    delete,
    "Delete topics and all their records, for all readers.",
    (options.TOPICS,),
    (*options.ACCESS, options.YES),
    "This cannot be undone. It asks on a terminal; elsewhere it wants --yes.",
)
