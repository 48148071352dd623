"""Bulk loads: the parts that one process or many stage become visible at once, once, or never."""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from children import child

import falaj
from falaj import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def staged(path: Path) -> list[str]:
    """Name the files that bulk loads have staged in a store."""
    return [file.name for file in path.glob("logs/*/staging/*/*")]


def test_a_job_is_there_as_a_whole_when_its_block_ends_and_not_before(
    path: Path, store: falaj.Store
) -> None:
    orders = store.partitioned_topic("orders", partitions=2, codec="json", segment_bytes=65536)
    for records in (10, 2_000):
        before = [orders.partition(p).end_offset for p in orders.partitions]
        with orders.bulk_load("import", idempotency_key=("import", records)) as job:
            for n in range(records):
                job.append({"n": n}, partition=n % 2, headers={"of": b"1"})
            assert [orders.partition(p).end_offset for p in orders.partitions] == before
            assert not job.done
        assert (job.committed, job.records) == (True, records)
        for p, found in job.offsets.items():
            assert found == range(before[p], before[p] + records // 2)
            values = [record.value["n"] for record in orders.partition(p)[found.start :]]
            assert values == list(range(p, records, 2))
    assert staged(path) == []
    with orders.bulk_load("import", idempotency_key=("import", 10)) as job:
        job.append({"n": -1})
    assert (job.done, job.committed, job.records, job.offsets) == (True, False, 0, {})
    assert sum(len(orders.partition(p)) for p in orders.partitions) == 2_010


def test_an_exception_gives_a_job_up_and_a_job_is_begun_once(
    path: Path, topic: falaj.Topic[Any]
) -> None:
    job = topic.bulk_load("import", idempotency_key=("import", 1))
    with pytest.raises(errors.InvalidArgument, match="context manager"):
        job.append(b"too early")

    def fail() -> None:
        with job:
            for _ in range(5_000):
                job.append(b"x" * 100)
            assert len(staged(path)) == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (len(topic), topic.last_idempotency_key("import"), job.committed) == (0, None, None)
    assert staged(path) == []
    assert repr(job).endswith("not committed>")
    with topic.bulk_load("import") as job:
        job.append(b"y")
    assert "1 records committed" in repr(job)
    with pytest.raises(errors.InvalidArgument, match="make another"), job:
        pass


def test_parts_of_several_processes_are_committed_in_the_order_that_is_given(
    path: Path, topic: falaj.Topic[Any]
) -> None:
    program = """
topic = falaj.open(path).topic("orders")
part = topic.stage("job", hear())
for n in range(3_000):
    part.append(b"%d" % n, key=b"k")
say(part.finish().hex())
"""
    with ExitStack() as stack:
        workers = [stack.enter_context(child(path, program)) for _ in range(2)]
        for n, worker in enumerate(workers):
            worker.tell(str(n))
        parts = [bytes.fromhex(worker.hear()) for worker in workers]
    told = topic.commit_bulk_load("job", [*reversed(parts)])
    assert told == {"committed": True, "records": 6_000, "offsets": {0: (0, 6_000)}}
    assert [int(record.to_bytes()) for record in topic[:3_002:1_500]] == [0, 1_500, 0]
    assert topic[0].key == b"k"


def test_a_part_says_what_it_holds_back_and_lets_it_go(path: Path, store: falaj.Store) -> None:
    orders = store.topic("orders")
    part = orders.stage("import", "0")
    assert part.held == 0
    part.append(b"x" * 100_000)
    assert 100_000 <= part.held < 300_000
    assert staged(path) == []
    part.spill()
    assert part.held == 0
    [name] = staged(path)
    assert next(path.glob(f"logs/*/staging/*/{name}")).stat().st_size > 100_000
    part.append(b"second")
    orders.commit_bulk_load("import", [part.finish()])
    assert [len(record) for record in orders] == [100_000, 6]
    assert part.held == 0
    with pytest.raises(errors.HandleClosed):
        part.spill()


def test_what_cannot_be_committed_is_told_by_an_exception_of_its_own(
    store: falaj.Store, topic: falaj.Topic[Any]
) -> None:
    part = topic.stage("job", "0")
    part.append(b"x")
    manifest = part.finish()
    for use in (lambda: part.append(b"y"), part.finish):
        with pytest.raises(errors.HandleClosed):
            use()
    part.abort()
    with pytest.raises(errors.InvalidManifest, match="not the manifest"):
        topic.commit_bulk_load("job", [b"rubbish"])
    with pytest.raises(errors.InvalidManifest, match="twice"):
        topic.commit_bulk_load("job", [manifest, manifest])
    with pytest.raises(ValueError, match="of the load"):
        topic.commit_bulk_load("another", [manifest])
    topic.abort_bulk_load("job")
    with pytest.raises(errors.NotStaged, match="stage it again") as told:
        topic.commit_bulk_load("job", [manifest])
    assert told.value.path is not None
    with pytest.raises(errors.InvalidArgument, match="cannot name a bulk load"):
        topic.stage("a/b", "0")
    with pytest.raises(errors.InvalidArgument, match="not for one of its partitions"):
        store.partitioned_topic("wide", partitions=2).partition(1).stage("job", "0")
    with pytest.raises(errors.InvalidArgument, match="no partition 3"):
        topic.stage("job", "0").append(b"x", partition=3)
    with falaj.open(store.path, read_only=True) as readers:
        read = readers.topic("orders")
        assert read.last_idempotency_key("n") is None
        with pytest.raises(errors.NotWritable):
            read.stage("job", "0")
        with pytest.raises(errors.NotWritable):
            read.sweep_bulk_loads(0)
        with pytest.raises(errors.NotWritable):
            read.forget_idempotency_key("n")
    assert len(topic) == 0


def test_a_token_is_known_until_it_is_forgotten(topic: falaj.Topic[Any]) -> None:
    assert topic.commit_bulk_load("a", [], idempotency_key=("series", 3))["committed"]
    assert not topic.commit_bulk_load("b", [], idempotency_key=("series", 2))["committed"]
    assert topic.last_idempotency_key("series") == 3
    assert topic.forget_idempotency_key("series")
    assert not topic.forget_idempotency_key("series")
    assert topic.last_idempotency_key("series") is None
    assert topic.commit_bulk_load("b", [], idempotency_key=("series", 2))["committed"]


def test_what_a_killed_worker_left_is_swept_when_it_is_old_enough(
    path: Path, topic: falaj.Topic[Any]
) -> None:
    program = """
part = falaj.open(path).topic("orders").stage("job", "0")
for n in range(5_000):
    part.append(b"x" * 100)
say("staged")
hear()
"""
    with child(path, program) as worker:
        assert worker.hear() == "staged"
        assert topic.sweep_bulk_loads(0) == 0
        assert len(staged(path)) == 1
        worker.kill()
    assert topic.sweep_bulk_loads() == 0
    assert topic.sweep_bulk_loads(0) == 1
    assert staged(path) == []


def test_record_batches_are_staged_whatever_their_types(store: falaj.Store) -> None:
    pa = pytest.importorskip("pyarrow")
    orders = store.partitioned_topic("orders", partitions=3)
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array(
        [[{"key": "t", "value": b"1"}, {"key": "t", "value": None}], None, []], pairs
    )
    times = pa.array([1_000, None, -5], pa.timestamp("ms", tz="UTC"))
    kinds = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string()]
    for kind in [*kinds, pa.string_view()]:
        text = pa.types.is_string(kind) or "str" in str(kind)
        whole: Sequence[Any] = ["a", None, "c"] if text else [b"a", None, b"c"]
        columns = {
            "value": pa.array(whole, kind),
            "key": pa.array([*whole[1:], None], kind),
            "headers": headers,
            "timestamp": times,
            "partition": pa.array([2, 2, 2], pa.int16()),
        }
        batch = pa.record_batch(columns)
        part = orders.stage("job", "0")
        assert part.append_arrow(batch) == 3
        assert part.append_arrow(pa.table(columns).slice(1, 2)) == 2
        found = orders.commit_bulk_load("job", [part.finish()])["offsets"]
        assert set(found) == {2}
        first, second, third, *again = orders.partition(2)[found[2][0] :]
        assert (first.to_bytes(), first.key, first.timestamp_ns) == (b"a", None, 10**9)
        assert first.headers == (("t", b"1"), ("t", None))
        assert (second.value, second.key, second.headers) == (None, b"c", ())
        assert (third.to_bytes(), third.timestamp_ns) == (b"c", -5_000_000)
        assert [record.value is None for record in again] == [True, False]


