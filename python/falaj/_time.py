"""Times: what users give, and nanoseconds since 1970, which records keep.

A time is an aware `datetime`, an ISO 8601 string with a zone, or seconds since 1970 as int or
float. A naive one is refused: whose clock it means is not in it, and guessing loses records.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from falaj.errors import InvalidArgument, shown

__all__ = ["Time", "from_ns", "to_ns"]

Time = datetime | str | int | float

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NS_MAX = 2**63 - 1


def to_ns(time: Time) -> int:
    """Turn a time into nanoseconds since 1970.

    Args:
        time: An aware datetime, an ISO string with a zone, or seconds since 1970.

    Returns:
        Nanoseconds since 1970, in UTC.

    Raises:
        InvalidArgument: It is naive, no time at all, or beyond the years 1677 to 2262.

    Example:
        >>> to_ns("2026-11-20T08:00:00Z")
        1795161600000000000
    """
    if isinstance(time, bool) or not isinstance(time, datetime | str | int | float):
        raise TypeError(
            f"a time is an aware datetime, an ISO string or seconds, not {type(time).__name__}"
        )
    if isinstance(time, int):
        return _checked(time, time * 1_000_000_000)
    if isinstance(time, float):
        return _checked(time, _from_float(time))
    moment = _parse(time) if isinstance(time, str) else time
    if moment.utcoffset() is None:
        raise InvalidArgument(
            f"{time!s} has no time zone: use datetime.now(UTC), add tzinfo=, or end the text in Z"
        )
    return _checked(time, (moment - _EPOCH) // _MICROSECOND * 1000)


def from_ns(ns: int) -> datetime:
    """Turn nanoseconds since 1970 into a datetime in UTC, cut to microseconds.

    Example:
        >>> from_ns(1_500)
        datetime.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + timedelta(microseconds=ns // 1000)


def _parse(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"{text!r} is no ISO time: write it like 2026-11-20T08:00:00Z"
        ) from None


def _from_float(seconds: float) -> int:
    try:
        return round(seconds * 1e9)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{seconds} is no time in seconds since 1970") from None


def _checked(time: Time, ns: int) -> int:
    if -_NS_MAX <= ns <= _NS_MAX:
        return ns
    raise InvalidArgument(
        f"{shown(time)} lies beyond the years 1677 to 2262 that a record can keep"
    )
