"""Figures as people read them: short, with their unit."""

from __future__ import annotations

__all__ = ["NONE", "bytes_text", "duration", "percent", "rate", "span"]

# Stands where there is no figure: an en dash.
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


def span(seconds: float) -> str:
    """Write a time of any length, by its two largest units.

    Example:
        >>> span(0.0012), span(59), span(3_725), span(31_536_000)
        ('1.2 ms', '59 s', '1 h 2 min', '365 d')
    """
    if seconds < 60:
        return duration(seconds * 1e6)
    left, parts = round(seconds), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        whole, left = divmod(left, size)
        parts += [(whole, unit)]
    first = next(place for place, (whole, _) in enumerate(parts) if whole)
    return " ".join(f"{whole:,} {unit}" for whole, unit in parts[first : first + 2] if whole)


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
        >>> rate(1_234_567), rate(22_400), rate(90), rate(0.0107)
        ('1.2 M/s', '22 k/s', '90/s', '0.011/s')
    """
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if per_second >= size:
            return f"{_two_digits(per_second / size)} {unit}/s"
    return f"{per_second:.0f}/s" if per_second >= 10 or not per_second else f"{per_second:.2g}/s"


def percent(share: float | None) -> str:
    """Write a share; a dash where there is none.

    Example:
        >>> percent(0.2146), percent(None) == NONE
        ('21.5 %', True)
    """
    return NONE if share is None else f"{100 * share:.1f} %"


def _two_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.1f}".removesuffix(".0")
