"""Rows as JSON: the value of a record, with times in UTC, as exact as Spark keeps them.

Spark itself cuts times in JSON to milliseconds, and writes them in the zone of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

__all__ = ["document"]

_MICROS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": f"{_MICROS}X",  # for UTC, X is Z
    "timestampNTZFormat": _MICROS,
}


def document(columns: Iterable[Column | str]) -> Column:
    """Write columns as an object of JSON, as {"at":"2026-11-20T08:00:00.000000Z"}."""
    return F.to_json(F.struct(*columns), _OPTIONS)
