"""Appends that wait for the place, beside a raw put of the same client, in turns.

Each put of both sides takes `put_delay_s` longer, as the way to a bucket does. Without it a put on
loopback takes a millisecond, and the figure says how long falaj itself takes.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from typing import TYPE_CHECKING

import falaj
from runner.bucket.places import Counted
from runner.bucket.shipping import shipping
from runner.results import Measured

if TYPE_CHECKING:
    from pathlib import Path

    from runner.bucket.places import Places
    from runner.sizes import Sizes

__all__ = ["measure"]

_BODY = os.urandom(1_000)
_PAUSE_S = 0.05


def measure(of: Places, place: Path, sizes: Sizes) -> list[Measured]:
    """Measure one append alone, a loop, and several threads; each round is a median."""
    rounds: dict[str, list[tuple[float, float]]] = {}
    for name, delay_s in (("", sizes.put_delay_s), ("near_", 0.0)):
        url, store = of.url("server", f"{name}waited"), place / f"{name}store"
        raw = Counted(of.url("server", f"{name}raw"), delay_s)
        with falaj.open(store) as opened:
            topic = opened.topic("waited", codec="bytes")
            topic.append(b"first")
            with shipping(store, url, delay_s):
                topic.append(b"second", sync="remote", timeout=60)
                for number in range(sizes.rounds + 1):
                    found = {f"{name}alone": _alone(topic, raw, sizes.puts, number)}
                    if not name:
                        found["loop"] = _loop(topic, raw, 1, sizes, number)
                        found["busy"] = _loop(topic, raw, sizes.remote_threads, sizes, number)
                    for key, pair in found.items():
                        if number > 0:
                            rounds.setdefault(key, []).append(pair)
    return [
        Measured(key, [ours for ours, _ in pairs], [floor for _, floor in pairs])
        for key, pairs in rounds.items()
    ]


def _append(topic: falaj.Topic[bytes]) -> int:
    begin = time.perf_counter_ns()
    topic.append(_BODY, sync="remote", timeout=60)
    return time.perf_counter_ns() - begin


def _put(raw: Counted, key: str) -> int:
    begin = time.perf_counter_ns()
    if not raw.put_new(key, _BODY):
        raise AssertionError("a raw put created nothing")
    return time.perf_counter_ns() - begin


def _alone(topic: falaj.Topic[bytes], raw: Counted, times: int, number: int) -> tuple[float, float]:
    ours, floor = [], []
    for at in range(times):
        time.sleep(_PAUSE_S)  # sleep: nothing is under way when the next append comes
        ours.append(_append(topic))
        floor.append(_put(raw, f"alone/{number}-{at}"))
    return statistics.median(ours), statistics.median(floor)


def _loop(
    topic: falaj.Topic[bytes], raw: Counted, threads: int, sizes: Sizes, number: int
) -> tuple[float, float]:
    ours: list[int] = []

    def work() -> None:
        ours.extend(_append(topic) for _ in range(sizes.puts))

    running = [threading.Thread(target=work) for _ in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    floor = [_put(raw, f"loop/{threads}-{number}-{at}") for at in range(sizes.puts)]
    return statistics.median(ours), statistics.median(floor)
