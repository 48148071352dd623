"""The text of a value as a record's key: one value, one key, whatever the session's time zone is.

Spark writes a TIMESTAMP as text in the zone of the session. The hour that clocks repeat in autumn
would then give two times one key, and another session would give a time another key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, StringType, TimestampType

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["is_key", "text_of"]

_DAY_US = 86_400_000_000


def is_key(kind: DataType) -> bool:
    """Tell whether a value of this type is a key as it is."""
    return isinstance(kind, StringType | BinaryType)


def text_of(sql: str, kind: DataType) -> str:
    """Write SQL that makes a value text: a TIMESTAMP in UTC, as 2026-11-20T08:00:00Z.

    Args:
        sql: The value.
        kind: Its type.
    """
    if not isinstance(kind, TimestampType):
        return f"CAST({sql} AS STRING)"
    days = f"CAST(unix_micros({sql}) div {_DAY_US} AS INT)"
    seconds = f"CAST(unix_micros({sql}) % {_DAY_US} AS DECIMAL(20, 0)) / 1000000"
    # A time without a zone, because Spark never moves it into the zone of the session.
    utc = f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval({days}, 0, 0, {seconds})"
    return f"concat(replace(CAST({utc} AS STRING), ' ', 'T'), 'Z')"
