"""The program `falaj`: a store from the shell.

Owns commands, what they print, and exit codes, all of it documented in docs/cli.md. It needs no
package beyond the library. It leaves every promise about records to the library: what a command
does can be done with `falaj.open` too.
"""

from falaj.cli.entry import main

__all__ = ["main"]
