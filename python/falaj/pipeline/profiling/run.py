"""`profile`: report what is in a topic: rates, sizes, keys, gaps and hours, also as a page.

Spark counts in three passes. The first covers spans of time, partitions and sizes at once. The
second covers keys. The third covers times in the order of offsets. Values and headers never reach
the JVM; tasks send their lengths. The counts fit into this process: `figures` sums them, and `page`
draws them. Only compression is an estimate, from a sample.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it

from falaj.arrow import lanes
from falaj.errors import InvalidArgument, SystemCallFailed
from falaj.pipeline.base import places, steps
from falaj.pipeline.base.frame import Config, Result, watched
from falaj.pipeline.profiling import figures
from falaj.pipeline.profiling.figures import Bucket, Compression, Key, Partition
from falaj.spark import stores
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy
    from pyspark.sql import DataFrame, Row, SparkSession

    from falaj import AnyTopic
    from falaj.arrow import Lane
    from falaj.pipeline.base.frame import Progress
    from falaj.pipeline.profiling.figures import Keys, Missing, Pause, Sizes, Slot
    from falaj.spark.reading.ranges import Range

__all__ = ["ProfileConfig", "ProfileResult", "profile"]

_COLUMNS = (
    "key BINARY, value BINARY, partition INT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_MEASURED = "key BINARY, partition INT, us BIGINT, size BIGINT, bytes BIGINT"
"""The figures of a record: its time, the length of its value, and that of all it has."""
_SAMPLES, _SAMPLE_BYTES = 16, 64 << 10
"""Places of a topic that are tried with compression, and about how much of each."""
_CODECS = ("lz4", "zstd")


@dataclass(frozen=True, kw_only=True)
class ProfileConfig(Config):
    """Settings of `profile`.

    Attributes:
        topic: The topic.
        origin: With the URL of a place as store, which origin, if it has several.
        start: The first record: "earliest", an offset, or a time.
        end: Where to end: before an offset, or a time; None for the current end.
        top: How many keys and pauses to report.
        html: File for the page; None for no page.
    """

    paths: ClassVar[tuple[str, ...]] = ("store", "html")
    only_reads: ClassVar[bool] = True

    topic: str
    origin: str | None = None
    start: int | str | datetime = "earliest"
    end: int | str | datetime | None = None
    top: int = 10
    html: Path | str | None = None

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            InvalidArgument: A setting is not allowed.
        """
        super().__post_init__()
        if self.top < 1:
            raise InvalidArgument(
                f"top is how many keys and pauses are reported, at least 1, not {self.top}"
            )

    def expect(self) -> None:
        """Check that there is such a topic, and that the page can be written."""
        super().expect()
        _expect_page(self)


@dataclass(frozen=True, kw_only=True)
class ProfileResult(Result):
    """The figures of a topic; `bytes` counts keys, values and headers.

    Attributes:
        topic: Its name.
        offsets: The counted offsets of each partition: the first, and the one after the last.
        first: Earliest time; None if there is no record.
        last: Latest time.
        tombstones: How many records have no value.
        per_second: Average number of records in a second, from the first to the last record. None
            if all have the same time.
        hours: Each hour of UTC that has records.
        missing: Hours without records between the first and the last.
        slot_seconds: Width of `slots`.
        slots: The same for a plot, in wider or narrower spans, so that there are not too many.
        pauses: The longest spans in which no partition has a record.
        pause_seconds: Pauses shorter than this are not reported.
        keys: How the records are distributed over keys.
        sizes: The sizes of values; None if there are none.
        partitions: The figures of each partition.
        late: How many records have an earlier time than a record with a lower offset in their
            partition.
        latest: The most seconds by which such a record is late; a watermark would have to wait so
            long.
        compression: How a sample of values compresses.
        html: The page, if the run wrote one.
    """

    topic: str
    offsets: dict[int, tuple[int, int]]
    first: datetime | None
    last: datetime | None
    tombstones: int
    per_second: float | None
    hours: tuple[Slot, ...]
    missing: tuple[Missing, ...]
    slot_seconds: float
    slots: tuple[Slot, ...]
    pauses: tuple[Pause, ...]
    pause_seconds: float
    keys: Keys
    sizes: Sizes | None
    partitions: tuple[Partition, ...]
    late: int
    latest: float
    compression: tuple[Compression, ...]
    html: Path | None

    def rows(self) -> list[tuple[str, str]]:
        """Tell it to people."""
        from falaj.pipeline.profiling import words

        return [*words.rows(self), super().rows()[-1]]


