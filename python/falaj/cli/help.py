"""Help texts, in 80 columns or the terminal's fewer."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

from falaj.cli import registry
from falaj.cli.arguments import HELP, Argument, Command, Group, Option
from falaj.cli.paint import Paint, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["print_command", "print_group", "print_program"]

_WIDEST = 80
_LEFT = 28

_ABOUT = """\
An event log that many processes on one machine share: topics, consumer groups and work queues \
in a directory. No broker, no daemon."""
_EXIT_CODES = """\
Exit codes: 0 done, 1 corruption, 2 wrong command line or input, 3 the machine, 4 try again. \
docs/cli.md tells all of it."""
_STORE = """\
A command finds its store by -s, --store PATH, or else by the variable FALAJ_STORE."""


def print_program() -> None:
    """Print the help of the program."""
    _usage("falaj [OPTION]... COMMAND [ARGUMENT]...")
    _text(_ABOUT)
    _text(_STORE)
    loaded = {name: registry.load(name) for name in registry.NAMES}
    _heading("Commands")
    _rows([(name, found.summary) for name, found in loaded.items()])
    _heading("Options")
    _rows([("    --version", "Print the version."), _HELP])
    _text("`falaj COMMAND --help` tells more of a command.")
    _text(_EXIT_CODES, last=True)


def print_group(group: Group, title: str) -> None:
    """Print the help of a group of commands."""
    _usage(f"{title} COMMAND [ARGUMENT]...")
    _text(group.summary)
    _text(group.details)
    _heading("Commands")
    _rows([(name, command.summary) for name, command in group.commands.items()])
    _text(f"`{title} COMMAND --help` tells more of a command.", last=True)


def print_command(command: Command, title: str) -> None:
    """Print the help of a command."""
    needed = [f"{option.shown} {option.metavar}" for option in command.options if option.needed]
    words = [*needed, *(map(_argument, command.arguments))]
    _usage(" ".join([title, "[OPTION]...", *words]))
    _text(command.summary)
    for paragraph in command.details.split("\n\n"):
        _text(paragraph)
    if command.arguments:
        _heading("Arguments")
        _rows(
            [
                (argument.metavar + "..." * argument.many, argument.help)
                for argument in command.arguments
            ]
        )
    _heading("Options")
    _rows([*((_option(option), option.help) for option in command.options), _HELP], last=True)


def _argument(argument: Argument) -> str:
    shown = argument.metavar + "..." * argument.many
    return shown if argument.needed else f"[{shown}]"


def _option(option: Option) -> str:
    names = option.names
    if option.off:
        shown = ", ".join([*names[:-1], f"{names[-1]}, {option.off}"])
    else:
        shown = ", ".join(names)
    if names[0].startswith("--"):
        shown = f"    {shown}"
    return f"{shown} {option.metavar}".rstrip()


_HELP = (", ".join(HELP), "Print this help.")


def _width() -> int:
    return min(_WIDEST, width_of(sys.stdout))


def _heading(text: str) -> None:
    print(Paint.of(sys.stdout)(f"{text}:", "bold"))


def _usage(text: str) -> None:
    print(
        textwrap.fill(f"Usage: {text}", _width(), subsequent_indent="    ", break_on_hyphens=False),
        end="\n\n",
    )


def _text(text: str, *, last: bool = False) -> None:
    if text:
        print(textwrap.fill(text, _width(), break_on_hyphens=False), end="\n" if last else "\n\n")


def _rows(rows: Sequence[tuple[str, str]], *, last: bool = False) -> None:
    left = min(max(len(name) for name, _ in rows), _LEFT) + 4
    for name, told in rows:
        lines = textwrap.wrap(told, _width() - left, break_on_hyphens=False)
        if len(name) + 4 > left:
            print(f"  {name}")
        else:
            print(f"  {name.ljust(left - 2)}{lines.pop(0) if lines else ''}".rstrip())
        for line in lines:
            print(" " * left + line)
    if not last:
        print()
