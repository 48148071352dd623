"""Parts of `aggregate` and `join`: the settings of a job that follows a topic, and topics as rows.

Rows have the fields of the value, with the names in the schema. They also have `record`, a struct
of the key, topic, partition, offset and timestamp of the record. `runs` owns how a job runs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

from falaj import _time
from falaj.errors import InvalidArgument
from falaj.pipeline.base import bad, steps
from falaj.pipeline.base.frame import Config
from falaj.pipeline.base.places import expect_no_ledger
from falaj.pipeline.base.spoken import expect_distinct, sentence, struct_of
from falaj.pipeline.streaming import jobs
from falaj.spark.reading import values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "BAD",
    "BATCH",
    "OURS",
    "RECORD",
    "FlowConfig",
    "Moment",
    "interval",
    "named",
    "part_rows",
    "rows",
    "whole_rows",
]

RECORD = "record"
Moment = int | str | datetime
"""An offset of each partition, or a time."""
AVAILABLE_NOW, BATCH = "available-now", "batch"
OURS = "falaj:"
"""How names of columns begin that a pipeline adds: fields of a value have no such names."""
BAD = f"{OURS}bad"
"""The name under which a stream counts values that cannot be read, as `values`."""
_INTERVAL = re.compile(
    r"(\d+)\s*(milliseconds?|ms|seconds?|s|minutes?|m|hours?|h|days?|d|weeks?|w)",
    re.IGNORECASE | re.ASCII,
)
_UNITS = {"ms": "millisecond", "s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
_COLUMN = re.compile(r"`?(\w+)`?")
_NAMED = re.compile(r"(.+)\s+as\s+`?(\w+)`?\s*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class FlowConfig(Config):
    """Settings of pipelines that follow a topic.

    Attributes:
        topic: The topic that is read.
        checkpoint: Folder in which the job keeps its progress; each job has its own.
        schema: Fields of the value, as SQL has them: `"carrier STRING, delay INT"`. Values are then
            JSON. Without a schema the value is text, in the column `value`.
        into: Topic that gets the results as JSON; created if it does not exist.
        parquet: Folder that gets the results as Parquet files.
        partitions: How many partitions `into` has; 1 by default for a new topic.
        trigger: With `"available-now"` the job reads all there is, and ends. With an interval as
            `"10 seconds"` it looks for more so often, until it is stopped.
        start: Where a new job begins: an offset of each partition, a time, `"earliest"` or
            `"latest"`.
        batch: Most records of a micro-batch; None for all there is. It needs PySpark 4.2 or newer.
        key: SQL for the key of the record of a result.
        on_corrupt: Whether a corrupt record fails the job, or is left out and reported.
        on_bad: For values that do not fit the schema, or are not UTF-8: "fail", "skip" and count
            them, or the name of a topic. That topic then gets each value once and unchanged, with
            headers that name its topic, partition and offset. None: the same as `on_corrupt`.
        on_loss: Whether records that were removed before the job read them fail it, or are skipped
            and reported.
    """

    paths: ClassVar[tuple[str, ...]] = ("store", "checkpoint", "parquet")
    decisive: ClassVar[tuple[str, ...]] = ("store", "topic", "schema", "into", "parquet", "key")
    """Settings that decide what is written; they stay as they are from run to run."""
    reserved: ClassVar[tuple[str, ...]] = ()
    """Names that no field of the value may have, beside `record`."""

    topic: str
    checkpoint: Path | str
    schema: str | None = None
    into: str | None = None
    parquet: Path | str | None = None
    partitions: int | None = None
    trigger: str = AVAILABLE_NOW
    start: Moment = "earliest"
    batch: int | None = None
    key: str | None = None
    on_corrupt: Literal["fail", "skip"] = "fail"
    on_bad: str | None = None
    on_loss: Literal["fail", "continue"] = "fail"

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            InvalidArgument: A setting is not allowed.
        """
        super().__post_init__()
        if self.into is None and self.parquet is None:
            raise InvalidArgument(
                "nothing says where results go: give into, a topic, or parquet, a folder"
            )
        if self.into == self.topic:
            raise InvalidArgument(
                f"results cannot go into {self.topic}, which is read: choose another"
            )
        if self.parquet is not None and Path(self.checkpoint).is_relative_to(self.parquet):
            raise InvalidArgument(
                f"the checkpoint {self.checkpoint} lies in parquet, a folder of results alone: "
                "choose another"
            )
        if self.into is not None:
            expect_no_ledger(self.into, "into")
        bad.check(self.on_bad, self.topic, self.into)
        for name, count in (("partitions", self.partitions), ("batch", self.batch)):
            if count is not None and count < 1:
                raise InvalidArgument(f"{name} is a whole number from 1 up, not {count}")
        if self.trigger not in (AVAILABLE_NOW, BATCH):
            interval("trigger", self.trigger, f'"{AVAILABLE_NOW}" or ')
        if self.start not in ("earliest", "latest") and not isinstance(self.start, int):
            _time.to_ns(self.start)

    def expect(self) -> None:
        """Check that there is such a topic, and that the folders can be written."""
        super().expect()
        jobs.expect(Path(self.checkpoint))
        if self.parquet is not None:
            steps.expect_folder(Path(self.parquet), "parquet")

    @property
    def continuous(self) -> bool:
        """Whether the job runs until it is stopped."""
        return self.trigger not in (AVAILABLE_NOW, BATCH)

    @property
    def fails_on_bad(self) -> bool:
        """Whether a value that cannot be read fails the job."""
        return (self.on_bad or self.on_corrupt) == "fail"

    def source(self) -> dict[str, str]:
        """Return the options of the source, except the start."""
        plain = {"values": "string" if self.schema is None else "json", "mode": "FAILFAST"}
        return {
            "store": str(self.store),
            "subscribe": self.topic,
            "onCorrupt": self.on_corrupt,
            "failOnDataLoss": str(self.on_loss == "fail").lower(),
            **(plain if self.fails_on_bad else bad.options(self.schema)),
        }

    def offsets(self, each: Mapping[int, int]) -> str:
        """Write offsets by partition in the form of the source's options."""
        return json.dumps({self.topic: {str(part): offset for part, offset in each.items()}})


