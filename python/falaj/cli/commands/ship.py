"""`falaj ship`: a store that is sent to a place while processes write to it.

Owns the signals that end it, and what is printed. The work is done in another thread, so that a
signal finds the main thread waiting.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from falaj._place import places_of, report_of
from falaj.cli import options
from falaj.cli.arguments import Argument, Command, Option
from falaj.cli.exits import Exit, Stop, say
from falaj.cli.paint import is_terminal
from falaj.cli.progress import Bar
from falaj.cli.tables import Column, table
from falaj.cli.units import size
from falaj.errors import PlaceError, RetryableError

if TYPE_CHECKING:
    from falaj._place import ShipReport
    from falaj.cli.stores import Access
    from falaj.errors import Error
    from falaj.ship.lanes import Lanes, Sent

__all__ = ["COMMAND", "ship"]

_NOTICE_S = 30.0
_COLUMNS = (
    Column("number", "number", number=True),
    Column("flushes", "flushes", number=True),
    Column("bytes", "size", human=size),
    Column("objects", "objects", number=True),
)


def ship(
    access: Access,
    places: list[str],
    once: bool,
    plan: bool,
    new_origin: bool,
    history: float,
    as_json: bool,
) -> None:
    """Ship a store to one place or several."""
    with access.store(writes=not plan) as store:
        if plan:
            from falaj.cli.ship_plan import print_plan

            print_plan(store, as_json)
            return
        from falaj.ship.lanes import Lanes
        from falaj.ship.shipper import Options

        chosen = Options(history=history, new_origin=new_origin, patience=60.0 if once else None)
        lanes = Lanes(store, places_of(store, places), chosen, _Notice())
        try:
            _tell(_Run(lanes, once, as_json).wait(), as_json)
        finally:
            lacking = [_lack(each) for each in lanes.lacking()]
            for sentence in lacking:
                say(sentence)
        if lacking:
            raise Stop.silent(Exit.AGAIN)


def _lack(sent: Sent) -> str:
    number = sent.shipped.number if sent.shipped else 0
    what = f"what changed since number {number}" if number else "what the store has"
    return f"{what} is not all in {sent.place} yet: run `falaj ship` again to send it"


class _Notice:
    """Say on stderr that a place gives no answer or is left, now and then."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def __call__(self, error: Error) -> None:
        url = getattr(error, "url", None) or ""
        if time.monotonic() > self._said.get(url, -_NOTICE_S) + _NOTICE_S:
            self._said[url] = time.monotonic()
            passes = isinstance(error, PlaceError | RetryableError)
            say(f"{error}; {'trying again' if passes else 'going on with the other places'}")


class _Run:
    """The work in another thread; Ctrl-C and SIGTERM end it after the flush that is under way."""

    def __init__(self, lanes: Lanes, once: bool, as_json: bool) -> None:
        self._lanes, self._once, self._as_json = lanes, once, as_json
        self._done: ShipReport | None = None
        self._failed: BaseException | None = None
        self._signal = 0
        self._bar = Bar("ship") if is_terminal(sys.stderr) and not as_json else None

    def wait(self) -> ShipReport:
        thread = threading.Thread(target=self._work, name="falaj-ship")
        before = {each: signal.signal(each, self._stop) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            thread.start()
            while thread.is_alive():
                thread.join(0.2)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
            if self._bar:
                self._bar.clear()
        if self._failed is not None:
            raise self._failed
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        assert self._done is not None
        return self._done

    def _stop(self, number: int, _frame: object) -> None:
        if self._signal:
            raise KeyboardInterrupt  # a second one acts at once
        self._signal = number
        self._lanes.stop.set()

    def _work(self) -> None:
        try:
            self._done = report_of(self._lanes.run(once=self._once, told=self._told))
        except BaseException as error:  # noqa: BLE001  # raised again in the main thread
            self._failed = error

    def _told(self, sent: Sent) -> None:
        """Tell of a flush; lanes call this from their threads."""
        place, shipped = sent
        if shipped is None:
            return
        if self._bar:
            self._bar.draw(0, None, f"number {shipped.number:,}, {size(shipped.bytes)}")
        elif self._as_json and not self._once:
            row = {"place": place} | shipped._asdict()
            sys.stdout.write(json.dumps(row) + "\n")  # one call, so that lines stay whole
            sys.stdout.flush()


def _tell(report: ShipReport, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report))
    elif len(report["places"]) == 1:
        table(_COLUMNS, report["places"])
    else:
        table((Column("place", "place"), *_COLUMNS), report["places"])


COMMAND = Command(
    ship,
    "Ship a store to places: buckets, other machines, or other disks.",
    (
        Argument(
            "places",
            "PLACE",
            "s3://…, gs://…, az://…, http://…, or a directory; several get everything each.",
            many=True,
            read=options.location,
        ),
    ),
    (
        *options.LOCAL,
        Option("--once", "once", "End when each place has what the store has now.", default=False),
        Option("--plan", "plan", "Send nothing; print requests and cost a month.", default=False),
        Option(
            "--history",
            "history",
            "How far back the place can be restored (default 7d).",
            "SPAN",
            options.span_from,
            7 * 86_400.0,
        ),
        Option(
            "--new-origin",
            "new_origin",
            "Begin as a new origin, where the place has another history.",
            default=False,
        ),
        options.AS_JSON._replace(help="Print what was shipped as JSON."),
    ),
    "It runs until Ctrl-C or SIGTERM, which end it in order; start and stop it as you like. Only "
    "one process ships a store: to all its places. `falaj config --ship-min-sync` says how many of "
    "them an append in `sync=remote` waits for. `falaj restore` makes a store of a place.",
)
