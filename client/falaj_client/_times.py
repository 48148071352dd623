"""Times and durations: between users' times, nanoseconds since 1970, and the texts of the API."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from falaj_client._numbers import plain
from falaj_client._own_errors import named
from falaj_client.errors import InvalidArgument

__all__ = [
    "Duration",
    "Time",
    "from_ns",
    "iso",
    "milliseconds_of",
    "ns_of",
    "seconds",
    "span",
    "to_ns",
]

Time = datetime | str
Duration = float | timedelta | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NS_MAX = 2**63 - 1
_LONGEST_MS = 999_999
_UNITS = (("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000))


def ns_of(timestamp: Time | None, timestamp_ns: int | None) -> int | None:
    """Return the time that a record was given, in nanoseconds since 1970.

    Raises:
        TypeError: It is neither an aware datetime nor ISO text.
        InvalidArgument: Both were given, or it has no time zone, or no record can keep it.
    """
    if timestamp is None:
        if timestamp_ns is None:
            return None
        found = plain(timestamp_ns)
        if isinstance(found, bool) or not isinstance(found, int):
            raise TypeError(
                "timestamp_ns is a whole number of nanoseconds since 1970, not "
                f"{type(timestamp_ns).__name__}"
            )
        return _checked(found)
    if timestamp_ns is not None:
        raise InvalidArgument("a record has timestamp= or timestamp_ns=: give one of them")
    return to_ns(timestamp)


def to_ns(time: Time) -> int:
    """Turn an aware datetime, or ISO text with a zone, into nanoseconds since 1970.

    Nanoseconds are kept, in text of nine digits and in a datetime that has them, such as a
    `pandas.Timestamp`. A finer time becomes the next nanosecond, as in `falaj`.

    Raises:
        TypeError: It is neither.
        InvalidArgument: It has no time zone, is no ISO text, or no record can keep it.

    Example:
        >>> to_ns("2026-11-20T08:00:00.000000001Z")
        1795161600000000001
    """
    if not isinstance(time, datetime | str):
        raise TypeError(
            'a time is an aware datetime or ISO text such as "2026-11-20T08:00:00Z", not '
            f"{type(time).__name__}"
        )
    moment = _parse(time) if isinstance(time, str) else time
    # A NaT of pandas is a datetime too, and has no tzinfo.
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidArgument(
            f"{time!s} has no time zone: use datetime.now(UTC), add tzinfo=, or end the text in Z"
        )
    finer = _finer(time) if isinstance(time, str) else int(getattr(time, "nanosecond", 0)) % 1000
    # By datetime's own difference: that of pandas raises for times which it cannot keep.
    since: timedelta = datetime.__sub__(moment, _EPOCH)
    return _checked(since // _MICROSECOND * 1000 + finer)


def _parse(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"{named(text)} is no ISO time: a time is an aware datetime or ISO text such as "
            "2026-11-20T08:00:00Z"
        ) from None


def _finer(text: str) -> int:
    """Nanoseconds behind the microsecond, rounded up: `fromisoformat` drops these digits."""
    found = re.search(r"[.,]\d{6}(\d+)\s*[Z+-]", text)
    if found is None:
        return 0
    whole, rest = found[1][:3].ljust(3, "0"), found[1][3:]
    return int(whole) + (rest.strip("0") != "")


def _checked(ns: int) -> int:
    if -_NS_MAX <= ns <= _NS_MAX:
        return ns
    raise InvalidArgument("a record keeps times of the years 1677 to 2262: give one of those")


def iso(ns: int) -> str:
    """Turn nanoseconds since 1970 into the text of the API.

    Example:
        >>> iso(1_795_161_600_000_000_001)
        '2026-11-20T08:00:00.000000001Z'
    """
    whole, below = divmod(ns, 1_000_000_000)
    return f"{_EPOCH + timedelta(seconds=whole):%Y-%m-%dT%H:%M:%S}.{below:09}Z"


def from_ns(ns: int) -> datetime:
    """Turn nanoseconds since 1970 into a datetime in UTC, cut to microseconds."""
    return _EPOCH + timedelta(microseconds=ns // 1000)


def seconds(duration: Duration, what: str) -> float:
    """Turn a duration into seconds; `what` is the subject of an error.

    Raises:
        InvalidArgument: It is negative, or not finite.
        TypeError: It is no duration.

    Example:
        >>> seconds("1h30m", "a timeout"), seconds(timedelta(minutes=5), "a timeout")
        (5400.0, 300.0)
    """
    try:
        found = _seconds(duration, what)
    except OverflowError:
        found = math.inf
    if math.isfinite(found) and found >= 0:
        return found
    raise InvalidArgument(f"{what} is a number of seconds from 0 on, not {named(duration)}")


def _seconds(duration: Duration, what: str) -> float:
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, str):
        pattern = r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?"
        parts = re.fullmatch(pattern, duration, re.ASCII)
        if not duration or parts is None:
            raise InvalidArgument(
                f"{what} is seconds, a timedelta or text such as 7d, 1h30m, 5m or 90s, not "
                f"{named(duration)}"
            )
        units = zip(parts.groups("0"), (86_400, 3_600, 60, 1), strict=True)
        return sum(float(number) * unit for number, unit in units)
    # An array of one number has `__float__` too.
    is_one = hasattr(type(duration), "__float__") and not hasattr(type(duration), "__len__")
    if isinstance(duration, bool) or not is_one:
        raise TypeError(
            f'{what} is seconds, a timedelta or text such as "5m", not {type(duration).__name__}'
        )
    return float(duration)


def span(wait: float) -> str:
    """Turn seconds into the text of the API, at most six digits and a unit, rounded up.

    Example:
        >>> span(0.25), span(1800), span(86_400)
        ('250ms', '1800s', '86400s')
    """
    milliseconds = max(0, -int(-wait * 1000 // 1))
    if milliseconds <= _LONGEST_MS and milliseconds % 1000:
        return f"{milliseconds}ms"
    return next(
        f"{count}{unit}"
        for unit, long in _UNITS
        if (count := -(-milliseconds // long)) <= _LONGEST_MS or unit == "d"
    )


def milliseconds_of(span: str) -> int:
    """Turn a text of the API into milliseconds.

    Example:
        >>> milliseconds_of("7d"), milliseconds_of("90s"), milliseconds_of("250ms")
        (604800000, 90000, 250)
    """
    number, unit = re.fullmatch(r"(\d+)(\D+)", span).groups()  # type: ignore[union-attr]
    return int(number) * {**dict(_UNITS), "ms": 1}[unit]
