"""Checks a place: that all it needs is there, and has the bytes that were written.

Owns the list of findings. It changes nothing. `tree` says what a restore would need. With `deep` a
store is really made and thrown away, so that the engine checks each block.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from typing import TYPE_CHECKING, NamedTuple

from falaj import _core
from falaj.errors import (
    CorruptData,
    Error,
    PlaceDenied,
    PlaceNotFound,
    PlaceUnreachable,
    UnknownOrigin,
)
from falaj.ship.delta import image_of
from falaj.ship.driver import read_view
from falaj.ship.objects import Patience
from falaj.ship.origin import Found, Origin, named_origins
from falaj.ship.restore import restore

if TYPE_CHECKING:
    from collections.abc import Callable

    from falaj._store import Store
    from falaj.ship.place import Place
    from falaj.ship.tree import View

__all__ = ["PlaceReport", "compare_with", "verify_place"]

RANGE = 8 << 20


class PlaceReport(NamedTuple):
    """The result of a check of an origin.

    Attributes:
        store: The store's id.
        origin: The origin's id.
        number: The newest valid number.
        objects: How many objects were read.
        bytes: How many bytes they have.
        findings: One sentence for each thing that is wrong.
    """

    store: str
    origin: str
    number: int
    objects: int
    bytes: int
    findings: list[str]


def verify_place(
    place: Place,
    *,
    origin: str | None = None,
    deep: bool = False,
    store: Store | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[PlaceReport]:
    """Check each origin of a place.

    Args:
        place: The place.
        origin: Only origins whose id begins so.
        deep: Restore each into a temporary directory, so that each block is checked.
        store: Compare the place with this store too; only for its own origin.
        progress: Called with bytes done and of how many.

    Raises:
        UnknownOrigin: The place has no store, or not that origin.
        PlaceError: The place gives no answer.
    """
    found = named_origins(place, origin)
    if store is not None and not any(_is_of(store, each) for each in found):
        raise UnknownOrigin(
            f"{place.url} has nothing that {store.path} shipped: check the place and the store"
        )
    return [_verify(place, each, deep, store, progress) for each in found]


def _verify(
    place: Place,
    found: Found,
    deep: bool,
    store: Store | None,
    progress: Callable[[int, int], None] | None,
) -> PlaceReport:
    source = Origin(place, found.store, found.origin)
    wait = Patience(60.0, threading.Event())
    try:
        view = read_view(source, wait)
    except (PlaceDenied, PlaceNotFound, PlaceUnreachable):
        raise
    except Error as error:
        return PlaceReport(found.store, found.origin, 0, 0, 0, [str(error)])
    live = view.live()
    total, done, findings = sum(view.sizes[key] for key in live), 0, list[str]()
    for key in sorted(live):
        wrong = _wrong_with(source, key, view.sizes[key], wait)
        findings += [wrong] if wrong else []
        done += view.sizes[key]
        if progress:
            progress(done, total)
    if deep and not findings and view.files:  # else a shipper has claimed, and sent nothing yet
        findings += _deep(place, found)
    if store is not None and _is_of(store, found):
        findings += compare_with(store, view)
    return PlaceReport(found.store, found.origin, view.number, len(live), total, findings)


def _is_of(store: Store, found: Found) -> bool:
    """Tell whether a store shipped this origin; one that never shipped gets no file for that."""
    shipped = os.path.exists(os.path.join(store.path, "origin"))
    return shipped and (store.id, store._origin()) == (found.store, found.origin)


def _wrong_with(origin: Origin, key: str, size: int, wait: Patience) -> str | None:
    """Say what is wrong with an object, whose name has the hash of its bytes."""
    if key.startswith("n/"):
        return None  # the reading has checked it
    hashed = hashlib.sha256()
    try:
        for at in range(0, size, RANGE):
            stop = min(at + RANGE, size)
            hashed.update(
                wait(lambda at=at, stop=stop: origin.place.get_range(origin.root + key, at, stop))  # type: ignore[misc]
            )
    except Error as error:
        return str(error)
    same = key.endswith(hashed.hexdigest())
    return None if same else f"{origin.where(key)} is corrupt: its bytes do not have its hash"


def _deep(place: Place, found: Found) -> list[str]:
    base = tempfile.mkdtemp(prefix="falaj-verify-")
    try:
        restore(place, os.path.join(base, "store"), origin=found.origin)
    except CorruptData as error:
        return [str(error)]
    finally:
        shutil.rmtree(base)
    return []


def compare_with(store: Store, view: View) -> list[str]:
    """Compare the bytes of a store with the checksums in a view, where both have the segment."""
    cut = store._cut(None)
    findings: list[str] = []
    for log in cut.logs:
        known = view.logs.get(log.directory)
        for segment in log.segments if known else ():
            assert known is not None
            of = known.segments.get(segment.sequence)
            identity = (segment.sequence, segment.salt, segment.compaction)
            if of is None or of.identity != identity:
                continue
            for piece in of.pieces:
                if piece.stop > segment.length:
                    continue
                data = cut.read(log.directory, segment.sequence, piece.position, piece.stop)
                if _core._crc32(data) != piece.crc:
                    findings.append(
                        f"segment {segment.sequence} of log {log.directory} differs at byte "
                        f"{piece.position}: run `falaj verify` to see which of the two is corrupt"
                    )
    for file in cut.files:
        mine, theirs = image_of(file.length, file.parts), view.files.get(file.path)
        if theirs is not None and file.path == "falaj.json" and theirs.digest != mine.digest:
            findings.append(f"{file.path} differs from the one that was shipped")
    return findings
