"""Shared by the commands of `falaj pipeline`: the config, Spark, a bar, the result.

Owns `--config`, `--spark` and `--json`. Options override the file, and the file overrides
`FALAJ_STORE`. Invariant: Spark's own output never mixes with that of falaj. The program holds back
what Spark prints while it starts, and shows it only if the start fails. The output of its workers
goes to stderr, never to stdout.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Argument, Command, Option
from falaj.cli.exits import Exit, Stop, read_failed
from falaj.cli.paint import is_terminal
from falaj.cli.progress import Bar
from falaj.cli.relay import Relay
from falaj.cli.stores import VARIABLE, Access
from falaj.cli.tables import facts
from falaj.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from falaj.pipeline.base.frame import Config, Progress, Result

    Work = Callable[..., Result]
    Loaded = tuple[type[Config], Work]

__all__ = ["command", "names", "pairs", "run"]

#: The config of a pipeline says whether it takes a place.
_STORE = options.STORE._replace(read=options.store)
_SHARED = (
    Option("--config", "config", "TOML file with options; those here win.", "FILE", options.path),
    Option("--spark", "spark", "A setting of Spark; may be repeated.", "NAME=VALUE", many=True),
    Option("--json", "as_json", "Print what was done as JSON.", default=False),
)


def command(
    load: Callable[[], Loaded],
    summary: str,
    arguments: tuple[Argument, ...],
    own: tuple[Option, ...],
    details: str = "",
    *,
    needs_spark: bool = True,
) -> Command:
    """Make the command of a pipeline.

    Args:
        load: Imports the pipeline; returns the class of its config, and its function.
        summary: One sentence of help.
        arguments: Its arguments, by the names of the config's fields. None is required, since the
            file of `--config` may have them.
        own: Its options, also by these names.
        details: More help.
        needs_spark: Whether it gets a session; otherwise it gets None.
    """

    def do(**given: Any) -> None:
        run(load, given, needs_spark=needs_spark)

    optional = tuple(each._replace(needed=False) for each in arguments)
    return Command(do, summary, optional, (_STORE, *own, *_SHARED), details)


def names(text: str) -> tuple[str, ...]:
    """Read names with commas between them."""
    return tuple(name.strip() for name in text.split(","))


def run(load: Callable[[], Loaded], given: dict[str, Any], *, needs_spark: bool = True) -> None:
    """Run a pipeline.

    Raises:
        Stop: The extra is missing, the file is no config, Spark does not start or failed.
        Error: What the pipeline raises.
    """
    config, spark, as_json = (given.pop(name) for name in ("config", "spark", "as_json"))
    try:
        import pyarrow  # noqa: F401  # only to know that it is there

        kind, work = load()
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in ("pyspark", "pyarrow", "pandas"):
            raise
        raise Stop("pipelines run in Spark: pip install 'falaj[spark]'", Exit.MACHINE) from None
    read = _read(config) if config is not None else {}
    settings = {**_flat(read.pop("spark", {})), **(pairs(spark, "--spark", "spark.") or {})}
    if given.get("options"):
        given["options"] = pairs(given["options"], "--option")
    named = {name: value for name, value in given.items() if value not in (None, [], ())}
    if "store" not in {**read, **named} and os.environ.get(VARIABLE):
        named["store"] = Access().path
    checked = kind.from_mapping({**read, **named})
    checked.expect()  # before Spark starts, which takes seconds
    begin = _session(settings) if needs_spark else nullcontext(None)
    with begin as session, _shown() as progress:
        result = _done(work, session, checked, progress)
    _tell(result, as_json)


def _done(work: Work, session: SparkSession | None, config: Config, progress: Progress) -> Result:
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    from falaj.pipeline.base.frame import sentence

    try:
        return work(session, config, progress=progress)
    except Error as error:
        error.args = (_as_options(str(error), config),)
        raise
    except AnalysisException as error:
        raise Stop(sentence(error)) from None
    except (PySparkException, Py4JError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise Stop(f"Spark failed: {' '.join(lines[:3])[:500]}", Exit.MACHINE) from None


def _as_options(said: str, config: Config) -> str:
    """Replace fields that a sentence names, as `on_loss='continue'`, by options of the program."""

    def option(match: re.Match[str]) -> str:
        if not hasattr(config, match[1]):
            return match[0]
        return f"--{match[1].replace('_', '-')} {match[3]}"

    return re.sub(r"\b([a-z_]+)=(['\"])([\w-]+)\2", option, said)


def _tell(result: Result, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.to_dict()))
    elif is_terminal(sys.stdout):
        facts(result.rows())
    else:
        for row in result.rows():
            print(*row, sep="\t")


# --- Where options come from ---------------------------------------------------------------------


def _read(file: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(file, encoding="utf-8") as text:
            return tomllib.loads(text.read())
    except OSError as error:
        raise read_failed(file, error) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Stop(f"{file} is no TOML: {error}") from None


def _flat(table: object, front: str = "spark") -> dict[str, str]:
    """Join the names of nested tables by dots, since TOML nests by dots."""
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
        Stop: A setting has another form.
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
def _session(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Start Spark; hold back what it prints meanwhile, and show it if the start fails."""
    from falaj.spark import session

    relay = Relay()
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


# --- The bar -------------------------------------------------------------------------------------


@contextmanager
def _shown() -> Iterator[Progress]:
    """Show a bar on a terminal, and nothing elsewhere."""
    from falaj.pipeline.base.frame import SILENT

    if not is_terminal(sys.stderr):
        yield SILENT
        return
    shown = _Steps()
    try:
        yield shown
    finally:
        shown.clear()


class _Steps:
    """The progress of a pipeline as a bar of steps."""

    def __init__(self) -> None:
        self._bar = Bar("")
        self._done = 0
        self._total: int | None = None

    def say(self, text: str) -> None:
        """Begin a part of the work."""
        self._bar.what, self._done, self._total = text, 0, None
        self._draw(now=True)

    def total(self, steps: int) -> None:
        """Set how many steps it has."""
        self._total = steps
        self._draw(now=True)

    def advance(self, steps: int) -> None:
        """Move on."""
        self._done += steps
        self._draw(now=self._done == self._total)

    def clear(self) -> None:
        """Take the bar away."""
        self._bar.clear()

    def _draw(self, *, now: bool) -> None:
        said = "" if self._total is None else f"{self._done}/{self._total}"
        self._bar.draw(self._done, self._total, said, now=now)
