"""Bad values: records whose value does not fit the type that a pipeline expects.

Owns how a pipeline recognizes them, and the records of the topic that they may go to. `on_bad` says
what happens to them. They fail the run; or the run leaves them out; or it copies each one,
unchanged and once, to a topic of their own. A run counts them in each case.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

import falaj
from falaj.errors import InvalidArgument
from falaj.pipeline.base.places import expect_no_ledger
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["check", "found", "good", "is_bad", "keep", "make", "options", "topic_of", "value_type"]

COLUMN = "falaj:bad"
"""The member of a JSON value that holds the bytes of a bad one; no field has such a name."""
_WORDS = ("fail", "skip")


def check(on_bad: str | None, *others: str | None) -> None:
    """Refuse to keep bad values in a topic that the pipeline reads or writes."""
    if topic_of(on_bad) in {name for name in others if name is not None}:
        raise InvalidArgument(
            f"on_bad is fail, skip or a topic of its own, and {on_bad} is read or written: choose "
            "another"
        )
    if (topic := topic_of(on_bad)) is not None:
        expect_no_ledger(topic, "on_bad")


def topic_of(on_bad: str | None) -> str | None:
    """Name the topic that bad values go to; None for none."""
    return None if on_bad in (None, *_WORDS) else on_bad


def options(schema: str | None) -> dict[str, str]:
    """Return the options that make the source deliver bad values too."""
    if schema is None:
        return {"values": "binary"}
    return {"values": "json", "mode": "PERMISSIVE", "columnNameOfCorruptRecord": COLUMN}


def value_type(schema: str | None) -> str:
    """Give the type of the column `value` under these options."""
    return "BINARY" if schema is None else f"STRUCT<{schema}, `{COLUMN}`: BINARY>"


def is_bad(schema: str | None) -> Column:
    """Tell whether the value of a row is bad; the row was read with `options`."""
    if schema is None:
        value = F.col("value")
        return value.isNotNull() & ~F.is_valid_utf8(value.cast("string"))
    return F.col(f"value.`{COLUMN}`").isNotNull()


def good(schema: str | None) -> Column:
    """Turn the value of a good row into what a read without `options` delivers."""
    if schema is None:
        return F.col("value").cast("string")
    return F.when(F.col("value").isNotNull(), F.col("value").dropFields(f"`{COLUMN}`"))


def make(store: Path | str, topic: str | None) -> None:
    """Create the topic of bad values if it does not exist."""
    if topic is None:
        return
    with falaj.open(store) as opened:
        if topic not in opened.topics:
            opened.topic(topic).close()


def keep(
    spark: SparkSession,
    store: Path | str,
    topic: str,
    schema: str | None,
    bounds: Mapping[int, tuple[int, int]],
    into: str,
    token: tuple[str, int],
) -> None:
    """Append the bad values of a range to their topic, unless a run with this token did.

    They keep key, time and headers. Further headers say at which topic, partition and offset they
    were.

    Args:
        spark: The session.
        store: The store.
        topic: The topic that was read.
        schema: The schema of its values; None for text.
        bounds: The offsets that are read, by partition.
        into: The topic of bad values.
        token: Name and number of the batch.
    """
    rows = found(spark, store, topic, schema, bounds)
    raw = F.col("value") if schema is None else F.col(f"value.`{COLUMN}`")
    stood = {"falaj-topic": F.lit(topic), "falaj-partition": F.col("partition")}
    stood["falaj-offset"] = F.col("offset")
    more = [
        F.struct(F.lit(name).alias("key"), column.cast("string").cast("binary").alias("value"))
        for name, column in stood.items()
    ]
    empty = F.array().cast("array<struct<key:string,value:binary>>")
    _append(
        rows.select(
            raw.alias("value"),
            "key",
            "timestamp",
            F.concat(F.coalesce("headers", empty), F.array(*more)).alias("headers"),
        ),
        store,
        into,
        token,
    )


def found(
    spark: SparkSession,
    store: Path | str,
    topic: str,
    schema: str | None,
    bounds: Mapping[int, tuple[int, int]],
) -> DataFrame:
    """Read the records of a range whose values are bad; the arguments are those of `keep`."""
    partitions = _every(store, topic, bounds)
    ends = [json.dumps({topic: {p: at[end] for p, at in partitions.items()}}) for end in (0, 1)]
    reader = spark.read.format("falaj").options(store=str(store), subscribe=topic)
    reader = reader.options(startingOffsets=ends[0], endingOffsets=ends[1])
    reader = reader.options(includeHeaders="true", onCorrupt="skip", failOnDataLoss="false")
    rows = reader.options(**options(schema)).schema(
        f"value {value_type(schema)}, key BINARY, partition INT, offset BIGINT, "
        "timestamp TIMESTAMP, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    return rows.load().where(is_bad(schema))


def _append(rows: DataFrame, store: Path | str, into: str, token: tuple[str, int]) -> None:
    writer = rows.write.format("falaj").mode("append").options(store=str(store), topic=into)
    writer.options(txnAppId=token[0], txnVersion=str(token[1])).save()


def _every(
    store: Path | str, topic: str, bounds: Mapping[int, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """Name every partition, as Spark requires; one that is not read begins where it ends."""
    with falaj.open(store, read_only=True) as opened, open_raw(opened, topic) as source:
        found = {}
        for number in source.partitions:
            first = source.partition(number).start_offset
            found[str(number)] = bounds.get(number, (first, first))
        return found
