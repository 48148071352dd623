"""Spark on a cluster of two workers writes to topics: tasks twice, executors and drivers killed.

It takes minutes of a busy machine: `make test-proof` runs it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import falaj
from falaj.spark.streaming.stream import HAS_LIMITS
from spark.drivers import environment
from spark.test_standalone import cluster
from spark.test_writing import begin, ended, once, put, staged, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.proof


@contextmanager
def another_writer(path: Path) -> Iterator[Callable[[], int]]:
    """Append to the topic `out` while the body runs; yields what tells how often."""
    stop, counts = threading.Event(), [0]

    def append() -> None:
        with falaj.open(path) as store, store.any_topic("out") as topic:
            while not stop.wait(0.005):
                topic.append(b"of another writer")
                counts[0] += 1

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield lambda: counts[0]
    finally:
        stop.set()
        thread.join()


CLUSTER = """
import os, sys, time
from pathlib import Path
import falaj.spark.session
from falaj.spark import archive
master, store, folder = sys.argv[1:]
spark = falaj.spark.session.local("cluster", cores=2, **{
    "spark_master": master,
    "spark_cores_max": "2",
    "spark_executor_cores": "1",
    "spark_executor_memory": "512m",
    "spark_scheduler_minRegisteredResourcesRatio": "1.0",
    "spark_scheduler_maxRegisteredResourcesWaitingTime": "60s",
    "spark_executor_extraJavaOptions": f"{falaj.spark.session.LIGHT} {archive.flags()}",
    "spark_speculation": "true",
    "spark_speculation_interval": "100ms",
    "spark_speculation_minTaskRuntime": "100ms",
    "spark_speculation_quantile": "0.5",
    "spark_speculation_multiplier": "1",
})

def until(name):
    "Waits for a file; whether it came."
    for _ in range(600):
        if Path(folder, name).exists():
            return True
        time.sleep(0.1)  # sleep: what other executors do is only seen in the folder
    return False

def slow(batches):
    "Takes long in its first attempt, so that Spark begins another on the other executor."
    # They meet: the second goes on when the first, still at work, has seen it. The first then waits
    # for Spark to kill it, which it does when the second is done.
    from pyspark import TaskContext
    for batch in batches:
        yield batch
        if 0 in batch["id"].to_pylist():
            Path(folder, f"attempt-{TaskContext.get().taskAttemptId()}").touch()
            try:
                Path(folder, "first").touch(exist_ok=False)
            except FileExistsError:
                Path(folder, "second").touch()
                until("met")
            else:
                if until("second"):
                    Path(folder, "met").touch()
                    until("never")
                Path(folder, "first ended by itself").touch()

def fatal(batches):
    "Kills the executor that it runs on, once: the first java above this process."
    for batch in batches:
        yield batch
        if 999 in batch["id"].to_pylist() and not Path(folder, "fatal").exists():
            Path(folder, "fatal").touch()
            above = os.getpid()
            while Path(f"/proc/{above}/comm").read_text().strip() != "java":
                above = int(Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(above, 9)
            time.sleep(60)  # sleep: what lives on is killed with it

frame = spark.range(0, 1000, 1, 2).mapInArrow(slow, "id BIGINT").mapInArrow(fatal, "id BIGINT")
frame = frame.selectExpr("CAST(id AS STRING) AS value")
options = dict(store=store, topic="job", partitions="1")
frame.write.format("falaj").mode("append").options(**options).save()
Path(folder, "written").touch()

from falaj.spark.streaming.stream import HAS_LIMITS
given = dict(store=store, subscribe="in", startingOffsets="earliest")
if HAS_LIMITS:
    given["maxOffsetsPerTrigger"] = "100"
frame = spark.readStream.format("falaj").options(**given).load().select("key", "value")
writer = frame.writeStream.format("falaj").options(store=store, topic="out")
writer.option("checkpointLocation", folder + "/checkpoint").start().awaitTermination()
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Let a cluster run a job and then a stream; kill it when the second batch is in the log.

    With PySpark 4.1, which takes all there is as one, the first.
    """
    folder = tmp_path_factory.mktemp("killed")
    store, log, count = folder / "store", folder / "log", 0
    enough = 101 if HAS_LIMITS else 1
    put(store, range(1_000))
    # Two hosts, or no task would run twice: Spark begins no second copy where the first one runs.
    with cluster(folder, ("127.0.0.1", "127.0.0.2")) as master:
        with log.open("wb") as words:
            driver = subprocess.Popen(
                [sys.executable, "-c", CLUSTER, master, store, folder],
                env=environment(),
                cwd=folder,
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
        try:
            with falaj.open(store, read_only=True) as opened:
                # All of a batch comes into sight at once: Spark does not know of its end yet.
                for count, _ in enumerate(opened.any_topic("out").follow(timeout=250), 1):
                    if count >= enough:
                        break
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert count >= enough, log.read_text(errors="replace")[-3_000:]
    return folder


@pytest.mark.timeout(300)  # it starts six Javas, on a machine that may be busy
def test_speculative_tasks_and_killed_executors_write_once(killed: Path) -> None:
    left = set(os.listdir(killed))
    assert {"first", "second", "met", "fatal", "written"} <= left
    assert len([name for name in left if name.startswith("attempt-")]) >= 2
    assert "first ended by itself" not in left, "all was written while it waited"
    with falaj.open(killed / "store", read_only=True) as store:
        found = [int(record.to_bytes()) for record in store.any_topic("job")]
    assert found == list(range(1_000))


@pytest.mark.timeout(300)  # it starts the shared session where it runs alone
def test_a_driver_that_is_killed_when_a_batch_is_there_is_followed_by_one_that_writes_on(
    spark: SparkSession, killed: Path
) -> None:
    store = killed / "store"
    with another_writer(store) as appended:
        ended(begin(spark, store, killed / "checkpoint"))
    assert written(store) == once(range(1_000)) + Counter({b"of another writer": appended()})
    assert staged(store) == []
