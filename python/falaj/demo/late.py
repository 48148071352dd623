"""Step 3: a streaming query copies flights that left late to a topic of their own, and is killed.

As a process it runs until all flights are done. But the demo kills it when its second batch is in
the log, before Spark notes that. The PySpark job of the next step starts the query again, from its
checkpoint. PySpark 4.1 takes all flights as one batch; the demo kills it when that is in the log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import falaj
from falaj.demo.failed import Failed
from falaj.demo.follower import LATE_MINUTES
from falaj.demo.stream import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LATE", "copy", "interrupted", "per_batch"]

LATE = "late"
BATCHES = 6
# The query is killed when so many of its batches are in the log.
KILL_AT = 2
SECONDS_MAX = 120
_POLL_SECONDS = 0.2


def per_batch(flights: int) -> int:
    """Divide the flights among the query's batches."""
    return -(-flights // BATCHES)


def copy(spark: SparkSession, store: Path, checkpoint: Path, batch: int) -> None:
    """Run the query from its checkpoint until there are no more flights.

    Args:
        spark: The session.
        store: Directory of the store.
        checkpoint: Directory of the checkpoint.
        batch: Flights a batch, where this PySpark has an option for it.
    """
    reader = spark.readStream.format("falaj")
    if _has_limits():
        reader = reader.option("maxOffsetsPerTrigger", batch)
    flights = reader.options(
        store=str(store), subscribe=TOPIC, startingOffsets="earliest", includeHeaders="true"
    ).load()
    delay = "from_json(CAST(value AS STRING), 'dep_delay INT').dep_delay"
    writer = (
        flights.where(f"{delay} >= {LATE_MINUTES}")
        .select("key", "value", "headers", "timestamp")
        .writeStream.format("falaj")
        .options(store=str(store), topic=LATE, checkpointLocation=str(checkpoint))
    )
    writer.trigger(availableNow=True).start().awaitTermination()


def interrupted(store: Path, checkpoint: Path, batch: int, log: Path) -> int | None:
    """Run the query as a process, and kill it on the way.

    Args:
        store: Directory of the store.
        checkpoint: Directory of the checkpoint.
        batch: How many flights a batch takes.
        log: File for what Spark says.

    Returns:
        How many flights it had copied; None where it was done before it could be killed.

    Raises:
        Failed: It ended with an error, or took too long.
    """
    command = [sys.executable, "-m", "falaj.demo.late", str(store), str(checkpoint), str(batch)]
    with log.open("wb") as words:
        # A session of its own: Java is killed with it.
        query = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True
        )
    try:
        found = _watch(query, store, log)
    finally:
        if query.poll() is None:
            os.killpg(query.pid, signal.SIGKILL)
        query.wait()
    if found is None and query.returncode:
        raise Failed(f"the streaming query ended with code {query.returncode}; see {log}")
    return found


def _watch(query: subprocess.Popen[bytes], store: Path, log: Path) -> int | None:
    """Wait for the batch after which to kill it; a batch becomes visible all at once."""
    until, ends = time.monotonic() + SECONDS_MAX, [0]
    kill_at = KILL_AT if _has_limits() else 1
    with falaj.open(store, read_only=True) as opened, opened.topic(LATE) as topic:
        while len(ends) <= kill_at:
            if query.poll() is not None:
                return None
            if time.monotonic() > until:
                raise Failed(f"the streaming query took over {SECONDS_MAX} seconds; see {log}")
            for _ in topic.follow(start=ends[-1], timeout=_POLL_SECONDS):
                ends.append(topic.end_offset)
                break
    return ends[-1]


def _has_limits() -> bool:
    """Say whether this PySpark takes a stream in several batches."""
    from falaj.spark.streaming.stream import HAS_LIMITS

    return HAS_LIMITS


def main(store: Path, checkpoint: Path, batch: int) -> None:
    """Run the query."""
    from falaj.spark import session

    copy(session.local("falaj demo, late flights"), store, checkpoint, batch)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
