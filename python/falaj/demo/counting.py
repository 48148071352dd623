"""Spark counts the flights of each airport in a bucket, in a process of its own.

Its one line of JSON goes to standard output; what Spark says goes to a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from falaj.demo.failed import Failed
from falaj.demo.messages import say

if TYPE_CHECKING:
    from pathlib import Path

    from falaj.demo.bucket import Bucket

__all__ = ["LOG", "counted", "main"]

LOG = "spark.log"
SECONDS_MAX = 300


def counted(place: Bucket, topic: str, log: Path) -> dict[str, int]:
    """Let Spark count the flights of each airport.

    Args:
        place: The bucket, which Spark reads as a store.
        topic: The topic of the flights.
        log: File for what Spark says.

    Raises:
        Failed: Spark ended with an error, or took too long.
    """
    command = [sys.executable, "-m", "falaj.demo.counting", place.url, topic]
    with log.open("wb") as words:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=words,
                env=os.environ | place.environment(),
                timeout=SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"Spark did not end within {SECONDS_MAX} seconds; see {log}") from None
    if done.returncode:
        raise Failed(f"Spark could not count; see {log}")
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(store: str, topic: str) -> None:
    """Count, and say the counts."""
    from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

    from falaj.spark import session

    spark = session.local("flights from a bucket")
    rows = spark.read.format("falaj").option("store", store).option("subscribe", topic)
    origin = F.get_json_object(F.col("value").cast("string"), "$.origin").alias("origin")
    found = rows.schema("value BINARY").load().select(origin).groupBy("origin").count().collect()
    spark.stop()
    say(**{row["origin"]: row["count"] for row in found})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
