"""Makes a store of what a place holds, now or at an earlier moment.

Owns the choice of origin and number, and the order of the work: small files, segments, their bytes,
then the checks of the engine. Invariant: a directory gets its name only after every byte in it was
checked; what is there before stays as it is. The engine's `StoreBuilder` makes the files.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from falaj import _core
from falaj.errors import HistoryDeleted, InvalidArgument, UnknownOrigin
from falaj.ship.driver import read_view
from falaj.ship.fetching import fetch, targets_of
from falaj.ship.objects import IN_FLIGHT, Patience
from falaj.ship.origin import Found, Origin, origins_of
from falaj.ship.shapes import Flush

if TYPE_CHECKING:
    from falaj._admin import BuildReport
    from falaj._place import RestoreReport
    from falaj.ship.place import Place
    from falaj.ship.tree import View

__all__ = ["choose_origin", "number_at", "restore"]

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
) -> RestoreReport:
    """Make a store of what a place holds.

    Args:
        place: The place.
        path: The new store's directory, which must be missing.
        origin: Which origin, if the place has several.
        to_number: The state as of this number; without it the newest.
        to_time_us: The state of the last flush at or before this time, µs since 1970.
        in_flight: Bytes that are in memory at a time.
        patience: Seconds for which the place may give no answer.
        progress: Called with bytes done and of how many.

    Raises:
        UnknownOrigin: The place has several origins, or none, or not this one.
        HistoryDeleted: The place no longer has the state of that moment.
        CorruptData: Something in the place is missing or corrupt; `path` does not exist then.
    """
    if to_number is not None and to_time_us is not None:
        raise InvalidArgument("choose a number or a time, not both")
    wait = Patience(patience, threading.Event())
    chosen = choose_origin(place, origin)
    source = Origin(place, chosen.store, chosen.origin)
    if to_time_us is not None:
        to_number = number_at(source, to_time_us, wait)
    view = read_view(source, wait, to_number)
    if not view.files:
        raise HistoryDeleted(f"{source.where('')} has no flush yet at number {view.number}")
    built = _build(source, view, path, wait, in_flight, progress or (lambda done, total: None))
    return {
        **built,
        "path": os.fspath(path),
        "store": chosen.store,
        "parent": chosen.origin,
        "number": view.number,
        "time_us": view.time_us,
    }


def _build(
    origin: Origin, view: View, path: str, wait: Patience, in_flight: int, progress: Progress
) -> BuildReport:
    builder = _core.StoreBuilder(path)
    try:
        for name, file in view.files.items():
            parts = [
                (piece.position, wait(lambda piece=piece: origin.bytes_of(piece)))  # type: ignore[misc]
                for piece in file.pieces
            ]
            builder.file(name, file.length, parts)
        for name, log in view.logs.items():
            for sequence in sorted(log.segments):
                each = log.segments[sequence]
                builder.segment(name, each.header, each.end, each.length, each.sealed)
        targets = targets_of(view)
        total, done, lock = sum(each.length for each in targets), 0, threading.Lock()

        def advance(size: int) -> None:
            nonlocal done
            with lock:
                done += size
                progress(done, total)

        fetch(
            origin,
            targets,
            wait,
            lambda target, data: builder.write(
                target.log, target.sequence, target.piece.position, data
            ),
            advance,
            in_flight,
        )
        return builder.finish(parent=origin.origin, number=view.number)
    except BaseException:
        builder.discard()
        raise


def choose_origin(place: Place, wanted: str | None) -> Found:
    """Choose the only origin of a place, or the one that is named by how its id begins.

    Raises:
        UnknownOrigin: There is none, or there are several.
    """
    there = origins_of(place)
    found = [each for each in there if wanted is None or each.origin.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if not there:
        raise UnknownOrigin(f"{place.url} holds no store: check the URL, or ship one to it")
    listed = ", ".join(f"{each.origin} (store {each.store})" for each in there)
    how = "has several origins" if wanted is None else f"has not one origin {wanted!r}"
    raise UnknownOrigin(f"{place.url} {how}: choose one of {listed}")


def number_at(origin: Origin, time_us: int, wait: Patience) -> int:
    """Find the last flush at or before a time.

    Raises:
        HistoryDeleted: The place has none that is so old.
    """
    base, found = 0, 0
    for each in reversed(wait(origin.checkpoints)):
        number = int(each.key[2:])
        checkpoint = wait(lambda number=number: origin.checkpoint(number))  # type: ignore[misc]
        if checkpoint is not None and checkpoint.view.time_us <= time_us:
            base = found = number
            break
    claim = 0
    while True:
        base += 1
        read = wait(lambda number=base: origin.number(number))  # type: ignore[misc]
        if read is None:
            break
        body = read[0]
        if isinstance(body, Flush):
            if body.time_us > time_us:
                break
            if body.claim >= claim:
                found = base
        else:
            claim = body.number
    if not found:
        raise HistoryDeleted(
            f"{origin.where('')} has no state that is so old; `falaj place list` shows the oldest"
        )
    return found
