"""`falaj topic finish`: topics to which no process appends any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Command
from falaj.cli.confirm import confirm
from falaj.cli.stores import expect_topics, raw_topic

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "finish"]


def finish(access: Access, topics: list[str], yes: bool) -> None:
    """Finish topics."""
    with access.store() as opened:
        expect_topics(opened, *topics)
    for topic in topics:
        confirm(f"Finish topic {topic}?", f"finishing topic {topic}", yes)
        with access.store(writes=True) as opened, raw_topic(opened, topic) as found:
            found.finish()


COMMAND = Command(
    finish,
    "Finish topics: no process appends to them any more.",
    (options.TOPICS,),
    (*options.ACCESS, options.YES),
    "Readers that follow them end behind the last record. This cannot be undone. It asks on a "
    "terminal; elsewhere it wants --yes.",
)
