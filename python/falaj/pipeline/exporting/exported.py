"""Read what an export wrote: the committed files, and no others.

Other programs read the folder as it is: a table that is partitioned by `date`. They, too, find only
files of committed runs. Right after a commit some of its files may not be in their place yet; the
functions here wait for them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import DateType, StructField, StructType

from falaj._paths import local_path
from falaj.errors import CorruptData, LockTimeout
from falaj.pipeline.exporting.folders import Folder
from falaj.pipeline.exporting.pieces import DATE
from falaj.pipeline.importing.remote import escaped

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["exported_files", "read_exported"]

_WAIT_S = 10.0
_LOOK_S = 0.05


def read_exported(spark: SparkSession, folder: str | os.PathLike[str]) -> DataFrame:
    """Read the committed files of an export, with each record once.

    Args:
        spark: The session.
        folder: The folder of the export.

    Returns:
        The exported columns, and `date`; without what later runs commit.

    Raises:
        InvalidArgument: It is no export's folder.
        CorruptData: A file is gone, or the folder's state is corrupt.
        LockTimeout: A run died behind its commit, before its files were in their place.
    """
    root = Folder(Path(local_path(folder, "folder")).absolute())
    schema = StructType.fromJson(root.settings()["schema"])
    files = [str(path) for path in exported_files(folder)]
    whole = StructType([*schema.fields, StructField(DATE, DateType())])
    if not files:
        return spark.createDataFrame([], whole)
    return spark.read.schema(whole).option("basePath", str(root.path)).parquet(*map(escaped, files))


def exported_files(folder: str | os.PathLike[str]) -> list[Path]:
    """List the committed files of an export, for Polars, DuckDB and others.

    Args:
        folder: The folder of the export.

    Returns:
        Absolute paths, oldest commit first.

    Raises:
        InvalidArgument: It is no export's folder.
        CorruptData: A file is gone, or the folder's state is corrupt.
        LockTimeout: A run died behind its commit, before its files were in their place.
    """
    root = Folder(Path(local_path(folder, "folder")).absolute())
    root.settings()
    commits = root.commits()
    if commits:
        _await(root, [root.path / piece.path for piece in commits[-1].files])
    files = [root.path / piece.path for commit in commits for piece in commit.files]
    for path in files:
        if not path.exists():
            gone = CorruptData(
                f"{path} was exported and is gone: put it back, or read what is left with "
                f"spark.read.parquet({str(root.path)!r})"
            )
            gone.path = str(path)
            raise gone
    return files


def _await(root: Folder, files: list[Path]) -> None:
    """Wait until the files of a commit in progress are in their place."""
    until = time.monotonic() + _WAIT_S
    while root.plan() is not None and not all(path.exists() for path in files):
        if time.monotonic() > until:
            raise LockTimeout(
                f"a run of the export to {root.path} died before its files were in their place: "
                "run the export again, which moves them there"
            )
        time.sleep(_LOOK_S)
