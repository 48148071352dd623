"""Tasks and drivers when Spark writes, called as Spark does, without it."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema

import falaj
from falaj.errors import (
    InvalidArgument,
    NotAStore,
    OffsetConflict,
    SettingsMismatch,
    UnknownTopic,
)
from falaj.spark.source import FalajSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from falaj.spark.writing.sink import FalajStreamWriter, FalajWriter

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HEADER = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))


@pytest.fixture
def orders(path: Path) -> Path:
    with falaj.open(path) as store:
        store.partitioned_topic("orders", partitions=3)
    return path


def batch(store: Path, rows: pyarrow.Table, **options: str) -> FalajWriter:
    """Make the writer of a batch, as the driver's process does."""
    given = {"store": str(store), "topic": "orders"} | options
    return FalajSource({k: v for k, v in given.items() if v}).writer(
        from_arrow_schema(rows.schema), overwrite=False
    )


def work(writer: Any, *tasks: pyarrow.Table) -> list[Any]:
    """Let tasks write, each with a writer of its own, and bring their messages to the driver."""
    found = []
    for rows in tasks:
        copy = pickle.loads(pickle.dumps(writer))
        found.append(pickle.loads(pickle.dumps(copy.write(iter(rows.to_batches(2))))))
    return found


def values(*numbers: int, **columns: list[Any]) -> pyarrow.Table:
    return pyarrow.table({"value": [b"%d" % n for n in numbers], **columns})


def written(store: Path, topic: str = "orders") -> list[bytes]:
    """Read all values, a partition after the other."""
    with falaj.open(store, read_only=True) as opened, opened.any_topic(topic) as found:
        return [record.to_bytes() for n in found.partitions for record in found.partition(n)]


def staged(store: Path) -> list[Path]:
    """List files of parts."""
    return [file for file in store.rglob("*") if file.suffix in (".part", ".tmp")]


