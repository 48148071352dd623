"""What the verbs of `falaj pipeline` share: where the config comes from, Spark, a bar, the result.

Owns `--config`, `--spark` and `--json`; options win over the file. Invariant: Spark's own words
never mix with ours: what it says while it starts is kept back and shown only if it does not start,
what its workers say afterwards goes to stderr, and nothing of it to stdout.
"""

import json
import os
import secrets
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from falaj.cli import options, units
from falaj.cli.exits import Exit, Stop, read_failed
from falaj.cli.opened import Access
from falaj.cli.paint import Paint, is_terminal
from falaj.cli.tables import facts
from falaj.errors import Error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from falaj.pipeline.frame import Config, Progress, Result

    Verb = Callable[..., Result]
    Loaded = tuple[type[Config], Verb]

__all__ = [
    "ConfigOption",
    "Given",
    "Loaded",
    "SparkOption",
    "StoreArgument",
    "TopicArgument",
    "names",
    "pairs",
    "place",
    "run",
]

# With --config they may stand in the file, so typer cannot ask for them; the config does.
StoreArgument = Annotated[
    str | None, typer.Argument(metavar="STORE", help="Directory of the store.")
]
TopicArgument = Annotated[str | None, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        parser=options.path,
        help="Read options from a TOML file; those here win.",
    ),
]
SparkOption = Annotated[
    list[str] | None,
    typer.Option("--spark", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]

Given = Mapping[str, Any]
"""Options by the names of the config's fields; None, and what is empty, was not given."""


def names(given: str | None) -> tuple[str, ...] | None:
    """Read names with commas between them."""
    return None if given is None else tuple(name.strip() for name in given.split(","))


def place(given: str | None) -> int | str | datetime | None:
    """Read where to begin or end: a word, an offset, or a time as other verbs take it."""
    if given is None or given in ("earliest", "latest"):
        return given
    return units.place(given)


def run(
    context: options.Context,
    load: "Callable[[], Loaded]",
    given: Given,
    *,
    config: Path | None,
    spark: list[str] | None,
    as_json: bool,
    needs_spark: bool = True,
) -> None:
    """Run a pipeline as a verb does.

    Args:
        context: What stands in front of the verb.
        load: Imports the pipeline; returns its config's class and its function.
        given: The options.
        config: The file of `--config`.
        spark: What `--spark` was given.
        as_json: Whether `--json` was.
        needs_spark: Whether a session is started for it; else it gets None.

    Raises:
        Stop: The extra is missing, the file is none, Spark does not start or failed.
        Error: What the pipeline raises.
    """
    if options.access_of(context) != Access():
        raise Stop("--force and --timeout are not for pipelines: leave them away")
    try:
        import pyarrow  # noqa: F401  # only to know that it is there

        kind, verb = load()
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in ("pyspark", "pyarrow", "pandas"):
            raise
        raise Stop("pipelines run in Spark: pip install 'falaj[spark]'") from None
    read = _read(config) if config is not None else {}
    settings = {**_flat(read.pop("spark", {})), **(pairs(spark, "--spark", "spark.") or {})}
    named = {name: value for name, value in given.items() if value not in (None, [], ())}
    checked = kind.from_mapping({**read, **named})
    begin = _session(settings) if needs_spark else nullcontext(None)
    with begin as session, _shown() as progress:
        result = _done(verb, session, checked, progress)
    _tell(result, as_json)


def _done(
    verb: "Verb", session: "SparkSession | None", config: "Config", progress: "Progress"
) -> "Result":
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return verb(session, config, progress=progress)
    except Error:
        raise
    except (PySparkException, Py4JError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise Stop(f"Spark failed: {' '.join(lines[:3])[:500]}", Exit.MACHINE) from None


def _tell(result: "Result", as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.to_dict()))
    elif is_terminal(sys.stdout):
        facts(result.rows())
    else:
        for row in result.rows():
            print(*row, sep="\t")


# --- Where options come from ---------------------------------------------------------------------


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise read_failed(str(file), error) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Stop(f"{file} is no TOML: {error}") from None


def _flat(table: object, front: str = "spark") -> dict[str, str]:
    """Join the names of tables within tables by dots: TOML takes dots for that."""
    if not isinstance(table, dict):
        raise Stop('settings of Spark are a table: [spark], then "executor.memory" = "4g"')
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{front}.{name}")
        else:
            found[f"{front}.{name}"] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def pairs(given: list[str] | None, option: str, front: str = "") -> dict[str, str] | None:
    """Read settings as NAME=VALUE.

    Raises:
        Stop: One is not written so.
    """
    found = {}
    for pair in given or []:
        name, equals, value = pair.partition("=")
        if not equals or not name.startswith(front):
            raise Stop(f"{option} takes {front and front + '…'}NAME=VALUE, not {pair!r}")
        found[name] = value
    return found or None


# --- Spark ---------------------------------------------------------------------------------------


@contextmanager
def _session(settings: Mapping[str, str]) -> "Iterator[SparkSession]":
    """Start Spark; what it says meanwhile is kept back, and shown if it does not start."""
    from falaj.spark import session

    relay = _Relay()
    try:
        with relay.instead_of_ours():
            spark = session.local("falaj pipeline", **settings)
            spark.sparkContext.setLogLevel("OFF")  # a job that fails raises
    except Error:
        relay.decide(show=False)
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, Spark did not start
        relay.decide(show=True)
        raise Stop(f"Spark does not start: {error}", Exit.MACHINE) from None
    relay.decide(show=False)
    try:
        yield spark
    finally:
        with relay.instead_of_ours():
            spark.stop()
        relay.drain()


class _Relay:
    """What Spark's processes say: held until somebody decides, then passed on a line at a time."""

    def __init__(self) -> None:
        read, self._write = os.pipe2(os.O_CLOEXEC)
        self._mark = f"\0{secrets.token_hex(8)}"
        self._seen = threading.Event()
        threading.Thread(target=self._pass_on, args=(read,), daemon=True).start()

    @contextmanager
    def instead_of_ours(self) -> Iterator[None]:
        """Let processes that start in the body have it for stdout and stderr."""
        sys.stdout.flush()
        sys.stderr.flush()
        saved = [os.dup(1), os.dup(2)]
        os.dup2(self._write, 1)
        os.dup2(self._write, 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, number)
                os.close(copy)

    def decide(self, *, show: bool) -> None:
        """Show or forget what was said so far; returns when that is done."""
        self._tell("+" if show else "-")

    def drain(self) -> None:
        """Wait until all is passed on that was said so far."""
        self._tell("=")

    def _tell(self, word: str) -> None:
        # Who speaks may still be there and holds the pipe, so that it has no end.
        self._seen.clear()
        os.write(self._write, f"\n{self._mark}{word}\n".encode())
        self._seen.wait()

    def _pass_on(self, read: int) -> None:
        held: list[str] | None = []
        with os.fdopen(read, encoding="utf-8", errors="replace") as lines:
            for line in (line.rstrip("\n") for line in lines):
                if line.startswith(self._mark):
                    for kept in held or () if line.endswith("+") else ():
                        self._print(kept)
                    held = held if line.endswith("=") else None
                    self._seen.set()
                elif line and held is not None:
                    held.append(line)
                elif line:
                    self._print(line)

    @staticmethod
    def _print(line: str) -> None:
        print(Paint.of(sys.stderr).harmless(line), file=sys.stderr, flush=True)


# --- The bar -------------------------------------------------------------------------------------


@contextmanager
def _shown() -> "Iterator[Progress]":
    """Show a bar on a terminal; elsewhere nothing."""
    from falaj.pipeline.frame import SILENT

    if not is_terminal(sys.stderr):
        yield SILENT
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    plain = not Paint.of(sys.stderr).colours
    console = Console(stderr=True, color_system=None if plain else "auto", highlight=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield _Bar(bars)


class _Bar:
    """The progress of a pipeline as a bar of rich's."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task = bars.add_task("", total=None)

    def say(self, text: str) -> None:
        """Begin a part of the work."""
        self._bars.remove_task(self._task)
        self._task = self._bars.add_task(text, total=None)

    def total(self, steps: int) -> None:
        """Set how many steps it has."""
        self._bars.update(self._task, total=steps)

    def advance(self, steps: int) -> None:
        """Move on."""
        self._bars.advance(self._task, steps)
