"""The follower: reads flights as they are appended and keeps a table of delays per carrier.

A latency is the time from a record's timestamp to the moment when this process has read it. The
producer takes the timestamp right before it appends, and both use the same clock.
"""

from __future__ import annotations

import json
import math
import sys
import time
from array import array
from collections import Counter, defaultdict
from typing import Any

import falaj
from falaj.demo.messages import say

__all__ = ["Delays", "histogram", "main", "percentiles"]

TELL_EVERY_SECONDS = 0.1
LATE_MINUTES = 15
# Bars of the histogram, a factor of 2 ** (1 / 4) wide.
BARS_PER_DOUBLING = 4
# Latencies that the live figure looks back on.
RECENT = 2_000


class Delays:
    """Departure delays per carrier, and how many flights each producer has in."""

    def __init__(self) -> None:
        self.flights: Counter[str] = Counter()
        self.departed: Counter[str] = Counter()
        self.minutes: Counter[str] = Counter()
        self.late: Counter[str] = Counter()
        self.producers: Counter[str] = Counter()

    def add(self, flight: dict[str, Any], producer: str) -> None:
        """Take a flight in; one without a delay never departed."""
        carrier, delay = flight["carrier"], flight["dep_delay"]
        self.producers[producer] += 1
        self.flights[carrier] += 1
        if delay is not None:
            self.departed[carrier] += 1
            self.minutes[carrier] += delay
            self.late[carrier] += delay >= LATE_MINUTES

    def table(self) -> dict[str, tuple[int, int, int, int]]:
        """Flights, departed, minutes and late ones per carrier."""
        return {
            carrier: (flights, self.departed[carrier], self.minutes[carrier], self.late[carrier])
            for carrier, flights in self.flights.items()
        }


def histogram(latencies_ns: array[int]) -> list[tuple[float, int]]:
    """Count latencies in bars; each is given by its lower edge in microseconds."""
    bars: defaultdict[int, int] = defaultdict(int)
    for latency in latencies_ns:
        bars[math.floor(BARS_PER_DOUBLING * math.log2(max(latency, 1_000) / 1_000))] += 1
    return [(2.0 ** (bar / BARS_PER_DOUBLING), bars[bar]) for bar in sorted(bars)]


def percentiles(latencies_ns: array[int]) -> dict[str, float]:
    """Median, p99, p99.9 and the longest, in microseconds."""
    ordered = sorted(latencies_ns)
    last = len(ordered) - 1
    places = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {name: ordered[round(place * last)] / 1_000 for name, place in places.items()}


def main(path: str, name: str, expected: int) -> None:
    """Run the follower, until every flight is there."""
    delays, latencies = Delays(), array("q")
    told = 0.0
    # Not read-only: a read-only reader cannot request a wake-up, and polls each millisecond.
    with falaj.open(path) as store, store.topic(name) as topic, topic.follow() as follower:
        say(ready=True)
        for record in follower:
            now = time.time_ns()
            latencies.append(now - record.timestamp_ns)
            producer = dict(record.headers)["producer"] or b""
            delays.add(json.loads(record.to_bytes()), producer.decode())
            if now / 1e9 - told >= TELL_EVERY_SECONDS:
                told = now / 1e9
                tell(delays, latencies)
            if len(latencies) == expected:
                break
    tell(delays, latencies)
    say(
        histogram=histogram(latencies),
        percentiles=percentiles(latencies),
        cpu_seconds=time.process_time(),
    )


def tell(delays: Delays, latencies: array[int]) -> None:
    """Report the progress."""
    say(
        time=time.time(),
        producers=delays.producers,
        carriers=delays.table(),
        median=percentiles(latencies[-RECENT:])["p50"],
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
