"""Deletes what a place no longer needs: the garbage of checkpoints older than the history.

Owns which checkpoints expire. Invariant: only what a checkpoint in line lists is deleted, once it
is so old that no restore reaches below it. Dates of the place itself are compared with each other,
so no clock of a shipper decides. Claims are never deleted. `past` says which checkpoints are in
line. Where another shipper's checkpoint is the newest, nothing is deleted: the claim is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.ship import messages as say

if TYPE_CHECKING:
    from falaj.ship.driver import Driver
    from falaj.ship.origin import Origin
    from falaj.ship.place import Listed

__all__ = ["KEPT", "expire"]

KEPT = 2
"""Checkpoints that are kept whatever their age."""


def expire(driver: Driver, history: float, done: set[int]) -> int:
    """Delete the garbage of old checkpoints, the oldest first, and all checkpoints before them.

    Args:
        driver: Holds the claim of the origin, and knows its past.
        history: Seconds for which earlier numbers can be restored.
        done: The checkpoints whose garbage this process deleted.

    Returns:
        How many checkpoints expired.
    """
    origin: Origin = driver.origin
    listed: list[Listed] = driver.patience(origin.checkpoints)
    if not listed or _number(listed[-1]) != driver.view.checkpoint:
        return 0
    oldest_kept = listed[-1].modified_us - round(history * 1e6)
    line = [each for each in listed if _number(each) in driver.line]
    expired = 0
    for each in line[:-KEPT]:
        number = _number(each)
        if each.modified_us > oldest_kept:
            break
        if number in done:
            continue
        outline = driver.patience(lambda number=number: origin.outline(number))  # type: ignore[misc]
        if outline is None:
            continue
        garbage = tuple(outline.numbers)
        driver.send(say.Expire(say.Checkpoint(number, outline.claim, outline.hash, garbage)))
        below = [other.key for other in listed if _number(other) < number]
        listed = listed[len(below) :]
        gone = outline.garbage + below
        for at in range(0, len(gone), 500):
            driver.patience(lambda some=gone[at : at + 500]: origin.delete(some))  # type: ignore[misc]
        done.add(number)
        expired += 1
    return expired


def _number(checkpoint: Listed) -> int:
    return int(checkpoint.key[2:])
