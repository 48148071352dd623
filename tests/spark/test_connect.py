"""A client of Spark Connect reads, streams and writes topics, through a server of its own.

Server and client are processes, as they are elsewhere. It takes a second Spark, so
`make test-proof` runs it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from house import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LACKING = [name for name in ("grpc", "grpc_status", "zstandard") if find_spec(name) is None]
pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(bool(LACKING), reason=f"NOT RUN: Spark Connect, for want of {LACKING}"),
]

SERVER = """
import sys
import falaj.spark.session
spark = falaj.spark.session.local("server", cores=2, **{
    "spark_plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark_connect_grpc_binding_address": "127.0.0.1",
    "spark_connect_grpc_binding_port": "0",
})
service = spark._jvm.org.apache.spark.sql.connect.service
print(getattr(getattr(service, "SparkConnectService$"), "MODULE$").localPort(), flush=True)
sys.stdin.read()
spark.stop()
"""

CLIENT = """
import json, sys
from pyspark.sql import SparkSession
port, store, folder = sys.argv[1:]
spark = SparkSession.builder.remote("sc://127.0.0.1:" + port).getOrCreate()
told = {}

def read(topic, schema=None, **options):
    reader = spark.read.format("falaj").options(store=store, subscribe=topic, **options)
    return (reader.schema(schema) if schema else reader).load()

frame = spark.range(100).selectExpr("CAST(id % 7 AS STRING) AS key", "to_json(struct(id)) AS value")
for attempt in range(2):  # the second is the first once more
    given = dict(store=store, topic="in", partitions="2", txnAppId="client", txnVersion="1")
    frame.write.format("falaj").mode("append").options(**given).save()
told["count"] = read("in").count()
total = read("in", "value STRUCT<id: BIGINT>", values="json").selectExpr("sum(value.id) AS total")
told["total"] = total.first().total
spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
told["pushed"] = read("in", pushdown="true").where("partition = 0 AND offset < 10").count()

def begin(sink):
    given = dict(store=store, subscribe="in", startingOffsets="earliest", consumer="client")
    return sink(spark.readStream.format("falaj").options(**given).load().select("key", "value"))

def to_topic(rows):
    writer = rows.writeStream.format("falaj").options(store=store, topic="out", partitions="1")
    writer = writer.option("checkpointLocation", folder + "/stream")
    return writer.trigger(availableNow=True).start()

def each(batch, number):
    given = dict(store=store, topic="each", partitions="1", txnAppId="each", txnVersion=str(number))
    batch.write.format("falaj").mode("append").options(**given).save()

def to_function(rows):
    writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", folder + "/each")
    return writer.trigger(availableNow=True).start()

for sink in (to_topic, to_function):
    query = begin(sink)
    assert query.awaitTermination(100)
    assert query.exception() is None, query.exception()
told["out"], told["each"] = read("out").count(), read("each").count()

try:
    read("nobody").count()
except Exception as error:
    told["mistake"] = str(error)

from falaj.errors import Invalid
from falaj.pipeline.aggregating import AggregateConfig, aggregate
try:
    aggregate(spark, AggregateConfig(store=store, topic="in", into="x", checkpoint=folder + "/x"))
except Invalid as error:
    told["pipeline"] = str(error)
spark.stop()
print(json.dumps(told))
"""


def python(program: str, *arguments: object) -> tuple[list[str], dict[str, Any]]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return command, {"env": {**os.environ, "PYTHONPATH": str(ROOT / "python")}}


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """Run a server; yields its port. Nothing of it is left."""
    command, how = python(SERVER)
    with (folder / "server.log").open("wb") as words:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
            start_new_session=True,
            cwd=folder,
            **how,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "server.log").read_text(errors="replace")[-3_000:]
        yield int(line)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.timeout(300)  # it starts a second Spark, on a machine that may be busy
def test_a_client_reads_streams_and_writes_topics_and_is_told_what_it_cannot_do(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    with server(tmp_path) as port:
        command, how = python(CLIENT, port, store, tmp_path)
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, **how)
        assert done.returncode == 0, done.stderr[-5_000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert "nobody" in told.pop("mistake")
    assert "Spark Connect" in told.pop("pipeline")
    assert told == {"count": 100, "total": 4_950, "pushed": 10, "out": 100, "each": 100}
    with falaj.open(store, "r") as opened:
        values = sorted(record.bytes() for record in opened.topic("in"))
        for topic in ("out", "each"):
            assert sorted(record.bytes() for record in opened.topic(topic)) == values
        [consumer] = opened.info()["consumers"]
        assert sum(cursor["lag"] or 0 for cursor in consumer["cursors"]) == 0
