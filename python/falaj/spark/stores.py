"""Stores that Spark reads: a directory that all executors see, or a place beyond the machine.

Owns what a process keeps between calls of Spark. A directory is opened for each call. A place stays
open in the process, since opening one takes a listing and some requests. It is asked for later
numbers only when somebody needs them. Invariant: a task reads a state of the place that has all
that the plan was made from.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import falaj
from falaj._paths import is_place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from falaj import PlaceStore, Store

__all__ = ["close", "number_of", "opened", "origin_of", "renew"]

PAUSE_S = 0.2
"""How long a stream waits before it asks a place again whether there is more."""

_lock = threading.Lock()
_kept: dict[tuple[str, str | None], PlaceStore] = {}


@contextmanager
def opened(at: Path | str, origin: str | None = None, number: int | None = None) -> Iterator[Store]:
    """Open a store for reading.

    Args:
        at: The directory of a store, or the URL of a place.
        origin: Which origin of the place.
        number: For a task, the number of the place that its range was planned from. None where
            Spark plans: it sees what the place has now.

    Raises:
        Error: The store or the place cannot be read.
    """
    if not is_place(str(at)):
        with falaj.open(at, read_only=True) as store:
            yield store
        return
    key = str(at), origin
    with _lock:
        place = _kept.get(key)
        if place is None or place.closed:
            place = _kept[key] = falaj.open_place(key[0], origin=origin, follow=False)
        else:
            place.refresh(number)
    yield place


def renew(store: Store) -> None:
    """Look whether a place has more, unless it was asked a moment ago."""
    if isinstance(store, falaj.PlaceStore):
        store._reader.refresh(pause=PAUSE_S)


def number_of(store: Store) -> int:
    """Return the number of the place that readers of the store see; 0 for a directory."""
    return store.place.number if isinstance(store, falaj.PlaceStore) else 0


def origin_of(store: Store) -> str | None:
    """Return the id of the origin that a store is; None for a directory that was never shipped."""
    if isinstance(store, falaj.PlaceStore):
        return store.place.origin
    return store._origin() if os.path.lexists(os.path.join(store.path, "origin")) else None


def close() -> None:
    """Close the places that this process keeps open."""
    with _lock:
        for place in _kept.values():
            place.close()
        _kept.clear()