def test_columns_without_rows_may_lack_the_offset_that_all_begin_with(store: falaj.Store) -> None:
    """As Arrow for Java writes them, and Spark before 4.2 with it."""
    pa = pytest.importorskip("pyarrow")

    def hollow(kind: Any) -> Any:
        """An array without rows, with other bytes where its offsets should be."""
        buffer = pa.py_buffer(b"\x93" * 64).slice(0, 0)
        return pa.Array.from_buffers(kind, 0, [None, buffer, pa.py_buffer(b"")])

    header = [("key", pa.string()), ("value", pa.binary())]
    entries = pa.StructArray.from_arrays(
        [hollow(kind) for _, kind in header], fields=[pa.field(*one) for one in header]
    )
    part = store.topic("orders").stage("job", "0")
    for rows in (2, 0):
        lists = pa.ListArray.from_arrays(pa.array([0] * (rows + 1), pa.int32()), entries)
        value = pa.array([b"x"] * rows) if rows else hollow(pa.binary())
        key = pa.array(["k"] * rows) if rows else hollow(pa.string())
        batch = pa.record_batch({"value": value, "key": key, "headers": lists})
        assert part.append_arrow(batch) == rows
        assert part.append_arrow(pa.Table.from_batches([batch])) == rows
    manifest = part.finish()
    topic = store.topic("orders")
    topic.commit_bulk_load("job", [manifest])
    records = [record for number in topic.partitions for record in topic.partition(number)]
    found = [(record.key, record.headers) for record in records]
    assert found == [(b"k", ())] * 4


