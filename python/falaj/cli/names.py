"""Names that were mistyped: the nearest of those that there are, and sentences that list them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.cli.exits import Stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["nearest_first", "no_such", "see"]

_SHOWN = 8
_NEAR = 0.6


def _likeness(name: str, other: str) -> float:
    from difflib import SequenceMatcher  # only mistakes need it

    return SequenceMatcher(None, name.lower(), other.lower()).ratio()


def nearest_first(name: str, names: Iterable[str]) -> list[str]:
    """Sort names by how much each is like the one that was written.

    Example:
        >>> nearest_first("ordrs", ["readings", "orders"])
        ['orders', 'readings']
    """
    return sorted(names, key=lambda other: (-_likeness(name, other), other))


def see(wrong: str, name: str, names: Sequence[str], title: str) -> Stop:
    """Make the end of a command line with a word that there is not: the nearest, and the help.

    Example:
        >>> print(see("there is no option --jsno", "--jsno", ["--json", "--raw"], "falaj cat"))
        there is no option --jsno; did you mean --json? See `falaj cat --help`
    """
    near = nearest_first(name, names)[:1]
    if near and _likeness(name, near[0]) >= _NEAR:
        return Stop(f"{wrong}; did you mean {near[0]}? See `{title} --help`")
    return Stop(f"{wrong}; see `{title} --help`")


def no_such(kind: str, name: str, names: Sequence[str], where: object) -> Stop:
    """Make the end of a command that was given a name which is not there.

    Example:
        >>> print(no_such("topic", "ordrs", ["orders", "readings"], "events"))
        there is no topic 'ordrs' in events; it has orders, readings
    """
    if not names:
        return Stop(f"there is no {kind} {name!r} in {where}; it has no {kind}s")
    listed = nearest_first(name, names)
    more = len(listed) - _SHOWN
    has = ", ".join(listed[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return Stop(f"there is no {kind} {name!r} in {where}; it has {has}")
