"""Topics as Arrow record batches: every column equals the records."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from damaging import flip

import falaj
from falaj import arrow
from falaj.errors import CorruptData, InvalidArgument, OffsetOutOfRange


def fill(topic: falaj.Topic[Any] | falaj.PartitionedTopic[Any], n: int = 200) -> None:
    for i in range(0, n, 10):
        topic.extend([b"plain %d" % (i + j) for j in range(4)])
        topic.append(b"")
        topic.append(b"x" * (i * 7 % 900), key=b"k%d" % (i % 3))
        topic.append(b"timed", timestamp=datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
        topic.append(
            b"late", timestamp=datetime(2250, 1, 1, tzinfo=UTC), headers=[("a", b"1"), ("a", None)]
        )
        topic.extend([(b"k", b"pair"), b"lone"])


def expected(
    topic: falaj.Topic[Any], start: int = 0, end: int | None = None
) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.to_bytes(),
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ns // 1000,
            "timestampType": 0,
            "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
        }
        for record in topic.read(start, (topic.end_offset if end is None else end) - start)
    ]


def rows(reader: arrow.Reader) -> list[dict[str, Any]]:
    table = pyarrow.table(reader)
    table.validate(full=True)
    if "timestamp" in table.column_names:
        place = table.column_names.index("timestamp")
        table = table.set_column(place, "timestamp", table["timestamp"].cast("int64"))
    found: list[dict[str, Any]] = table.to_pylist()
    return found


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("size", [1, 3, 7, 64, 100_000])
def test_every_column_holds_what_the_records_say(
    topic: falaj.Topic[memoryview], views: bool, size: int
) -> None:
    fill(topic)
    reader = topic.to_reader(columns=arrow.COLUMNS, views=views, batch_rows=size)
    assert rows(reader) == expected(topic)
    sizes = [len(batch) for batch in topic.to_reader(views=views, batch_rows=size)]
    assert sum(sizes) == 200
    assert max(sizes) == min(size, 200)
    assert min(sizes) > 0


@pytest.mark.parametrize("column", arrow.COLUMNS)
def test_each_column_alone_is_the_same(topic: falaj.Topic[memoryview], column: str) -> None:
    fill(topic, 50)
    for size in (3, 1000):
        found = rows(topic.to_reader(columns=[column], batch_rows=size))
        assert found == [{column: row[column]} for row in expected(topic)]


@pytest.mark.parametrize("views", [False, True])
def test_a_store_that_is_not_mapped_gives_the_same(path: Path, views: bool) -> None:
    with falaj.open(path) as store:
        topic = store.topic("orders", segment_bytes=65_536)
        fill(topic, 500)
        wanted = expected(topic)
    with falaj.open(path, read_only=True, io="pread") as store:
        reader = store.topic("orders").to_reader(columns=arrow.COLUMNS, views=views, batch_rows=9)
        assert rows(reader) == wanted


def test_any_range_holds_its_records_and_no_others(topic: falaj.Topic[memoryview]) -> None:
    fill(topic, 40)
    for start in range(0, 41, 3):
        for end in range(start, 41, 5):
            assert rows(topic.to_reader(start, end, columns=arrow.COLUMNS)) == expected(
                topic, start, end
            )
    assert rows(topic.to_reader(-3, -1, columns=["offset"])) == [{"offset": 37}, {"offset": 38}]
    late = topic.to_reader(start="2249-01-01T00:00:00Z", columns=["offset"])
    assert rows(late)[0] == {"offset": 7}
    assert rows(topic.to_reader(end="1960-01-01T00:00:00Z")) == []
    with pytest.raises(OffsetOutOfRange):
        topic.to_reader(41)
    with pytest.raises(OffsetOutOfRange):
        topic.to_reader(end=41)


def test_an_empty_topic_is_a_table_without_rows(topic: falaj.Topic[memoryview]) -> None:
    table = topic.to_arrow(columns=arrow.COLUMNS)
    assert (table.num_rows, tuple(table.column_names)) == (0, arrow.COLUMNS)
    assert topic.to_arrow(columns=[]).num_columns == 0


def test_without_columns_the_rows_are_counted(topic: falaj.Topic[memoryview]) -> None:
    fill(topic, 50)
    assert sum(len(batch) for batch in topic.to_reader(columns=[])) == 50


def test_partitions_come_one_after_the_other(store: falaj.Store) -> None:
    topic = store.partitioned_topic("parts", partitions=3)
    fill(topic, 60)
    batches = list(topic.to_reader(columns=["partition", "offset"]))
    assert [set(batch["partition"].to_pylist()) for batch in batches] == [{0}, {1}, {2}]
    for partition in topic.partitions:
        alone = topic.partition(partition)
        assert rows(alone.to_reader(columns=arrow.COLUMNS)) == expected(alone)


def test_what_comes_while_a_stream_is_read_is_not_in_it(topic: falaj.Topic[memoryview]) -> None:
    topic.extend([b"a", b"b"])
    reader = topic.to_reader(columns=["value"])
    topic.append(b"c")
    assert rows(reader) == [{"value": b"a"}, {"value": b"b"}]


def test_a_batch_ends_behind_its_bytes(topic: falaj.Topic[memoryview]) -> None:
    values = [b"s" * 10, b"l" * 5000, b"s" * 10, b"s" * 10]
    topic.extend(values)
    for views in (False, True):
        batches = list(topic.to_reader(columns=["value"], batch_bytes=1000, views=views))
        assert [len(batch) for batch in batches] == [2, 2]
        assert [row for batch in batches for row in batch["value"].to_pylist()] == values


def test_a_table_of_views_outlives_topic_store_and_files(path: Path) -> None:
    store = falaj.open(path)
    topic = store.topic("orders", segment_bytes=65_536)
    values = [b"%05d" % i * 20 for i in range(5000)]
    for at in range(0, len(values), 50):
        topic.extend(values[at : at + 50])
    table = topic.to_arrow(columns=["value"], views=True)
    topic.delete()
    store.close()
    table.validate(full=True)
    assert table["value"].type == pyarrow.binary_view()
    assert table["value"].to_pylist() == values


def test_a_stream_goes_on_after_its_topic_was_closed_and_trimmed(store: falaj.Store) -> None:
    topic = store.topic("orders", segment_bytes=65_536)
    for i in range(3000):
        topic.append(b"%05d" % i * 20)
    reader = iter(topic.to_reader(columns=["offset"], batch_rows=10))
    assert next(reader)["offset"].to_pylist() == list(range(10))
    topic.close()
    assert next(reader)["offset"].to_pylist() == list(range(10, 20))
    store.topic("orders").trim(before_offset=2900)
    with pytest.raises(OffsetOutOfRange, match="holds offsets 2900 to"):
        for _ in reader:
            pass


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("read", ["mmap", "pread"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_batch_of_records_is_the_table_of_its_offsets(
    path: Path, views: bool, read: Any, size: int
) -> None:
    with falaj.open(path) as store:
        topic = store.partitioned_topic("orders", partitions=2, segment_bytes=65_536)
        for part in range(2):
            fill(topic.partition(part), 300)
    with falaj.open(path, read_only=True, io=read) as store:
        again, seen = store.partitioned_topic("orders"), 0
        for batch in again.batches(size):
            found = batch.to_arrow(columns=arrow.COLUMNS, views=views)
            of = again.partition(batch.partition)
            start, stop = batch.offsets[0], batch.offsets[-1] + 1
            wanted = of.to_arrow(start, stop, columns=arrow.COLUMNS, views=views)
            found.validate(full=True)
            assert found.equals(wanted)
            assert found.schema.equals(wanted.schema, check_metadata=True)
            seen += len(found)
        assert seen == 600
        assert batch.to_arrow().schema.equals(again.to_arrow().schema)
        assert batch.to_arrow(columns=[]).num_columns == 0
        # Blocks that are read from their middle.
        [cut] = again.partition(0)[2:5].batches()
        assert cut.to_arrow(columns=["offset"])["offset"].to_pylist() == [2, 3, 4]


def test_a_batch_is_a_table_also_when_its_records_are_gone(path: Path) -> None:
    values = [b"%05d" % i * 20 for i in range(2000)]
    with falaj.open(path) as store:
        topic = store.topic("orders", segment_bytes=65_536)
        for at in range(0, len(values), 100):
            topic.extend(values[at : at + 100])
        batches = list(topic.batches())
        assert len(batches) > 2
        topic.delete()
    tables = [
        batch.to_arrow(columns=["value"], views=views)
        for batch in batches
        for views in (False, True)
    ]
    assert [row for table in tables[::2] for row in table["value"].to_pylist()] == values
    assert [row for table in tables[1::2] for row in table["value"].to_pylist()] == values


def test_a_batch_of_a_consumer_and_of_a_compacted_topic_is_a_table(store: falaj.Store) -> None:
    topic = store.topic("orders", segment_bytes=65_536, compacted=True)
    for i in range(4000):
        topic.append(b"%05d" % i * 5, key=b"k%d" % (i % 500))
    topic.compact()
    with store.consumer("billing", topics=["orders"], start="earliest") as billing:
        batches = list(billing.batches(timeout=0))
    tables = [batch.to_arrow(columns=["offset", "key", "value"]) for batch in batches]
    assert [len(table) for table in tables] == [len(batch) for batch in batches]
    found = [row for table in tables for row in table.to_pylist()]
    assert found == [
        {"offset": r.offset, "key": r.key, "value": r.to_bytes()} for r in topic.read(0, 10_000)
    ]
    assert len(found) < 4000


def test_a_batch_that_is_no_table_says_what_is_wrong(topic: falaj.Topic[memoryview]) -> None:
    topic.append(b"x")
    [batch] = topic.batches()
    with pytest.raises(InvalidArgument, match="nobody"):
        batch.to_arrow(columns=["nobody"])
    with pytest.raises(InvalidArgument, match="twice"):
        batch.to_arrow(columns=["key", "key"])


def test_only_what_is_visible_is_read(store: falaj.Store) -> None:
    topic = store.topic("orders", sync="none")
    topic.append(b"kept", sync="durable")
    topic.append(b"not yet")
    seen = store.topic("orders", visibility="durable")
    assert rows(seen.to_reader(columns=["value"])) == [{"value": b"kept"}]


def test_damage_ends_a_stream_or_is_skipped_and_told(path: Path) -> None:
    with falaj.open(path) as store:
        topic = store.topic("orders")
        for i in range(300):
            topic.append(b"%05d" % i * 20)
        topic.flush()
    (segment,) = path.glob("logs/*/*.log")
    flip(segment, 8192 + 150 * 136)
    with falaj.open(path, read_only=True) as store:
        topic = store.topic("orders")
        reader = iter(reading := topic.to_reader(columns=["offset"]))
        before = next(reader)["offset"].to_pylist()
        assert before == list(range(len(before)))
        assert 0 < len(before) < 300
        with pytest.raises(CorruptData):
            next(iter(reading))
        with pytest.raises(CorruptData) as told:
            next(iter(reading))
        assert told.value.path == str(segment)
        with pytest.raises((OSError, pyarrow.ArrowException), match=f"{segment}.* at byte"):
            pyarrow.table(topic.to_reader())
        with pytest.raises(CorruptData) as told:
            topic.to_arrow()
        assert told.value.path == str(segment)
        skipping = topic.to_reader(columns=["offset"], on_corrupt="skip")
        kept = [row["offset"] for row in rows(skipping)]
        assert kept == [i for i in range(300) if i != len(before)]
        (lost,) = skipping.skipped
        assert lost["offsets"] == (len(before), len(before) + 1)
        with pytest.raises(CorruptData):
            list(topic)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": ["values"]}, "no column"),
        ({"columns": ["key", "key"]}, "twice"),
        ({"batch_rows": 0}, "at least one row"),
        ({"batch_bytes": -1}, "one byte"),
        ({"batch_rows": 10**10}, "at most 8,388,608, not 10,000,000,000"),
        ({"batch_rows": sys.maxsize}, "batch_rows is at most 8,388,608"),
        ({"batch_bytes": 4 << 30}, "batch_bytes is at most 1,073,741,824, not 4,294,967,296"),
        ({"on_corrupt": "ignore"}, "on_corrupt"),
    ],
)
def test_bad_arguments_say_what_is_wrong(
    topic: falaj.Topic[memoryview], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        topic.to_reader(**options)


def test_a_stream_is_read_once(topic: falaj.Topic[memoryview]) -> None:
    topic.append(b"x")
    reader = topic.to_reader()
    assert rows(reader)
    assert reader.schema.names == ["partition", "offset", "timestamp", "key", "value"]
    with pytest.raises(InvalidArgument, match="read once"):
        pyarrow.table(reader)


def test_a_stream_that_is_not_read_is_freed(topic: falaj.Topic[memoryview]) -> None:
    topic.append(b"x")
    del_first = topic.to_reader()
    capsule = del_first.__arrow_c_stream__()
    del del_first, capsule
    iterator = iter(topic.to_reader(batch_rows=1))
    assert len(next(iterator)) == 1


def test_without_pyarrow_the_error_says_how_to_get_it(path: Path) -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None; import falaj\n"
        f"topic = falaj.open({str(path)!r}).topic('t'); topic.append(b'x')\n"
        "print(type(topic.to_reader().__arrow_c_stream__()).__name__)\n"
        "[batch] = topic.batches()\n"
        "for table in (topic.to_arrow, batch.to_arrow):\n"
        "    try: table()\n"
        "    except falaj.Error as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    says = "this needs pyarrow: pip install 'falaj[arrow]'\n"
    assert (done.stdout, done.stderr) == (f"PyCapsule\n{says}{says}", "")


@pytest.mark.parametrize("before_end", [1, 3, 4, 5, 2**64, 10**40])
def test_an_end_before_the_first_record_gives_nothing_as_in_a_range(
    store: falaj.Store, before_end: int
) -> None:
    plain = store.topic("plain", codec="str")
    plain.extend(list("abcd"))
    gaps = store.topic("gaps", codec="str", compacted=True)
    gaps.extend([(key, key) for key in "aabbccdd"])
    gaps.compact(seal=True)
    trimmed = store.topic("trimmed", codec="str")
    trimmed.extend(list("xyabcd"))
    trimmed.trim(before_offset=2)
    for topic in (plain, gaps, trimmed, store.topic("empty")):
        there = [record.offset for record in topic.range(None, -before_end)]
        assert topic.to_arrow(end=-before_end, columns=["offset"])["offset"].to_pylist() == there
        assert topic.scan(end=-before_end).count_rows() == len(there)
        assert len(there) == max(0, topic.count() - before_end)
        with pytest.raises(OffsetOutOfRange):
            topic.to_arrow(end=topic.end_offset + 1)
    with pytest.raises(OffsetOutOfRange):
        trimmed.to_arrow(end=1)


def test_an_end_counts_from_the_end_of_each_partition_also_of_an_empty_one(
    store: falaj.Store,
) -> None:
    parted = store.partitioned_topic("parted", partitions=3)
    parted.extend([b"a", b"b"], partition=0)
    parted.extend([b"c"], partition=2)
    for end, rows in ((-1, 1), (-2, 0), (-3, 0)):
        assert parted.to_arrow(end=end).num_rows == rows
        assert parted.scan(end=end).count_rows() == rows
        assert sum(batch.num_rows for batch in parted.to_reader(end=end)) == rows
