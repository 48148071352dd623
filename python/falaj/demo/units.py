"""Figures of flights as people read them; those of any report are `falaj.pages.units`."""

from __future__ import annotations

import re

from falaj.pages.units import NONE

__all__ = ["minutes", "short", "tenths"]


def minutes(value: float | None) -> str:
    """Write a delay in minutes; a dash where there is none.

    Example:
        >>> minutes(12.64), minutes(None) == NONE
        ('12.6 min', True)
    """
    return NONE if value is None else f"{value:.1f} min"


def tenths(value: float | None) -> str:
    """Write a number with one digit after the point; a dash where there is none."""
    return NONE if value is None else f"{value:.1f}"


def short(airline: str) -> str:
    """Leave out the words that only say that it is an airline.

    Example:
        >>> short("Delta Air Lines Inc."), short("US Airways Inc."), short("Virgin America")
        ('Delta', 'US Airways', 'Virgin America')
    """
    return re.sub(r"(?<=...)( (Air ?[Ll]ines|Airways|Air|Inc\.|Co\.|Corporation))+$", "", airline)
