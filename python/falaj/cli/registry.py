"""The commands, a module for each, in the order in which the help lists them.

A module has `COMMAND`, or `GROUP` if it has commands of its own. It is imported only when its
command runs, so a command that needs little starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from falaj.cli.arguments import Command, Group

__all__ = ["NAMES", "load"]

NAMES = (
    *("append", "cat", "tail", "topic", "group", "queue", "producer", "info", "config", "maintain"),
    *("metrics", "verify", "repair", "backup", "restore", "ship", "place", "serve", "pipeline"),
    *("demo", "completion"),
)


def load(name: str) -> Command | Group:
    """Import a command."""
    module = import_module(f"falaj.cli.commands.{name}")
    found: Command | Group = module.GROUP if hasattr(module, "GROUP") else module.COMMAND
    return found
