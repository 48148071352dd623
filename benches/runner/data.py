"""The table that analytics read: a topic, and the same records in a Parquet file.

Each record has a key, a time and a value. Both hold the columns that a reader gets if it names
none. The file is uncompressed, as the topic is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.parquet

import falaj
from runner import machine

if TYPE_CHECKING:
    from pathlib import Path

    from runner.sizes import Sizes

TOPIC, TINY_TOPIC = "events", "tiny"
FIRST_NS = 1_760_000_000_000_000_000
STEP_NS = 1_000_000
# Two for each core that reads.
ROW_GROUPS = 4


@dataclass(frozen=True)
class Table:
    """The paths of both."""

    store: Path
    parquet: Path
    records: int
    key: bytes
    """One of the keys in it."""

    def topic(self) -> falaj.Topic[memoryview]:
        """Open the topic again, so that the next read verifies every block."""
        return falaj.open(self.store, read_only=True).topic(TOPIC, codec="raw")


def make(place: Path, sizes: Sizes) -> Table:
    """Write both."""
    chance = random.Random(sizes.seed)
    keys = [f"key-{i:08}".encode() for i in range(sizes.table_keys)]
    store, file = place / "store", place / "events.parquet"
    machine.warm(2 * sizes.tables * (sizes.value_bytes + 40))
    place.mkdir(parents=True, exist_ok=True)
    with falaj.open(store, sync="none") as opened:
        topic = opened.topic(TOPIC, codec="raw")
        for at in range(0, sizes.tables, sizes.batch):
            topic.extend(
                falaj.NewRecord(
                    chance.randbytes(sizes.value_bytes),
                    key=chance.choice(keys),
                    timestamp_ns=FIRST_NS + i * STEP_NS,
                )
                for i in range(at, at + sizes.batch)
            )
        opened.topic(TINY_TOPIC, codec="raw").extend([b"v" * sizes.value_bytes] * sizes.tiny)
        topic.flush()
        records = len(topic)
        # A batch at a time: a reader would not have all of it in memory either.
        reader = topic.to_reader()
        group = -(-records // ROW_GROUPS)
        with pyarrow.parquet.ParquetWriter(file, reader.schema, compression="none") as writer:
            for start in range(0, records, group):
                part = topic.to_arrow(start, min(start + group, records))
                writer.write_table(part, row_group_size=group)
    return Table(store, file, records, keys[0])


def columns(table: Table) -> pyarrow.Schema:
    """List the columns that both have."""
    return pyarrow.parquet.read_schema(table.parquet)
