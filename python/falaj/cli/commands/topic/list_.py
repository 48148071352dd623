"""`falaj topic list`: the topics of a store."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Command
from falaj.cli.exits import Exit, Stop, code_of, say, worst
from falaj.cli.paint import is_terminal
from falaj.cli.stores import raw_topic
from falaj.cli.tables import Column, objects, table
from falaj.cli.units import show_time
from falaj.errors import Error

if TYPE_CHECKING:
    from falaj._store import Store
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "list_"]

_COLUMNS = (
    Column("topic", "topic"),
    Column("codec", "codec"),
    Column("partitions", "partitions", number=True),
    Column("records", "records", number=True),
    Column("last", "last record"),
    Column("state", "state"),
)


def list_(access: Access, as_json: bool) -> None:
    """Print a row for each topic; one that cannot be read does not hide the others."""
    code = Exit.DONE
    rows = []
    with access.store() as opened:
        for name in opened.topics:
            try:
                rows.append(_row(opened, name))
            except Error as error:
                say(f"topic {name}: {error}")
                code = worst(code, code_of(error))
    if as_json:
        objects(rows)
    else:
        table(_COLUMNS, rows)
        if not rows and is_terminal(sys.stdout) and code is Exit.DONE:
            print(f"{access.path} has no topics yet")
    if code:
        raise Stop.silent(code)


def _row(store: Store, name: str) -> dict[str, Any]:
    with raw_topic(store, name) as topic:
        parts = [topic.partition(number) for number in topic.partitions]
        newest = [record.timestamp_ns for part in parts for record in part.last(1)]
        return {
            "topic": name,
            "codec": store.topics[name]["codec"],
            "partitions": len(parts),
            "records": topic.count(),
            "last": show_time(max(newest), "iso") if newest else None,
            "state": "finished" if topic.finished else "open",
        }


COMMAND = Command(
    list_,
    "List topics: codec, partitions, records, last record, state.",
    (),
    (*options.READS, options.AS_JSON),
)