def profile(
    spark: SparkSession, config: ProfileConfig, *, progress: Progress | None = None
) -> ProfileResult:
    """Compute the figures of a topic, or of a range of it.

    Spark reads the range four times: whole records twice, and times twice. Memory holds a row for
    each hour, or for each 20,000th part of the time. It also holds a row for each size of a value,
    and for each number of records that a key has.

    Args:
        spark: The session.
        config: The settings.
        progress: Learns how far it is.

    Returns:
        The figures. If the config asks for a page, it is written whole or not at all.

    Raises:
        UnknownTopic: There is no topic of this name.
        OffsetOutOfRange: `start` or `end` does not exist.
        CorruptData: A record is corrupt.
        SystemCallFailed: The page cannot be written.
        MissingExtra: The config asks for a page, and matplotlib is not installed.
    """
    began = time.monotonic()
    write = _page() if config.html is not None else None  # whether it can be is better known now
    _expect_page(config)
    with ExitStack() as held:
        store = held.enter_context(stores.opened(config.store, config.origin))
        topic = held.enter_context(open_raw(store, config.topic))
        todo = lanes(topic, config.start, config.end)
        found = _Counting(spark, topic, todo, config.top, progress).count()
        html = None if config.html is None else Path(config.html)
        result = ProfileResult(
            **found, topic=topic.name, html=html, seconds=time.monotonic() - began
        )
    if html is not None and write is not None:
        _write(html, write(result))
    return result


def _expect_page(config: ProfileConfig) -> None:
    if config.html is not None:
        steps.expect_file(Path(config.html), "html")


def _page() -> Callable[[ProfileResult], str]:
    from falaj.pipeline.profiling import page

    return page.write


def _write(file: Path, page: str) -> None:
    """Write the page, whole or not at all."""
    beside = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(page, "utf-8")
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        refused = SystemCallFailed(f"cannot write the page {file}: {error.strerror}")
        refused.errno, refused.path = error.errno, str(file)
        raise refused from None


