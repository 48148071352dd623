"""`falaj place verify`: every object that a restore needs, checked; nothing is changed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.commands.place.list_ import PLACE
from falaj.cli.exits import Exit, Stop
from falaj.cli.paint import Paint, is_terminal
from falaj.cli.progress import bar
from falaj.cli.stores import Access
from falaj.cli.tables import Column, objects, table
from falaj.cli.units import size

if TYPE_CHECKING:
    from typing import Any

    from falaj._store import Store

__all__ = ["COMMAND", "verify"]

_COLUMNS = (
    Column("store", "store"),
    Column("origin", "origin"),
    Column("number", "number", number=True),
    Column("objects", "objects", number=True),
    Column("bytes", "size", human=size),
    Column("findings", "corrupt", human=lambda found: str(len(found))),
)


def verify(place: str, origin: str | None, deep: bool, against: str | None, as_json: bool) -> None:
    """Check a place.

    Raises:
        Stop: Something is missing or corrupt.
    """
    if against is None:
        reports = _reports(place, origin, deep, None)
    else:
        with Access(against).store(writes=True) as store:
            reports = _reports(place, origin, deep, store)
    if as_json:
        objects(reports)
    else:
        _tell(reports)
    if any(report["findings"] for report in reports):
        raise Stop.silent(Exit.CORRUPTION)


def _reports(
    place: str, origin: str | None, deep: bool, store: Store | None
) -> list[dict[str, Any]]:
    from falaj.ship.place import open_place
    from falaj.ship.verify import verify_place

    with bar("verify") as advance:
        found = verify_place(
            open_place(place),
            origin=origin,
            deep=deep,
            store=store,
            progress=lambda done, total: advance(done, total=total),
        )
    return [report._asdict() for report in found]


def _tell(reports: list[dict[str, Any]]) -> None:
    paint = Paint.of(sys.stdout)
    rows = (
        reports
        if is_terminal(sys.stdout)
        else [report | {"findings": len(report["findings"])} for report in reports]
    )
    table(_COLUMNS, rows)
    for report in reports:
        for finding in report["findings"]:
            print(f"{paint('corrupt', 'red')}\t{paint.harmless(finding)}")


COMMAND = Command(
    verify,
    "Check that a place has everything, byte for byte.",
    (PLACE,),
    (
        Option("--origin", "origin", "Only this origin; its first digits are enough.", "ID"),
        Option(
            "--deep",
            "deep",
            "Restore it to a temporary directory, and check each block.",
            default=False,
        ),
        Option("--against", "against", "Compare it with this store too.", "PATH", options.path),
        options.AS_JSON,
    ),
    "It reads each object that a restore of the newest number needs. Nothing is changed.",
)
