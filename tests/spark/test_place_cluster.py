"""A standalone cluster over a bucket: workers that know of no directory, and a stream's restarts.

The sentences of `docs/guide/spark.md` on a store in a bucket that need executors in processes of
their own. Five Javas have to start, so `make test-spark-all` runs this; `test_place` runs on each
push.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import pytest

import falaj
from ship.servers import BUCKET, VARIABLES, Moto
from spark import drivers
from spark.test_standalone import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.release

ORDERS = 3_000

DRIVER = """
import json, sys, time
from pathlib import Path
import falaj.spark.session
from falaj.spark import archive
master, folder = sys.argv[1:]
spark = falaj.spark.session.local("bucket", cores=2, **{
    "spark_master": master,
    "spark_cores_max": "2",
    "spark_executor_cores": "1",
    "spark_executor_memory": "512m",
    "spark_executor_extraJavaOptions": f"{falaj.spark.session.LIGHT} {archive.flags()}",
    "spark_scheduler_minRegisteredResourcesRatio": "1.0",
    "spark_scheduler_maxRegisteredResourcesWaitingTime": "60s",
    "spark_sql_shuffle_partitions": "1",
})
LINE = ["partition", "offset", "crc32(value) AS crc"]

def named(batches):
    "Says which worker read each record."
    import pyarrow
    worker = Path.cwd().relative_to(folder).parts[0]
    for batch in batches:
        # Both workers get a task, however fast one is: each waits for the other's.
        Path(folder, "at-" + worker).touch()
        while len(list(Path(folder).glob("at-*"))) < 2:
            time.sleep(0.01)  # sleep: for another process
        columns = [batch["partition"], batch["offset"], batch["crc"], [worker] * len(batch)]
        yield pyarrow.record_batch(columns, ["partition", "offset", "crc", "worker"])

def batch(**options):
    frame = spark.read.format("falaj").options(subscribe="orders", minPartitions="4", **options)
    schema = "partition INT, offset BIGINT, crc BIGINT, worker STRING"
    return [list(row) for row in frame.load().selectExpr(*LINE).mapInArrow(named, schema).collect()]

def stream(**options):
    seen = []
    frame = spark.readStream.format("falaj").options(
        subscribe="orders", startingOffsets="earliest", **options
    )
    query = (
        frame.load()
        .selectExpr(*LINE)
        .writeStream.option("checkpointLocation", folder + "/checkpoint")
        .trigger(availableNow=True)
        .foreachBatch(lambda rows, _: seen.extend(list(row) for row in rows.collect()))
        .start()
    )
    query.awaitTermination()
    return seen

for line in sys.stdin:
    asked = json.loads(line)
    try:
        told = {"rows": {"batch": batch, "stream": stream}[asked.pop("do")](**asked)}
    except Exception as error:
        told = {"error": str(error)}
    print(json.dumps(told), flush=True)
"""


class Cluster:
    """A driver on a cluster, which is asked for rows; its stream has one checkpoint."""

    def __init__(self, master: str, folder: Path) -> None:
        self._words = folder / "driver.log"
        with self._words.open("wb") as words:
            self._driver = subprocess.Popen(
                [sys.executable, "-c", DRIVER, master, folder],
                env=drivers.environment(),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )

    def _ask(self, **asked: str) -> dict[str, Any]:
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        print(json.dumps(asked), file=self._driver.stdin, flush=True)
        line = self._driver.stdout.readline()
        assert line, self._words.read_text(errors="replace")[-3_000:]
        told: dict[str, Any] = json.loads(line)
        return told

    def rows(self, do: str, store: str, **options: str) -> list[list[Any]]:
        """Return the rows of a batch, or those that the stream gets until it has all there is."""
        told = self._ask(do=do, store=store, **options)
        assert "rows" in told, told["error"]
        found: list[list[Any]] = told["rows"]
        return found

    def error(self, store: str, **options: str) -> str:
        """Return why the stream does not start again."""
        told = self._ask(do="stream", store=store, **options)
        return str(told["error"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        with self._driver:  # it ends where its input does
            pass


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty place; workers find its keys, and the cache, in their environment."""
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "cache"))
    (tmp_path / "moto").mkdir()
    with Moto(tmp_path / "moto") as server:
        yield f"s3://{BUCKET}/cluster?endpoint={server.endpoint}"


