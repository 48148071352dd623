"""`FalajSource`: what Spark calls for `format("falaj")`.

Spark makes it on the driver, pickles it, and calls `partitions` in a planning process and `read` in
workers. It keeps nothing open between calls, so that it travels, and says in a sentence what it
cannot do yet: streams and writing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from falaj.errors import Invalid
from falaj.spark import columns, ranges
from falaj.spark.options import ReadOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow
    from pyspark.sql.types import StructType

__all__ = ["FalajReader", "FalajSource"]


class FalajSource(DataSource):
    """Topics of a store as a table, with the columns of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "falaj"

    def schema(self) -> StructType:
        """All columns; `headers` with `includeHeaders`."""
        return columns.schema(ReadOptions.parse(self.options).headers)

    def reader(self, schema: StructType) -> FalajReader:
        """Read a batch; a schema that the user gave chooses columns."""
        return FalajReader(ReadOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Refuse: batch only, so far."""
        raise Invalid(
            "falaj cannot be read as a Spark stream yet: use spark.read, or follow the topic "
            "with falaj.open(...).topic(...).follow()"
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuse: read only, so far."""
        raise Invalid(_NO_SINK)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Refuse: read only, so far."""
        raise Invalid(_NO_SINK)


_NO_SINK = (
    "Spark cannot write to falaj yet: collect what is small and append it with "
    "falaj.open(...).topic(...).extend(...)"
)


class FalajReader(DataSourceReader):
    """One batch read of the topics' records as they are when it is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        columns.check(schema, options.headers)
        self.options = options
        self.schema = schema

    def partitions(self) -> Sequence[ranges.Range]:
        """Decide what each task reads."""
        return ranges.plan(self.options)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read what one task was given."""
        if not isinstance(partition, ranges.Range):
            return  # Spark asks for one empty task where there is no range
        with ranges.opened(self.options.store, partition) as topic:
            yield from columns.batches(topic, partition.start, partition.end, self.schema)
