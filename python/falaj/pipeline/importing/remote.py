"""Files behind URLs that Spark reads: their names, sizes and times of change.

Spark lists them, so a pipeline can read whatever its session can read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

from falaj._paths import scheme_of
from falaj.errors import InvalidArgument
from falaj.pipeline.base.frame import sentence
from falaj.pipeline.importing.ledgers import SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

__all__ = ["escaped", "is_remote", "listed"]


def is_remote(path: object) -> bool:
    """Tell whether text is a URL that only Spark reads."""
    return isinstance(path, str) and scheme_of(path) not in (None, "file")


def listed(spark: SparkSession, urls: Iterable[str]) -> list[SourceFile]:
    """List files, all files in folders, and matches of patterns, sorted by name.

    Raises:
        InvalidArgument: This session of Spark cannot read a URL, or there is no file.
    """
    found: dict[str, SourceFile] = {}
    for url in urls:
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            rows = (
                reader.load(url)
                .select("path", "length", F.unix_micros("modificationTime").alias("us"))
                .collect()
            )
        except (PySparkException, Py4JError) as error:
            told = getattr(error, "java_exception", None)  # py4j itself only says which call it was
            said = sentence(error if told is None else Exception(str(told.getMessage())))
            raise InvalidArgument(
                f"Spark cannot read {url}: {said}. Where it lacks the file system of "
                f"{scheme_of(url)}, name its package in spark.jars.packages"
            ) from None
        if not rows:
            raise InvalidArgument(f"there is no file {url}: give files, folders or patterns")
        for row in rows:
            found[row.path] = SourceFile(path=row.path, size=row.length, mtime_ns=row.us * 1000)
    return [found[path] for path in sorted(found)]


def escaped(path: str) -> str:
    """Escape a path, so that Spark treats no character of it as a pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
