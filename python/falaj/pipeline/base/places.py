"""The topics that pipelines read and write, as bytes: their codecs do not run.

Owns opening topics so, creating a target that is like its source, and two ways to read ranges of
offsets in Spark. `read` makes rows of Spark's. A `Reading` passes batches to Python in Spark's
tasks, so only what Python makes of them crosses to the JVM.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

from falaj._topic import handle_of
from falaj.errors import InvalidArgument, SettingsMismatch, UnknownTopic
from falaj.pipeline.base.spoken import struct_of
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
    "LEDGERS",
    "Reading",
    "expect_codec",
    "expect_names",
    "expect_no_ledger",
    "expect_partitions",
    "expect_target",
    "expect_two",
    "headers_or_empty",
    "like",
    "read",
    "shown",
]

#: Codecs that can read a value that is JSON.
JSON_READERS = ("json", "bytes", "str")
#: How the names of topics end in which pipelines keep what they did, and what that is.
LEDGERS = {".imports": "imports", ".dedupe": "dedupe"}
NAME_MAX = 249
"""Most characters of the name of a topic or of a consumer group."""
_SHOWN = 60


def expect_two(topic: str, into: str) -> None:
    """Refuse a pipeline whose target is its source, or a ledger."""
    if topic == into:
        raise InvalidArgument(
            f"topic {topic} would be read and written at once: name another one in into="
        )
    expect_no_ledger(into, "into")


def expect_codec(topic: AnyTopic[Any], *known: str) -> None:
    """Refuse a target whose codec could not read the values that the pipeline writes.

    Args:
        topic: The open target.
        known: The codecs that read these values; the first is their own.
    """
    if topic.codec not in known:
        raise InvalidArgument(
            f"topic {topic.name} has the codec {topic.codec}, which cannot read the values of "
            f"codec {known[0]} that would be written to it: name a topic of "
            f"{' or '.join(dict.fromkeys(known))}, or a new one"
        )


def expect_target(store: Store, name: str, *known: str) -> None:
    """Refuse a target that cannot be created or written; it is not created.

    Args:
        store: The open store.
        name: The name of the target.
        known: The codecs that read what is written, as for `expect_codec`; none for any.

    Raises:
        InvalidName: No topic can have this name.
        InvalidArgument: It exists, and its codec could not read the values.
    """
    with suppress(UnknownTopic), open_raw(store, name) as topic:
        if known:
            expect_codec(topic, *known)


def expect_partitions(store: Store, name: str, partitions: int) -> None:
    """Refuse a target that exists with another number of partitions than the one asked for.

    Raises:
        SettingsMismatch: It does.
    """
    with suppress(UnknownTopic), open_raw(store, name) as topic:
        stored = len(topic.partitions)
        if stored != partitions:
            many = "s" if stored > 1 else ""
            mismatch = SettingsMismatch(
                f"topic {name} has {stored} partition{many}, not {partitions}: leave partitions "
                "away, or name another topic"
            )
            mismatch.topic, mismatch.setting = name, "partitions"
            mismatch.stored, mismatch.asked = str(stored), str(partitions)
            raise mismatch


def expect_no_ledger(name: str, setting: str) -> None:
    """Refuse a target that has the name of a ledger: a pipeline would not understand it any more.

    Raises:
        InvalidArgument: The name ends as those of ledgers do.
    """
    for ending, what in LEDGERS.items():
        if name.endswith(ending):
            raise InvalidArgument(
                f"{setting} is {name}, and topics whose names end with {ending} are ledgers of "
                f"{what}: choose another name"
            )


def expect_names(name: str, *derived: str) -> None:
    """Refuse a target for which names that are made of its own would be too long.

    Raises:
        InvalidArgument: One is.
    """
    longest = max(derived, key=len)
    if len(longest) > NAME_MAX:
        raise InvalidArgument(
            f"{name} is too long: {longest} has {len(longest)} characters, and a name has at most "
            f"{NAME_MAX}"
        )


def like(store: Store, name: str, source: AnyTopic[Any]) -> Topic[Any] | PartitionedTopic[Any]:
    """Open a topic that gets the records of another; create it if it does not exist.

    Args:
        store: The store, open for writing.
        name: The name of the target.
        source: A new one gets its codec and number of partitions, and is marked compacted if it is.

    Returns:
        The topic; it takes values as bytes, whatever its codec is.

    Raises:
        InvalidArgument: It exists, and its codec could not read the records.
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
    """Return the column `headers`, with an empty array where a record has none.

    Rows that go to Python in Arrow batches must not have null there. Spark asks at every row how
    large its batch has become. To answer, Arrow's lists fill in all rows since the last one that
    was not null. A batch of records without headers would take quadratic time.
    """
    return F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))


def read(
    spark: SparkSession, topic: AnyTopic[Any], lanes: Iterable[Lane], schema: str
) -> DataFrame:
    """Read ranges of a topic in Spark; the rows of a partition come in the order of offsets.

    Args:
        spark: The session.
        topic: The topic.
        lanes: The offsets to read of each partition; a partition that is not named is not read.
        schema: The columns.
    """
    return spark.read.format("falaj").options(**_options(topic, lanes)).schema(schema).load()


@dataclass(frozen=True)
class Reading:
    """Ranges of a topic that Python reads in Spark's tasks.

    Attributes:
        spark: The session.
        reader: Reads the range of one task.
        tasks: The range of each task, in the order of partitions and offsets.
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
        """Plan to read ranges of a topic, as `read` does; each has at most `most` offsets."""
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
        """Make a frame of what a function returns for the batches of each task.

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
    """Return the options that tell the source which records to read."""
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
    r"""Write a key or value for people: on one line, and shortened if it is long.

    Example:
        >>> shown(b"EWR"), shown(b"\xff\n"), len(shown(b"x" * 1000)), shown(None)
        ('EWR', '\\xff\\n', 61, '')
    """
    if raw is None:
        return ""
    text = bytes(raw[: _SHOWN + 4]).decode("utf-8", "backslashreplace")
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return plain if len(plain) <= _SHOWN and len(raw) <= _SHOWN else plain[:_SHOWN] + "…"
