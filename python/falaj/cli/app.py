"""The verbs put together, and the one place where errors become sentences and exit codes.

A verb raises: `Stop` for a mistake on the command line, falaj's errors as they are, `typer.Exit`
for a code of its own. Nothing else decides how the process ends.
"""

import errno
import sys
from functools import wraps
from importlib import import_module
from io import TextIOWrapper
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import falaj
from falaj.cli import options, pipelines
from falaj.cli.appending import append
from falaj.cli.caring import backup, repair, verify
from falaj.cli.consuming import consumers, seek
from falaj.cli.exits import Exit, Stop, code_of, end_by_signal, say, swallow_output
from falaj.cli.group import forget
from falaj.cli.informing import info, metrics
from falaj.cli.keeping import configure, maintain
from falaj.cli.opened import Access
from falaj.cli.producing import producers
from falaj.cli.queueing import queues
from falaj.cli.reading import cat, tail
from falaj.cli.storing import delete, demo, topics, trim
from falaj.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["app", "run"]

# What typer says of a wrong command line; it has its own copy of click, older ones have click's.
_UsageError = cast(
    "type[Exception]",
    next(each for each in typer.BadParameter.__mro__ if each.__name__ == "UsageError"),
)

app = typer.Typer(
    name="falaj",
    help="An event log that many processes on one machine share. STORE is its directory.",
    epilog="Exit codes: 0 done, 1 damage, 2 wrong command line or input, 3 the machine, 4 try "
    "again. All of it: docs/cli.md.",
    pretty_exceptions_enable=False,
)


class _NobodyReads(Exception):
    """The reader of a pipe has gone."""


def _verb(of: typer.Typer, do: "Callable[..., None]", name: str | None = None) -> None:
    """Make a function a verb. Typer would answer a closed pipe with exit code 1."""

    @wraps(do)
    def verb(*arguments: Any, **options: Any) -> None:
        try:
            do(*arguments, **options)
            sys.stdout.flush()
        except BrokenPipeError:
            raise _NobodyReads from None
        except Error:
            raise
        except OSError as error:
            if error.filename is not None:
                raise Stop(f"cannot use {error.filename}: {error.strerror}") from None
            swallow_output()
            limited = error.errno == errno.EFBIG
            helps = "raise `ulimit -f`" if limited else "make room"
            sentence = f"cannot write the output: {error.strerror}; {helps} or send it elsewhere"
            raise Stop(sentence, Exit.MACHINE) from None

    of.command(name)(verb)


_VERBS: "tuple[Callable[..., None], ...]" = (
    *(append, cat, tail, topics, consumers, seek, producers, info, metrics),
    *(verify, repair, backup, queues, configure, maintain, trim, delete, demo),
)
for each in _VERBS:
    _verb(app, each)

group = typer.Typer(help="Consumer groups.", epilog="All of it: docs/cli.md.")
_verb(group, forget)
app.add_typer(group, name="group")


@group.callback(invoke_without_command=True)
def group_commands_listed(context: typer.Context) -> None:
    """Show the commands where none is named."""
    if context.invoked_subcommand is None:
        print(context.get_help())


pipeline = typer.Typer(
    help="Jobs in Spark over topics. Needs falaj\\[spark].",
    epilog="All of it: docs/guide/pipelines.md.",
)
for found in iter_modules(pipelines.__path__, f"{pipelines.__name__}."):
    room = import_module(found.name)
    _verb(pipeline, room.verb, room.NAME)
app.add_typer(pipeline, name="pipeline")


@pipeline.callback(invoke_without_command=True)
def pipelines_listed(context: typer.Context) -> None:
    """Show the verbs where none is named."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.callback(invoke_without_command=True)
def options_in_front(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Use a network file system, where only this machine does."),
    ] = False,
    timeout: Annotated[float, options.seconds("--timeout", "Wait so long for a lock.")] = 10.0,
) -> None:
    """Keep what stands in front of the verb."""
    context.obj = Access(force, timeout)
    if version:
        print(f"falaj {falaj.__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: list[str] | None = None) -> int:
    """Run a command line; return its exit code."""
    code = _run(arguments)
    if code == Exit.INTERRUPTED:
        end_by_signal()
    return code


def _run(arguments: list[str] | None) -> int:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a path goes out as the bytes it is
    try:
        return app(arguments, prog_name="falaj", standalone_mode=False) or Exit.DONE
    except Stop as stop:
        say(str(stop))
        return stop.code
    except Error as error:
        say(str(error))
        return code_of(error)
    except _NobodyReads:
        # Whoever read has what it wanted: `falaj cat … | head` is no failure.
        swallow_output()
        return Exit.DONE
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except _UsageError as error:
        say(_sentence(error))
        return Exit.USAGE
    except UnicodeEncodeError as error:
        # Bytes that are no text reach a program as half of a pair; only a path may have them.
        if not any(error.object in argument for argument in arguments or sys.argv[1:]):
            raise
        say(f"{error.object!a} is not UTF-8, and only a path may be that; see `falaj --help`")
        return Exit.USAGE


def _sentence(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    said = error.format_message().rstrip(".") if hasattr(error, "format_message") else str(error)
    where = context.command_path if context else "falaj"
    return f"{said}; see `{where} --help`"
