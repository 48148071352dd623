"""`falaj queue`: work queues and their jobs; a module for each command."""

from falaj.cli.commands.queue.group import GROUP

__all__ = ["GROUP"]
