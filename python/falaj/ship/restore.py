"""Makes a store of what a place holds, now or at an earlier moment.

Owns the choice of origin and number, and the order of the work: small files, segments, their bytes,
then the checks of the engine. Invariant: a directory gets its name only after every byte in it was
checked; what is there before stays as it is. The engine's `StoreBuilder` makes the files. A restore
that was stopped leaves them, and the next one fetches what they lack. No file says how far it was:
bytes that have the checksum of their piece are there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from falaj import _core
from falaj._paths import expect_outside_places, expect_outside_stores, holds_a_store
from falaj.errors import (
    Error,
    HistoryDeleted,
    InvalidArgument,
    NoSpace,
    PlaceError,
    UnknownOrigin,
    named,
)
from falaj.ship.driver import read_view
from falaj.ship.fetching import Target, Writes, checked, fetch, missing, targets_of
from falaj.ship.moments import number_at
from falaj.ship.objects import IN_FLIGHT, Patience
from falaj.ship.origin import Found, Origin, named_origins

if TYPE_CHECKING:
    from falaj._admin import BuildReport
    from falaj._place import RestoreReport
    from falaj.ship.place import Place
    from falaj.ship.tree import View

__all__ = ["choose_origin", "restore"]

Progress = Callable[[int, int], None]


def restore(
    place: Place,
    path: str,
    *,
    origin: str | None = None,
    to_number: int | None = None,
    to_time_us: int | None = None,
    in_flight: int = IN_FLIGHT,
    patience: float | None = 60.0,
    progress: Progress | None = None,
    resumed: Progress | None = None,
) -> RestoreReport:
    """Make a store of what a place holds, or go on where an earlier call was stopped.

    Args:
        place: The place.
        path: The new store's directory, which must be missing.
        origin: Which origin, if the place has several.
        to_number: The state as of this number; without it the newest.
        to_time_us: The state of the last flush at or before this time, µs since 1970. A time in
            the future gives the newest.
        in_flight: Bytes that are in memory at a time.
        patience: Seconds for which the place may give no answer.
        progress: Called with bytes done and of how many.
        resumed: Called once, with the bytes that an earlier call left, if it did.

    Raises:
        LockTimeout: Another call restores the same origin to the same path.
        UnknownOrigin: The place has several origins, or none, or not this one.
        HistoryDeleted: The place no longer has the state of that moment.
        CorruptData: Something in the place is missing or corrupt; `path` does not exist then.
        InvalidArgument: The place has no number so high yet, or the directory lies in a place or
            in another store.
    """
    if to_number is not None and to_time_us is not None:
        raise InvalidArgument("choose a number or a time, not both")
    expect_outside_places(path)
    expect_outside_stores(path, "the new store")
    wait = Patience(patience, threading.Event())
    chosen = choose_origin(place, origin)
    source = Origin(place, chosen.store, chosen.origin)
    if to_time_us is not None and to_time_us <= time.time_ns() // 1000:
        to_number = number_at(source, to_time_us, wait)
    view = read_view(source, wait, to_number)
    if not view.files:
        raise HistoryDeleted(
            f"{source.where('')} has no flush yet at number {view.number}: choose a later number,"
            " or ship the store to it"
        )
    work = _Work(source, view, wait, in_flight, progress or _silent, resumed or _silent)
    built = work.build(path)
    return {
        **built,
        "path": os.fspath(path),
        "store": chosen.store,
        "parent": chosen.origin,
        "number": view.number,
        "time_us": view.time_us,
    }


def _silent(_done: int, _total: int) -> None:
    """Tell nothing."""


class _Work:
    """A restore under way."""

    def __init__(
        self,
        origin: Origin,
        view: View,
        patience: Patience,
        in_flight: int,
        progress: Progress,
        resumed: Progress,
    ) -> None:
        self.origin, self.view, self.patience, self.in_flight = origin, view, patience, in_flight
        self.progress, self.resumed = progress, resumed
        self._targets = targets_of(view)
        self._total, self._done = sum(each.length for each in self._targets), 0
        self._lock, self._writes = threading.Lock(), Writes()

    def build(self, path: str) -> BuildReport:
        """Make the store. An error that may be gone at the next call leaves what was fetched."""
        builder = _core.StoreBuilder(path, resume=self.origin.origin)
        try:
            self._fill(builder)
            # Calls of Python let a signal's handler end the checks.
            return builder.finish(
                parent=self.origin.origin, number=self.view.number, progress=_silent
            )
        except BaseException as error:
            # Frames of a kept exception keep the builder, so its lock ends here and not with it.
            with suppress(Error):  # the first error matters more
                self._end(builder, error, path)
            raise

    def _end(self, builder: _core.StoreBuilder, error: BaseException, path: str) -> None:
        """Release the builder, which no thread uses any more."""
        if isinstance(error, Error) and not isinstance(error, PlaceError | NoSpace):
            builder.discard()
        elif builder.leave():
            error.add_note(
                f"what was fetched stays beside {path}: the same restore goes on from there"
            )
        elif holds_a_store(path):
            error.add_note(f"that came too late: the store {path} is there, and whole")

    def _fill(self, builder: _core.StoreBuilder) -> None:
        # Small files are synced one by one: that is time in which segments can come.
        beside = ThreadPoolExecutor(1, "falaj-files")
        try:
            files = beside.submit(self._put_files, builder)
            self._fetch_segments(builder)
            files.result()
            beside.shutdown()
        except BaseException:
            self.patience.stop.set()
            beside.shutdown(wait=False, cancel_futures=True)
            self._writes.end()
            raise

    def _put_files(self, builder: _core.StoreBuilder) -> None:
        for name, file in self.view.files.items():
            parts = [
                (piece.position, self.patience(lambda piece=piece: self.origin.bytes_of(piece)))  # type: ignore[misc]
                for piece in file.pieces
            ]
            with self._writes:
                builder.file(name, file.length, parts)

    def _fetch_segments(self, builder: _core.StoreBuilder) -> None:
        left = set[tuple[str, int]]()
        for name, log in self.view.logs.items():
            for sequence in sorted(log.segments):
                each = log.segments[sequence]
                if builder.segment(name, each.header, each.end, each.length, each.sealed):
                    left.add((name, sequence))
        targets = self._missing(builder, left) if left else self._targets

        def write(target: Target, data: bytes, start: int, stop: int) -> bool:
            log, sequence, piece = target.log, target.sequence, target.piece
            if target.length == piece.length:
                return builder.write_checked(
                    log, sequence, piece.position, data, start, stop, piece.crc
                )
            part = checked(target, data, start, stop)
            if part is not None:
                builder.write(log, sequence, piece.position, part)
            return part is not None

        fetch(self.origin, targets, self.patience, write, self._advance, self.in_flight)

    def _missing(self, builder: _core.StoreBuilder, left: set[tuple[str, int]]) -> list[Target]:
        """Return the pieces that an earlier call did not leave."""

        def is_there(target: Target) -> bool:
            piece = target.piece
            return (
                (target.log, target.sequence) in left
                and target.length == piece.length
                and builder.keep(
                    target.log, target.sequence, piece.position, piece.length, piece.crc
                )
            )

        found = missing(self._targets, is_there, self._advance)
        if self._done:
            self.resumed(self._done, self._total)
        return found

    def _advance(self, size: int) -> None:
        with self._lock:
            self._done += size
            self.progress(self._done, self._total)


def choose_origin(place: Place, wanted: str | None) -> Found:
    """Choose the only origin of a place, or the one that is named by how its id begins.

    Raises:
        UnknownOrigin: There is none, or there are several.
    """
    found = named_origins(place, wanted)
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{each.origin} (store {each.store})" for each in found)
    how = "has several origins" if wanted is None else f"has not one origin {named(wanted)}"
    raise UnknownOrigin(f"{place.url} {how}: choose one of {listed}")
