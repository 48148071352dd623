"""Times: conversions between users' times and nanoseconds since 1970, which records have.

A time is an aware `datetime` or ISO 8601 text with a zone. A naive one is refused, as its clock is
unknown. A bare number is refused too: whole numbers are offsets.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from falaj._numbers import plain
from falaj.errors import InvalidArgument, named, shown

__all__ = ["Duration", "Time", "expect_ns", "from_ns", "seconds", "start_ns", "to_ns"]

Time = datetime | str
Duration = float | timedelta | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NS_MAX = 2**63 - 1


def to_ns(time: Time | None) -> int:
    """Turn a time into nanoseconds since 1970.

    Nanoseconds are kept, in text of nine digits and in a datetime that has them, such as a
    `pandas.Timestamp`. A finer time becomes the next nanosecond, so no lookup by it finds a record
    before it.

    Args:
        time: An aware datetime, or ISO text with a zone.

    Returns:
        Nanoseconds since 1970, in UTC.

    Raises:
        TypeError: It is neither, such as a number of seconds.
        InvalidArgument: It has no time zone, is no ISO text, or lies beyond the years 1677 to 2262.

    Example:
        >>> to_ns("2026-11-20T08:00:00.000000001Z")
        1795161600000000001
    """
    if not isinstance(time, datetime | str):
        raise TypeError(
            'a time is an aware datetime or ISO text such as "2026-11-20T08:00:00Z", not '
            f"{type(time).__name__}{_instead(time)}"
        )
    moment = _parse(time) if isinstance(time, str) else time
    # A NaT of pandas is a datetime too, and has no tzinfo.
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidArgument(
            f"{time!s} has no time zone: use datetime.now(UTC), add tzinfo=, or end the text in Z"
        )
    finer = _finer(time) if isinstance(time, str) else _nanosecond(time)
    # By datetime's own difference: that of pandas raises for times which it cannot keep.
    since: timedelta = datetime.__sub__(moment, _EPOCH)
    return _checked(time, since // _MICROSECOND * 1000 + finer)


def start_ns(start: Any, what: str, words: str = '"earliest", "latest", ') -> int:
    """Turn a place that is neither a word nor an offset into nanoseconds since 1970.

    Args:
        start: An aware datetime, or ISO text with a zone.
        what: The argument's name.
        words: The words that the argument takes too, each with a comma.

    Raises:
        TypeError: It is neither; the message lists what the argument takes.
        InvalidArgument: As `to_ns`; for text that is no time the message lists the same.

    Example:
        >>> start_ns("2026-11-20T08:00:00Z", "start")
        1795161600000000000
    """
    takes = f"{what} is {words}an offset, an aware datetime or ISO text"
    if isinstance(start, str):
        try:
            datetime.fromisoformat(start)
        except ValueError:
            raise InvalidArgument(
                f'{takes} such as "2026-11-20T08:00:00Z", not {named(start)}'
            ) from None
    elif not isinstance(start, datetime):
        raise TypeError(f"{takes}, not {type(start).__name__}{_instead(start)}")
    return to_ns(start)


def expect_ns(ns: object, what: str = "timestamp_ns") -> int:
    """Check nanoseconds since 1970; `what` names the argument.

    Raises:
        TypeError: It is no whole number.
        InvalidArgument: It lies beyond the years 1677 to 2262.

    Example:
        >>> expect_ns(1_795_161_600_000_000_000)
        1795161600000000000
    """
    found = plain(ns)
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError(
            f"{what} is a whole number of nanoseconds since 1970, not {type(ns).__name__}: give a "
            f"datetime or ISO text as {what.removesuffix('_ns')}="
        )
    return _checked(found, found)


def from_ns(ns: int) -> datetime:
    """Turn nanoseconds since 1970 into a datetime in UTC, cut to microseconds.

    Example:
        >>> from_ns(1_500)
        datetime.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + timedelta(microseconds=ns // 1000)


def seconds(duration: Duration, what: str = "a duration") -> float:
    """Turn a duration into seconds; the callers refuse what is negative or no number.

    Args:
        duration: Seconds, a timedelta, or text such as "5m" or "1h30m". Seconds are any real
            number, such as one of NumPy, a Decimal or a Fraction, but no bool and no array.
        what: The purpose of the duration, as the subject of an error.

    Raises:
        TypeError: It is none of these.
        InvalidArgument: The text is no duration, or the number is larger than a float.

    Example:
        >>> seconds("1h30m"), seconds("2.5s"), seconds(timedelta(minutes=5)), seconds(30)
        (5400.0, 2.5, 300.0, 30.0)
    """
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, str):
        return _parse_duration(duration, what)
    number = plain(duration)
    if not _is_real(number) or hasattr(type(duration), "__len__"):  # an array may have an index
        raise TypeError(
            f'{what} is seconds, a timedelta or text such as "5m", not {type(duration).__name__}'
        )
    try:
        return float(number)
    except ValueError:  # a Decimal that signals that it is no number
        return float("nan")
    except OverflowError:
        raise InvalidArgument(
            f"{what} is at most some 1e308 seconds, not {shown(number)}"
        ) from None


def _is_real(number: Any) -> bool:
    """Whether it is a real number: those of Python and NumPy can be written as a ratio."""
    return hasattr(type(number), "as_integer_ratio") and not isinstance(number, bool)


def _parse_duration(text: str, what: str) -> float:
    import re  # text is rare

    span = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", text, re.ASCII)
    if text and span:
        units = zip(span.groups("0"), (86_400, 3_600, 60, 1), strict=True)
        return sum(float(n) * unit for n, unit in units)
    raise InvalidArgument(
        f"{what} is seconds, a timedelta or text such as 7d, 1h30m, 5m or 90s, not {named(text)}"
    )


def _instead(time: Any) -> str:
    """Say what to write instead of seconds since 1970."""
    is_number = isinstance(time, int | float) and not isinstance(time, bool)
    return ": write datetime.fromtimestamp(seconds, UTC)" if is_number else ""


def _parse(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"{named(text)} is no ISO time: a time is an aware datetime or ISO text such as "
            "2026-11-20T08:00:00Z"
        ) from None


def _nanosecond(moment: datetime) -> int:
    """Nanoseconds behind the microsecond; some classes count those of the second."""
    return int(getattr(moment, "nanosecond", 0)) % 1000


def _finer(text: str) -> int:
    """Nanoseconds behind the microsecond, rounded up: `fromisoformat` drops these digits."""
    import re  # text is rare

    found = re.search(r"[.,]\d{6}(\d+)\s*[Z+-]", text)
    if found is None:
        return 0
    whole, rest = found[1][:3].ljust(3, "0"), found[1][3:]
    return int(whole) + (rest.strip("0") != "")


def _checked(time: Time | int, ns: int) -> int:
    if -_NS_MAX <= ns <= _NS_MAX:
        return ns
    raise InvalidArgument(
        f"{shown(time)} lies beyond the years 1677 to 2262 that a record can keep"
    )
