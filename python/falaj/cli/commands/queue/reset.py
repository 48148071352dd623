"""`falaj queue reset`: the state of a queue forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Command
from falaj.cli.confirm import confirm
from falaj.cli.queues import QUEUE, expect_queue

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "reset"]


def reset(access: Access, queue: str, yes: bool) -> None:
    """Forget the state of a queue."""
    with access.store() as opened:
        expect_queue(opened, queue)
    confirm(f"Make all records of queue {queue} ready again?", f"resetting queue {queue}", yes)
    with access.store(writes=True) as opened:
        opened.delete_queue(queue)


COMMAND = Command(
    reset,
    "Forget the state of a queue: all its records are ready.",
    (QUEUE,),
    (*options.ACCESS, options.YES),
)