@dataclass(frozen=True)
class _Counting:
    """The queries to Spark, and the sums of their results."""

    spark: SparkSession
    topic: AnyTopic[Any]
    lanes: list[Lane]
    top: int
    progress: Progress | None

    def count(self) -> dict[str, Any]:
        """Count everything, and return the fields of the result."""
        step = figures.step_for(self._span_us())
        rows = self._rows()
        with watched(self.spark, self.progress, "counting records"):
            by_time, by_partition, by_size = self._sets(rows, step)
        with watched(self.spark, self.progress, "counting keys"):
            records = sum(row.records for row in by_partition)
            keys = self._keys(rows, records)
        with watched(self.spark, self.progress, "looking at times"):
            late = self._late()
        buckets = sorted(Bucket(r.bucket, r.records, r.bytes, r.first, r.last) for r in by_time)
        hours = figures.hours(buckets)
        slot_seconds, slots = figures.slots(buckets, step)
        first = min((bucket.first for bucket in buckets), default=None)
        last = max((bucket.last for bucket in buckets), default=None)
        return {
            "records": records,
            "bytes": sum(row.bytes for row in by_partition),
            "offsets": {partition: (start, end) for partition, start, end in self.lanes},
            "first": None if first is None else figures.moment(first),
            "last": None if last is None else figures.moment(last),
            "tombstones": sum(row.tombstones for row in by_partition),
            "per_second": _rate(records, first, last),
            "hours": hours,
            "missing": figures.missing(hours),
            "slot_seconds": slot_seconds,
            "slots": slots,
            "pauses": figures.pauses(buckets, step, self.top),
            "pause_seconds": step / figures.US,
            "keys": keys,
            "sizes": figures.sizes((r.size, r.records) for r in by_size if r.size is not None),
            "partitions": self._partitions(by_partition, late, records),
            "late": sum(count for count, _ in late.values()),
            "latest": max((us / figures.US for _, us in late.values()), default=0.0),
            "compression": _compression(self.topic, self.lanes),
        }

    def _span_us(self) -> int:
        """Estimate how much time the records cover; only the width of buckets depends on it."""
        ends = []
        for partition, start, end in self.lanes:
            part = self.topic.partition(partition)
            for first in (start, max(start, end - 1)):  # compaction may have taken either
                ends += [record.timestamp_ns for record in islice(part._records(first, end), 1)]
        return (max(ends) - min(ends)) // 1_000 if ends else 0

    def _rows(self) -> DataFrame:
        reading = places.Reading.of(self.spark, self.topic, self.lanes, _COLUMNS)
        return reading.through(_measure, _MEASURED)

    def _sets(self, rows: DataFrame, step: int) -> tuple[list[Row], list[Row], list[Row]]:
        """Count by time, by partition and by size in one pass."""
        bucket = F.expr(f"us - pmod(us, {step}L)").alias("bucket")
        # A column is null in sets not grouped by it, so the size is counted under another name.
        by = rows.select("*", bucket, F.col("size").isNull().alias("tombstone"))
        sets = [["bucket"], ["partition"], ["size"]]
        counted = (
            by.groupingSets(
                [[F.col(n) for n in names] for names in sets], "bucket", "partition", "size"
            )
            .agg(
                F.grouping("bucket").alias("no_bucket"),
                F.grouping("partition").alias("no_partition"),
                F.count(F.lit(1)).alias("records"),
                F.sum("bytes").alias("bytes"),
                F.min("us").alias("first"),
                F.max("us").alias("last"),
                F.count_if("tombstone").alias("tombstones"),
            )
            .collect()
        )
        return (
            [row for row in counted if not row.no_bucket],
            [row for row in counted if not row.no_partition],
            [row for row in counted if row.no_bucket and row.no_partition],
        )

    def _keys(self, rows: DataFrame, records: int) -> Keys:
        per_key = (
            rows.where("key IS NOT NULL")
            .groupBy("key")
            .agg(F.count(F.lit(1)).alias("records"), F.sum("bytes").alias("bytes"))
            .persist()
        )
        try:
            counted = [
                (row.records, row.how_many)
                for row in per_key.groupBy("records")
                .agg(F.count(F.lit(1)).alias("how_many"))
                .collect()
            ]
            most = per_key.orderBy(F.desc("records"), "key").limit(self.top).collect()
        finally:
            per_key.unpersist()
        keyed = sum(each * how_many for each, how_many in counted)
        top = tuple(
            Key(places.shown(row.key), row.records, row.records / records, row.bytes)
            for row in most
        )
        return figures.keys(counted, records - keyed, top)

    def _late(self) -> dict[int, tuple[int, int]]:
        """Compare each time with the latest one before it, in the order of offsets.

        Returns:
            For each partition, how many records are late, and by how many microseconds at most.
        """
        reading = places.Reading.of(self.spark, self.topic, self.lanes, "timestamp TIMESTAMP")
        before: dict[tuple[int, int], int] = {}
        latest: dict[int, int] = {}
        for row in sorted(reading.through(_newest, _NEWEST).collect()):
            if row.partition in latest:
                before[row.partition, row.start] = latest[row.partition]
            latest[row.partition] = max(row.us, latest.get(row.partition, row.us))
        late = dict.fromkeys(latest, (0, 0))
        for row in reading.through(_lateness(before), _LATE).collect():
            count, most = late[row.partition]
            late[row.partition] = count + row.late, max(most, row.us)
        return late

    def _partitions(
        self, counted: list[Row], late: dict[int, tuple[int, int]], records: int
    ) -> tuple[Partition, ...]:
        rows = {row.partition: row for row in counted}
        told = []
        for partition, _, _ in self.lanes:
            row = rows.get(partition)
            if row is None:
                told.append(Partition(partition, 0, 0, 0.0, None, None, 0, 0.0))
                continue
            times = figures.moment(row.first), figures.moment(row.last)
            mine = late[partition][0], late[partition][1] / figures.US
            told.append(
                Partition(partition, row.records, row.bytes, row.records / records, *times, *mine)
            )
        return tuple(told)


# --- In tasks ------------------------------------------------------------------------------------

_NEWEST = "partition INT, start BIGINT, us BIGINT"
_LATE = "partition INT, late BIGINT, us BIGINT"


