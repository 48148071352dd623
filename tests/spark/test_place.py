"""Spark over a bucket: the same rows as from the directory, by executors that see no directory."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from functools import reduce
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.dataset
import pytest

import falaj
from falaj import pipeline
from falaj.errors import InvalidArgument, LogTruncated, TopicDeleted
from falaj.pipeline import CompactConfig, ExportConfig
from falaj.ship import place as places
from falaj.spark import stores
from ship.servers import BUCKET, VARIABLES, Moto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from falaj.ship.place import Place
    from falaj.spark.source import FalajReader
    from falaj.spark.streaming.stream import FalajStreamReader

    Ship = Callable[[falaj.Store], None]

ORDERS = 3_000
_NUMBERS = count()


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """A server of S3. Executors find it by their environment, as on a real cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_SESSION_TOKEN", raising=False)
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        patch.setenv("FALAJ_CACHE", os.fspath(tmp_path_factory.mktemp("cache")))
        with Moto(tmp_path_factory.mktemp("moto")) as server:
            yield server


@pytest.fixture
def url(bucket: Moto) -> Iterator[str]:
    """The URL of an empty place."""
    yield f"s3://{BUCKET}/spark/{next(_NUMBERS)}?endpoint={bucket.endpoint}"
    stores.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[falaj.Store]:
    """A store with `orders` in three partitions, in segments that are sealed and open."""
    with falaj.open(tmp_path / "store") as opened:
        kind: Any = {"partitions": 3, "segment_bytes": 64 << 10, "compacted": True}
        topic = opened.partitioned_topic("orders", **kind)
        append(topic, range(ORDERS))
        yield opened


def append(topic: Any, numbers: range) -> None:
    """Append orders with keys and headers."""
    for some in batched(numbers, 50):
        topic.extend((b"key %d" % (i % 11), b"order %06d" % i + bytes(100)) for i in some)


def batched(numbers: range, size: int) -> Iterator[range]:
    """Cut a range into pieces; `itertools.batched` came with Python 3.12."""
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def rows(reader: FalajReader | FalajStreamReader, planned: Sequence[Any]) -> pyarrow.Table:
    """Read as tasks do, and put the rows into one order."""
    found = pyarrow.Table.from_batches([batch for part in planned for batch in reader.read(part)])
    return found.sort_by([("partition", "ascending"), ("offset", "ascending")])


def test_a_batch_from_a_bucket_has_the_rows_that_one_from_the_directory_has(
    store: falaj.Store, url: str, reader: Callable[..., FalajReader]
) -> None:
    store.ship(url, once=True)
    here, there = reader(store.path, "orders"), reader(url, "orders")
    from_here, from_there = (rows(each, each.partitions()) for each in (here, there))
    assert from_there.num_rows == ORDERS
    assert from_there.equals(from_here)


def test_a_task_reads_what_was_planned_though_its_process_saw_an_older_state(
    store: falaj.Store, url: str, reader: Callable[..., FalajReader]
) -> None:
    store.ship(url, once=True)
    first = reader(url, "orders")
    assert rows(first, first.partitions()).num_rows == ORDERS
    append(store.any_topic("orders"), range(ORDERS, ORDERS + 500))
    store.ship(url, once=True)
    second = reader(url, "orders")
    planned = second.partitions()
    with stores.opened(url) as kept:
        assert {part.number for part in planned} == {stores.number_of(kept)}
    stores.close()
    with stores.opened(url) as worker:  # it read the first batch, and not yet the second
        append(store.any_topic("orders"), range(9))
        store.ship(url, once=True)
        third = rows(
            second, [replace(part, number=stores.number_of(worker) + 1) for part in planned]
        )
        assert stores.number_of(worker) > planned[0].number
    assert third.num_rows == ORDERS + 500


