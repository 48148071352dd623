"""Times, spans and sizes as people write and read them."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime

from falaj import _time
from falaj.errors import InvalidArgument

__all__ = [
    "SECONDS_MAX",
    "count",
    "moment",
    "place",
    "real",
    "show_time",
    "size",
    "size_from",
    "span",
    "span_from",
]

# ASCII alone, here and elsewhere: `\d` matches digits of all scripts.
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
_SECONDS = (86_400, 3_600, 60, 1)
_SIZE = re.compile(r"(\d+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_OFFSET = re.compile(r"-?\d+", re.ASCII)
_MOST = 2**63 - 1
_TOO_LARGE = "{} is larger than any offset, time or size: choose a smaller one"

SECONDS_MAX = 1e9
"""Longest wait that a command line may ask for: some thirty years."""


def place(text: str) -> int | datetime:
    """Read a place in a topic: an offset, a number of records from the end, or a time.

    Raises:
        InvalidArgument: It is neither.

    Example:
        >>> place("-10"), place("2026-11-20T08:00:00Z").year
        (-10, 2026)
    """
    return _whole(text) if _OFFSET.fullmatch(text) else _time.from_ns(moment(text))


def real(text: str) -> float:
    """Read a number as Python writes it; `float` itself reads digits of all scripts, and `1_000`.

    Raises:
        ValueError: It is none.

    Example:
        >>> real("1.5"), real("1e3")
        (1.5, 1000.0)
    """
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def _whole(digits: str, text: str = "", unit: int = 1) -> int:
    """Read a whole number; Python itself reads no thousands of digits."""
    number = int(digits) * unit if len(digits) < 30 else None
    if number is None or abs(number) > _MOST:
        raise InvalidArgument(_TOO_LARGE.format(text or digits))
    return number


def moment(text: str) -> int:
    """Read a time as nanoseconds since 1970: `5m` ago, an ISO time with a zone, or epoch seconds.

    Raises:
        InvalidArgument: It is none of these.

    Example:
        >>> moment("2026-11-20T08:00:00Z") == moment("1795161600")
        True
        >>> moment("1h30m") < moment("5m")
        True
    """
    span = _SPAN.fullmatch(text)
    if span and text:
        try:
            return _time.expect_ns(time.time_ns() - _ns(_seconds(span)))
        except InvalidArgument:
            raise InvalidArgument(
                f"{text} ago is before all that a record can keep: choose less"
            ) from None
    if _NUMBER.fullmatch(text):
        return _time.expect_ns(_ns(float(text)) if "." in text else _whole(text) * 10**9)
    try:
        return _time.to_ns(text)
    except InvalidArgument as error:
        if "time zone" in str(error):
            raise InvalidArgument(f"{text} has no time zone: end it in Z or +02:00") from None
        if "no ISO time" not in str(error):
            raise
        raise InvalidArgument(
            f"{text!r} is no time: write 5m or 1h30m for how long ago, or 2026-11-20T08:00:00Z"
        ) from None


def _ns(seconds: float) -> int:
    try:
        return round(seconds * 1e9)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{seconds} is no time in seconds since 1970") from None


def show_time(ns: int, form: str) -> str:
    """Write a time in a form: iso, local, unix or ns.

    Example:
        >>> show_time(1_500_000_000, "iso"), show_time(1_500_000_000, "unix")
        ('1970-01-01T00:00:01.500000Z', '1.500000000')
    """
    if form == "ns":
        return str(ns)
    if form == "unix":
        return f"{ns // 10**9}.{ns % 10**9:09}"
    when = _time.from_ns(ns)
    if form == "local":
        return when.astimezone().isoformat(timespec="microseconds")
    return when.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def span_from(text: str) -> float:
    """Read a span of time as seconds: `7d`, `1h30m`, `90s`, or a number of seconds.

    Raises:
        InvalidArgument: It is none.

    Example:
        >>> span_from("1h30m"), span_from("2.5")
        (5400.0, 2.5)
    """
    match = _SPAN.fullmatch(text)
    if match and text:
        return _expect_real(_seconds(match), text)
    if _NUMBER.fullmatch(text):
        return _expect_real(float(text), text)
    raise InvalidArgument(f"{text!r} is no span of time: write 7d, 1h30m or 90s")


def _seconds(span: re.Match[str]) -> float:
    return sum(float(n) * unit for n, unit in zip(span.groups("0"), _SECONDS, strict=True))


def _expect_real(seconds: float, text: str) -> float:
    """Refuse more than a float can be, which is no number at all."""
    if seconds == math.inf:
        raise InvalidArgument(_TOO_LARGE.format(text))
    return seconds


def span(seconds: float) -> str:
    """Write a span of time for people.

    Example:
        >>> span(604_800), span(5_400), span(2.5)
        ('7d', '1h30m', '2.5s')
    """
    written = ""
    for unit, length in zip("dhm", _SECONDS, strict=False):
        whole, seconds = divmod(seconds, length)
        written += f"{whole:.0f}{unit}" if whole else ""
    return written + (f"{seconds:g}s" if seconds or not written else "")


def size_from(text: str) -> int:
    """Read a size: `65536`, `64K`, `64KiB`, `1G`; a K is 1024.

    Raises:
        InvalidArgument: It is no size.

    Example:
        >>> size_from("64KiB")
        65536
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise InvalidArgument(f"{text!r} is no size: write bytes, or 64K, 64M, 1G")
    return _whole(match[1], text, 1 << 10 * _POWERS[match[2].upper()])


def size(number: float) -> str:
    """Write a size for people.

    Example:
        >>> size(999), size(1536), size(64 << 20)
        ('999 B', '1.5 KiB', '64.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def count(number: int, noun: str) -> str:
    """Write how many.

    Example:
        >>> count(1, "record"), count(1200, "record")
        ('1 record', '1,200 records')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
