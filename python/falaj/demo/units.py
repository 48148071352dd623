"""Figures as people read them: short, with their unit."""

from __future__ import annotations

import re

__all__ = ["bytes_text", "duration", "minutes", "percent", "rate", "short", "tenths"]

# What stands where there is no figure: an en dash.
NONE = "\u2013"


def duration(microseconds: float) -> str:
    """Write a time, two digits of it.

    Example:
        >>> duration(83.2), duration(1250), duration(2_000_000)
        ('83 µs', '1.2 ms', '2 s')
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{_two_digits(microseconds / size)} {unit}"
    return f"{_two_digits(microseconds)} µs"


def bytes_text(count: float) -> str:
    """Write a number of bytes.

    Example:
        >>> bytes_text(912), bytes_text(91_234_567)
        ('912 B', '91 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{_two_digits(count / size)} {unit}"
    return f"{count:.0f} B"


def rate(per_second: float) -> str:
    """Write how many a second.

    Example:
        >>> rate(1_234_567), rate(22_400), rate(90)
        ('1.2 M/s', '22 k/s', '90/s')
    """
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if per_second >= size:
            return f"{_two_digits(per_second / size)} {unit}/s"
    return f"{per_second:.0f}/s"


def percent(share: float | None) -> str:
    """Write a share; a dash where there is none.

    Example:
        >>> percent(0.2146), percent(None) == NONE
        ('21.5 %', True)
    """
    return NONE if share is None else f"{100 * share:.1f} %"


def minutes(value: float | None) -> str:
    """Write a delay in minutes; a dash where there is none.

    Example:
        >>> minutes(12.64), minutes(None) == NONE
        ('12.6 min', True)
    """
    return NONE if value is None else f"{value:.1f} min"


def tenths(value: float | None) -> str:
    """Write a number with one digit behind the point; a dash where there is none."""
    return NONE if value is None else f"{value:.1f}"


def short(airline: str) -> str:
    """Leave away what says only that it is an airline.

    Example:
        >>> short("Delta Air Lines Inc."), short("US Airways Inc."), short("Virgin America")
        ('Delta', 'US Airways', 'Virgin America')
    """
    return re.sub(r"(?<=...)( (Air ?[Ll]ines|Airways|Air|Inc\.|Co\.|Corporation))+$", "", airline)


def _two_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.1f}".removesuffix(".0")
