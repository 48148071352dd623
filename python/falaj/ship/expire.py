"""Deletes what a place no longer needs: the garbage of checkpoints older than the history.

Owns which checkpoints expire. Invariant: only what a checkpoint lists is deleted, once it is so old
that no restore reaches below it. Dates of the place itself are compared with each other, so no
clock of a shipper decides. Claims are never deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.ship import messages as say
from falaj.ship.driver import Driver, said

if TYPE_CHECKING:
    from falaj.ship.origin import Origin
    from falaj.ship.place import Listed

__all__ = ["KEPT", "expire"]

KEPT = 2
"""Checkpoints that are kept whatever their age."""


def expire(driver: Driver, history: float, done: set[int]) -> int:
    """Delete the garbage of old checkpoints, the oldest first, and all checkpoints before it.

    Args:
        driver: Holds the claim of the origin.
        history: Seconds for which earlier numbers can be restored.
        done: The checkpoints whose garbage this process deleted.

    Returns:
        How many checkpoints expired.
    """
    origin: Origin = driver.origin
    listed: list[Listed] = driver.patience(origin.checkpoints)
    if len(listed) <= KEPT:
        return 0
    oldest_kept = listed[-1].modified_us - round(history * 1e6)
    expired = 0
    for before, each in zip([None, *listed], listed[:-KEPT], strict=False):
        number = int(each.key[2:])
        if each.modified_us > oldest_kept:
            break
        if number in done:
            continue
        checkpoint = driver.patience(lambda number=number: origin.checkpoint(number))  # type: ignore[misc]
        if checkpoint is None:
            continue
        driver.send(say.Expire(said(checkpoint)))
        gone = list(checkpoint.garbage) + ([before.key] if before else [])
        for at in range(0, len(gone), 500):
            driver.patience(lambda some=gone[at : at + 500]: origin.delete(some))  # type: ignore[misc]
        done.add(number)
        expired += 1
    return expired