def test_batches_of_unknown_types_stage_nothing(store: falaj.Store) -> None:
    pa = pytest.importorskip("pyarrow")
    part = store.topic("orders").stage("job", "0")
    value = pa.array([b"x"])
    for columns, words in (
        ({"value": [1]}, "bytes or text, not Int64"),
        ({"value": value, "vlaue": value}, "no column"),
        ({"key": value}, "name one column"),
        ({"value": value, "timestamp": [1]}, "timestamps with a time zone"),
        ({"value": value, "timestamp": pa.array([1], pa.timestamp("us"))}, "with a time zone"),
        ({"value": value, "partition": ["0"]}, "integers"),
        ({"value": value, "partition": [-1]}, "partition -1"),
        ({"value": value, "headers": [["x"]]}, "structs"),
    ):
        with pytest.raises(errors.InvalidArgument, match=words):
            part.append_arrow(pa.record_batch(columns))
    with pytest.raises(TypeError, match="neither"):
        part.append_arrow(b"no batch")
    assert "0 records" in repr(part)


JOBS = """
topic = falaj.open(path).topic("orders", codec="json", segment_bytes=65536)
for version in range((topic.last_idempotency_key("jobs") or 0) + 1, int(hear()) + 1):
    say("begun", version)
    job, token = f"job-{version}", ("jobs", version)
    parts = []
    for name in "ab":
        part = topic.stage(job, name, idempotency_key=token)
        # Every other load is too large for a group.
        for n in range(10 if version % 2 else 3_000):
            part.append([version, name, n])
        parts.append(part.finish())
    topic.commit_bulk_load(job, parts, idempotency_key=token)
say("ended")
"""


