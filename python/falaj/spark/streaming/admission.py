"""How many offsets a micro-batch covers: `maxOffsetsPerTrigger`, divided among partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

__all__ = ["admit"]

K = TypeVar("K", bound="Hashable")


def admit(waiting: Mapping[K, int], limit: int, turn: int) -> dict[K, int]:
    """Divide a limit in proportion to the waiting records, and leave no partition out for long.

    Every partition with waiting records gets at least one, so a large partition cannot starve a
    small one. If the limit is too small for that, the partitions take turns.

    Args:
        waiting: How many records wait in each partition.
        limit: Most records in total.
        turn: How many records were admitted before; it chooses the partition whose turn it is.

    Returns:
        How many records of each partition. Their sum is the limit, or less if fewer records wait.
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
