"""The program `falaj`: a store from the shell.

Owns verbs, what they print, and exit codes, all of it documented in docs/cli.md. It needs the extra
`cli` (typer, rich), which `entry` alone can do without. It leaves every promise about records to
the library: what a verb does can be done with `falaj.open` too.
"""

from falaj.cli.entry import main

__all__ = ["main"]
