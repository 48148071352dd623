"""The commands of `falaj topic`, in the order in which the help lists them."""

from __future__ import annotations

from falaj.cli.arguments import Group
from falaj.cli.commands.topic import compact, config, create, delete, describe, finish, list_, trim

__all__ = ["GROUP"]

GROUP = Group(
    "List, create, describe and change topics.",
    {
        "list": list_.COMMAND,
        "create": create.COMMAND,
        "describe": describe.COMMAND,
        "config": config.COMMAND,
        "trim": trim.COMMAND,
        "compact": compact.COMMAND,
        "finish": finish.COMMAND,
        "delete": delete.COMMAND,
    },
)
