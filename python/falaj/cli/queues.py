"""Shared by the commands of `falaj queue`: the queue's name, and finding it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli.arguments import Argument
from falaj.cli.names import no_such

if TYPE_CHECKING:
    from falaj._store import Store

__all__ = ["NOT_BEFORE", "QUEUE", "expect_queue"]

NOT_BEFORE = "falaj-not-before"
"""The header that says when a job may be delivered, in microseconds since 1970."""
QUEUE = Argument("queue", "QUEUE", "Name of the queue.")


def expect_queue(store: Store, name: str) -> str:
    """Find the topic of a queue.

    Raises:
        Stop: There is no such queue; the sentence lists those that there are.
    """
    if name not in store.queues:
        raise no_such("queue", name, list(store.queues), store._where)
    return store.queues[name]["topic"] or ""
