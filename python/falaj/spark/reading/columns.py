"""The columns of a topic, which are those of Spark's Kafka source, and record batches with them.

Spark accepts an Arrow batch only if it has exactly the declared schema. So this module defines the
types once for both. A schema of the user chooses columns and their order; columns that it leaves
out are not read. Batches are bounded in rows and in bytes, whatever the records are.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from falaj import arrow
from falaj.errors import CorruptData, Error, InvalidArgument, LogTruncated, OffsetOutOfRange
from falaj.spark import stores
from falaj.spark.reading import values
from falaj.spark.reading.decoding import Decoder
from falaj.spark.reading.loss import out_of_range
from falaj.spark.reading.options import CORRUPT_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow

    from falaj import Topic
    from falaj.arrow import Reader
    from falaj.spark.reading.loss import Loss
    from falaj.spark.reading.options import ReadOptions
    from falaj.spark.reading.pushdown import Pruning

__all__ = ["BATCH_BYTES_MAX", "BATCH_ROWS_MAX", "arrow_schema", "batches", "check", "schema"]

BATCH_ROWS_MAX = 10_000
BATCH_BYTES_MAX = 16 << 20

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "origin": StringType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}
# Spark trusts NOT NULL, and answers questions about nulls without looking at them.
_NULLABLE = ("key", "value", "origin", "headers")
# Columns that are there if an option says so, and that option.
_ASKED: dict[str, tuple[str, Callable[[ReadOptions], bool]]] = {
    "origin": ("includeOrigin", lambda options: options.names_origin),
    "headers": ("includeHeaders", lambda options: options.headers),
}


def schema(options: ReadOptions) -> StructType:
    """List all columns, as Spark's Kafka source has them.

    Raises:
        InvalidArgument: Values are JSON, and the user gave no schema for them.
    """
    if options.values == "json":
        raise InvalidArgument(
            "values=json needs a schema that says what is in it: "
            ".schema('offset BIGINT, value STRUCT<id: BIGINT, name: STRING>')"
        )
    return StructType(
        [
            StructField(name, StringType() if (name, options.values) == ("value", "string") else t)
            for name, t in _TYPES.items()
            if name not in _ASKED or _ASKED[name][1](options)
        ]
    )


def check(wanted: StructType, options: ReadOptions) -> None:
    """Refuse a schema with columns that do not exist.

    Args:
        wanted: The schema of the user.
        options: What else was asked for.

    Raises:
        InvalidArgument: A column is unknown, has another type, occurs twice, or is NOT NULL but may
            be null.
    """
    for place, name in enumerate(wanted.names):
        if name in wanted.names[:place]:
            raise InvalidArgument(f"the schema names the column {name} twice")
        if name not in _TYPES:
            raise InvalidArgument(
                f"a topic has no column {name!r}: it has {', '.join(_TYPES)}"
                f"{_in_the_value(name, options)}"
            )
        if name in _ASKED and not _ASKED[name][1](options):
            raise InvalidArgument(f"the column {name} needs .option('{_ASKED[name][0]}', 'true')")
        if name in _NULLABLE and not wanted[name].nullable:
            raise InvalidArgument(
                f"the column {name} may be null: leave NOT NULL away from it in the schema"
            )
        kind, given = _TYPES[name], wanted[name].dataType
        if name == "value" and options.values == "json":
            values.check(given, corrupt_record=options.corrupt_record)
            _check_mode(given, options)
            continue
        if name == "value" and options.values == "string":
            kind = StringType()
        if given != kind:
            raise InvalidArgument(
                f"the column {name} is {kind.simpleString()}, not {given.simpleString()}: "
                f"read it so, and cast it then{_or_values(name, options)}"
            )


def _in_the_value(name: str, options: ReadOptions) -> str:
    if options.values != "json":
        return ""
    kind = " STRING" if name == options.corrupt_record else ""
    return f"; a member of the JSON stands in the value: value STRUCT<{name}{kind}, …>"


def _check_mode(value: DataType, options: ReadOptions) -> None:
    keeper = options.corrupt_record
    keeps = values.keeps(value, keeper)
    if keeps or options.mode not in (None, "permissive"):
        return
    names = value.names if isinstance(value, StructType) else []
    for name in names:
        if name.lower() == keeper.lower():
            raise InvalidArgument(
                f"value.{name} is not {keeper}, which keeps what is not such JSON, so it would be "
                f"null: did you mean {keeper!r}? Or give "
                f".option('columnNameOfCorruptRecord', '{name}')"
            )
    if keeper != CORRUPT_RECORD:
        raise InvalidArgument(
            f"option columnNameOfCorruptRecord={keeper} names no member of the value: add one, "
            f"value STRUCT<…, {keeper}: STRING>, or leave the option out"
        )
    if options.mode == "permissive":
        raise InvalidArgument(
            "mode=PERMISSIVE keeps what is not such JSON in a member of the value, and the schema "
            f"has none: value STRUCT<…, {options.corrupt_record}: STRING>; or leave such records "
            "out with mode=DROPMALFORMED"
        )


def _or_values(name: str, options: ReadOptions) -> str:
    if (name, options.values) != ("value", "binary"):
        return ""
    return "; or choose .option('values', 'string') or 'json'"


def batches(
    topic: Topic[Any],
    start: int,
    end: int,
    wanted: StructType,
    options: ReadOptions,
    loss: Loss,
    pruning: Pruning | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Read records of one partition as Arrow batches.

    Args:
        topic: The partition.
        start: First offset.
        end: The offset after the last.
        wanted: The columns, which `check` has allowed.
        options: What else was asked for.
        loss: Decides what to do if records are lost.
        pruning: The records that Spark's filters want, or None.

    Returns:
        An iterator of batches.

    Raises:
        CorruptData: A record is corrupt.
        InvalidArgument: A value does not fit `values`.
        OffsetOutOfRange: Records were trimmed since the range was planned.
    """
    import pyarrow

    declared = arrow_schema(wanted)
    decoder = None
    if options.values != "binary" and "value" in wanted.names:
        decoder = Decoder(topic, wanted["value"].dataType, options, loss)
    names = [name for name in wanted.names if name != "origin"]
    count = len(names)
    if "offset" not in names:
        names.append("offset")  # to know how far it is, and to name what cannot be read
    at = wanted.names.index("origin") if "origin" in wanted.names else None
    origin = None if at is None else pyarrow.scalar(stores.origin_of(topic.store), pyarrow.string())
    try:
        for batch in _read(topic, start, end, names, options, loss, pruning):
            columns = batch.columns if decoder is None else decoder.columns(batch)
            rows, columns = len(columns[-1]), columns[:count]
            if at is not None:
                columns.insert(at, pyarrow.repeat(origin, rows))
            yield pyarrow.RecordBatch.from_arrays(columns, schema=declared)
    finally:
        if decoder is not None:
            decoder.tell()


