"""`falaj queue create`: a queue over a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.exits import Stop
from falaj.cli.queues import QUEUE
from falaj.cli.stores import NewTopic, expect_topics, one_partition, raw_topic
from falaj.errors import SettingsMismatch

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "create"]


def create(access: Access, queue: str, topic: str | None, order: Any) -> None:
    """Create a queue over a topic that is there, or over a new one of its name."""
    if topic is None:
        NewTopic().check(queue)  # before a store is created
    with access.store(writes=True, creates=topic is None) as opened:
        if topic is not None:
            expect_topics(opened, topic)
        own = opened.queues[queue]["topic"] if queue in opened.queues else None
        with raw_topic(opened, topic or own or queue) as over:
            try:
                opened.queue(queue, one_partition(over), order=order).close()
            except SettingsMismatch as error:
                raise _has_no_order(queue) if error.setting == "order" else error from None


def _has_no_order(queue: str) -> Stop:
    return Stop(
        f"queue {queue} exists already, and delivers its jobs in no order: leave out --order, or "
        "create another queue"
    )


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
