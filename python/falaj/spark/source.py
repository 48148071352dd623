"""`FalajSource`: the class that Spark calls for `format("falaj")`.

Spark makes it on the driver and pickles it. It calls `partitions` in a planning process, and `read`
in workers. The class keeps nothing open between calls, so that Spark can pickle it. Writing is in
`falaj.spark.writing.sink`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    Filter,
    InputPartition,
)

from falaj.errors import InvalidArgument
from falaj.spark.reading import columns, ranges, sampling
from falaj.spark.reading.loss import BATCH_CHOICES, Loss
from falaj.spark.reading.options import ReadOptions
from falaj.spark.reading.pushdown import Pruning
from falaj.spark.writing.options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow
    from pyspark.sql.types import StructType

    from falaj.spark.streaming.stream import FalajStreamReader
    from falaj.spark.writing.sink import FalajStreamWriter, FalajWriter

__all__ = ["FalajReader", "FalajSource"]


class FalajSource(DataSource):
    """Topics of a store as a table and as a stream, with the columns of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "falaj"

    def schema(self) -> StructType:
        """All columns: `headers` if `includeHeaders` is true, and `value` as `values` says."""
        return columns.schema(ReadOptions.parse(self.options))

    def reader(self, schema: StructType) -> FalajReader:
        """Read a batch; a schema of the user chooses columns."""
        options = ReadOptions.parse(self.options, "batch")
        return PruningReader(options, schema) if options.pushdown else FalajReader(options, schema)

    def streamReader(self, schema: StructType) -> FalajStreamReader:  # noqa: N802
        """Read a stream; a schema of the user chooses columns."""
        from falaj.spark.streaming.stream import FalajStreamReader

        return FalajStreamReader(ReadOptions.parse(self.options, "stream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> FalajWriter:
        """Append a batch, whole or not at all."""
        from falaj.spark.writing.sink import FalajWriter

        if overwrite:
            raise InvalidArgument(
                "a log is appended to, and nothing in it is written over: use .mode('append')"
            )
        return FalajWriter(WriteOptions.parse(self.options, "batch"), schema)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> FalajStreamWriter:
        """Append each batch of a stream once.

        In the output mode `complete` a batch is the whole result. It is appended, as by Spark's
        Kafka sink.
        """
        from falaj.spark.writing.sink import FalajStreamWriter

        return FalajStreamWriter(WriteOptions.parse(self.options, "stream"), schema)


class FalajReader(DataSourceReader):
    """One batch read: the records that the topics have when Spark plans it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        columns.check(schema, options)
        self.options = options
        self.schema = schema
        self.pruning: Pruning | None = None
        self._loss = Loss(options.fails_on_loss, BATCH_CHOICES)

    def partitions(self) -> Sequence[ranges.Range]:
        """Decide what each task reads."""
        self.options.warn_of_ignored()
        planned = ranges.plan(self.options, self._loss, self.pruning)
        sampling.warn(self.options, self.schema, planned, self._loss)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the range of one task."""
        if not isinstance(partition, ranges.Range):
            return  # Spark asks for one empty task where there is no range
        with ranges.opened(self.options, partition, self._loss) as topic:
            if topic is not None:
                yield from columns.batches(
                    topic,
                    partition.start,
                    partition.end,
                    self.schema,
                    self.options,
                    self._loss,
                    self.pruning,
                )


class PruningReader(FalajReader):
    """The same, with Spark's filters: Spark passes them to a reader that has this method."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Learn from all filters; Spark evaluates them again."""
        self.pruning = Pruning()
        for wanted in filters:
            self.pruning.take(wanted)
        return filters