def interval(name: str, text: str, instead: str = "") -> str:
    """Parse a span of time: `10 minutes`, `1 hour`, `90s`.

    Returns:
        The same span in Spark's form.

    Raises:
        InvalidArgument: The text is no span of time.

    Example:
        >>> interval("window", "90s"), interval("window", "1 hour")
        ('90 seconds', '1 hours')
    """
    match = _INTERVAL.fullmatch(text.strip())
    if match is None or int(match[1]) < 1:
        raise InvalidArgument(
            f'{name} is {instead}a span of time such as "10 minutes", not {text!r}'
        )
    unit = match[2].lower()
    return f"{match[1]} {_UNITS.get(unit, unit.rstrip('s'))}s"


def named(expression: str) -> tuple[str, str]:
    """Split SQL and its name; a column keeps its own, and other SQL gets one from its words.

    Example:
        >>> named("hour(time) AS hour"), named("SUM(delay)"), named("pageName")
        (('hour(time)', 'hour'), ('SUM(delay)', 'sum_delay'), ('pageName', 'pageName'))
    """
    if match := _NAMED.fullmatch(expression.strip()):
        return match[1].strip(), match[2]
    if match := _COLUMN.fullmatch(expression.strip()):
        return expression.strip(), match[1]
    return expression.strip(), re.sub(r"\W+", "_", expression).strip("_").lower()


# --- Rows ----------------------------------------------------------------------------------------


def whole_rows(
    reader: Any, options: Mapping[str, str], schema: str | None, *, marked: bool = False
) -> DataFrame:
    """Read topics as rows of two columns: `value`, null for a tombstone, and `record`.

    Args:
        reader: `spark.read` or `spark.readStream`.
        options: Of the source.
        schema: Fields of the value, or None for text.
        marked: Whether bad values stay, marked in a third column, `BAD`; the options are those of
            `bad`.

    Raises:
        InvalidArgument: The schema is none.
    """
    if schema is not None:
        values.check(struct_of(schema))
    along = options.get("mode") == "PERMISSIVE" or options["values"] == "binary"
    value = "STRING" if schema is None else f"STRUCT<{schema}>"
    if along:
        value = bad.value_type(schema)
    columns = "key BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    reader = reader.format("falaj").options(**options)
    try:
        frame: DataFrame = reader.schema(f"value {value}, {columns}").load()
    except AnalysisException as error:
        raise InvalidArgument(f"Spark does not take the schema: {sentence(error)}") from None
    if schema is not None:
        expect_distinct(frame.sparkSession, struct_of(schema), "the schema")
    record = F.struct("key", "topic", "partition", "offset", "timestamp").alias(RECORD)
    if not along:
        return frame.select("value", record)
    wrong = bad.is_bad(schema)
    if marked:
        return frame.select(bad.good(schema).alias("value"), record, wrong.alias(BAD))
    if frame.isStreaming:
        frame = frame.observe(BAD, F.count_if(wrong).alias("values"))
    return frame.where(~wrong).select(bad.good(schema).alias("value"), record)


def rows(
    reader: Any, options: Mapping[str, str], schema: str | None, reserved: tuple[str, ...] = ()
) -> DataFrame:
    """Read topics as rows: the value's fields, or `value` without a schema; and `record`.

    Args:
        reader: `spark.read` or `spark.readStream`.
        options: Of the source.
        schema: Fields of the value, or None for text.
        reserved: Further names that no field may have.

    Raises:
        InvalidArgument: The schema is none, or has a field with such a name.
    """
    whole = whole_rows(reader, options, schema)
    if schema is None:
        return whole
    found = whole.select("value.*", RECORD)
    for name in found.columns[:-1]:
        if name.lower() in (RECORD, *reserved) or name.lower().startswith(OURS):
            raise InvalidArgument(
                f"the schema has a field {name!r}, and so is called something else here: leave the "
                "field out"
            )
    return found


def part_rows(
    spark: SparkSession, config: FlowConfig, start: Mapping[int, int], end: Mapping[int, int]
) -> DataFrame:
    """Read a range of the topic at once: offsets by partition."""
    bounds = {"startingOffsets": config.offsets(start), "endingOffsets": config.offsets(end)}
    return rows(spark.read, config.source() | bounds, config.schema, config.reserved)
