"""Costs of shipping beside bytes: idle requests, objects of a slow topic, memory.

Memory is what no file backs, beyond that of the same process before it began to ship: it had
imported falaj, and opened the store and the place.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import falaj
from falaj.ship.place import open_place
from falaj.ship.shipper import Options, Shipper
from runner.bucket.shipping import shipping
from runner.results import Measured

if TYPE_CHECKING:
    from pathlib import Path

    from runner.bucket.places import Places
    from runner.sizes import Sizes

__all__ = ["measure"]

MB = 1_000_000


def measure(of: Places, place: Path, sizes: Sizes) -> list[Measured]:
    """Measure memory while a log grows, then an idle shipper; then count objects."""
    return [*_memory_and_idle(of, place / "large", sizes), _objects(of, place / "slow", sizes)]


def _memory_and_idle(of: Places, folder: Path, sizes: Sizes) -> list[Measured]:
    values = [os.urandom(sizes.value_bytes)] * sizes.batch
    with falaj.open(folder) as store:
        topic = store.topic("large", codec="bytes")
        topic.append(b"first")
        with shipping(folder, of.url("server", "large")) as child:
            for _ in range(0, 2 * sizes.shipped_mb * MB, sizes.value_bytes * sizes.batch):
                topic.extend(values)
            topic.append(b"last", sync="remote", timeout=300)
            before = child.ask()
            while True:  # sealed segments are still on their way
                time.sleep(max(sizes.idle_shipper_s / 2, 0.1))  # sleep: long enough to seal one
                now = child.ask()
                if now["requests"] == before["requests"]:
                    break
                before = now
            now = child.ask(quiet=True)
            time.sleep(sizes.idle_shipper_s)  # sleep: this is what is measured
            after = child.ask()
    used = (after["processor_s"] - now["processor_s"]) / sizes.idle_shipper_s
    return [
        Measured("memory", [now["memory"] / MB], unit="MB"),
        Measured("idle_requests", [after["requests"] - now["requests"]], unit="requests"),
        Measured("idle_shipper_cpu", [used], unit="share"),
    ]


def _objects(of: Places, folder: Path, sizes: Sizes) -> Measured:
    """Make many small flushes with no history to keep, and count what lies in the place."""
    url = of.url("server", "slow")
    with falaj.open(folder) as store:
        topic = store.topic("slow", codec="bytes")
        topic.append(b"first")
        shipper = Shipper(store, open_place(url), Options(history=0.0))
        left = sizes.flushes

        def told(_shipped: object) -> None:
            nonlocal left
            left -= 1
            if left > 0:
                topic.append(b"one more")

        shipper.run(once=True, told=told)
        if shipper.flushes != sizes.flushes:
            raise AssertionError(f"{shipper.flushes} flushes, not {sizes.flushes}")
    return Measured("objects", [len(list(open_place(url).list_after("")))], unit="objects")
