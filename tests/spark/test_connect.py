"""A client of Spark Connect reads, streams and writes topics, and runs pipelines, through a server.

Server and clients are processes, as they are elsewhere. It takes a second Spark, so
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
from falaj.spark.streaming.stream import HAS_LIMITS
from spark.drivers import environment

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

spark.stop()
print(json.dumps(told))
"""

PIPELINES = """
import json, sys
from pyspark.sql import SparkSession
import falaj.pipeline as pipeline
from falaj.errors import Error, InvalidArgument
port, store, folder = sys.argv[1:]
spark = SparkSession.builder.remote("sc://127.0.0.1:" + port).getOrCreate()
told = {}

def run(name, function, config):
    "Runs a pipeline twice, for the second has nothing to do or less; keeps what it says it did."
    told[name] = [function(spark, config).to_dict() for _ in range(2)]

given = dict(store=store, topic="sales")
schema = "id BIGINT, sold_at TIMESTAMP"
columns = ("offset", "key", "value")
run("export", pipeline.export, pipeline.ExportConfig(
    **given, into=folder + "/lake", values="json", schema=schema, columns=columns,
    date_of="value.sold_at"))
told["exported"] = sorted(row.offset for row in
    pipeline.read_exported(spark, folder + "/lake").select("offset").collect())
run("dedupe", pipeline.dedupe, pipeline.DedupeConfig(**given, into="once", by="json:id"))
run("import", pipeline.import_files, pipeline.ImportConfig(
    store=store, into="rows", source=folder + "/files", schema="id BIGINT, name STRING", key="id",
    on_bad="skip"))
run("replay", pipeline.replay, pipeline.ReplayConfig(**given, into="again", speed="max"))
run("compact", pipeline.compact, pipeline.CompactConfig(**given, seal=True))
run("profile", pipeline.profile, pipeline.ProfileConfig(**given, html=folder + "/page.html"))

said = {}
try:
    pipeline.aggregate(spark, pipeline.AggregateConfig(**given, into="x", checkpoint=folder + "/x"))
except InvalidArgument as error:
    said["aggregate"] = str(error)
try:
    pipeline.join(spark, pipeline.JoinConfig(
        **given, into="x", schema="id BIGINT", table=folder + "/files", on=("id",),
        checkpoint=folder + "/x"))
except InvalidArgument as error:
    said["join"] = str(error)
try:
    pipeline.export(spark, pipeline.ExportConfig(
        **given, into=folder + "/other", values="json", schema="id DATE"))
except Error as error:
    said["export"] = type(error).__name__ + ": " + str(error)
spark.stop()
print(json.dumps([told, said]))
"""


def python(program: str, *arguments: object) -> tuple[list[str], dict[str, Any]]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return command, {"env": environment()}


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


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with server(tmp_path_factory.mktemp("server")) as port:
        yield port


def client(program: str, *arguments: object) -> Any:
    """Run a client; returns what it printed at last."""
    command, how = python(program, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, **how)
    assert done.returncode == 0, done.stderr[-5_000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(300)  # it starts a second Spark, on a machine that may be busy
def test_a_client_reads_streams_and_writes_topics_and_is_told_its_mistake(
    port: int, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    told = client(CLIENT, port, store, tmp_path)
    assert "nobody" in told.pop("mistake")
    assert told == {"count": 100, "total": 4_950, "pushed": 10, "out": 100, "each": 100}
    with falaj.open(store, read_only=True) as opened:
        values = sorted(record.to_bytes() for record in opened.any_topic("in"))
        for topic in ("out", "each"):
            assert sorted(record.to_bytes() for record in opened.any_topic(topic)) == values
        [consumer] = opened.info()["groups"]
        if HAS_LIMITS:  # with PySpark 4.1 cursors are a batch behind
            assert sum(cursor["lag"] or 0 for cursor in consumer["partitions"]) == 0


SALES, IDS = 300, 40


def sale(n: int) -> bytes:
    return b'{"id": %d, "sold_at": "2026-11-%02dT08:00:00Z"}' % (n % IDS, 20 + n % 2)


@pytest.mark.release
@pytest.mark.timeout(300)  # it starts a second Spark, on a machine that may be busy
def test_a_client_runs_the_pipelines_that_the_guide_names_and_is_refused_the_others(
    port: int, tmp_path: Path
) -> None:
    store, files = tmp_path / "store", tmp_path / "files"
    files.mkdir()
    (files / "a.csv").write_text("id,name\n1,one\n2,two\n")
    (files / "b.csv").write_text("id,name\n3,three\nfour,4\n")
    with falaj.open(store) as opened, opened.topic("sales", compacted=True) as topic:
        topic.extend((b"%d" % (n % 7), sale(n)) for n in range(SALES))
    told, said = client(PIPELINES, port, store, tmp_path)

    def figures(name: str, *wanted: str) -> list[tuple[Any, ...]]:
        return [tuple(run[key] for key in wanted) for run in told[name]]

    assert figures("export", "records", "files", "dates") == [
        (SALES, 2, ["2026-11-20", "2026-11-21"]),
        (0, 0, None),
    ]
    assert told["exported"] == list(range(SALES))
    assert figures("dedupe", "records", "kept", "dropped") == [(SALES, IDS, SALES - IDS), (0, 0, 0)]
    assert figures("import", "records", "files", "known", "bad") == [
        (3, 2, 0, {str(files / "b.csv"): 1}),
        (0, 0, 2, {}),
    ]
    assert figures("replay", "records", "before") == [(SALES, 0), (0, SALES)]
    assert figures("compact", "keys", "removed") == [(7, SALES - 7), (7, 0)]
    assert [(run["records"], run["keys"]["distinct"]) for run in told["profile"]] == [(7, 7)] * 2
    assert "<html" in (tmp_path / "page.html").read_text()
    with falaj.open(store, read_only=True) as opened:
        assert len([*opened.any_topic("sales")]) == 7
        assert [record.to_bytes() for record in opened.any_topic("once")] == [
            sale(n) for n in range(IDS)
        ]
        assert sorted(record.key or b"" for record in opened.any_topic("rows")) == [
            b"1",
            b"2",
            b"3",
        ]
        assert "x" not in opened.topics
    for name in ("aggregate", "join"):
        assert "Spark Connect has none" in said[name]
    # An error of a task's comes in falaj's words, with what a pipeline takes.
    assert said["export"].startswith(
        "InvalidArgument: topic sales, partition 0: the value at offset "
    )
