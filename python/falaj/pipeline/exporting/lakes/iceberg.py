"""An export as an Iceberg table: a table of a catalog that names the files of the export.

Owns how a commit of the export becomes one transaction. The transaction adds the files, and stores
the number of the commit as a property of the table. `pyiceberg` finds the catalog from
`.pyiceberg.yaml` or its environment. The catalog decides where the metadata of the table is; the
files stay in the folder. They have a column `date`, by which the table is partitioned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from falaj.errors import SettingsMismatch
from falaj.pipeline.exporting.lakes.lake import refusals
from falaj.pipeline.exporting.pieces import DATE

if TYPE_CHECKING:
    import pyarrow
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from falaj.pipeline.exporting.folders import Commit, Folder
    from falaj.pipeline.exporting.run import ExportConfig

__all__ = ["Iceberg"]

_EXPORT, _COMMIT = "falaj.export", "falaj.commit"
"""The table's properties: the export's id, and the number of its newest commit."""


class Iceberg:
    """The Iceberg table of an export.

    Args:
        folder: The export.
        schema: The table's columns; `date` is the last.
        config: Names the table and its catalog.

    Raises:
        SettingsMismatch: The existing table is not of this export.
        SystemCallFailed: The catalog cannot be reached, or refuses the request.
    """

    def __init__(self, folder: Folder, schema: pyarrow.Schema, config: ExportConfig) -> None:
        self.name = f"the Iceberg table {config.table} of the catalog {config.catalog or 'default'}"
        self._folder = folder
        self._identifier = config.table or ""
        with refusals(self.name, "cannot open"):
            self._catalog = load_catalog(config.catalog)
            export: str = folder.settings()["id"]
            try:
                table = self._loaded()
            except NoSuchTableError:
                table = self._make(schema, export)
        if table.properties.get(_EXPORT) != export:
            raise SettingsMismatch(
                f"{self.name} was not made by this export: name another table, or drop that one"
            )

    def newest(self) -> int:
        """Return the number of the newest commit whose files it has; 0 if it has none."""
        with refusals(self.name, "cannot read"):
            return int(self._loaded().properties.get(_COMMIT, 0))

    def add(self, commit: Commit) -> None:
        """Add the files of a commit, which are in their place, and its number: both or neither."""
        number = str(commit.number)
        files = [f"file://{self._folder.path / piece.path}" for piece in commit.files]
        # Where others were faster, pyiceberg tries again by itself.
        with (
            refusals(self.name, "cannot add to"),
            self._loaded().transaction() as transaction,
        ):
            transaction.set_properties({_COMMIT: number})
            if files:
                # That none of them is there already the number says, and need not be looked up.
                transaction.add_files(files, {_COMMIT: number}, check_duplicate_files=False)

    def _loaded(self) -> Table:
        return self._catalog.load_table(self._identifier)

    def _make(self, schema: pyarrow.Schema, export: str) -> Table:
        try:
            return _created(self._catalog, self._identifier, schema, export)
        except NoSuchNamespaceError:
            self._catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
            return _created(self._catalog, self._identifier, schema, export)


def _created(catalog: Catalog, identifier: str, schema: pyarrow.Schema, export: str) -> Table:
    """Create a table that is partitioned by date."""
    properties = {_EXPORT: export}
    with (
        catalog.create_table_transaction(
            identifier, schema=schema, properties=properties
        ) as transaction,
        transaction.update_spec() as partitions,
    ):
        partitions.add_identity(DATE)
    return catalog.load_table(identifier)
