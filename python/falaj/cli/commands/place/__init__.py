"""`falaj place`: what a place holds, and whether it is whole; a module for each command."""

from falaj.cli.commands.place.group import GROUP

__all__ = ["GROUP"]
