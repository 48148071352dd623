"""`falaj topic`: what may be done with topics; a module for each command."""

from falaj.cli.commands.topic.group import GROUP

__all__ = ["GROUP"]
