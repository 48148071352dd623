"""`probe`: tries whether a place keeps the promises that shipping rests on.

Owns the trial and the memory of it, an object `probe/…` in the place. Some servers ignore the
condition of a create and replace the object: two shippers would then both believe that they wrote
a number. Documents do not tell; a race does. The first claim of a place calls it. Prose:
docs/PLACE.md, "Places".
"""

from __future__ import annotations

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import TYPE_CHECKING

from falaj.errors import PlaceError, PlaceUnreachable, UnsupportedPlace
from falaj.ship.place import error
from falaj.ship.requests import Stopped, with_waits_of_this_thread

if TYPE_CHECKING:
    from falaj.ship.place import Place

__all__ = ["PASSED", "probe"]

PASSED = "probe/passed-1"
"""The object that remembers a trial which the place passed; the number is that of the trial."""
RACERS = 8
RACES = 8


def probe(place: Place, *, again: bool = False) -> bool:
    """Try whether the place creates each object once and lists what it has.

    It takes some 150 small requests, and deletes what it creates. A place that passed is not tried
    again: an object in it says so.

    Args:
        place: The place.
        again: Try it even if it passed before.

    Returns:
        True if it was tried now, False if it had passed before.

    Raises:
        UnsupportedPlace: It failed; the message says how.
        PlaceError: The place refused, or gave no answer, so nothing is known.
    """
    if not again and place.get(PASSED) is not None:
        return False
    folder = f"probe/{secrets.token_hex(16)}"
    keys = [f"{folder}/{race:02}" for race in range(RACES)]
    try:
        with ThreadPoolExecutor(RACERS, thread_name_prefix="falaj-probe") as racers:
            for key in keys:
                _race(place, key, racers)
        _check_listing(place, folder, keys)
        _check_deletion(place, folder, keys)
    except Stopped:
        raise  # a place that gives no answer would delete nothing
    except BaseException:
        with suppress(PlaceError):  # the finding matters more than what is left
            place.delete(keys)
        raise
    place.delete(keys)
    told = {"creates": RACES * RACERS, "trial": 1}
    place.put_new(PASSED, json.dumps(told, separators=(",", ":"), sort_keys=True).encode())
    return True


def _race(place: Place, key: str, racers: ThreadPoolExecutor) -> None:
    """Let several creates of one key race: at most one may win, and later ones lose."""
    together = Barrier(RACERS)

    def create(body: bytes) -> bool:
        together.wait()
        return place.put_new(key, body)

    bodies = [f"racer {racer}: {secrets.token_hex(16)}".encode() for racer in range(RACERS)]
    answers = list(racers.map(with_waits_of_this_thread(create), bodies))
    winners = [body for body, has_won in zip(bodies, answers, strict=True) if has_won]
    if len(winners) > 1:
        raise _unfit(place, key, f"{len(winners)} creates of one key succeeded")
    found = place.get(key)
    if found is None and not winners:
        # All replies were lost or none arrived: a place that is busy, for one.
        if place.put_new(key, bodies[0]):
            winners = [bodies[0]]
        found = place.get(key)
    if found is None:
        if winners:
            raise _unfit(place, key, "an object is not there right after its create succeeded")
        text = f"{place.url} acknowledges no create: see whether it works, and try again"
        raise error(PlaceUnreachable, text, place.url, key)
    if found not in (winners or bodies):
        raise _unfit(place, key, "the create that succeeded is not the one whose bytes are there")
    if place.put_new(key, b"late") or place.get(key) != found:
        raise _unfit(place, key, "a later create replaced an object")
    if place.get_range(key, 2, 9) != found[2:9]:
        raise _unfit(place, key, "a range of an object has other bytes than the object")


def _check_listing(place: Place, folder: str, keys: list[str]) -> None:
    """Check that a listing has each object at once, in order, and heeds where it begins."""
    listed = [one.key for one in place.list_after(folder)]
    if listed != keys:
        raise _unfit(
            place,
            folder,
            f"a listing has {len(listed)} of {len(keys)} new objects,"
            " or another order than that of the keys",
        )
    middle = len(keys) // 2
    if [one.key for one in place.list_after(folder, keys[middle])] != keys[middle + 1 :]:
        raise _unfit(place, folder, "a listing does not begin where it was asked to")


def _check_deletion(place: Place, folder: str, keys: list[str]) -> None:
    """Check that deleted objects are gone at once, and the others are not."""
    gone, kept = keys[::2], keys[1::2]
    place.delete(gone)
    if [one.key for one in place.list_after(folder)] != kept or place.get(gone[0]) is not None:
        raise _unfit(place, folder, "deleted objects are still there, or others are gone")


def _unfit(place: Place, key: str, how: str) -> Exception:
    return error(
        UnsupportedPlace,
        f"{place.url} cannot keep a store: {how}. It must create objects only where there are"
        " none, and list what it has: choose another server, or a newer version of it",
        place.url,
        key,
    )
