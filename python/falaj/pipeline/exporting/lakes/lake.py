"""Common parts of Delta and Iceberg tables over an export: when a table is made, what it lacks.

Knows no more of Delta and Iceberg than their names. Invariant: a table has all files of a commit or
none, and names the commit and its export in the same transaction. If a process dies between the
commit and the table, the next run adds what the table lacks, and nothing twice.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from falaj.errors import (
    CorruptData,
    Error,
    InvalidArgument,
    MissingExtra,
    SettingsMismatch,
    SystemCallFailed,
)
from falaj.pipeline.exporting.pieces import DATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow

    from falaj.pipeline.exporting.folders import Commit, Folder
    from falaj.pipeline.exporting.run import ExportConfig

__all__ = ["Lake", "add", "catch_up", "check", "of", "refusals"]

_PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}
_NO_PATH = "#%?"
"""Characters that a path cannot have if it is written as a URI without quotes."""


class Lake(Protocol):
    """The table of an export; a process that changes it holds the lock of the folder.

    Attributes:
        name: Its name in messages.
    """

    name: str

    def newest(self) -> int:
        """Return the number of the newest commit whose files it has; 0 if it has none."""

    def add(self, commit: Commit) -> None:
        """Add the files of a commit, which are in their place, and its number: both or neither."""


def check(config: ExportConfig) -> None:
    """Check that the table that a config asks for is possible here.

    Raises:
        MissingExtra: A package is missing.
        InvalidArgument: The config names no such table.
    """
    package = _PACKAGES.get(config.format)
    if package and find_spec(package) is None:
        raise MissingExtra(
            f"format={config.format!r} needs the package {package}: "
            f"pip install 'falaj[{config.format}]'"
        )
    odd = sorted(set(_NO_PATH) & set(str(config.into)))
    if package and odd:
        raise InvalidArgument(
            f"into is {config.into}, and readers of such tables take {' and '.join(odd)} in "
            "a path for something else: choose another folder"
        )
    if config.format != "iceberg":
        for name in ("table", "catalog"):
            if getattr(config, name) is not None:
                raise InvalidArgument(
                    f"{name} goes with format='iceberg': a table of {config.format!r} is the folder"
                )
    elif config.table is None or "." not in config.table.strip("."):
        raise InvalidArgument(
            f"format='iceberg' needs the table's name in its catalog, as table='sales.orders', not "
            f"{config.table!r}"
        )


def of(config: ExportConfig, folder: Folder, schema: pyarrow.Schema) -> Lake | None:
    """Open the table that a config asks for; create it if it does not exist.

    Args:
        config: The config of the export, which `check` has allowed.
        folder: The folder of the export; its settings are checked.
        schema: The exported columns; the table has a column `date` after them.

    Returns:
        The table; None if the config asks for Parquet alone.

    Raises:
        InvalidArgument: The format has no such type of column.
        SettingsMismatch: The table is not of this export.
        SystemCallFailed: It cannot be reached.
    """
    if config.format == "parquet":
        return None
    import pyarrow

    schema = schema.append(pyarrow.field(DATE, pyarrow.date32()))
    if config.format == "delta":
        from falaj.pipeline.exporting.lakes.delta import Delta

        return Delta(folder, schema, config.topic)
    from falaj.pipeline.exporting.lakes.iceberg import Iceberg

    return Iceberg(folder, schema, config)


def catch_up(lake: Lake, folder: Folder) -> None:
    """Add the commits that a table lacks, each in a transaction of its own.

    Raises:
        SettingsMismatch: It has commits that the folder lacks.
        CorruptData: A file that it lacks is gone.
        SystemCallFailed: It cannot be reached.
    """
    newest, last = lake.newest(), folder.last()
    if newest > (last.number if last else 0):
        raise SettingsMismatch(
            f"{lake.name} has commit {newest} of the export to {folder.path}, which has "
            f"{last.number if last else 'none'}: is the folder an older copy? Export to another one"
        )
    for commit in folder.commits(newest):
        for piece in commit.files:
            if not (folder.path / piece.path).exists():
                raise _gone(lake, folder, piece.path)
        add(lake, commit)


def add(lake: Lake, commit: Commit) -> None:
    """Add the files of a commit to a table: a step that a crash leaves done or not done."""
    lake.add(commit)


def _gone(lake: Lake, folder: Folder, path: str) -> CorruptData:
    gone = CorruptData(
        f"{folder.path / path} was exported and is gone before it was added to {lake.name}: put it "
        "back, or export to another folder"
    )
    gone.path = str(folder.path / path)
    return gone


@contextmanager
def refusals(name: str, doing: str) -> Iterator[None]:
    """Turn the errors of a table's package in the body into falaj's errors.

    Args:
        name: The name of the table.
        doing: What the body does with it.

    Raises:
        SystemCallFailed: The body raised an error that is not falaj's own.
    """
    try:
        yield
    except Error:
        raise
    # A catalog raises what its driver, its HTTP client or its database raises: no one class.
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise SystemCallFailed(
            f"{doing} {name}: {said}; nothing that is exported is lost: mend it and run the export "
            "again, which adds what the table lacks"
        ) from error
