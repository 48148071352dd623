"""The commands of `falaj queue`, in the order in which the help lists them."""

from __future__ import annotations

from falaj.cli.arguments import Group
from falaj.cli.commands.queue import create, list_, put, redrive, reset, take

__all__ = ["GROUP"]

GROUP = Group(
    "List work queues; put, take and redrive jobs.",
    {
        "list": list_.COMMAND,
        "create": create.COMMAND,
        "put": put.COMMAND,
        "take": take.COMMAND,
        "redrive": redrive.COMMAND,
        "reset": reset.COMMAND,
    },
)
