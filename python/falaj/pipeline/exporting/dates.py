"""Dates of times in a zone, for whole Arrow arrays."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    import pyarrow

__all__ = ["local_dates"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_DAY_US = timedelta(days=1) // _US
_FIRST_DAY, _LAST_DAY = (day.toordinal() - _EPOCH.toordinal() for day in (date.min, date.max))


def local_dates(times: pyarrow.Array, zone: ZoneInfo) -> pyarrow.Array:
    """Return the dates of times in a zone, in the years 1 to 9999; null for others.

    `zoneinfo` knows the rule by which summer time continues; Arrow's own table ends in 2037. This
    function asks `zoneinfo` twice for each day that occurs. On a day on which clocks change it asks
    for each time.
    """
    import pyarrow
    from pyarrow import compute

    micros = times.cast(pyarrow.timestamp("us", tz="UTC")).cast(pyarrow.int64())
    days = _days(micros)
    kinds = compute.unique(days.drop_null())
    ahead = [_ahead(day, zone) for day in kinds.to_pylist()]
    shift = pyarrow.array(ahead, pyarrow.int64()).take(compute.index_in(days, kinds))
    dates = _days(compute.add(micros, shift))
    changes = kinds.filter(pyarrow.array([each is None for each in ahead], pyarrow.bool_()))
    if len(changes):
        asked = compute.is_in(days, changes)
        found = [_local_day(micro, zone) for micro in micros.filter(asked).to_pylist()]
        dates = compute.replace_with_mask(dates, asked, pyarrow.array(found, pyarrow.int64()))
    exists = compute.and_(
        compute.greater_equal(dates, _FIRST_DAY), compute.less_equal(dates, _LAST_DAY)
    )
    return compute.if_else(exists, dates, None).cast(pyarrow.int32()).cast(pyarrow.date32())


def _days(micros: pyarrow.Array) -> pyarrow.Array:
    """Divide microseconds by the length of a day, and round down."""
    import pyarrow
    from pyarrow import compute

    days = compute.divide(micros, _DAY_US)  # towards zero
    below = compute.less(compute.subtract(micros, compute.multiply(days, _DAY_US)), 0)
    return compute.subtract(days, below.cast(pyarrow.int64()))


def _ahead(day: int, zone: ZoneInfo) -> int | None:
    """Microseconds by which a zone is ahead of UTC all day; None if that changes."""
    try:
        midnights = (_EPOCH + timedelta(n) for n in (day, day + 1))
        first, second = (midnight.astimezone(zone).utcoffset() for midnight in midnights)
    except OverflowError:  # the first day of all, the last one, or one beyond
        return None
    return None if first is None or first != second else first // _US


def _local_day(micro: int, zone: ZoneInfo) -> int | None:
    try:
        when = (_EPOCH + micro * _US).astimezone(zone)
    except OverflowError:
        return None
    return when.toordinal() - _EPOCH.toordinal()