def test_workers_and_a_committer_that_are_killed_all_the_time_commit_each_job_once(
    path: Path, budget: Callable[[int, int], int], first_seed: int
) -> None:
    kills, jobs = budget(12, 300), budget(20, 400)
    dice = random.Random(first_seed + 9)
    with falaj.open(path) as store:
        orders = store.topic("orders", codec="json", segment_bytes=65536)
        for kill in range(kills + 1):
            with child(path, JOBS) as worker:
                worker.tell(str(jobs))
                if kill == kills:
                    while worker.hear() != "ended":
                        pass
                    worker.end()
                else:
                    worker.hear()
                    # sleep: a kill must come anywhere in the work, not where a test would put it
                    time.sleep(dice.uniform(0, 0.03))
                    worker.kill()
        expected = [
            [version, name, n]
            for version in range(1, jobs + 1)
            for name in "ab"
            for n in range(10 if version % 2 else 3_000)
        ]
        assert [record.value for record in orders] == expected
        assert orders.last_idempotency_key("jobs") == jobs
        assert store.verify()["findings"] == []
        orders.sweep_bulk_loads(0)
    assert staged(path) == []


@pytest.mark.parametrize("of", ["pyarrow", "pandas", "polars", "duckdb", "batch"])
def test_a_table_of_any_library_is_appended_whole(store: falaj.Store, of: str) -> None:
    pa = pytest.importorskip("pyarrow")
    table = rows = pa.table({"key": ["a", "b"], "value": ["one", "two"]})
    given: Any = rows
    if of == "pandas":
        given = pytest.importorskip("pandas").DataFrame(
            {"key": ["a", "b"], "value": ["one", "two"]}
        )
    elif of == "polars":
        given = pytest.importorskip("polars").from_arrow(table)
    elif of == "duckdb":
        given = pytest.importorskip("duckdb").sql("select * from rows order by key")
    elif of == "batch":
        given = table.to_batches()[0]
    topic = store.topic("orders")
    assert topic.extend_arrow(given) == 2
    assert [(record.key, record.to_bytes()) for record in topic] == [(b"a", b"one"), (b"b", b"two")]


def test_a_table_that_is_refused_leaves_nothing(store: falaj.Store) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = store.topic("orders")
    with pytest.raises(errors.InvalidArgument, match="price"):
        topic.extend_arrow(pa.table({"value": ["one"], "price": [5]}))
    with pytest.raises(TypeError, match="__arrow_c_stream__, and list has neither"):
        topic.extend_arrow([1])
    assert len(topic) == 0


@pytest.mark.parametrize("end", ["append", "leave", "raise"])
def test_a_forked_child_has_no_part_in_a_load_and_does_it_no_harm(
    store: falaj.Store, end: str
) -> None:
    topic = store.topic("orders")
    load = topic.bulk_load("nightly").__enter__()
    load.append(b"before")
    pid = os.fork()
    if pid == 0:
        try:
            if end == "append":
                load.append(b"lost")
            load.__exit__(*(3 * [None] if end == "leave" else [KeyError, KeyError(), None]))
        except errors.HandleClosed as error:
            os._exit(7 if "this bulk load was made before a fork" in str(error) else 1)
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (8 if end == "raise" else 7)
    load.append(b"after")
    load.__exit__(None, None, None)
    assert [record.to_bytes() for record in topic] == [b"before", b"after"]


def test_a_load_that_was_not_begun_before_a_fork_is_the_childs_too(store: falaj.Store) -> None:
    topic = store.topic("orders")
    load = topic.bulk_load("nightly")
    pid = os.fork()
    if pid == 0:
        with load:
            load.append(b"child")
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    with load:
        load.append(b"parent")
    assert [record.to_bytes() for record in topic] == [b"child", b"parent"]