def append(store: falaj.Store, numbers: range) -> None:
    """Append orders, in segments that are sealed and open."""
    kind: Any = {"partitions": 3, "segment_bytes": 64 << 10, "compacted": True}
    topic = store.partitioned_topic("orders", **kind)
    for start in range(numbers.start, numbers.stop, 50):
        some = range(start, min(start + 50, numbers.stop))
        topic.extend((b"key %d" % (i % 11), b"order %06d" % i + bytes(100)) for i in some)


def rows_of(store: falaj.Store) -> set[tuple[int, int, int]]:
    """Return what the directory has."""
    topic: Any = store.any_topic("orders")
    return {
        (partition, record.offset, zlib.crc32(record.to_bytes()))
        for partition in range(3)
        for record in topic.partition(partition)
    }


def once(rows: list[list[Any]]) -> set[tuple[int, int, int]]:
    """Return rows that came once each."""
    found = {(row[0], row[1], row[2]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.timeout(600)  # it starts five Javas, on a machine that may be busy
def test_a_cluster_without_the_directory_has_its_figures_and_a_stream_restarts_there(
    tmp_path: Path, url: str
) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with (
        falaj.open(tmp_path / "store") as store,
        cluster(folder) as master,
        Cluster(master, folder) as spark,
    ):
        append(store, range(ORDERS))
        store.ship(url, once=True)
        read = spark.rows("batch", url)
        assert once(read) == rows_of(store)
        assert sorted(Counter(row[3] for row in read)) == ["one", "two"]
        seen = rows_of(store)
        assert once(spark.rows("stream", url)) == seen

        # Compaction and a trim of what was read are no loss. The stream goes on behind them.
        topic: Any = store.any_topic("orders")
        topic.compact()
        topic.partition(0).trim(before_offset=100)
        append(store, range(ORDERS, ORDERS + 700))
        earlier = store.ship(url, once=True)["number"]
        assert once(spark.rows("batch", url)) == rows_of(store) != seen
        assert once(spark.rows("stream", url)) == rows_of(store) - seen
        seen |= rows_of(store)

        # The machine is lost. A copy of the newest number goes on, as another origin.
        mine = store._origin()
        falaj.restore(url, tmp_path / "copy", origin=mine)
        with falaj.open(tmp_path / "copy") as copy:
            append(copy, range(9_000, 9_300))
            copy.ship(url, once=True)
            other = copy._origin()
            assert once(spark.rows("batch", url, origin=other)) == rows_of(copy)
            assert once(spark.rows("stream", url, origin=other)) == rows_of(copy) - seen

        # Records that an earlier copy lacks are missed, and so are those that were trimmed unread.
        falaj.restore(url, tmp_path / "old", origin=mine, to_number=earlier)
        with falaj.open(tmp_path / "old") as old:
            append(old, range(20_000, 20_300))
            old.ship(url, once=True)
            assert "holds other records" in spark.error(url, origin=old._origin())
        with falaj.open(tmp_path / "copy") as copy:
            append(copy, range(9_300, 9_600))
            orders: Any = copy.any_topic("orders")
            orders.partition(1).trim(before_offset=orders.partition(1).end_offset)
            copy.ship(url, once=True)
            assert "trimmed" in spark.error(url, origin=other)
            after = spark.rows("stream", url, origin=other, failOnDataLoss="false")
            assert once(after) <= rows_of(copy)
            assert {row[0] for row in after} == {0, 2}
