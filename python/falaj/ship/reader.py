"""Follows an origin of a place, and keeps a view of it on this machine.

Owns the thread that asks for the next number, with pauses from 50 milliseconds to one second. If
the place does not answer, readers keep what they have, and the thread asks again.
Invariants: where there is a thread, it alone drives the driver, and all others ask it to look.
The view is what `protocol` said to believe and to apply, and each state that readers see
is a beginning of the next. `replica` changes the files; `protocol` decides what is true.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import time
from typing import TYPE_CHECKING

from falaj.errors import (
    CorruptData,
    Error,
    HandleClosed,
    HistoryDeleted,
    PlaceUnreachable,
)
from falaj.ship import messages as say
from falaj.ship.driver import Driver
from falaj.ship.handlers import pass_on
from falaj.ship.objects import Patience, Stopped
from falaj.ship.place import error as error_of
from falaj.ship.protocol import Reading
from falaj.ship.replica import Replica

if TYPE_CHECKING:
    from falaj.ship.cache import Cache
    from falaj.ship.origin import Origin

__all__ = ["Reader"]

PATIENCE_S = 30.0
PAUSE_FIRST_S, PAUSE_MOST_S = 0.05, 1.0
SILENCE_S = 30.0
RENEW_S = 5.0
"""Pause before the place is read again after an error that no repeat removes."""


class _Follower(Driver):
    """A driver whose view other threads read: it changes only while they do not look."""

    def __init__(self, origin: Origin, replica: Replica, patience: Patience) -> None:
        super().__init__(origin, Reading("follow"), patience)
        self._replica = replica

    def _do(self, action: say.Action) -> say.Event | None:
        if not isinstance(action, say.Believe | say.Apply):
            return super()._do(action)
        with self._replica.changing, self._replica.lock:
            return super()._do(action)


class Reader:
    """A view of an origin that follows it.

    Args:
        origin: The origin in its place.
        cache: The cache of this machine.
        follow: Whether a thread follows the place. If not, `refresh` does.

    Raises:
        PlaceError: The place refuses, or gave no answer.
        HistoryDeleted: Nothing was shipped yet.
        CorruptData: A number or a checkpoint is not what was written.
    """

    def __init__(self, origin: Origin, cache: Cache, *, follow: bool = True) -> None:
        self.origin = origin
        self._later = Patience(None if follow else PATIENCE_S, threading.Event(), self._note)
        self.error: Exception | None = None
        self.checked_us = 0
        self._stop = self._later.stop
        self._changed = threading.Condition()
        self._asked = self._again = self._answered = 0
        self._failed: Exception | None = None
        self._wake, self._made_by = threading.Event(), os.getpid()
        waits = Patience(PATIENCE_S, self._stop)
        self._seen = self._seen_us = 0
        self.directory = cache.new_view()
        try:
            self.replica = Replica(origin, self.directory, cache, waits, self._renew)
            self._driver: Driver | None = self._begun(waits)
        except BaseException:
            self.directory.remove()
            raise
        self._turn = threading.RLock()
        self._heard = self._looked = time.monotonic()
        self._thread: threading.Thread | None = None
        if follow:
            self._thread = threading.Thread(target=self._follow, name="falaj-place", daemon=True)
            self._thread.start()

    @property
    def number(self) -> int:
        """The number of the place that readers see."""
        return self._seen

    @property
    def time_us(self) -> int:
        """When the state that readers see was cut from its store."""
        return self._seen_us

    def close(self) -> None:
        """Stop following, and remove the view."""
        self._stop.set()
        self._wake.set()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()
        self.replica.ahead.close()
        self.directory.remove()

    def _begun(self, patience: Patience) -> Driver:
        """Read the place from its newest checkpoint on, and show that."""
        driver = _Follower(self.origin, self.replica, patience)
        driver.start()
        if not driver.view.files:
            where = self.origin.where("")
            raise HistoryDeleted(f"{where} has no flush yet at number {driver.view.number}")
        self._keep_what_is_seen(driver)
        with self.replica.changing, self.replica.lock:
            self.replica.view = driver.view
        self._show(driver)
        driver.patience = self._later
        return driver

    def _keep_what_is_seen(self, driver: Driver) -> None:
        """Look again where a driver ends before what readers see, which never goes back.

        A driver may begin at a checkpoint that is older than that, and pause. If the next number is
        deleted meanwhile, the place seems to end there.
        """
        for event in (say.Silence(), say.Again()):
            if driver.view.number < self._seen:
                driver.send(event)
        if driver.view.number < self._seen:
            where = self.origin.where("")
            raise HistoryDeleted(
                f"{where} ends at number {driver.view.number}, and had {self._seen} before"
            )

    def _show(self, driver: Driver) -> None:
        with self.replica.changing, self.replica.lock:
            self.replica.view = driver.view
        self.replica.apply()
        self._seen, self._seen_us = driver.view.number, driver.view.time_us

    def _note(self, error: Error) -> None:
        self.error = error

    # --- The thread ------------------------------------------------------------------------------

    def _follow(self) -> None:
        pause = PAUSE_FIRST_S
        while not self._stop.is_set():
            self._wake.wait(pause)
            self._wake.clear()
            if self._stop.is_set():
                break
            with self._changed:
                asked, again = self._asked, self._again > self._answered
            failed = None
            try:
                news = self._look(again=again)
                pause = PAUSE_FIRST_S if news else min(pause * 2, PAUSE_MOST_S)
            except Stopped:
                break
            except Exception as error:  # noqa: BLE001  # readers keep what they have
                failed, pause = error, RENEW_S
            with self._changed:
                self._answered, self._failed = asked, failed
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _look(self, *, again: bool = False) -> bool:
        """Ask the place for what comes next, and show it; return whether there was more.

        Args:
            again: Read it from its newest checkpoint on.
        """
        try:
            self.directory.expect()
            if self._driver is None or again:
                self._driver = self._begun(self._later)
            self._looked = time.monotonic()
            silent = self._looked - self._heard >= SILENCE_S
            if silent:
                self._driver.send(say.Silence())
            # Afterwards too: where each look takes long, all of them come after a silence.
            self._driver.send(say.Again())
            self._keep_what_is_seen(self._driver)
            news = self._driver.view.number != self._seen
            if news or silent:
                self._heard = self._looked
            if news:
                self._show(self._driver)
        except BaseException as error:
            self._driver = None  # it waits for an answer that nothing gives it now
            if isinstance(error, Exception) and not isinstance(error, Stopped):
                pass_on(error)
                self.error = error
            raise
        self.error, self.checked_us = None, time.time_ns() // 1000
        return news

    # --- For other threads -----------------------------------------------------------------------

    def refresh(self, number: int | None = None, pause: float = 0.0) -> None:
        """Ask the place for later numbers, in the thread that follows it if there is one.

        Args:
            number: A number that the place has: readers see it when this returns.
            pause: Ask nothing if the place was asked less than so many seconds ago.

        Raises:
            PlaceError: The place refuses, or gave no answer.
            HistoryDeleted: It does not have the number.
            FilesRemoved: Somebody removed the cache.
            HandleClosed: It was closed, or belongs to the process that this one was forked from.
        """
        self._expect_open()
        with self._turn if self._thread is None else contextlib.nullcontext():
            if number is None:
                if time.monotonic() - self._looked >= pause:
                    self._ask()
                return
            for again in (False, True):
                if self._seen < number:
                    self._ask(again=again)
            if self._seen < number:
                where = self.origin.where("")
                raise HistoryDeleted(
                    f"{where} has no number {number}: it ends at number {self._seen}; check the "
                    "place and the origin"
                )

    def _ask(self, *, again: bool = False) -> None:
        """Look, or have the thread look.

        Raises:
            PlaceUnreachable: It gave no answer for as long as one is awaited.
        """
        try:
            if self._thread is None:
                self._look(again=again)
            elif not self._is_answered(again):
                raise self._silence()
            elif self._failed is not None:
                raise copy.copy(self._failed) from self._failed
        except Exception:
            self._expect_open()
            raise
        self._expect_open()

    def expect_files(self) -> None:
        """Check, while it is open, that its directory is there.

        Raises:
            FilesRemoved: Somebody removed the cache.
        """
        if not self._stop.is_set():
            self.directory.expect()

    def _expect_open(self) -> None:
        url = self.origin.place.url
        if self._stop.is_set():
            raise HandleClosed(f"{url} was closed: open it again") from None
        if self._made_by != os.getpid():
            raise HandleClosed(f"another process opened {url}: open it in this one, too")

    def _is_answered(self, again: bool) -> bool:
        """Have the thread look; return whether it did."""
        with self._changed:
            self._asked = mine = self._asked + 1
            if again:
                self._again = mine
            self._wake.set()
            return self._changed.wait_for(
                lambda: self._answered >= mine or self._stop.is_set(), PATIENCE_S
            )

    def _silence(self) -> Error:
        """Make the error of a place that gave the thread no answer."""
        if isinstance(self.error, PlaceUnreachable):
            return copy.copy(self.error)
        url = self.origin.place.url
        return error_of(
            PlaceUnreachable,
            f"{url} gave no answer for {PATIENCE_S:g} seconds: readers keep what they have; "
            "check the network, and try again",
            url,
        )

    def _renew(self) -> bool:
        """Have the place read again, for a reader that did not find what its view names."""
        if self._thread is None:
            with self._turn:
                self._look(again=True)
            return True
        if self._made_by != os.getpid():
            return False
        return self._is_answered(again=True) and not isinstance(self._failed, CorruptData)
