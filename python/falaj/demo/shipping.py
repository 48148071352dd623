"""The flights in a bucket, after their directory is gone: `make demo-bucket`.

Three processes append flights, and a fourth ships the store to a bucket on loopback. The shipper is
killed with SIGKILL on the way, and started again. Once the bucket has every flight, the store's
directory is removed, and restored from the bucket. Spark reads the bucket itself. Invariant: what
is counted at the end came from the bucket alone. The flights of the file decide what is right, not
what a process says.

`bucket` starts the server, `counting` is the job of Spark.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from rich.console import Console
from rich.live import Live as Display
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

import falaj
from falaj.demo import check, counting, flights
from falaj.demo.bucket import Bucket, bucket
from falaj.demo.failed import Failed
from falaj.demo.workers import Crew, Worker
from falaj.errors import Error, InvalidArgument, NoShipper
from falaj.pages.units import bytes_text
from falaj.ship.place import open_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

__all__ = ["STORE", "TOPIC", "Figures", "main", "run", "show"]

TOPIC, STORE, WORDS = "flights", "store", "shipper.log"
KILL_AT = 0.4
"""When the shipper is killed, as a share of the flights that the bucket has."""
PATIENCE_S = 60.0
_FRAMES = 10
_LOOK_S = 0.1


@dataclass
class Shown:
    """The state that the bars show.

    Attributes:
        totals: Flights of each airport.
        shipped: How many of them the bucket has, as a reader with `visibility="remote"` sees it.
        appended: How many flights the log has.
        shipper: The state of the shipper.
    """

    totals: dict[str, int]
    shipped: dict[str, int] = field(default_factory=dict)
    appended: int = 0
    shipper: str = "starts"

    @property
    def in_bucket(self) -> int:
        """Flights that the bucket has."""
        return sum(self.shipped.values())

    @property
    def total(self) -> int:
        """All flights."""
        return sum(self.totals.values())


class Figures(NamedTuple):
    """The outcome."""

    flights: int
    payload: int
    """Bytes of their values."""
    killed_at: int
    """Flights that the bucket had when the shipper was killed."""
    ship_s: float
    """Seconds from the first append until the bucket had every flight."""
    objects: int
    stored: int
    """Bytes of these objects."""
    restored: int
    """Bytes of the segments that were restored."""
    restore_s: float
    spark: dict[str, int] | None
    """Flights of each airport as Spark counts them in the bucket; None without Spark."""
    seconds: float


class Screen:
    """The console: bars on a terminal, lines in a pipe."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, *lines: RenderableType) -> None:
        """Print lines that stay."""
        for line in lines:
            self.console.print(line)

    @contextmanager
    def showing(self, draw: Callable[[], RenderableType]) -> Iterator[None]:
        """Draw something again and again while the block runs, where that can be seen."""
        if not self.console.is_terminal:
            yield
            return
        with Display(
            get_renderable=draw, console=self.console, refresh_per_second=_FRAMES, transient=True
        ):
            yield


def run(
    folder: Path,
    server: Path,
    *,
    limit: int | None = None,
    seconds: float = 20.0,
    spark: bool = True,
    console: Console | None = None,
) -> Figures:
    """Ship flights to a bucket, remove the store, restore it, and count.

    Args:
        folder: Folder for the store; the demo creates it, or uses one that it left before.
        server: A program in Python that serves S3 on the port of its argument.
        limit: Only the first so many flights.
        seconds: Over how long three processes append them.
        spark: Whether Spark counts too.
        console: Where to show it, by default standard output.

    Raises:
        Failed: A flight is missing, there twice, or not what the file says.
        InvalidArgument: The folder holds something else.
    """
    begun = time.monotonic()
    store = _prepare(folder)
    screen = Screen(console or Console(highlight=False))
    shown = Shown(flights.count(limit))
    with bucket(server) as place:
        screen.say("1/4  Three processes append flights, and a fourth ships them to a bucket")
        killed_at, ship_s = _ship(folder, store, place, shown, limit, seconds, screen)
        there = list(open_place(place.url, **place.options()).list_after(""))
        stored = sum(each.size for each in there)
        screen.say(f"     the bucket has {len(there):,} objects, {bytes_text(stored)}", "")
        screen.say("2/4  The directory of the store is removed")
        shutil.rmtree(store)
        screen.say(f"     {store} is gone", "", "3/4  The store is restored from the bucket")
        restored, restore_s = _restore(store, place, screen)
        screen.say(
            f"     {bytes_text(restored)} in {restore_s:.1f} s, each block checked",
            "",
            "4/4  Every flight is counted in the restored store, and in the bucket",
        )
        with screen.showing(lambda: Text("     comparing the store with the file …")):
            found, payload = check.exactly_once(store, TOPIC, limit)
        screen.say(f"     each of {found:,} flights is in the store exactly once, nothing else is")
        counted = _count(place, shown.totals, folder / counting.LOG, screen) if spark else None
    return Figures(
        found,
        payload,
        killed_at,
        ship_s,
        len(there),
        stored,
        restored,
        restore_s,
        counted,
        time.monotonic() - begun,
    )


