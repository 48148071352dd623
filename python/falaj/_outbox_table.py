"""The table of an outbox: opening its database, and checking that it can be relayed.

Owns the connection's settings and the checks of the table. Invariant: a table that passes has
integer ids, which never come again where rows are deleted. `falaj.outbox` handles the rows.
"""

from __future__ import annotations

import os
import re
import sqlite3
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from falaj._time import seconds
from falaj.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from falaj._time import Duration

__all__ = ["connect", "identity", "key_of", "quoted", "span"]

#: Parts of a statement that are no keyword: strings, quoted names, comments.
_NO_KEYWORD = re.compile(
    r"""'[^']*'|"[^"]*"|`[^`]*`|\[[^]]*\]|--[^\n]*|/\*.*?(?:\*/|$)""", re.DOTALL
)
_SECONDS_MAX = 1_000_000
_PROGRESS = """
CREATE TABLE IF NOT EXISTS falaj_outbox (
    outbox TEXT NOT NULL, topic TEXT NOT NULL, sequence INTEGER NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, done INTEGER NOT NULL,
    refused INTEGER NOT NULL, dead_letters TEXT, dead_letter INTEGER,
    PRIMARY KEY (outbox, topic)
) WITHOUT ROWID
"""


def identity(path: str) -> tuple[int, int] | None:
    """Return what tells a file from another of its path; None where there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def key_of(row: sqlite3.Row) -> Any:
    """Return the key of a row; None in a table without keys."""
    try:
        return row["key"]  # in whatever case the column is named
    except IndexError:
        return None


def quoted(name: str) -> str:
    """Quote a name for a statement."""
    return '"' + name.replace('"', '""') + '"'


def connect(
    database: str, table: str, column: str, *, timeout: float, rising: bool, value: bool
) -> tuple[sqlite3.Connection, bool]:
    """Open a database whose table can be relayed, with a table for the progress beside it.

    Args:
        database: Path of an existing database.
        table: The outbox.
        column: The column of the ids.
        timeout: Seconds to wait for a lock of the database.
        rising: Whether ids of deleted rows must not come again.
        value: Whether there must be a column "value".

    Returns:
        The connection, and whether the ids are AUTOINCREMENT.

    Raises:
        InvalidArgument: There is no such database, or the table cannot be an outbox.
    """
    try:
        place = quote(os.fsencode(database))
    except UnicodeEncodeError:
        raise InvalidArgument(f"no path is {database!r}: it holds half a character") from None
    try:
        connection = sqlite3.connect(
            f"file:{place}?mode=rw",  # a database that does not exist is not made
            uri=True,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise _no_outbox(database, table, column, error) from error
    try:
        connection.row_factory = sqlite3.Row
        # If a power failure lost the number of a batch, other rows would get it. FULL does not
        # sync the directory from which a rollback journal is deleted: a journal that comes back
        # would undo the commit.
        connection.execute("PRAGMA synchronous = EXTRA")
        name = quoted(table)
        connection.execute(f"SELECT {name}.{quoted(column)} FROM {name} LIMIT 0")
        autoincrement = _expect_key(connection, table, column, rising=rising)
        if value:
            _expect_value(connection, table)
        connection.execute(_PROGRESS)
    except (sqlite3.Error, InvalidArgument) as error:
        connection.close()
        raise _no_outbox(database, table, column, error) from error
    return connection, autoincrement


def _no_outbox(
    database: str, table: str, column: str, error: sqlite3.Error | InvalidArgument
) -> InvalidArgument:
    return InvalidArgument(
        f"{database} cannot be relayed from {quoted(table)}: {error}; an outbox is a table with "
        f"{quoted(column)} INTEGER PRIMARY KEY AUTOINCREMENT in a SQLite database that exists"
    )


def _expect_key(connection: sqlite3.Connection, table: str, column: str, *, rising: bool) -> bool:
    """Check that the ids are integers, and rise even when rows are deleted."""
    (is_key,) = connection.execute(
        "SELECT count(*) FROM pragma_table_info(?) WHERE pk AND name = ? COLLATE NOCASE",
        (table, column),
    ).fetchone()
    # A primary key with an index of its own is not the number of the row. It may be of any
    # type, in spite of its declaration, or have several columns.
    (indexed,) = connection.execute(
        "SELECT count(*) FROM pragma_index_list(?) WHERE origin = 'pk'", (table,)
    ).fetchone()
    if not is_key or indexed:
        raise InvalidArgument(f"{quoted(column)} is no INTEGER PRIMARY KEY of a table")
    (statement,) = connection.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE",
        (table,),
    ).fetchone()
    autoincrement = "AUTOINCREMENT" in _NO_KEYWORD.sub(" ", statement).upper()
    if rising and not autoincrement:
        raise InvalidArgument(
            f"{quoted(column)} is no AUTOINCREMENT, so SQLite uses ids of deleted rows again, and "
            "with delete=True rows that get them would never be moved"
        )
    return autoincrement


def _expect_value(connection: sqlite3.Connection, table: str) -> None:
    rows = connection.execute(f"SELECT * FROM {quoted(table)} LIMIT 0")
    if "value" not in [name.lower() for name, *_ in rows.description]:
        raise InvalidArgument('it has no column "value": give row=, which makes a value of a row')


def span(what: str, duration: Duration) -> float:
    """Check a duration: SQLite and Python count some of them in 32 bits."""
    found = seconds(duration, what)
    if not 0 <= found <= _SECONDS_MAX:
        limits = f"from 0 to {_SECONDS_MAX:,} seconds"
        raise InvalidArgument(f"{what} is {limits}, not {shown(duration)}")
    return found
