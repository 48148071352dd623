"""`falaj pipeline`: jobs over topics; a module for each."""

from falaj.cli.commands.pipeline.group import GROUP

__all__ = ["GROUP"]