def test_later_batches_of_a_process_list_nothing(
    store: falaj.Store,
    url: str,
    reader: Callable[..., FalajReader],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: Counter[str] = Counter()
    opens = places.open_place

    class Counted:
        def __init__(self, place: Place) -> None:
            self._place = place

        def __getattr__(self, name: str) -> Any:
            asked[name] += 1
            return getattr(self._place, name)

    monkeypatch.setattr(places, "open_place", lambda at, **more: Counted(opens(at, **more)))
    store.ship(url, once=True)
    first = reader(url, "orders")
    assert rows(first, first.partitions()).num_rows == ORDERS
    listed = asked["list_after"]
    for _ in range(5):
        batch = reader(url, "orders")
        assert rows(batch, batch.partitions()).num_rows == ORDERS
    assert asked["list_after"] == listed


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"consumer": "billing"}, "consumer"),
        ({"store": "events", "origin": "4f2a"}, "origin"),
        ({"store": "http://host/x"}, "http"),
    ],
)
def test_options_that_cannot_be_right_are_refused(
    given: dict[str, str], word: str, streams: Callable[..., FalajStreamReader]
) -> None:
    options = {"store": "s3://bucket/shop", "subscribe": "orders", **given}
    with pytest.raises(InvalidArgument, match=word):
        streams(**options)


def test_a_place_is_not_written_to(spark: SparkSession, url: str) -> None:
    frame = spark.createDataFrame([(b"x",)], "value binary")
    writer = frame.write.format("falaj").mode("append").options(store=url, topic="orders")
    with pytest.raises(Exception, match="a place is only read"):
        writer.save()


def test_spark_reads_the_bucket_and_a_query_moves_there_with_its_checkpoint(
    spark: SparkSession, store: falaj.Store, url: str, tmp_path: Path
) -> None:
    topic: Any = store.any_topic("orders")
    store.ship(url, once=True)
    options = {"store": url, "subscribe": "orders"}
    assert spark.read.format("falaj").options(**options).load().count() == ORDERS
    seen: Counter[str] = Counter()

    def run(at: str) -> None:
        stream = spark.readStream.format("falaj").option("store", at).option("subscribe", "orders")
        query = (
            stream.option("startingOffsets", "earliest")
            .load()
            .selectExpr("substr(CAST(value AS STRING), 1, 12) AS order")
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(lambda batch, _: seen.update(row.order for row in batch.collect()))
            .start()
        )
        query.awaitTermination()

    run(str(store.path))
    topic.partition(0).trim(before_offset=100)
    topic.compact()
    append(topic, range(ORDERS, ORDERS + 700))
    store.ship(url, once=True)
    run(url)
    run(url)
    assert seen == Counter(f"order {i:06d}" for i in range(ORDERS + 700))


def test_a_stream_notices_a_topic_that_was_made_anew_and_a_copy_that_lost_its_end(
    store: falaj.Store, url: str, streams: Callable[..., FalajStreamReader], tmp_path: Path
) -> None:
    store.ship(url, once=True)
    with falaj.open_place(url) as place:
        earlier = place.place.number
    append(store.any_topic("orders"), range(ORDERS, ORDERS + 50))
    store.ship(url, once=True)
    stores.close()
    stream = streams(store=url, subscribe="orders", startingOffsets="earliest")
    begin, end = stream.initialOffset(), stream.latestOffset()
    assert rows(stream, stream.partitions(begin, end)).num_rows == ORDERS + 50
    # The machine was lost, and its store restored as of the first number: another origin.
    falaj.restore(url, tmp_path / "copy", to_number=earlier)
    with falaj.open(tmp_path / "copy") as copy:
        append(copy.any_topic("orders"), range(50))
        copy.ship(url, once=True)
        origin = copy._origin()
    other = streams(store=url, subscribe="orders", origin=origin)
    with pytest.raises(LogTruncated, match="holds other records"):
        other.partitions(end, other.latestOffset())
    store.delete_topic("orders")
    append(store.partitioned_topic("orders", partitions=3), range(10))
    store.ship(url, once=True)
    stores.close()
    after = streams(store=url, subscribe="orders", origin=store._origin())
    with pytest.raises(TopicDeleted):
        after.partitions(end, after.latestOffset())


