"""The past of a place at a claim: the checkpoints a view came from, and objects that nothing needs.

Owns two questions that a shipper asks once, after its claim holds.

*Which checkpoints are in line?* Each checkpoint names the one before it, so the line is followed
downwards from the shipper's own. A shipper that was fenced may store one more checkpoint without
knowing it. That one is in no line once a later shipper began below it. It may list objects that the
later shipper needs, since the two packed different objects together. So only the garbage of
checkpoints in line is ever deleted. The later shipper lists the rest, once it is garbage there.

*Which objects are orphans?* Those of lower claims that the view does not have, and that no
checkpoint in line lists. A killed shipper leaves them: put before a number that never came, or that
came late and is void. Invariant: once they stand in a checkpoint of this claim, and that checkpoint
has expired, nothing may read them any more:

- Numbers behind the checkpoint are of this claim or a later one, and a valid number refers only to
  objects of its own claim. A number of a lower claim that lands late is void.
- Later checkpoints in line have objects of this claim or later ones, or those that were live here.
- Earlier numbers and checkpoints may need them, for a restore or a follower within the history.
  So an orphan waits as all garbage does: until the checkpoint that lists it has expired. Then
  all checkpoints below it are deleted, in line or not.
- A twin has the same claim, and objects of the same claim are never orphans.
- Equal content has another name under another claim, since the name begins with the claim.

Deleting is left to `expire`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from falaj.ship.handlers import closed
from falaj.ship.numbers import OBJECT
from falaj.ship.objects import Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from falaj.ship.objects import Patience
    from falaj.ship.origin import Origin

__all__ = ["Past", "look_back"]


class Past(NamedTuple):
    """The past at a claim.

    Attributes:
        line: The numbers of the checkpoints in line that the place still has.
        orphans: Keys of objects that nothing needs, and no checkpoint in line lists.
    """

    line: frozenset[int]
    orphans: list[str]


def look_back(origin: Origin, newest: int, claim: int, known: Set[str], patience: Patience) -> Past:
    """Follow the line down, and list objects; only after the claim holds.

    Args:
        origin: The origin in its place.
        newest: The checkpoint in line to begin with; 0 where there is none.
        claim: The claim that holds.
        known: The objects that the view has, or had since that checkpoint.
        patience: How long an answer is awaited.
    """
    line: set[int] = set()
    listed: set[str] = set()
    number = newest
    while number:
        outline = patience(lambda number=number: origin.outline(number))  # type: ignore[misc]
        if outline is None:
            break  # deleted, as all below it
        line.add(number)
        listed.update(outline.garbage)
        number = outline.before

    def orphans_of(kind: str) -> list[str]:
        found: list[str] = []
        with closed(_lower(origin, kind, claim)) as lower:
            for key in lower:
                if patience.stop.is_set():
                    raise Stopped
                if key not in known and key not in listed:
                    found.append(key)
        return found

    orphans = [
        key
        for kind in ("k", "s")
        for key in patience(lambda kind=kind: orphans_of(kind))  # type: ignore[misc]
    ]
    return Past(frozenset(line), orphans)


def _lower(origin: Origin, kind: str, claim: int) -> Iterator[str]:
    """List the objects of lower claims: the first ones, since keys begin with the claim."""
    with closed(origin.list_after(kind)) as listing:
        for each in listing:
            match = OBJECT.fullmatch(each.key)
            if match is None:
                continue  # another program's
            if int(match[1]) >= claim:
                return
            yield each.key
