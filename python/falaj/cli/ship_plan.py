"""Estimate what shipping a store costs a month, by the prices of a large provider.

Owns the prices and the arithmetic. It reads sizes and times of the store, and sends nothing.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from falaj.cli.tables import Column, table
from falaj.cli.units import size
from falaj.codecs import RAW
from falaj.ship.shipper import CHECKPOINT_NUMBERS, FLUSH_BYTES, FLUSH_S, SPACE_S

if TYPE_CHECKING:
    from falaj._store import Store

__all__ = ["plan_of", "print_plan"]

MONTH_S = 30 * 86_400
PUT_DOLLARS = 5.0 / 1e6
GET_DOLLARS = 0.4 / 1e6
GIB_DOLLARS = 0.023
"""Amazon S3 Standard in us-east-1, late 2026: requests, and a GiB for a month."""
PUT_S = 0.03
"""Seconds of a small create in a bucket of the same region."""


def plan_of(bytes_a_month: float, stored: int) -> list[dict[str, Any]]:
    """Estimate requests and dollars a month.

    Args:
        bytes_a_month: How fast the logs grow.
        stored: Bytes that the store has now.
    """
    most = MONTH_S / FLUSH_S
    flushes = (
        min(most, bytes_a_month)
        if bytes_a_month < FLUSH_BYTES * most
        else (bytes_a_month / FLUSH_BYTES)
    )
    busy = MONTH_S / max(SPACE_S, PUT_S)
    most_busy = MONTH_S / SPACE_S
    bodies = 2 * bytes_a_month / FLUSH_BYTES  # once as they come, once in whole segments
    gib = (stored + bytes_a_month) / 2**30
    return [
        _row(
            "flushes, without waits", flushes + bodies + flushes / CHECKPOINT_NUMBERS, PUT_DOLLARS
        ),
        _row(f"flushes, with a wait at any time, {PUT_S * 1e3:.0f} ms a PUT", busy, PUT_DOLLARS),
        _row("flushes, with a wait at any time, at most", 2 * most_busy + bodies, PUT_DOLLARS),
        _row("each follower, at rest", MONTH_S, GET_DOLLARS),
        _row("each follower, busy, at most", MONTH_S / 0.05, GET_DOLLARS),
        {"what": f"storage, {size(gib * 2**30)} after a month", "requests": 0}
        | {"dollars": round(gib * GIB_DOLLARS, 2)},
    ]


def _row(what: str, requests: float, dollars: float) -> dict[str, Any]:
    return {"what": what, "requests": round(requests), "dollars": round(requests * dollars, 2)}


def print_plan(store: Store, as_json: bool) -> None:
    """Print what shipping a store would cost."""
    stored = sum(log["live"] for log in store.info()["logs"])
    oldest = time.time_ns()
    for name in store.topics:
        topic = store.any_topic(name, codec=RAW)
        for number in topic.partitions:
            part = topic.partition(number)
            if len(part):
                oldest = min(oldest, part[0].timestamp_ns)
    seconds = max((time.time_ns() - oldest) / 1e9, 60.0)
    rows = plan_of(stored / seconds * MONTH_S, stored)
    if as_json:
        print(json.dumps(rows))
        return
    columns = (
        Column("what", "a month"),
        Column("requests", "requests", number=True),
        Column("dollars", "dollars", number=True),
    )
    table(columns, rows)
