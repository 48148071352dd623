"""`restore`, `Store.ship`, and the reports that they return.

Owns the public calls about places; the package `falaj.ship` does the work. It is imported when a
program needs it, since few do.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, TypedDict

from falaj import _checks, _numbers, _time
from falaj._admin import BuildReport
from falaj._paths import local_path
from falaj.errors import InvalidArgument, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from falaj._store import Store
    from falaj._time import Duration
    from falaj.ship.lanes import Sent
    from falaj.ship.place import Place

    Progress = Callable[[int, int], None]

__all__ = ["PlaceReport", "RestoreReport", "ShipReport", "restore", "ship"]

HISTORY_S = 7 * 86_400.0
_PATIENCE_S = 60.0


class RestoreReport(BuildReport):
    """The result of a restore.

    `parent` is the origin that it came from, and `number` the number in the place. `time_us` says
    when that state was cut from the store, in microseconds since 1970.
    """

    path: str
    store: str
    parent: str
    number: int
    time_us: int


class PlaceReport(TypedDict):
    """The result of shipping to one of the places.

    `number` is the last number that the place acknowledged; 0 if it never answered. `flushes`,
    `bytes` and `objects` count what this call sent there.
    """

    place: str
    number: int
    flushes: int
    bytes: int
    objects: int


class ShipReport(TypedDict):
    """The result of shipping.

    `number` is the last number that the first place acknowledged. `flushes`, `bytes` and `objects`
    count what this call sent to all places together; `places` tells them apart.
    """

    number: int
    flushes: int
    bytes: int
    objects: int
    places: list[PlaceReport]


def restore(
    place: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    origin: str | None = None,
    to_number: int | None = None,
    to_time: datetime | str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> RestoreReport:
    """Make a store of what a place holds, now or at an earlier moment.

    The new store appears whole or not at all, after every byte of it was checked. It is the same
    store: committed offsets and checkpoints stay valid. Once it ships, it does so as a new origin.
    A call that was stopped or killed goes on where it was, at the next call with the same path.

    Args:
        place: A directory, or `s3://…`, `gs://…`, `az://…`, `http://…`.
        path: The new store's directory, which must be missing.
        origin: Which origin, if several have shipped to the place; the first digits are enough.
        to_number: The state as of this number.
        to_time: The state of the last flush at or before this time.
        progress: Called with the bytes done and all bytes; its exception ends the call.
        **options: Options of a bucket or a peer, such as `endpoint` or `token`.

    Raises:
        UnknownOrigin: The place has no store, or several and `origin` names none of them.
        HistoryDeleted: The place no longer has the state of that moment.
        CorruptData: Something in the place is missing or corrupt.
        LockTimeout: Another call restores the same origin to this path.

    Example:
        >>> _ = store.topic("orders").append(b"first")
        >>> place, copy = store.path.with_name("place"), store.path.with_name("copy")
        >>> _ = store.ship(place, once=True)
        >>> falaj.restore(place, copy)["topics"]
        1
    """
    from falaj._functions import callback
    from falaj.ship import restore as restoring
    from falaj.ship.place import check_options, open_place

    check_options(options, restore)
    progress = callback(progress, "progress")
    target = os.fspath(local_path(path))
    number = None if to_number is None else _numbers.number(to_number, "to_number")
    if number is not None and number < 1:
        raise InvalidArgument(f"to_number is a number of the place, from 1 on, not {named(number)}")
    return restoring.restore(
        open_place(place, **options),
        target,
        origin=None if origin is None else _checks.text(origin, "origin"),
        to_number=number,
        to_time_us=None if to_time is None else _time.to_ns(to_time) // 1000,
        progress=progress,
    )


def ship(
    store: Store,
    place: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    once: bool = False,
    history: Duration | None = None,
    new_origin: bool = False,
    stop: threading.Event | None = None,
    **options: Any,
) -> ShipReport:
    """Ship a store; see `Store.ship`."""
    from falaj.ship.lanes import Lanes
    from falaj.ship.place import check_options
    from falaj.ship.shipper import Options

    check_options(options, ship)
    _checks.flag(once, "once")
    _checks.flag(new_origin, "new_origin")
    seconds = _numbers.seconds(HISTORY_S if history is None else history, "history")
    assert seconds is not None
    if not (stop is None or isinstance(stop, threading.Event)):
        raise TypeError(f"stop takes a threading.Event, not {named(stop)}")
    chosen = Options(seconds, patience=_PATIENCE_S if once else None, new_origin=new_origin)
    if not isinstance(place, str | os.PathLike | list | tuple):
        raise TypeError(f"place is a path, a URL, or a list of them, not {named(place)}")
    named_places = list(place) if isinstance(place, list | tuple) else [place]
    if not named_places:
        raise InvalidArgument("ship takes a place, or a list of at least one")
    lanes = Lanes(store, places_of(store, named_places, **options), chosen)
    return report_of(lanes.run(once=once, stop=stop))


def places_of(
    store: Store, places: Iterable[str | os.PathLike[str]], **options: Any
) -> list[Place]:
    """Open the places to which a store is shipped.

    Raises:
        InvalidArgument: One is not possible, or none takes an option. Or one of place and store
            lies in the other, and would be lost with it.
    """
    from falaj.ship.directory import DirectoryPlace
    from falaj.ship.place import open_place, options_for

    listed = list(places)
    shared = options_for(listed, options)
    opened = [open_place(each, **taken) for each, taken in zip(listed, shared, strict=True)]
    own = os.path.realpath(store.path)
    for place in opened:
        if isinstance(place, DirectoryPlace):
            root = os.path.realpath(place.root)
            above = os.path.commonpath((root, own))
            if above == own:
                raise InvalidArgument(
                    f"{place.root} lies in the store {own}, and would be lost with it: name a "
                    "directory elsewhere, best on another disk"
                )
            if above == root:
                raise InvalidArgument(
                    f"the store {own} lies in {place.root}, and would be lost with that place: "
                    "name a directory elsewhere, best on another disk"
                )
    return opened


def report_of(sent: Iterable[Sent]) -> ShipReport:
    """Make the report of what was sent to some places."""
    places: list[PlaceReport] = [
        {
            "place": place,
            "number": 0 if shipped is None else shipped.number,
            "flushes": 0 if shipped is None else shipped.flushes,
            "bytes": 0 if shipped is None else shipped.bytes,
            "objects": 0 if shipped is None else shipped.objects,
        }
        for place, shipped in sent
    ]
    return {
        "number": places[0]["number"],
        "flushes": sum(each["flushes"] for each in places),
        "bytes": sum(each["bytes"] for each in places),
        "objects": sum(each["objects"] for each in places),
        "places": places,
    }
