"""Which of several origins go on, and which were left behind.

Owns the choice among the origins of some places, as pure functions. A store that was restored from
an origin has the records of that one, and goes on as an origin of its own. So of each store only
the *head* is read: the origin that is no other's parent. Invariant: two heads of a store are never
read together, since they may have the same records. Opening them is left to `_origins`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from falaj.errors import TopicDeleted, UnknownOrigin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from falaj.ship.shapes import Parent

__all__ = ["Known", "Left", "heads", "matching", "resumed", "two_heads"]


class Known(NamedTuple):
    """An origin, and where it was found: `source` is a place, or a store that is open."""

    store: str
    origin: str
    parent: Parent | None
    where: str
    source: Any = None


class Left(NamedTuple):
    """Where a job stands in a topic of an origin.

    Attributes:
        offsets: The next offset of each partition.
        generation: The generation of the topic that they count in; "" if it is not known.
    """

    offsets: dict[int, int]
    generation: str = ""


def heads(known: Iterable[Known]) -> dict[str, list[Known]]:
    """Return, for each store, the origins that no other one came from.

    Example:
        >>> from falaj.ship.shapes import Parent
        >>> old = Known("s", "a", None, "place")
        >>> new = Known("s", "b", Parent("a", 7, ()), "place")
        >>> [head.origin for head in heads([old, new])["s"]]
        ['b']
    """
    every = list(known)
    parents = {each.parent.origin for each in every if each.parent is not None}
    found: dict[str, list[Known]] = {}
    for each in every:
        if each.origin not in parents:
            found.setdefault(each.store, []).append(each)
    return found


def matching(known: Mapping[str, Known], wanted: Sequence[str]) -> list[Known]:
    """Return the origins that are named by how their ids begin.

    Raises:
        UnknownOrigin: One of the names fits none, or several.
    """
    found: dict[str, Known] = {}
    for begin in wanted:
        fit = [each for each in known.values() if begin and each.origin.startswith(begin)]
        if len(fit) != 1:
            raise UnknownOrigin(
                f"there is not one origin {begin!r}: choose from {_listed(known.values())}"
            )
        found[fit[0].origin] = fit[0]
    return [*found.values()]


def two_heads(rivals: Sequence[Known]) -> UnknownOrigin:
    """Make the error of a store that goes on as two origins."""
    return UnknownOrigin(
        f"store {rivals[0].store} goes on as {len(rivals)} origins, and none came from "
        f"another: name those to read with origins=, from {_listed(rivals)}"
    )


def _listed(known: Iterable[Known]) -> str:
    return ", ".join(f"{each.origin} (in {each.where})" for each in known) or "none"


def resumed(
    known: Mapping[str, Known],
    offsets: Mapping[str, Left],
    origin: str,
    generation: str,
    partition: int,
) -> int | None:
    """Return where a job goes on in a partition of an origin; None at the first record.

    A job that read the parent goes on at the same offset. If it was ahead of the state that was
    restored, it goes on at the end of that state. The new origin's own records follow there.

    Args:
        known: The origins by id.
        offsets: Where the job stands, by origin.
        origin: The origin.
        generation: The generation of the topic there.
        partition: The partition.

    Raises:
        TopicDeleted: The offsets count in another topic of the same name.
    """
    most, seen, there = 2**63, {origin}, origin
    while there not in offsets:
        parent = known[there].parent if there in known else None
        if parent is None or parent.origin in seen:
            return None
        most = min(most, parent.end(generation, partition))
        there = parent.origin
        seen.add(there)
    left = offsets[there]
    if most and left.generation and left.generation != generation:
        raise TopicDeleted(
            f"in origin {origin} the topic was deleted, and another has its name now: take the "
            f"origin {there} out of the offsets to read that one from its first record"
        )
    at = left.offsets.get(partition)
    return None if at is None else min(at, most)