def test_records_come_as_they_are(orders: Path) -> None:
    local, huge = pyarrow.timestamp("us", tz="America/New_York"), b"x" * 3_000_000
    rows = pyarrow.table(
        {
            "value": pyarrow.array([b"\xff\x00", None, b"", huge], pyarrow.large_binary()),
            "key": pyarrow.array([None, "k", "", "é"], pyarrow.large_string()),
            "timestamp": pyarrow.array([NOON, None, NOON, NOON], local),
            "headers": pyarrow.array(
                [None, [], [{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None], HEADER
            ),
            "partition": pyarrow.array([2, 1, 1, 0], pyarrow.int32()),
        }
    )
    writer = batch(orders, rows)
    began = datetime.now(UTC)
    writer.commit(work(writer, rows))
    with falaj.open(orders, read_only=True) as store:
        topic = store.any_topic("orders")
        assert topic.partition(2)[0].to_bytes() == b"\xff\x00"
        assert topic.partition(2)[0].key is None
        assert topic.partition(2)[0].timestamp == NOON
        tombstone, empty = topic.partition(1)
        assert (tombstone.raw, tombstone.key, tombstone.headers) == (None, b"k", ())
        assert began <= tombstone.timestamp.replace(microsecond=999_999)
        assert (empty.to_bytes(), empty.key) == (b"", b"")
        assert empty.headers == (("a", b"1"), ("a", None))
        assert topic.partition(0)[0].to_bytes() == huge
        assert topic.partition(0)[0].key == "é".encode()


def test_keys_lead_to_the_partitions_that_appends_choose_and_order_stays(orders: Path) -> None:
    numbers = range(300)
    rows = values(*numbers, key=[b"key %d" % (n % 17) for n in numbers])
    with falaj.open(orders) as store:
        alike = store.partitioned_topic("alike", partitions=3)
        for value, key in zip(rows["value"].to_pylist(), rows["key"].to_pylist(), strict=True):
            alike.append(value, key=key)
    writer = batch(orders, rows)
    writer.commit(work(writer, rows.slice(0, 100), rows.slice(100, 130), rows.slice(230)))
    assert written(orders) == written(orders, "alike")


def test_parts_stand_in_the_order_of_sparks_partitions_whoever_is_ready_first(path: Path) -> None:
    rows = values(1, 2, 3)
    writer = batch(path, rows, partitions="1")
    late, early = work(writer, rows, values(4, 5))
    writer.commit([early, late])
    assert written(path) == [b"4", b"5", b"1", b"2", b"3"]


def test_nobody_sees_anything_before_the_commit_and_nothing_is_left_of_an_abort(
    orders: Path,
) -> None:
    rows = values(*range(10))
    writer = batch(orders, rows)
    messages = work(writer, rows, rows)
    assert written(orders) == []
    assert staged(orders)
    writer.abort([None, *messages])
    assert staged(orders) == []
    with pytest.raises(falaj.Error):
        writer.commit(messages)
    assert written(orders) == []


def test_a_task_that_fails_leaves_nothing(orders: Path) -> None:
    rows = pyarrow.table({"value": [b"x" * 3_000_000] * 8})  # more than waits in memory

    def breaks() -> Any:
        yield from rows.to_batches(1)
        assert staged(orders)
        raise OSError("Spark is gone")

    with pytest.raises(OSError, match="Spark is gone") as raised:
        batch(orders, rows).write(breaks())
    # Also while somebody holds on to the error, and by that to the part.
    assert (staged(orders), raised.value.args) == ([], ("Spark is gone",))


def test_what_an_attempt_left_that_was_not_chosen_goes_with_the_commit(orders: Path) -> None:
    rows = values(1, 2, 3)
    writer = batch(orders, rows)
    chosen, _denied = work(writer, rows, rows)
    writer.commit([chosen])
    assert len(written(orders)) == 3
    assert staged(orders) == []


def test_a_batch_with_a_version_is_written_once_and_an_older_one_not_at_all(orders: Path) -> None:
    def write(version: int, *numbers: int) -> None:
        rows = values(*numbers)
        writer = batch(orders, rows, txnAppId="nightly", txnVersion=str(version))
        messages = work(writer, rows)
        writer.commit(messages)
        writer.abort(messages)  # Spark's, where what comes after the commit fails

    for version, number in ((3, 1), (3, 2), (2, 3), (4, 4)):
        write(version, number)
    assert sorted(written(orders)) == [b"1", b"4"]
    assert staged(orders) == []


def test_a_version_counts_for_its_topic_alone(orders: Path) -> None:
    with falaj.open(orders) as store:
        store.topic("first", log="shop")
        store.topic("second", log="shop")
    for topic in ("first", "second", "first"):
        rows = values(1)
        writer = batch(orders, rows, topic=topic, txnAppId="nightly", txnVersion="0")
        writer.commit(work(writer, rows))
    assert written(orders, "first") == written(orders, "second") == [b"1"]


def test_no_records_are_nothing_but_a_version_that_is_done(orders: Path) -> None:
    empty = values(1).slice(1)
    batch(orders, empty).commit(work(batch(orders, empty), empty))
    writer = batch(orders, empty, txnAppId="a", txnVersion="1")
    writer.commit(work(writer, empty))
    rows = values(1)
    writer = batch(orders, rows, txnAppId="a", txnVersion="1")
    writer.commit(work(writer, rows))
    assert written(orders) == []


# --- Streams --------------------------------------------------------------------------------------


class Task:
    """A task's context, as far as a writer asks it."""

    def __init__(self, query: str, batch: int) -> None:
        self.found = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.found.get(name)

    def partitionId(self) -> int:  # noqa: N802
        return 0

    def taskAttemptId(self) -> int:  # noqa: N802
        return 7


def stream(store: Path) -> FalajStreamWriter:
    return FalajSource(
        {"store": str(store), "topic": "orders", "checkpointLocation": "c"}
    ).streamWriter(from_arrow_schema(values(1).schema), overwrite=False)


def test_a_batch_of_a_stream_is_written_once_however_often_it_comes(
    orders: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def run(query: str, batch: int, *, aborts: bool = False) -> None:
        monkeypatch.setattr(TaskContext, "get", lambda: Task(query, batch))
        messages = work(stream(orders), values(batch), values(batch))
        stream(orders).commit(messages, batch)  # Spark makes another writer for it
        if aborts:
            stream(orders).abort(messages, batch)

    run("a", 0, aborts=True)
    run("a", 0)
    run("b", 0)
    run("a", 1)
    caplog.clear()
    run("a", 1)
    assert "topic orders has batch 1 of the query a, so nothing was appended" in caplog.text
    assert sorted(written(orders)) == [b"0"] * 4 + [b"1"] * 2
    assert staged(orders) == []


def test_a_batch_that_comes_after_a_later_one_is_of_an_old_checkpoint_and_fails(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(batch: int, *rows: pyarrow.Table) -> None:
        monkeypatch.setattr(TaskContext, "get", lambda: Task("a", batch))
        messages = work(stream(orders), *rows)
        try:
            stream(orders).commit(messages, batch)
        except OffsetConflict:
            stream(orders).abort(messages, batch)  # as Spark does
            raise

    run(4, values(4))
    run(3)  # without records there is nothing to lose
    with pytest.raises(OffsetConflict, match=r"has batch 4 of this query, and now comes batch 3"):
        run(3, values(3))
    assert written(orders) == [b"4"]
    assert staged(orders) == []


def test_a_failed_batch_of_a_stream_leaves_nothing(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: Task("a", 0))
    messages = work(stream(orders), values(1), values(2))
    stream(orders).abort([messages[0], None], 0)
    stream(orders).abort([None, None], 0)
    assert (written(orders), staged(orders)) == ([], [])


# --- Where it goes --------------------------------------------------------------------------------


def test_what_is_not_there_is_an_error_unless_spark_is_to_make_it(path: Path) -> None:
    rows = values(1)
    with pytest.raises(NotAStore, match=r"create it first, .* by \.option\('createTopics', "):
        batch(path, rows)
    assert not path.exists()
    falaj.open(path).close()
    with pytest.raises(UnknownTopic, match=r"create it first, .* '1'\)"):
        batch(path, rows)
    batch(path, rows, partitions="2")
    with falaj.open(path, read_only=True) as store:
        assert len(store.any_topic("orders").partitions) == 2
    batch(path, rows, partitions="2")
    with pytest.raises(SettingsMismatch):
        batch(path, rows, partitions="3")


def test_a_task_that_does_not_see_the_drivers_store_says_so(orders: Path, tmp_path: Path) -> None:
    rows = values(1)
    writer = batch(orders, rows)
    orders.rename(tmp_path / "away")
    with pytest.raises(NotAStore, match=r"executor on .* does not see the store .* same path"):
        work(writer, rows)
    with falaj.open(orders) as store:
        store.partitioned_topic("orders", partitions=3)
    with pytest.raises(NotAStore, match="sees another store than the one that Spark writes to"):
        work(writer, rows)
    assert staged(orders) == []


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_there_is_not_fails_the_task(orders: Path, partition: int) -> None:
    rows = values(1, partition=pyarrow.array([partition], pyarrow.int32()))
    with pytest.raises(InvalidArgument, match="partition"):
        work(batch(orders, rows), rows)
    assert staged(orders) == []


def test_several_topics_without_a_version_are_refused_by_the_first_task_that_knows(
    path: Path,
) -> None:
    with falaj.open(path) as store:
        for name in ("a", "b"):
            store.topic(name)
    several = r"names several topics, a, b, .*'txnAppId'"
    seen = []

    def batches() -> Iterator[pyarrow.RecordBatch]:
        for number, name in enumerate("aabab"):
            seen.append(name)
            yield values(number, topic=[name]).to_batches()[0]

    rows = values(1, 2, topic=["a", "b"])
    with pytest.raises(InvalidArgument, match=several):
        batch(path, rows, topic="").write(batches())
    assert seen == ["a", "a", "b"], "a task that writes on what nobody will see"
    assert staged(path) == []
    # Where no task has two, none can know.
    writer = batch(path, rows, topic="")
    messages = work(writer, rows.slice(0, 1), rows.slice(1))
    with pytest.raises(InvalidArgument, match=several):
        writer.commit(messages)
    writer.abort(messages)
    assert staged(path) == []
    assert written(path, "a") == written(path, "b") == []


def test_a_column_names_the_topic_of_each_record(path: Path) -> None:
    with falaj.open(path) as store:
        for name in ("a", "b"):
            store.topic(name)
    rows = values(1, 2, 3, 4, topic=["a", "b", "a", "b"])
    for _ in range(2):
        writer = batch(path, rows, topic="", txnAppId="x", txnVersion="1")
        writer.commit(work(writer, rows, rows.slice(2)))
    assert written(path, "a") == [b"1", b"3", b"3"]
    assert written(path, "b") == [b"2", b"4", b"4"]
    one = values(5, topic=["a"])
    writer = batch(path, one, topic="")
    writer.commit(work(writer, one))
    assert written(path, "a")[-1] == b"5"
    for bad, error in ((None, InvalidArgument), ("c", UnknownTopic)):
        rows = values(1, topic=pyarrow.array([bad], pyarrow.string()))
        with pytest.raises(error, match="topic"):
            work(batch(path, rows, topic=""), rows)
    assert staged(path) == []


def test_an_option_goes_before_the_column(orders: Path) -> None:
    rows = values(1, topic=["elsewhere"])
    writer = batch(orders, rows)
    writer.commit(work(writer, rows))
    assert written(orders) == [b"1"]


_MANY = 150
_BATCHES = 60


@pytest.mark.parametrize("many", ["topics", "partitions"])
def test_a_task_of_many_topics_or_partitions_holds_no_more_memory_than_one_of_few(
    path: Path, many: str
) -> None:
    names = [f"t{n}" for n in range(_MANY if many == "topics" else 1)]
    with falaj.open(path) as store:
        for name in names:
            store.partitioned_topic(
                name, log="shared", segment_bytes=4 << 20, partitions=_MANY // len(names)
            )
    status = Path("/proc/self/status")
    held: list[int] = []

    def batches() -> Iterator[pyarrow.RecordBatch]:
        """Give 140 MB: to all topics in turns, or to one partition after the other."""
        for at in range(_BATCHES if many == "topics" else _MANY):
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            held.append(int(lines["RssAnon"].split()[0]) << 10)
            count = _MANY if many == "topics" else _BATCHES
            where = names if many == "topics" else names * count
            partition = pyarrow.array([0 if many == "topics" else at] * count, pyarrow.int32())
            rows = {"value": [b"x" * 16_384] * count, "topic": where, "partition": partition}
            yield pyarrow.table(rows).to_batches()[0]

    like = values(0, topic=["t0"], partition=pyarrow.array([0], pyarrow.int32()))
    writer = batch(path, like, topic="", txnAppId="x", txnVersion="1")
    writer.commit([writer.write(batches())])
    grown = (max(held) - held[1]) >> 20
    assert grown < 64, f"{grown} MiB more for 140 MB of records of {_MANY} {many}"
    assert sum(len(written(path, name)) for name in names) == _MANY * _BATCHES


def codec(store: Path) -> tuple[str, bool]:
    """Read the topic's codec, and whether a program has named it."""
    [file] = store.glob("topics/orders/topic.json")
    settings = json.loads(file.read_text())
    return settings["codec"], "codec_unnamed" not in settings


def test_a_commit_names_the_codec_of_a_topic_without_one_and_an_abort_names_none(
    orders: Path,
) -> None:
    writer = batch(orders, values(1))
    writer.abort(work(writer, values(1)))
    writer.commit([])
    assert codec(orders) == ("bytes", False)
    writer = batch(orders, values(2))
    writer.commit(work(writer, values(2)))
    assert codec(orders) == ("bytes", True)
    with (
        falaj.open(orders) as store,
        pytest.raises(SettingsMismatch, match="codec = bytes, not json"),
    ):
        store.any_topic("orders", codec="json")
    assert written(orders) == [b"2"]


@pytest.mark.parametrize("when", ["before the batch", "before its commit"])
def test_a_topic_that_spark_created_takes_the_codec_that_a_program_names_before_a_commit(
    path: Path, when: str
) -> None:
    def name() -> None:
        with falaj.open(path) as store:
            store.topic("orders", codec="json").close()

    def write() -> None:
        writer = batch(path, values(1), createTopics="true")
        assert codec(path) == (("json", True) if when == "before the batch" else ("bytes", False))
        messages = work(writer, values(1))
        if when == "before its commit":
            name()
        writer.commit(messages)

    batch(path, values(1), createTopics="true")
    if when == "before the batch":
        name()
    write()
    with falaj.open(path) as store:
        topic = store.topic("orders")
        assert (topic.codec, [record.value for record in topic]) == ("json", [1])
        topic.append({"n": 2})
        with pytest.raises(SettingsMismatch, match="codec = json, not str"):
            store.topic("orders", codec="str")
