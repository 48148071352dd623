"""How many offsets a micro-batch moves on by: `maxOffsetsPerTrigger`, divided among partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

__all__ = ["admit"]

K = TypeVar("K", bound="Hashable")


def admit(waiting: Mapping[K, int], limit: int, turn: int) -> dict[K, int]:
    """Divide a limit in proportion to what waits, and leave no partition out for long.

    Every partition gets one as long as the limit allows, so that a small one is not starved by a
    large one; where it does not even allow that, they take turns.

    Args:
        waiting: How many records wait in each partition.
        limit: Most records in all.
        turn: Whose turn it is, in records: goes up by what was admitted before.

    Returns:
        How many of each partition; never more than the limit in all, and all of it if there is as
        much.
    """
    lanes = [lane for lane, count in waiting.items() if count > 0]
    total = sum(waiting[lane] for lane in lanes)
    if total <= limit:
        return {lane: waiting[lane] for lane in lanes}
    if limit <= len(lanes):
        return {lanes[(turn + i) % len(lanes)]: 1 for i in range(limit)}
    spare, rest = limit - len(lanes), total - len(lanes)
    shares = {lane: 1 + (waiting[lane] - 1) * spare // rest for lane in lanes}
    left = limit - sum(shares.values())
    for lane in lanes:
        more = min(left, waiting[lane] - shares[lane])
        shares[lane] += more
        left -= more
    return shares
