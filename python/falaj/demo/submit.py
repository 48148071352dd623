"""Running the PySpark job, and reading what it wrote.

The job is a process of its own, whose output goes to a file. If it fails, the error quotes the line
that says why. Its results are read without Spark.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import falaj
from falaj.demo.failed import Failed
from falaj.demo.figures import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from falaj.demo.figures import Table

__all__ = ["FIGURES", "SUMMARY", "results", "submit"]

SUMMARY = "delays"
FIGURES = [field.name for field in fields(Tally)]
SECONDS_MAX = 300


def submit(store: Path, parquet: Path, checkpoint: Path, batch: int, log: Path) -> None:
    """Run the job and wait for it.

    Args:
        store: Directory of the store.
        parquet: Directory for its Parquet files, which replace those that are there.
        checkpoint: Checkpoint of the query that resumes.
        batch: How many flights a batch of the query takes.
        log: File for what Spark says.

    Raises:
        Failed: It ended with an error, or took too long.
    """
    given = map(str, (store, parquet, checkpoint, batch))
    command = [sys.executable, "-m", "falaj.demo.job", *given]
    with log.open("wb") as words:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, timeout=SECONDS_MAX
            )
        except subprocess.TimeoutExpired:
            raise Failed(
                f"the PySpark job did not end within {SECONDS_MAX} seconds; see {log}"
            ) from None
    if done.returncode:
        lines = log.read_text(errors="replace").splitlines()
        said = [line for line in lines if "Error" in line or "falaj.errors" in line]
        raise Failed(f"the PySpark job failed; {log} says: {said[-1] if said else 'nothing'}")


def results(store: Path, parquet: Path) -> tuple[Table, dict[str, Tally]]:
    """Read what the job wrote.

    Args:
        store: Directory of the store.
        parquet: Its Parquet files.

    Returns:
        Sums by carrier and hour from Parquet, and by carrier from the topic.

    Raises:
        Failed: A record's key is not its carrier.
    """
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(parquet).to_pylist()
    with falaj.open(store, read_only=True) as opened, opened.topic(SUMMARY) as topic:
        records = [(record.key, record.value) for record in topic]
    for key, row in records:
        if key != row["carrier"].encode():
            raise Failed(f"a summary of {row['carrier']} has the key {key!r}")
    return (
        {(row["carrier"], row["hour"]): _tally(row) for row in rows},
        {row["carrier"]: _tally(row) for _, row in records},
    )


def _tally(row: Mapping[str, Any]) -> Tally:
    return Tally(*(row[name] for name in FIGURES))