def arrow_schema(wanted: StructType) -> pyarrow.Schema:
    """Return the Arrow schema of batches with these columns, as Spark declares it."""
    import pyarrow

    return pyarrow.schema(
        [pyarrow.field(f.name, _arrow_type(f), nullable=f.nullable) for f in wanted.fields]
    )


def _read(
    topic: Topic[Any],
    start: int,
    end: int,
    names: Sequence[str],
    options: ReadOptions,
    loss: Loss,
    pruning: Pruning | None,
) -> Iterator[pyarrow.RecordBatch]:
    """Read the existing records; continue after corrupt or lost ones if the options allow that.

    Invariant: `start` is after all yielded records, so no record comes twice.
    """
    where = f"topic {topic.name}, partition {topic.partitions[0]}"
    while start < end:
        reader = None
        try:
            reader = _reader(topic, start, end, names, options.skips_damage, pruning)
            for batch in reader:
                if len(batch):
                    start = batch["offset"][-1].as_py() + 1
                    yield batch
            return
        except CorruptData as error:
            error.args = (
                f"{where}, {_damaged(topic, start, end, names)}: {error}: go on behind what is "
                "corrupt with .option('onCorrupt', 'skip')",
            )
            raise
        except OffsetOutOfRange:
            # The records read lie before those that are gone, and these before the new beginning.
            first, there = topic.start_offset, topic.end_offset
            if first > start:
                lost = (
                    f"{where}: records {start} to {min(first, end)} were trimmed after Spark "
                    "planned to read them"
                )
                loss.meet(out_of_range(lost, topic, start, first, there))
                start = first
            elif there < end:
                loss.meet(
                    LogTruncated(f"{where} ends at {there} now, before {end}: it lost its end")
                )
                end = there
            else:
                raise
        finally:
            for skipped in reader.skipped if reader else []:
                loss.warn(
                    f"{where}: offsets {skipped['offsets']} are corrupt, in {skipped['path']}, and "
                    "left out"
                )


def _reader(
    topic: Topic[Any],
    start: int,
    end: int,
    names: Sequence[str],
    skips: bool,
    pruning: Pruning | None = None,
) -> Reader:
    return arrow.chosen(
        topic,
        start,
        end,
        columns=names,
        batch_rows=BATCH_ROWS_MAX,
        batch_bytes=BATCH_BYTES_MAX,
        on_corrupt="skip" if skips else "raise",
        times=None if pruning is None else pruning.times,
        keys=None if pruning is None or pruning.keys is None else sorted(pruning.keys),
    )


def _damaged(topic: Topic[Any], start: int, end: int, names: Sequence[str]) -> str:
    """Find the first corrupt offsets, of those that were not read."""
    with suppress(Error):
        reader = _reader(topic, start, end, names, True)
        for _ in reader:
            if reader.skipped:
                break
        for skipped in reader.skipped:
            first, behind = skipped["offsets"]
            if behind - first == 1:
                return f"offset {first}"
            if behind > first:  # not where the corruption reaches to the log's end
                return f"offsets {first} to {behind - 1}"
    return f"from offset {start} on"


def _arrow_type(field: StructField) -> pyarrow.DataType:
    import pyarrow

    if field.name == "value":
        return values.arrow_type(field.dataType)
    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    return {
        "key": pyarrow.binary(),
        "topic": pyarrow.string(),
        "partition": pyarrow.int32(),
        "offset": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
        "timestampType": pyarrow.int32(),
        "origin": pyarrow.string(),
        "headers": pyarrow.list_(pyarrow.field("element", header)),
    }[field.name]
