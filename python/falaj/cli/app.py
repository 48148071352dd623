"""Finds the command of a command line, runs it, and turns errors into sentences and exit codes.

A command raises `Stop` for a mistake on the command line, or for an exit code of its own. It raises
falaj's errors unchanged. Nothing else decides how the process ends.
"""

from __future__ import annotations

import errno
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

import falaj
from falaj.cli import registry
from falaj.cli.arguments import HELP, Command, Group, HelpWanted, Option, parse
from falaj.cli.exits import Exit, Stop, code_of, end_by_signal, say, swallow_output
from falaj.cli.names import see
from falaj.cli.stores import Access
from falaj.errors import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["find", "run"]

PROGRAM = "falaj"
_COMPLETE = "__complete"  # asked by the shells' completion, docs/cli.md


class _ReaderGone(Exception):
    """The reader of a pipe has closed it."""


def run(arguments: list[str] | None = None) -> int:
    """Run a command line; return its exit code."""
    code = _run(sys.argv[1:] if arguments is None else arguments)
    _flush_the_rest()
    if code == Exit.INTERRUPTED:
        end_by_signal()
    return code


def _run(words: list[str]) -> int:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a path goes out as the bytes it is
    try:
        _guarded(words)
        return Exit.DONE
    except Stop as stop:
        if stop.sentence:
            say(stop.sentence)
        return stop.code
    except Error as error:
        say(str(error))
        return code_of(error)
    except _ReaderGone:
        # The reader has what it wanted: `falaj cat … | head` is no failure.
        swallow_output()
        return Exit.DONE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except UnicodeEncodeError as error:
        # Bytes that are no text reach a program as half of a pair; only a path may have them.
        if not any(error.object in word for word in words):
            raise
        say(f"{error.object!a} is not UTF-8, and only a path may be that; see `falaj --help`")
        return Exit.USAGE


def _flush_the_rest() -> None:
    """Write what a command printed before it ended with a code of its own, which stays."""
    try:
        sys.stdout.flush()
    except OSError as error:
        swallow_output()
        if not isinstance(error, BrokenPipeError):
            say(_unwritten(error))


def _unwritten(error: OSError) -> str:
    helps = "raise `ulimit -f`" if error.errno == errno.EFBIG else "make room"
    return f"cannot write the output: {error.strerror}; {helps} or send it elsewhere"


def _guarded(words: list[str]) -> None:
    """Run the command, and separate errors of the output from all others."""
    try:
        _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        raise _ReaderGone from None
    except Error:
        raise
    except OSError as error:
        if error.filename is not None:
            raise Stop(f"cannot use {error.filename}: {error.strerror}") from None
        swallow_output()
        raise Stop(_unwritten(error), Exit.MACHINE) from None


def _dispatch(words: list[str]) -> None:
    if words[:1] == ["--version"]:
        print(f"{PROGRAM} {falaj.__version__}")
        return
    if words[:1] == [_COMPLETE]:
        from falaj.cli.completion import complete

        complete(words[1:])
        return
    found, title, rest = find(words)
    if isinstance(found, Command):
        try:
            if found.passes_on and not set(HELP) & set(rest):
                found.run(rest)
                return
            given = parse(found, title, rest)
        except HelpWanted:
            from falaj.cli.help import print_command

            print_command(found, title)
            return
        if "access" in given:
            access = given["access"] = Access(**given["access"])
            if access.url is not None:
                access.expect_no_origin()
                from falaj.cli.remote import run  # only for URLs

                run(title, access, {name: given[name] for name in given if name != "access"})
                return
        found.run(**given)
        return
    from falaj.cli.help import print_group, print_program

    if found is None:
        print_program()
    else:
        print_group(found, title)


def find(words: Sequence[str]) -> tuple[Command | Group | None, str, list[str]]:
    """Find the command that words begin with.

    Returns:
        The command, or the group or program whose help is wanted; its name; the words behind it.
        The options of the store may stand in front, and are among the words then.

    Raises:
        Stop: There is no such command.
    """
    front, words = _options_in_front(list(words))
    if not words or words[0] in HELP:
        return None, PROGRAM, []
    name, *words = words
    if name not in registry.NAMES:
        raise _no_command(name, registry.NAMES, PROGRAM)
    found, title = registry.load(name), f"{PROGRAM} {name}"
    if isinstance(found, Command):
        return found, title, [*front, *words]
    more, words = _options_in_front(words)
    if not words or words[0] in HELP:
        return found, title, []
    name, *words = words
    if name not in found.commands:
        raise _no_command(name, list(found.commands), title)
    return found.commands[name], f"{title} {name}", [*front, *more, *words]


def _options_in_front(words: list[str]) -> tuple[list[str], list[str]]:
    """Split off the options of the store that stand in front of a command."""
    from falaj.cli.options import ACCESS

    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in HELP:
        option = _of_store(words[at], ACCESS)
        if option is None:
            raise Stop(
                f"{words[at]} stands in front of the command, where only options of the store may "
                f"stand; see `{PROGRAM} --help`"
            )
        bare = bool(option.metavar) and words[at] in option.names
        if bare and at + 1 == len(words):
            raise Stop(f"{words[at]} takes a value: {option.metavar}; see `{PROGRAM} --help`")
        at += 1 + bare
    return words[:at], words[at:]


def _of_store(word: str, options: tuple[Option, ...]) -> Option | None:
    name = word.partition("=")[0] if word.startswith("--") else word[:2]
    return next((option for option in options if name in option.names), None)


def _no_command(name: str, names: Sequence[str], title: str) -> Stop:
    whose = "there is" if title == PROGRAM else f"`{title}` has"
    return see(f"{whose} no command {name!r}", name, names, title)