def test_an_export_goes_on_from_the_directory_to_the_bucket(
    spark: SparkSession, store: falaj.Store, url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    first = pipeline.export(spark, ExportConfig(store=store.path, topic="orders", into=folder))
    append(store.any_topic("orders"), range(ORDERS, ORDERS + 60))
    store.ship(url, once=True)
    second = pipeline.export(spark, ExportConfig(store=url, topic="orders", into=folder))
    assert (first.number, second.number) == (1, 2)
    files = pyarrow.dataset.dataset(folder, format="parquet")
    offsets = files.to_table(columns=["partition", "offset"]).to_pylist()
    assert len(offsets) == len({tuple(each.values()) for each in offsets}) == ORDERS + 60


def test_what_would_write_to_the_store_is_refused_over_a_place(tmp_path: Path) -> None:
    given: Any = {"store": "s3://bucket/shop", "topic": "orders", "into": tmp_path / "files"}
    with pytest.raises(InvalidArgument, match="on_bad"):
        ExportConfig(**given, values="json", schema="id BIGINT", on_bad="bad-orders")
    with pytest.raises(InvalidArgument, match="store is a path"):
        CompactConfig(store=given["store"], topic="orders")


def test_rows_of_several_machines_are_a_union_with_their_origins(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    names = ("north", "south", "west")
    machines = [falaj.open(tmp_path / name) for name in names]
    topics = [machine.topic("orders", codec="str") for machine in machines]

    def wrote(number: int) -> None:
        for name, topic, machine in list(zip(names, topics, machines, strict=True))[:number]:
            topic.extend([f"{name} {n}" for n in range(len(topic), len(topic) + 40)])
            machine.ship(url, once=True)

    def union(read: Any, known: list[str]) -> Any:
        options = {"subscribe": "orders", "includeOrigin": "true", "startingOffsets": "earliest"}
        frames = [
            read.format("falaj").options(store=url, origin=each, **options).load() for each in known
        ]
        whole = reduce(lambda one, other: one.union(other), frames)
        return whole.selectExpr("origin", "CAST(value AS STRING) AS value")

    def expected(number: int, each: int) -> Counter[tuple[str, str]]:
        return Counter(
            (machine._origin(), f"{name} {n}")
            for name, machine in list(zip(names, machines, strict=True))[:number]
            for n in range(each)
        )

    wrote(2)
    known = sorted(each.origin for each in falaj.list_origins(url) if each.head)
    assert Counter(map(tuple, union(spark.read, known).collect())) == expected(2, 40)
    seen: Counter[tuple[str, str]] = Counter()

    def run(checkpoint: str, known: list[str]) -> None:
        query = (
            union(spark.readStream, known)
            .writeStream.option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .foreachBatch(lambda batch, _: seen.update(map(tuple, batch.collect())))
            .start()
        )
        query.awaitTermination()

    run("checkpoint", known)
    assert seen == expected(2, 40)
    wrote(3)
    run("checkpoint", known)
    assert seen == expected(2, 80)
    joined = machines[2]._origin()
    with pytest.raises(Exception, match=r"\[2\] sources in the checkpoint"):
        run("checkpoint", [*known, joined])
    run("joined", [joined])
    assert seen == expected(2, 80) + expected(3, 40) - expected(2, 40)
    for machine in machines:
        machine.close()


def test_the_origin_of_a_directory_is_its_own_or_null(
    store: falaj.Store, url: str, reader: Callable[..., FalajReader]
) -> None:
    def origins(at: Any) -> set[str | None]:
        made = reader(at, "orders", includeOrigin="true", includeHeaders="true")
        return set(rows(made, made.partitions())["origin"].to_pylist())

    assert origins(store.path) == {None}
    store.ship(url, once=True)
    assert origins(store.path) == origins(url) == {store._origin()}
