"""Values that do not fit `values`: they fail the query, are left out, or are kept.

A kept value is the text in a member of the column `value`, as Spark's JSON reader does in the mode
PERMISSIVE. Values that are left out are counted, and reported once for each range that a task
reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from falaj import _json_columns
from falaj.errors import InvalidArgument
from falaj.spark.reading import values

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import DataType

    from falaj import AnyTopic
    from falaj.spark.reading.loss import Loss
    from falaj.spark.reading.options import ReadOptions

__all__ = ["Decoder"]

_NAMED_MAX = 10


class Decoder:
    """Decodes the values of one range.

    Args:
        topic: The partition.
        kind: The type of the value in the schema.
        options: The options of the read.
        loss: Counts and reports what is left out.
    """

    def __init__(
        self, topic: AnyTopic[Any], kind: DataType, options: ReadOptions, loss: Loss
    ) -> None:
        self._where = f"topic {topic.name}, partition {topic.partitions[0]}"
        self._values = options.values
        self._wanted = values.arrow_type(kind)
        self._loss = loss
        self._skips = options.skips_damage
        self._corrupt_record: str | None = None
        if options.mode is not None:
            self._skips = options.mode == "dropmalformed"
        if options.values == "json" and values.keeps(kind, options.corrupt_record):
            self._corrupt_record = options.corrupt_record
        self._kept_in = self._corrupt_record if options.mode in (None, "permissive") else None
        # A mode decides alone, whatever onCorrupt says.
        self._remedy = (
            ".option('onCorrupt', 'skip')"
            if options.mode is None
            else ".option('mode', 'DROPMALFORMED')"
        )
        self._left = 0
        self._named: list[int] = []

    def columns(self, batch: pyarrow.RecordBatch) -> list[pyarrow.Array]:
        """Decode a batch; return its columns, with the decoded value.

        Raises:
            InvalidArgument: A value does not fit `values`, and the options make that an error.
        """
        found, bad = _json_columns.decode(
            batch["value"], self._values, self._wanted, self._corrupt_record
        )
        if bad and self._kept_in is not None:
            found = _json_columns.kept(found, bad, batch["value"], self._kept_in)
        elif bad:
            self._leave_out([batch["offset"][row].as_py() for row in bad])
            import numpy

            there = numpy.ones(len(batch), dtype=bool)
            there[bad] = False
            batch = batch.filter(there)
        at = batch.schema.get_field_index("value")
        return [found if place == at else column for place, column in enumerate(batch.columns)]

    def tell(self) -> None:
        """Report how many records were left out, and which was the first."""
        if not self._left:
            return
        named = ", ".join(map(str, self._named))
        more = f" and {self._left - len(self._named)} more" if self._left > _NAMED_MAX else ""
        count = f"{self._left:,} record{'s' if self._left > 1 else ''}"
        self._loss.skip(
            self._left, f"{self._where}: left out {count}, not {self._what}: offsets {named}{more}"
        )
        self._left, self._named = 0, []

    @property
    def _what(self) -> str:
        return "UTF-8" if self._values == "string" else f"JSON of the type {self._wanted}"

    def _leave_out(self, offsets: list[int]) -> None:
        if not self._skips:
            raise InvalidArgument(
                f"{self._where}: the value at offset {offsets[0]} is not {self._what}: read it "
                f"with .option('values', 'binary'), or leave such records out with {self._remedy}"
            )
        self._left += len(offsets)
        self._named += offsets[: _NAMED_MAX - len(self._named)]
