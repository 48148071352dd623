"""Spark over a topic beside the same over Parquet, in one session of two cores.

A source whose batches are ready shows the cost of Python's data source API itself: the same
columns, types and sizes, one batch repeated. A sink that drops its input shows the cost of writing.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import pyarrow
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

import falaj.spark.session
from runner import data
from runner.analysing import Work, in_turns
from runner.beside import clocked
from runner.data import TINY_TOPIC, TOPIC, Table
from runner.results import Measured

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from runner.sizes import Sizes

CORES = 2
COLUMNS = "partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"
BATCH_ROWS = 10_000
TASKS = 4


class Piece(InputPartition):
    """A number of records."""

    def __init__(self, records: int) -> None:
        """Keep the number."""
        super().__init__(records)
        self.records = records


def _ready(names: tuple[str, ...], value_bytes: int) -> pyarrow.RecordBatch:
    """Make a batch."""
    rows = range(BATCH_ROWS)
    columns = {
        "partition": pyarrow.array([0] * BATCH_ROWS, pyarrow.int32()),
        "offset": pyarrow.array(rows, pyarrow.int64()),
        "timestamp": pyarrow.array(rows, pyarrow.timestamp("us", tz="UTC")),
        "key": pyarrow.array([f"key-{row:08}".encode() for row in rows], pyarrow.binary()),
        "value": pyarrow.array([b"v" * value_bytes] * BATCH_ROWS, pyarrow.binary()),
    }
    return pyarrow.record_batch({name: columns[name] for name in names})


class ReadySource(DataSource):
    """A table of ready-made batches."""

    @classmethod
    def name(cls) -> str:
        """Its format."""
        return "ready"

    def schema(self) -> str:
        """All columns."""
        return COLUMNS

    def reader(self, schema: StructType) -> ReadyReader:
        """Read the columns of a schema."""
        return ReadyReader(tuple(schema.names), dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DroppingWriter:
        """Make a writer that drops its input."""
        return DroppingWriter()


class ReadyReader(DataSourceReader):
    """Yields one batch repeatedly."""

    def __init__(self, names: tuple[str, ...], options: dict[str, str]) -> None:
        """Keep the schema and the number of records."""
        self._names = names
        self._records = int(options["records"])
        self._value_bytes = int(options["valuebytes"])

    def partitions(self) -> Sequence[Piece]:
        """Divide the records among tasks as falaj does."""
        tasks = min(TASKS, -(-self._records // BATCH_ROWS))
        return [Piece(self._records // tasks)] * tasks

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield them."""
        batch = _ready(self._names, self._value_bytes)
        left = partition.value
        while left > 0:
            yield batch if left >= BATCH_ROWS else batch.slice(0, left)
            left -= BATCH_ROWS


class DroppingWriter(DataSourceArrowWriter):
    """Keeps nothing."""

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Look at each batch, and drop it."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


def measure(place: Path, sizes: Sizes, session: SparkSession | None = None) -> list[Measured]:
    """Measure all rows of Spark."""
    table = data.make(place / "table", sizes)
    spark = session or falaj.spark.session.local(
        "bench",
        cores=CORES,
        spark_driver_memory="3g",
        spark_sql_shuffle_partitions="2",
    )
    # Workers need not import this module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    try:
        spark.dataSource.register(ReadySource)
        return [*_reading(spark, table, sizes), *_writing(spark, table, sizes, place)]
    finally:
        if session is None:
            spark.stop()


def _reading(spark: SparkSession, table: Table, sizes: Sizes) -> list[Measured]:
    def ours(columns: str = COLUMNS, topic: str = TOPIC) -> DataFrame:
        reader = spark.read.format("falaj").schema(columns)
        return reader.options(store=str(table.store), subscribe=topic).load()

    def parquet() -> DataFrame:
        return spark.read.parquet(str(table.parquet))

    def ready(columns: str = COLUMNS) -> DataFrame:
        reader = spark.read.format("ready").schema(columns)
        return reader.options(records=table.records, valueBytes=sizes.value_bytes).load()

    # The schema tells Python's sources which columns are wanted; Parquet finds out by itself.
    value, key = "value BINARY", "key BINARY"
    works: dict[str, Work] = {
        "spark_sum floor": lambda: _sum(parquet()),
        "spark_sum": lambda: _sum(ours(value)),
        "spark_sum_ready": lambda: _sum(ready(value)),
        "spark_group floor": lambda: _group(parquet()),
        "spark_group": lambda: _group(ours(key)),
        "spark_group_ready": lambda: _group(ready(key)),
        "spark_all floor": lambda: _noop(parquet()),
        "spark_all": lambda: _noop(ours()),
        "spark_all_ready": lambda: _noop(ready()),
        "spark_keys": lambda: _noop(ours(key)),
        "filled": lambda: _fill(table),
    }
    times = in_turns(sizes, table.records, works)
    floors = {
        "spark_sum": "spark_sum floor",
        "spark_group": "spark_group floor",
        "spark_all": "spark_all floor",
        "spark_keys": "spark_all",
        "spark_sum_ready": "spark_sum floor",
        "spark_group_ready": "spark_group floor",
        "spark_all_ready": "spark_all floor",
    }
    found = [Measured(name, times[name], times[floor]) for name, floor in floors.items()]
    # A query runs on all cores for its whole time; the compiled part fills batches on one.
    shares = [
        filled / (CORES * whole)
        for filled, whole in zip(times["filled"], times["spark_all"], strict=True)
    ]
    tiny = [
        clocked(lambda: ours(key, TINY_TOPIC).count()) for _ in range(sizes.warmups + sizes.rounds)
    ]
    return [
        *found,
        Measured("spark_rust", shares, unit="share"),
        Measured("spark_tiny", tiny[sizes.warmups :]),
    ]


def _sum(frame: DataFrame) -> Any:
    return frame.selectExpr("sum(length(value))").collect()


def _group(frame: DataFrame) -> Any:
    return frame.groupBy("key").count().write.format("noop").mode("overwrite").save()


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _fill(table: Table) -> None:
    """Fill the batches that Spark takes, and do nothing with them."""
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    for _ in table.topic().to_reader(columns=names, batch_rows=BATCH_ROWS)._stream:
        pass


def _writing(spark: SparkSession, table: Table, sizes: Sizes, place: Path) -> list[Measured]:
    """Write the records of a Parquet file into a topic, and into another file."""
    frame = spark.read.parquet(str(table.parquet)).select("key", "value", "timestamp")
    copy, store = place / "copy.parquet", place / "copies"
    with falaj.open(store):
        pass

    def floor() -> None:
        frame.write.mode("overwrite").option("compression", "none").parquet(str(copy))

    def ours() -> None:
        writer = frame.write.format("falaj").mode("append")
        writer.options(store=str(store), topic="copy", partitions=1).save()

    def dropped() -> None:
        frame.write.format("ready").mode("append").save()

    def round_() -> tuple[int, int, int]:
        times = clocked(floor), clocked(ours), clocked(dropped)
        shutil.rmtree(copy)
        with falaj.open(store) as opened:
            opened.topic("copy").delete()
        return times

    rounds = [round_() for _ in range(sizes.warmups + sizes.rounds)][sizes.warmups :]
    floors, *found = ([t / table.records for t in times] for times in zip(*rounds, strict=True))
    names = ("spark_sink", "spark_sink_dropped")
    return [Measured(name, times, floors) for name, times in zip(names, found, strict=True)]
