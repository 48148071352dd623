"""`falaj place list`: the stores and origins that a place has, and the moments to restore to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Argument, Command
from falaj.cli.exits import Exit, Stop, say
from falaj.cli.tables import Column, objects, table
from falaj.cli.units import show_time, size
from falaj.errors import CorruptData

if TYPE_CHECKING:
    from falaj.ship.origin import Found
    from falaj.ship.place import Place

__all__ = ["COMMAND", "PLACE", "list_"]

PLACE = Argument(
    "place", "PLACE", "s3://…, gs://…, az://…, http://…, or a directory.", read=options.location
)


def _time(us: int | None) -> str:
    return "-" if us is None else show_time(us * 1000, "iso")


_COLUMNS = (
    Column("store", "store"),
    Column("origin", "origin"),
    Column("first", "first", number=True),
    Column("last", "last", number=True),
    Column("first_us", "first time", human=_time),
    Column("last_us", "last time", human=_time),
    Column("bytes", "size", human=size),
)


def list_(place: str, as_json: bool) -> None:
    """List the origins of a place.

    Raises:
        Stop: An origin has something missing or corrupt; the others are listed.
    """
    from falaj.ship.origin import named_origins
    from falaj.ship.place import open_place

    opened = open_place(place)
    rows, corrupt = list[dict[str, Any]](), list[str]()
    for found in named_origins(opened, None):
        try:
            rows.append(_row(opened, found))
        except CorruptData as error:
            corrupt.append(str(error))
    if as_json:
        objects(rows)
    else:
        table(_COLUMNS, rows)
    for sentence in corrupt:
        say(sentence)
    if corrupt:
        raise Stop.silent(Exit.CORRUPTION)


def _row(place: Place, found: Found) -> dict[str, Any]:
    """Describe an origin: from which number to which it can be restored, and what it holds."""
    import threading

    from falaj.ship.driver import read_view
    from falaj.ship.objects import Patience
    from falaj.ship.origin import Origin

    origin = Origin(place, found.store, found.origin)
    listed = origin.checkpoints()
    first, first_us = 1, None
    if listed and origin.number(2) is None:
        oldest = origin.checkpoint(int(listed[0].key[2:]))
        if oldest is not None:
            first, first_us = oldest.view.number, oldest.view.time_us
    view = read_view(origin, Patience(60.0, threading.Event()))
    return {
        "store": found.store,
        "origin": found.origin,
        "first": first,
        "last": view.number,
        "first_us": first_us,
        "last_us": view.time_us or None,
        "bytes": view.bytes_to_restore(),
    }


COMMAND = Command(
    list_,
    "List the stores that a place has.",
    (PLACE,),
    (options.AS_JSON,),
    "Each store is listed with its origins: a store that was restored ships as a new origin. The "
    "numbers are those that `falaj restore --to-number` takes.",
)
