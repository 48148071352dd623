"""Step 2: how fast it goes without pauses: the same flights into another topic, and back.

These figures are from one run on a machine that does other things too. For figures to compare,
benches/README.md has the method.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import falaj
from falaj.demo.failed import Failed
from falaj.demo.figures import Timed
from falaj.demo.flights import ORIGINS
from falaj.demo.workers import Crew

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BATCHED", "TOPIC", "rates"]

TOPIC = "flights-at-full-speed"
BATCHED = "flights-in-batches"
# Records an append, as in a service that collects records before it appends them.
BATCH = 1_000


def rates(store: Path, limit: int | None, expected: int, size: int) -> list[Timed]:
    """Time appending and reading.

    Args:
        store: Directory of the store, where the topics exist and are empty.
        limit: Only the first so many flights.
        expected: How many flights that is.
        size: Bytes of their values.

    Returns:
        The measurements.

    Raises:
        Failed: There are more or fewer records than were appended.
    """
    appending = Timed("3 writers, one by one", expected, size, _append(store, limit))
    with falaj.open(store) as opened, opened.topic(TOPIC) as topic:
        if len(topic) != expected:
            raise Failed(f"the topic {TOPIC} has {len(topic):,} flights and not {expected:,}")
        begun = time.perf_counter()
        records = [
            record.to_bytes() if record.key is None else (record.key, record.to_bytes())
            for record in topic
        ]
        reading = Timed("reader, one by one", expected, size, time.perf_counter() - begun)
        begun = time.perf_counter()
        for batch in topic.batches():
            batch.to_list()
        lists = Timed("reader, in batches", expected, size, time.perf_counter() - begun)
    with falaj.open(store) as opened, opened.topic(BATCHED) as topic:
        begun = time.perf_counter()
        for first in range(0, expected, BATCH):
            topic.extend(records[first : first + BATCH])
        batched = Timed("1 writer, by the 1,000", expected, size, time.perf_counter() - begun)
    return [appending, batched, reading, lists]


def _append(store: Path, limit: int | None) -> float:
    """Append with three processes at once; return the seconds from the first to the last."""
    begun, ended = [], []
    with Crew() as crew:
        producers = [
            crew.start(origin, "falaj.demo.producer", store, TOPIC, origin, limit or 0)
            for origin in ORIGINS
        ]
        ready = 0
        for _, message in crew.messages():
            if "ready" in message:
                ready += 1
                if ready == len(producers):
                    for producer in producers:
                        producer.say(seconds=0)
            else:
                begun.append(message["begun"])
                ended.append(message["ended"])
    return float(max(ended) - min(begun))
