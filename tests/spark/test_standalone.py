"""Spark on a standalone cluster: a master and two workers, each a process of its own, on loopback.

The sentences of `docs/guide/spark.md` on a standalone cluster that one machine can show: both
workers read and stage, and a worker that dies with all its processes changes nothing of what is
written. Five Javas have to start, so `make test-spark-all` runs this; `test_cluster` runs on each
push.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import falaj
from falaj.spark import archive, java, session
from spark import drivers

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.release

HOME = Path(pyspark.__file__).parent
LIGHT = f"{session.LIGHT} {archive.flags()}"
RECORDS = 4_000

DRIVER = """
import json, os, sys, time
from pathlib import Path
import falaj.spark.session
from falaj.spark import archive
master, store, folder = sys.argv[1:]
spark = falaj.spark.session.local("standalone", cores=2, **{
    "spark_master": master,
    "spark_cores_max": "2",
    "spark_executor_cores": "1",
    "spark_executor_memory": "512m",
    "spark_executor_extraJavaOptions": f"{falaj.spark.session.LIGHT} {archive.flags()}",
    "spark_scheduler_minRegisteredResourcesRatio": "1.0",
    "spark_scheduler_maxRegisteredResourcesWaitingTime": "60s",
})

def worker():
    "Name of the worker that this task runs on: executors run in folders below its own."
    return Path.cwd().relative_to(folder).parts[0]

def named(batches):
    "Says where each record was read."
    import pyarrow
    for batch in batches:
        # Both workers get a task, however fast one is: each waits for the other's.
        Path(folder, "at-" + worker()).touch()
        while len(list(Path(folder).glob("at-*"))) < 2:
            time.sleep(0.01)  # sleep: for another process
        yield pyarrow.record_batch([[worker()] * len(batch)], ["worker"])

def fatal(batches):
    "Kills the worker that it runs on, once, and the executor with it: one group of processes."
    for batch in batches:
        yield batch
        if b"3999" in batch["value"].to_pylist():
            try:
                Path(folder, "killed").symlink_to(worker())
            except FileExistsError:
                continue
            above = os.getpid()
            while Path(f"/proc/{above}/comm").read_text().strip() != "java":
                above = int(Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1])
            os.killpg(os.getpgid(above), 9)
            time.sleep(60)  # sleep: what lives on is killed with it

def read(topic):
    given = dict(store=store, subscribe=topic, minPartitions="4")
    return spark.read.format("falaj").options(**given).load()

frame = read("in").select("key", "value")
counts = frame.mapInArrow(named, "worker STRING").groupBy("worker").count().collect()
print(json.dumps({row["worker"]: row["count"] for row in counts}), flush=True)
given = dict(store=store, topic="out", partitions="2")
doomed = frame.mapInArrow(fatal, frame.schema)
doomed.write.format("falaj").mode("append").options(**given).save()
print(json.dumps(read("out").count()), flush=True)
"""


@contextmanager
def cluster(folder: Path, hosts: tuple[str, str] = ("127.0.0.1", "127.0.0.1")) -> Iterator[str]:
    """Run a master and two workers, `one` and `two`; yields the master's address.

    Args:
        folder: Where they work, and their logs are.
        hosts: Addresses of the workers, which may be any of the loopback's. Where they are two,
            Spark takes the workers for two machines.
    """
    home = java.home()
    environment = {
        **drivers.environment(),
        **({"JAVA_HOME": str(home)} if home else {}),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{LIGHT} -Dspark.master.rest.enabled=false",
    }
    running = []

    def start(name: str, host: str, kind: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        with log.open("wb") as words:
            running.append(
                subprocess.Popen(
                    [
                        HOME / "bin" / "spark-class",
                        f"org.apache.spark.deploy.{kind}",
                        *("--host", host, "--webui-port", "0"),
                        *arguments,
                    ],
                    env=environment,
                    stdout=words,
                    stderr=words,
                    start_new_session=True,
                )
            )
        return log

    try:
        log = start("master", "127.0.0.1", "master.Master", "--port", "0")
        address = told(log, "master at ", "spark://")
        size = ("-c", "1", "-m", "700m")
        for name, host in zip(("one", "two"), hosts, strict=True):
            start(name, host, "worker.Worker", "-d", str(folder / name), *size, address)
        yield address
    finally:
        for process in running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def told(log: Path, behind: str, prefix: str) -> str:
    """Wait for a word that a process writes to its log."""
    follow = subprocess.Popen(["tail", "-n", "+1", "-F", log], stdout=subprocess.PIPE, text=True)
    assert follow.stdout is not None
    with follow:
        for line in follow.stdout:
            if f"{behind}{prefix}" in line:
                follow.kill()
                return prefix + line.partition(f"{behind}{prefix}")[2].split()[0]
    raise AssertionError(log.read_text(errors="replace"))


@pytest.mark.timeout(300)  # it starts five Javas, on a machine that may be busy
def test_two_workers_read_and_write_and_one_that_dies_changes_nothing(tmp_path: Path) -> None:
    store, folder = tmp_path / "store", tmp_path / "cluster"
    folder.mkdir()
    with falaj.open(store) as opened, opened.partitioned_topic("in", partitions=2) as topic:
        topic.extend((b"k%d" % (n % 7), b"%d" % n) for n in range(RECORDS))
    with cluster(folder) as master:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, master, store, folder],
            env=drivers.environment(),
            cwd=folder,
            capture_output=True,
            text=True,
        )
    logs = "".join(log.read_text(errors="replace")[-2_000:] for log in folder.glob("*.log"))
    assert done.returncode == 0, done.stderr[-3_000:] + logs
    workers, count = (json.loads(line) for line in done.stdout.splitlines())
    assert sorted(workers) == ["one", "two"]
    assert sum(workers.values()) == count == RECORDS
    assert (folder / "killed").readlink().name in workers
    with falaj.open(store, read_only=True) as opened:
        found = sorted(int(record.to_bytes()) for record in opened.any_topic("out"))
    assert found == list(range(RECORDS))
    assert [file for file in store.rglob("*") if file.suffix in (".part", ".tmp")] == []
