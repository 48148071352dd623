"""`falaj queue create`: a queue over a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.queues import QUEUE
from falaj.cli.stores import expect_topics, one_partition, raw_topic

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "create"]


def create(access: Access, queue: str, topic: str | None, order: Any) -> None:
    """Create a queue over a topic that is there, or over a new one of its name."""
    with access.store(writes=True, creates=topic is None) as opened:
        if topic is not None:
            expect_topics(opened, topic)
        own = opened.queues[queue]["topic"] if queue in opened.queues else None
        with raw_topic(opened, topic or own or queue) as over:
            opened.queue(queue, one_partition(over), order=order).close()


COMMAND = Command(
    create,
    "Create a queue over a topic.",
    (QUEUE,),
    (
        *options.ACCESS,
        Option("--topic", "topic", "Its topic; by default a new one of its name.", "TOPIC"),
        Option(
            "--order",
            "order",
            "key: deliver one job of a key at a time, in order.",
            "ORDER",
            options.choice("key"),
        ),
    ),
)
