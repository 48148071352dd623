"""Topics by the bytes of their records: what pipelines read, and what they write it to.

Owns opening topics without running their codec, making a target that is like its source, and two
ways to read ranges of offsets in Spark. `read` gives rows to Spark. A `Reading` gives batches to
Python in Spark's tasks, so that only what is left of them crosses to the JVM.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

from falaj._topic import handle_of
from falaj.errors import InvalidArgument, UnknownTopic
from falaj.pipeline.base.frame import struct_of
from falaj.spark.reading.options import ReadOptions
from falaj.spark.reading.ranges import open_raw, split
from falaj.spark.source import FalajReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession

    from falaj import AnyTopic, PartitionedTopic, Store, Topic
    from falaj.arrow import Lane
    from falaj.spark.reading.ranges import Range

__all__ = [
    "JSON_READERS",
    "Reading",
    "expect_codec",
    "expect_two",
    "headers_or_empty",
    "like",
    "read",
    "shown",
]

#: Codecs that can read a value that is JSON.
JSON_READERS = ("json", "bytes", "str")
_SHOWN = 60


def expect_two(topic: str, into: str) -> None:
    """Refuse a topic that is to be written to itself."""
    if topic == into:
        raise InvalidArgument(
            f"topic {topic} would be read and written at once: name another one in into="
        )


def expect_codec(topic: AnyTopic[Any], *known: str) -> None:
    """Refuse a topic whose codec could not read the values that are to be written to it.

    Args:
        topic: The topic, open.
        known: The codecs that read them; the first is the values' own.
    """
    if topic.codec not in known:
        raise InvalidArgument(
            f"topic {topic.name} has the codec {topic.codec}, which cannot read the values of "
            f"codec {known[0]} that would be written to it: name a topic of "
            f"{' or '.join(dict.fromkeys(known))}, or a new one"
        )


def like(store: Store, name: str, source: AnyTopic[Any]) -> Topic[Any] | PartitionedTopic[Any]:
    """Open a topic to write records of another to; make it where it is not there.

    Args:
        store: The store, open for writing.
        name: What it is called.
        source: A new one gets its codec and number of partitions, and is marked compacted if it is.

    Returns:
        The topic; values go in as bytes, whatever the codec.

    Raises:
        InvalidArgument: It is there, and its codec could not read the records.
    """
    try:
        topic = open_raw(store, name)
        expect_codec(topic, source.codec, "bytes")
        return topic
    except UnknownTopic:
        opened = store._open_topic(
            name,
            codec=source.codec,
            resolve=lambda _: (None, None),
            partitions=len(source.partitions),
            log=None,
            segment_bytes=None,
            sync_interval_ms=None,
            sync=None,
            verify=None,
            compacted=_is_compacted(source),
        )
        return handle_of(opened, store)


def _is_compacted(topic: AnyTopic[Any]) -> bool | None:
    told = topic.store.info()["topics"]
    return next((each["compacted"] for each in told if each["name"] == topic.name), None)


def headers_or_empty() -> Column:
    """The column `headers`, with an empty array where a record has none.

    Rows that go to Python in Arrow batches must not have null there: Spark asks at every row how
    large its batch has become, and for that Arrow's lists fill in all rows since the last that was
    not null. That is quadratic in a batch of records without headers.
    """
    return F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))


def read(
    spark: SparkSession, topic: AnyTopic[Any], lanes: Iterable[Lane], schema: str
) -> DataFrame:
    """Read ranges of a topic in Spark: within its partitions by offset.

    Args:
        spark: The session.
        topic: The topic.
        lanes: Records of each partition; what is not named is not read.
        schema: The columns.
    """
    return spark.read.format("falaj").options(**_options(topic, lanes)).schema(schema).load()


@dataclass(frozen=True)
class Reading:
    """Ranges of a topic, read in tasks of Spark by Python.

    Attributes:
        spark: The session.
        reader: Reads what one task reads.
        tasks: What each task reads, in the order of partitions and offsets.
    """

    spark: SparkSession
    reader: FalajReader
    tasks: Sequence[Range]

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        topic: AnyTopic[Any],
        lanes: Iterable[Lane],
        schema: str,
        *,
        most: int | None = None,
    ) -> Reading:
        """Plan to read ranges of a topic, as `read` does; `most` is how long each may be."""
        lanes = list(lanes)
        options = ReadOptions.parse(_options(topic, lanes), "batch")
        reader = FalajReader(options, struct_of(schema))
        tasks = reader.partitions()
        if most is not None and any(len(task) > most for task in tasks):
            tasks = split([*tasks], -(-sum(map(len, tasks)) // most))
        return cls(spark, reader, tasks)

    def through(
        self,
        change: Callable[[Any, Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]],
        schema: str,
    ) -> DataFrame:
        """Give Spark what a function makes of the batches of each task.

        Args:
            change: Called in a task with its `Range` and its batches.
            schema: The columns that it makes.
        """
        reader, tasks = self.reader, self.tasks

        def do(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            for batch in batches:
                for number in batch["id"].to_pylist():
                    yield from change(tasks[number], reader.read(tasks[number]))

        count = len(tasks)
        return self.spark.range(0, count, 1, max(count, 1)).mapInArrow(do, schema)


def _options(topic: AnyTopic[Any], lanes: Iterable[Lane]) -> dict[str, str]:
    """Say to the source which records it reads."""
    # Spark wants every partition named, and takes offsets that are there.
    named = {p: (start, end) for p, start, end in lanes}
    for partition in topic.partitions:
        first = topic.partition(partition).start_offset
        named.setdefault(partition, (first, first))
    offsets = [
        json.dumps({topic.name: {str(p): at[end] for p, at in named.items()}}) for end in (0, 1)
    ]
    return {
        "store": str(topic.store.path),
        "subscribe": topic.name,
        "startingOffsets": offsets[0],
        "endingOffsets": offsets[1],
        "includeHeaders": "true",
    }


def shown(raw: bytes | memoryview | None) -> str:
    r"""Write a key or value for people: in one line, and not all of a long one.

    Example:
        >>> shown(b"EWR"), shown(b"\xff\n"), len(shown(b"x" * 1000)), shown(None)
        ('EWR', '\\xff\\n', 61, '')
    """
    if raw is None:
        return ""
    text = bytes(raw[: _SHOWN + 4]).decode("utf-8", "backslashreplace")
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return plain if len(plain) <= _SHOWN and len(raw) <= _SHOWN else plain[:_SHOWN] + "…"
