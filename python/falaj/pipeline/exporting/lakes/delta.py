"""An export as a Delta table: the folder of the export, with the table's log beside the dates.

Owns how a commit of the export becomes one entry in `_delta_log`. The entry has an `add` for each
file, and a `txn` with the id of the export and the number of the commit. The package `deltalake`
writes it, without Spark; any reader of Delta tables reads it. Format: Delta Transaction Log
Protocol, "Add File", "Transaction Identifiers" and "Per-file Statistics".
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import deltalake
from deltalake.transaction import AddAction
from pyarrow import parquet

from falaj.errors import InvalidArgument, SettingsMismatch
from falaj.pipeline.base import steps
from falaj.pipeline.exporting.lakes.lake import refusals
from falaj.pipeline.exporting.pieces import DATE, date_of_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow

    from falaj.pipeline.exporting.folders import Commit, Folder, Piece

__all__ = ["Delta"]

_LOG = "_delta_log"
_EXPORT = "falaj.export"
"""The table's property that holds the export's id."""
_BOUNDED = ("partition", "offset", "timestamp")
"""Columns whose bounds in a file are listed, so that readers can pass over it."""
_MS = timedelta(milliseconds=1)


class Delta:
    """The Delta table of an export.

    Args:
        folder: The export.
        schema: The table's columns; `date` is the last.
        topic: The topic that gives a new table its name.

    Raises:
        InvalidArgument: Delta has no such type of column.
        SettingsMismatch: The existing table is not of this export.
        SystemCallFailed: It cannot be read or written.
    """

    def __init__(self, folder: Folder, schema: pyarrow.Schema, topic: str) -> None:
        self.name = f"the Delta table {folder.path}"
        self._path = folder.path
        self._export: str = folder.settings()["id"]
        self._schema = schema
        with self._refusals("cannot open"):
            if not deltalake.DeltaTable.is_deltatable(str(self._path)):
                self._make(topic)
            kept = self._opened().metadata().configuration.get(_EXPORT)
        if kept != self._export:
            raise SettingsMismatch(
                f"{self.name} was not made by this export, which cannot know what it has: move "
                f"{self._path / _LOG} away, or export to another folder"
            )

    def newest(self) -> int:
        """Return the number of the newest commit whose files it has; 0 if it has none."""
        with self._refusals("cannot read"):
            return self._opened().transaction_version(self._export) or 0

    def add(self, commit: Commit) -> None:
        """Add the files of a commit, which are in their place, and its number: both or neither."""
        with self._refusals("cannot add to"), self._synced():
            mark = deltalake.Transaction(self._export, commit.number)
            self._opened().create_write_transaction(
                [self._added(piece) for piece in commit.files],
                "append",
                self._schema,
                [DATE],
                commit_properties=deltalake.CommitProperties(app_transactions=[mark]),
            )

    def _make(self, topic: str) -> None:
        try:
            table = deltalake.Schema.from_arrow(self._schema)
        except Exception as error:
            raise InvalidArgument(f"Delta has no such columns: {error}; choose others") from error
        with self._synced():
            deltalake.DeltaTable.create(
                str(self._path),
                table,
                mode="error",
                partition_by=[DATE],
                name=topic,
                configuration={_EXPORT: self._export},
                raise_if_key_not_exists=False,
            )

    def _opened(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(self._path))

    def _added(self, piece: Piece) -> AddAction:
        path = self._path / piece.path
        day = date_of_path(piece.path)
        return AddAction(
            path=piece.path,
            size=piece.bytes,
            partition_values={DATE: day.isoformat() if day else None},
            modification_time=path.stat().st_mtime_ns // 1_000_000,
            data_change=True,
            stats=json.dumps(_statistics(path)),
        )

    def _refusals(self, doing: str) -> AbstractContextManager[None]:
        return refusals(self.name, doing)

    @contextmanager
    def _synced(self) -> Iterator[None]:
        """Sync what the body writes to the log, since its writer does not.

        It also syncs the entry before, since its writer may have died before it did so.
        """
        log = self._path / _LOG
        entries = sorted(name for name in _names(log) if name.endswith(".json"))
        before = set(_names(log)) - {"_last_checkpoint", *entries[-1:]}
        yield
        for name in set(_names(log)) - before:
            steps.sync(log / name)
        steps.sync(log)
        steps.sync(self._path)


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


# --- Statistics ----------------------------------------------------------------------------------


def _statistics(path: Path) -> dict[str, Any]:
    """Return the number of records in a file and the bounds of their values, from its footer."""
    footer = parquet.read_metadata(path)
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}}
    for at in range(footer.num_columns):
        name = footer.schema.column(at).path
        if name not in _BOUNDED:
            continue
        groups = [footer.row_group(n).column(at).statistics for n in range(footer.num_row_groups)]
        if groups and all(group is not None and group.has_min_max for group in groups):
            found["minValues"][name] = _rounded(min(group.min for group in groups), up=False)
            found["maxValues"][name] = _rounded(max(group.max for group in groups), up=True)
    return found


def _rounded(value: int | datetime, *, up: bool) -> int | str:
    """Write a bound; a time is rounded outward to the millisecond, so the range stays complete."""
    if not isinstance(value, datetime):
        return value
    whole = value.astimezone(UTC)
    over = timedelta(microseconds=whole.microsecond % 1000)
    if over:
        whole += _MS - over if up else -over
    return whole.isoformat(timespec="milliseconds").replace("+00:00", "Z")