def _measure(_: Range, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Replace values and headers by their lengths."""
    from pyarrow import compute

    def length(of: pyarrow.Array) -> pyarrow.Array:
        return compute.fill_null(compute.binary_length(of), 0).cast(pyarrow.int64())

    for batch in batches:
        value, headers = batch["value"], batch["headers"]
        each = headers.flatten()
        sizes = compute.add(*(length(compute.struct_field(each, n)) for n in (0, 1)))
        counts = compute.fill_null(compute.list_value_length(headers), 0).to_numpy()
        payload = compute.add(length(batch["key"]), length(value)).to_numpy()
        columns = {
            "key": batch["key"],
            "partition": batch["partition"],
            "us": batch["timestamp"].cast(pyarrow.int64()),
            "size": compute.binary_length(value).cast(pyarrow.int64()),
            "bytes": payload + _sums(sizes.to_numpy(), counts),
        }
        yield pyarrow.RecordBatch.from_pydict(columns)


def _sums(of: numpy.ndarray, counts: numpy.ndarray) -> numpy.ndarray:
    """Sum consecutive groups of numbers; each count is the length of a group.

    Example:
        >>> import numpy
        >>> _sums(numpy.array([1, 2, 3]), numpy.array([2, 0, 1])).tolist()
        [3, 0, 3]
    """
    import numpy

    sums = numpy.concatenate(([0], numpy.cumsum(of, dtype=numpy.int64)))
    ends = numpy.cumsum(counts)
    found: numpy.ndarray = sums[ends] - sums[ends - counts]
    return found


def _newest(bounds: Range, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Find the latest time of the records of a task."""
    found = [int(_times(batch).max()) for batch in batches if len(batch)]
    if found:
        yield pyarrow.RecordBatch.from_pydict(
            {
                "partition": pyarrow.array([bounds.partition], pyarrow.int32()),
                "start": [bounds.start],
                "us": [max(found)],
            }
        )


def _lateness(
    before: dict[tuple[int, int], int],
) -> Callable[[Range, Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Make a function that finds late records; `before` has the latest time before each task."""

    def compare(
        bounds: Range, batches: Iterator[pyarrow.RecordBatch]
    ) -> Iterator[pyarrow.RecordBatch]:
        import numpy

        latest = before.get((bounds.partition, bounds.start))
        late = most = 0
        for batch in batches:
            times = _times(batch)
            if not len(times):
                continue
            if latest is not None:
                times = numpy.concatenate(([latest], times))
            newest = numpy.maximum.accumulate(times)
            behind = newest - times
            late += int(numpy.count_nonzero(behind))
            most = max(most, int(behind.max()))
            latest = int(newest[-1])
        yield pyarrow.RecordBatch.from_pydict(
            {
                "partition": pyarrow.array([bounds.partition], pyarrow.int32()),
                "late": [late],
                "us": [most],
            }
        )

    return compare


def _times(batch: pyarrow.RecordBatch) -> numpy.ndarray:
    times: numpy.ndarray = batch["timestamp"].cast(pyarrow.int64()).to_numpy()
    return times


# --- In this process -----------------------------------------------------------------------------


def _rate(records: int, first: int | None, last: int | None) -> float | None:
    if first is None or last is None or first == last:
        return None
    return records / ((last - first) / figures.US)


def _compression(topic: AnyTopic[Any], lanes: list[Lane]) -> tuple[Compression, ...]:
    """Compress samples from all parts of the topic, as blocks of a file would be."""
    places = []
    for partition, start, end in lanes:
        each = max(_SAMPLES // len(lanes), 1)
        cuts = {start + (end - start) * n // each for n in range(each)} if end > start else set()
        places += [(partition, cut, end) for cut in sorted(cuts)]
    blocks = [block for place in places if (block := _block(topic, *place))]
    size = sum(map(len, blocks))
    if not size:
        return ()
    return tuple(
        Compression(
            codec,
            size,
            size / sum(len(pyarrow.compress(block, codec, asbytes=True)) for block in blocks),
        )
        for codec in _CODECS
        if pyarrow.Codec.is_available(codec)
    )


def _block(topic: AnyTopic[Any], partition: int, start: int, end: int) -> bytes:
    values, size = [], 0
    for record in topic.partition(partition)._records(start, end):
        values.append(record.to_bytes())
        size += len(values[-1])
        if size >= _SAMPLE_BYTES:
            break
    return b"".join(values)