# --- Appending and shipping -----------------------------------------------------------------------


def _ship(
    folder: Path,
    store: Path,
    place: Bucket,
    shown: Shown,
    limit: int | None,
    seconds: float,
    screen: Screen,
) -> tuple[int, float]:
    """Append and ship until the bucket has every flight, and kill the shipper in between.

    Returns:
        How many flights the bucket had at the kill, and the seconds that all of it took.
    """
    with falaj.open(store) as opened:
        opened.topic(TOPIC, codec="bytes")
    with (
        (folder / WORDS).open("wb") as words,
        _Shipper(store, place, words) as shipper,
        Crew(quiet_seconds=seconds) as crew,
    ):
        hired = [
            crew.start(each, "falaj.demo.producer", store, TOPIC, each, limit or 0)
            for each in shown.totals
        ]
        with screen.showing(lambda: _bars(shown)):
            _begin(crew, hired, seconds)
            begun = time.monotonic()
            killed_at = _follow(store, shown, shipper, seconds)
            for _ in crew.messages():
                pass  # each says when it ended
        shipper.kill()
    took = time.monotonic() - begun
    screen.say(
        f"     the shipper was killed with SIGKILL when the bucket had {killed_at:,} flights",
        f"     the next one went on; all {shown.total:,} were in the bucket after {took:.1f} s",
    )
    return killed_at, took


def _begin(crew: Crew, hired: list[Worker], seconds: float) -> None:
    """Let the producers begin together, once each has its flights in memory."""
    ready: set[str] = set()
    for worker, message in crew.messages():
        if "ready" in message:
            ready.add(worker.name)
        if len(ready) == len(hired):
            break
    for worker in hired:
        worker.say(seconds=seconds)


def _follow(store: Path, shown: Shown, shipper: _Shipper, seconds: float) -> int:
    """Count what the bucket has, until it has everything; kill the shipper on the way."""
    killed_at = 0
    until = time.monotonic() + seconds + PATIENCE_S
    with (
        falaj.open(store) as opened,
        opened.topic(TOPIC, codec="bytes") as topic,
        topic.follow(visibility="remote", timeout=0) as follower,
    ):
        while shown.in_bucket < shown.total:
            try:
                topic.wait_remote(
                    timeout=_LOOK_S
                )  # the shipper sends at once while a process waits
            except NoShipper:
                time.sleep(_LOOK_S)  # it starts
            for record in follower:
                origin = (dict(record.headers)["producer"] or b"").decode()
                shown.shipped[origin] = shown.shipped.get(origin, 0) + 1
                if shown.in_bucket % 1024 == 0:
                    shown.appended = len(topic)
                if not killed_at and shown.in_bucket >= KILL_AT * shown.total:
                    killed_at = shown.in_bucket
                    shipper.kill()
                    shipper.start()
                    shown.shipper = "killed, goes on"
            shown.appended = len(topic)
            shipper.expect_running()
            if time.monotonic() > until:
                raise Failed(
                    f"the bucket has {shown.in_bucket:,} of {shown.total:,} flights after "
                    f"{seconds + PATIENCE_S:.0f} seconds"
                )
    return killed_at


