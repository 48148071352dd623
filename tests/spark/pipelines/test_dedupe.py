"""Topics with each record once, against the same by plain Python, on real flights."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

import falaj
from falaj.errors import InvalidArgument, OffsetOutOfRange, UnknownTopic
from falaj.pipeline import DedupeConfig, DedupeResult, dedupe
from falaj.pipeline.deduping import ids
from falaj.pipeline.deduping import run as deduping
from falaj.pipeline.deduping.run import Repeated, _Run
from spark.pipelines.conftest import TOPIC

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark.pipelines.conftest import Flown, Told

DAY_NS = 86_400 * 10**9


def config(store: falaj.Store | Path, **rest: Any) -> DedupeConfig:
    path = store.path if isinstance(store, falaj.Store) else store
    usual: dict[str, Any] = {"store": path, "topic": "source", "into": "into"}
    return DedupeConfig(**usual | rest)


def content(topic: falaj.AnyTopic[Any]) -> list[list[tuple[Any, ...]]]:
    return [
        [(r.key, r.to_bytes(), r.headers, r.timestamp_ns) for r in topic.partition(p)]
        for p in topic.partitions
    ]


def kept_of(
    topic: falaj.AnyTopic[Any], id_of: Any, window_ns: int, last: bool
) -> tuple[list[list[tuple[Any, ...]]], Counter[Any]]:
    """The records that are kept, by partition, and how many copies of each id are not."""
    order = sorted(
        (r for p in topic.partitions for r in topic.partition(p)),
        key=lambda r: (r.timestamp_ns, r.partition, r.offset),
        reverse=last,
    )
    newest: dict[Any, int] = {}
    places, dropped = set(), Counter[Any]()
    for record in order:
        id_ = id_of(record)
        at = newest.get(id_)
        if id_ is None or at is None or abs(record.timestamp_ns - at) >= window_ns:
            newest[id_] = record.timestamp_ns
            places.add((record.partition, record.offset))
        else:
            dropped[id_] += 1
    kept = [
        [
            (r.key, r.to_bytes(), r.headers, r.timestamp_ns)
            for r in topic.partition(p)
            if (p, r.offset) in places
        ]
        for p in topic.partitions
    ]
    return kept, dropped


@pytest.fixture(scope="module")
def writable(january: Flown, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("dedupe") / "copy"
    with falaj.open(january.store, read_only=True) as store:
        store.backup(copy)
    return copy


@pytest.mark.proof
@pytest.mark.parametrize(
    ("by", "last", "days"),
    [("key", False, 2), ("json:dest", True, 1)],
)
def test_flights_are_kept_as_plain_python_keeps_them(
    spark: SparkSession, writable: Path, told: Told, by: str, last: bool, days: int
) -> None:
    def id_of(record: Any) -> Any:
        return record.key if by == "key" else json.loads(record.to_bytes())["dest"].encode()

    wanted = config(
        writable,
        topic=TOPIC,
        into=f"by-{by[:4].strip(':')}",
        by=by,
        keep="last" if last else "first",
        window=days * 86_400.0,
        top=3,
    )
    done = dedupe(spark, wanted, progress=told)
    with falaj.open(writable, read_only=True) as store:
        source, into = store.any_topic(TOPIC), store.any_topic(wanted.into)
        kept, dropped = kept_of(source, id_of, days * DAY_NS, last)
        assert content(into) == kept
        everything = [record for part in content(source) for record in part]
    assert (done.records, done.kept) == (len(everything), sum(map(len, kept)))
    assert done.dropped == sum(dropped.values()) > 1_000
    assert done.bytes == sum(len(value) for part in kept for _, value, _, _ in part)
    assert done.without_id == (sum(key is None for key, *_ in everything) if by == "key" else 0)
    assert [each.dropped for each in done.repeated] == [n for _, n in dropped.most_common(3)]
    assert all(dropped[each.id.encode()] == each.dropped for each in done.repeated)
    assert told.said[-1] == "copying what is kept"


IDS: dict[str, Any] = {
    "key": lambda r: r.key,
    "value": lambda r: r.raw and r.to_bytes(),
    "key+value": lambda r: (r.key, r.raw and r.to_bytes()),
    "header:id": lambda r: next((v for name, v in r.headers if name == "id"), None),
    "json:order.id": lambda r: _field(r),
}


def _field(record: Any) -> Any:
    try:
        return repr(json.loads(record.to_bytes())["order"]["id"])
    except (ValueError, KeyError, TypeError):
        return None


def test_ids_are_what_their_name_says(store: falaj.Store) -> None:
    topic = store.topic("source")
    rows: list[tuple[Any, Any, Any]] = [
        (None, b"1", None),
        (b"", b"1", [("id", b"7")]),
        (b"k", b"1", [("id", b"7"), ("id", b"8")]),
        (b"k1", b"", [("other", b"7"), ("id", None)]),
        (b"k", b"1", [("other", b"7"), ("id", b"8")]),
        (b"\xff", b"\xff", [("id", b"")]),
        (None, b'{"order": {"id": 17}}', None),
        (b"k", b'{"n": 1, "order": {"id": "17"}}', None),
        (None, b'{"order": {}}', None),
        (None, b"{", None),
    ]
    for key, value, headers in rows:
        topic.append(value, key=key, headers=headers)
    with topic.bulk_load("tombstones") as job:
        nulls = pyarrow.nulls(3, pyarrow.binary())
        keys = pyarrow.array([b"k", b"k", None])
        job.append_arrow(pyarrow.record_batch({"value": nulls, "key": keys}))
    [read] = topic.to_reader(columns=["key", "value", "headers"])
    for by, id_of in IDS.items():
        ours = ids.ids(by, read).to_pylist()
        theirs = [id_of(record) for record in topic]
        if by == "key+value":
            theirs = [None if both == (None, None) else both for both in theirs]
        assert _alike(ours) == _alike(theirs), by


def test_a_json_field_is_the_text_that_is_written_whatever_it_is_as_a_number(
    spark: SparkSession, store: falaj.Store
) -> None:
    written = [
        *("1e400", "2e400", "-1e400", "1.10", "1.1", "1E1", "10", "-0", "0", "0.0", "7"),
        *("123456789012345678901234567890", "123456789012345678901234567891"),
        *("0.12345678901234567890123456789", "0.12345678901234567890123456788"),
        *("9007199254740993.0", "9007199254740992.0", "true", '"a: 1.50, b\\" 3 \\\\"'),
        *('{"a": 1.50, "b": "x -0"}', '{"a":1.5,"b":"x -0"}', "[1,2.50,-3]", "[1,2.5,-3]"),
        *('"Infinity"', '"1.1.1"', '""', f'"{"x" * 200_000}1.0"'),
    ]
    source = store.topic("source", codec="json")
    with source.bulk_load("twice") as job:
        for text in written * 2:
            value = f'{{"-1.5": [2.0, "\\"3.0"], "id": {text}, "n": -1.5e-3}}'.encode()
            job.append_arrow(pyarrow.record_batch({"value": [value]}))
    done = dedupe(spark, config(store, by="json:id"))
    assert (done.records, done.kept, done.without_id) == (2 * len(written), len(written), 0)
    kept = [record.to_bytes() for record in store.any_topic("into")]
    assert kept == [record.to_bytes() for record in source[: len(written)]]


def test_what_is_no_json_or_no_utf8_is_no_copy_of_another(
    spark: SparkSession, store: falaj.Store
) -> None:
    values = [
        *(b'{"id":"caf\xe9"}', b'{"id":"caf\xe8"}', b"{'id':5}", b'{"id":5}'),
        *(b'{"id":1}x', b'{"id":1}y', b'{"id":1,"n":"\xe9"}', b'{"id":1,"n":"\xe8"}'),
        *(b'{"id":7,"id":8}', b'{"id":7,"id":9}'),
    ]
    store.topic("source").extend([*values, b'{"id": 5}'])
    done = dedupe(spark, config(store, by="json:id"))
    assert (done.kept, done.dropped, done.without_id) == (len(values), 1, 7)
    assert [record.to_bytes() for record in store.any_topic("into")] == values


def _alike(found: list[Any]) -> list[Any]:
    """Which are the same: for each the place of the first like it; None stays."""
    return [None if id_ is None else found.index(id_) for id_ in found]


@pytest.mark.proof
def test_runs_in_pieces_give_what_a_single_one_gives_and_none_is_done_twice(
    spark: SparkSession, store: falaj.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = store.partitioned_topic("source", partitions=2)
    for n in range(60):
        source.append(
            b"%d" % n, key=b"k%d" % (n % 11), timestamp_ns=(1000 + n) * 10**9, partition=n % 2
        )
    wanted = config(store, window=20.0)
    first = dedupe(spark, config(store, window=20.0, end=10))
    assert (first.records, first.kept) == (20, 11)

    # One dies before its records are appended, another one when they are: Spark's last words.
    def dies(self: Any, *rest: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(_Run, "_commit", dies)
        with pytest.raises(RuntimeError):
            dedupe(spark, config(store, window=20.0, end=20))
    commit = _Run._commit

    def dies_later(self: Any, *rest: Any) -> None:
        commit(self, *rest)
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(_Run, "_commit", dies_later)
        with pytest.raises(RuntimeError):
            dedupe(spark, wanted)
    rest = dedupe(spark, wanted)
    assert (rest.records, rest.runs) == (20, 1)
    assert dedupe(spark, wanted).runs == 0
    kept, _ = kept_of(source, lambda r: r.key, 20 * 10**9, last=False)
    assert content(store.any_topic("into")) == kept
    with pytest.raises(InvalidArgument, match=r"window = 20\.0, not None"):
        dedupe(spark, config(store))
    source.append(b"new", partition=0)
    source.append(b"unread", partition=0)
    source.partition(0).trim(before_offset=31)
    with pytest.raises(OffsetOutOfRange, match="1 records of topic source were trimmed"):
        dedupe(spark, wanted)
    behind = dedupe(spark, config(store, window=20.0, on_loss="continue"))
    assert (behind.lost, behind.records, behind.kept, behind.without_id) == (1, 1, 1, 1)


def test_where_the_last_one_wins_a_newer_copy_is_appended_and_told(
    spark: SparkSession, store: falaj.Store
) -> None:
    source = store.topic("source")
    into = store.partitioned_topic("into", partitions=2)
    for n in range(6):
        source.append(b"%d" % n, key=b"k%d" % (n % 4))
    assert dedupe(spark, config(store, keep="last")).replaced == 0
    source.append(b"6", key=b"k1")
    source.append(b"7", key=b"k9")
    done = dedupe(spark, config(store, keep="last"))
    assert (done.records, done.kept, done.replaced) == (2, 2, 1)
    values = {record.to_bytes() for p in into.partitions for record in into.partition(p)}
    assert values == {b"2", b"3", b"4", b"5", b"6", b"7"}
    alike = store.partitioned_topic("alike", partitions=2)
    for record in source:
        alike.append(record.to_bytes(), key=record.key)
    for p in into.partitions:
        keys = {record.key for record in alike.partition(p)}
        assert {record.key for record in into.partition(p)} <= keys


def test_records_that_many_tasks_decide_about_and_copy_keep_their_order(
    spark: SparkSession, store: falaj.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = store.partitioned_topic("source", partitions=2)
    for n in range(100):
        key = None if n % 10 == 9 else b"k%d" % (n % 34)
        source.append(b"%d" % n, key=key, headers=[("n", b"%d" % n)], partition=n % 2)
    monkeypatch.setattr(deduping, "_DECISIONS", 20)
    monkeypatch.setattr(deduping, "_COPIED", 9)
    done = dedupe(spark, config(store, top=2))
    kept, dropped = kept_of(source, lambda r: r.key, 10**18, last=False)
    assert content(store.any_topic("into")) == kept
    assert (done.records, done.kept, done.without_id) == (100, sum(map(len, kept)), 10)
    assert [(each.dropped, each.offset) for each in done.repeated] == [(2, 0), (2, 1)]
    assert done.dropped == sum(dropped.values())
    assert store.any_topic("into").last_idempotency_key("dedupe:source") == 0
    assert not list(store.path.rglob("*.part"))


def test_what_cannot_be_right_is_refused(spark: SparkSession, store: falaj.Store) -> None:
    with pytest.raises(InvalidArgument, match="read and written at once"):
        config(store, into="source")
    for into in ("once.dedupe", "once.imports"):
        with pytest.raises(InvalidArgument, match=f"into is {into}, and topics whose names end"):
            config(store, into=into)
    with pytest.raises(InvalidArgument, match=r"once\.dedupe is the ledger of into=once"):
        config(store, topic="once.dedupe", into="once")
    with pytest.raises(InvalidArgument, match=r"x+ is too long: x+\.dedupe has 250 characters"):
        config(store, into="x" * 243)
    for window in (0, float("nan"), float("inf"), 1e10, 10**5000):
        with pytest.raises(InvalidArgument, match="window is a number of seconds above 0"):
            config(store, window=window)
    with pytest.raises(InvalidArgument, match="by is key, value"):
        config(store, by="id")
    with pytest.raises(UnknownTopic):
        dedupe(spark, config(store))
    assert list(store.topics) == []


def test_an_id_that_no_record_has_is_told_with_what_may_have_been_meant(
    spark: SparkSession, store: falaj.Store
) -> None:
    store.topic("source").extend([b'{"order": {"id": 7}}', b'{"order": {"id": 7}}'])
    for by, sentence in (
        ("json:order.Id", "value.order.Id is in none of the 2 records that were looked at"),
        ("json:$.order.ids[0]", "null: did you mean 'id'?"),
        ("header:id", "no record has what by='header:id' names"),
    ):
        done = dedupe(spark, config(store, by=by, into=f"by-{len(sentence)}"))
        assert done.kept == done.without_id == 2
        [note] = done.notes
        assert sentence in note
        assert ("note", note) in done.rows()
    assert dedupe(spark, config(store, by="json:order.id")).notes == ()


def test_results_are_told_without_what_is_nothing() -> None:
    done = DedupeResult(
        records=10,
        bytes=5,
        seconds=1.0,
        kept=9,
        dropped=1,
        without_id=0,
        replaced=0,
        lost=2,
        runs=1,
        repeated=(Repeated("a", 1, 0, 3),),
    )
    assert [name for name, _ in done.rows()] == [
        "records",
        "kept",
        "dropped",
        "lost",
        "copies of a",
        "bytes",
        "seconds",
    ]


@pytest.mark.release
@pytest.mark.timeout(300)  # plain Python does the same, on a machine that may be busy
def test_all_flights_of_the_year_are_kept_as_plain_python_keeps_them(
    spark: SparkSession, flights: Flown, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    with falaj.open(flights.store, read_only=True) as store:
        store.backup(copy)
    done = dedupe(spark, config(copy, topic=TOPIC, window=86_400.0))
    with falaj.open(copy, read_only=True) as store:
        kept, dropped = kept_of(store.any_topic(TOPIC), lambda r: r.key, DAY_NS, last=False)
        assert content(store.any_topic("into")) == kept
    assert (done.records, done.dropped) == (flights.records, sum(dropped.values()))