class _Shipper:
    """The process `falaj ship`."""

    def __init__(self, store: Path, place: Bucket, words: BinaryIO) -> None:
        self._command = [sys.executable, "-m", "falaj", "ship", "-s", str(store), place.url]
        self._environment = os.environ | place.environment()
        self._words = words
        self.start()

    def start(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=self._words,
            stderr=self._words,
            env=self._environment,
        )

    def kill(self) -> None:
        """End it at once: it can do nothing more."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def expect_running(self) -> None:
        """Check that it has not ended by itself."""
        if (code := self._process.poll()) is not None:
            raise Failed(f"the shipper ended with code {code}; see {self._words.name}")

    def __enter__(self) -> _Shipper:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()


# --- Restoring ------------------------------------------------------------------------------------


def _restore(store: Path, place: Bucket, screen: Screen) -> tuple[int, float]:
    """Restore; return the bytes of its segments and the seconds."""
    done = [0, 1]
    begun = time.monotonic()

    def progress(now: int, total: int) -> None:
        done[:] = now, max(total, 1)

    with screen.showing(lambda: _bar("bytes", done[0], done[1], "")):
        report = falaj.restore(place.url, store, progress=progress, **place.options())
    return report["bytes"], time.monotonic() - begun


def _count(place: Bucket, totals: dict[str, int], log: Path, screen: Screen) -> dict[str, int]:
    """Let Spark count the flights in the bucket."""
    with screen.showing(lambda: Text("     Spark starts, and reads the bucket …")):
        counted = counting.counted(place, TOPIC, log)
    if counted != totals:
        raise Failed(f"Spark counts {counted} in the bucket, not {totals}")
    screen.say("     Spark counts as many flights of each airport in the bucket")
    return counted


# --- The folder and the pictures ------------------------------------------------------------------


def _prepare(folder: Path) -> Path:
    """Create the folder, or empty one that the demo left; return the path of the store."""
    folder.mkdir(parents=True, exist_ok=True)
    ours = (STORE, WORDS, counting.LOG)
    if other := sorted(entry.name for entry in folder.iterdir() if entry.name not in ours):
        raise InvalidArgument(
            f"{folder} has {other[0]} in it, which the demo did not put there: name a folder that "
            "is empty or not there yet"
        )
    shutil.rmtree(folder / STORE, ignore_errors=True)
    return folder / STORE


def _bars(shown: Shown) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for origin, total in shown.totals.items():
        _row(grid, origin, shown.shipped.get(origin, 0), total, "in the bucket")
    _row(grid, "all", shown.in_bucket, shown.total, f"the shipper: {shown.shipper}")
    _row(grid, "log", shown.appended, shown.total, "appended")
    return grid


def _bar(name: str, done: int, total: int, words: str) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    _row(grid, name, done, total, words)
    return grid


def _row(grid: Table, name: str, done: int, total: int, words: str) -> None:
    grid.add_row(
        Text(f"     {name}", style="bold"),
        ProgressBar(total=max(total, 1), completed=done, width=24),
        Text(f"{done:>11,} of {total:,}"),
        Text(words, style="dim", no_wrap=True),
    )


def show(figures: Figures, console: Console) -> None:
    """Print the table."""
    table = Table(title="Every flight exactly once, though the store's directory was removed")
    table.add_column("what")
    for name in ("flights", "bytes", "seconds"):
        table.add_column(name, justify="right")
    rows = (
        ("shipped before the shipper was killed", figures.killed_at, None, None),
        ("shipped in all, while they were appended", figures.flights, None, figures.ship_s),
        (f"in the bucket, {figures.objects:,} objects", None, figures.stored, None),
        ("restored from the bucket", None, figures.restored, figures.restore_s),
        ("in the restored store, as the file has them", figures.flights, figures.payload, None),
    )
    for what, number, size, seconds in rows:
        table.add_row(
            what,
            "" if number is None else f"{number:,}",
            "" if size is None else bytes_text(size),
            "" if seconds is None else f"{seconds:.1f}",
        )
    if figures.spark is not None:
        table.add_row("counted in the bucket by Spark", f"{sum(figures.spark.values()):,}", "", "")
    console.print("", table, f"{figures.seconds:.0f} s in all")


def main() -> int:
    """Read the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(prog="make demo-bucket", description=run.__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("falaj-demo-bucket"))
    parser.add_argument("--server", type=Path, required=True, help="a program that serves S3")
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to append")
    parser.add_argument("--no-spark", action="store_true", help="let only Python count")
    asked = parser.parse_args()
    console = Console(highlight=False)
    try:
        figures = run(
            asked.folder,
            asked.server,
            limit=asked.flights,
            seconds=asked.seconds,
            spark=not asked.no_spark,
            console=console,
        )
        show(figures, console)
    except Error as error:
        sys.stderr.write(f"falaj: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
