"""Signal handlers that raise: the effect of a call is known, and delivered records come again.

The kernel's timer fires at a different moment in each round, so each test runs until enough of them
fell into the call.
"""

import gc
import itertools
import random
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from children import child, stop_in_the_middle_of_an_append

import falaj
from falaj._consumer import Consumer
from falaj._records import Receipt
from falaj.errors import HandleClosed
from falaj.outbox import Outbox

# An alarm in a finalizer, as of a lock of the import system, is printed and has no effect.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEED = 20261126
ROUNDS = 60_000
ENOUGH = 40


class Alarm(BaseException):
    """The handler's exception; only these tests catch it."""

    #: Another thread may take the signal, so the handler may run later than the timer.
    is_expected = False


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """Make the timer's signal raise."""

    def ring(_signal: int, _frame: object) -> None:
        if Alarm.is_expected:
            raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        Alarm.is_expected = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        # An object that an alarm left half made warns when it is collected. That is ignored here,
        # and not in a test of another file.
        gc.collect()


def call_with_alarm(call: Callable[[], Any], longest_s: float) -> tuple[Any, Alarm | None]:
    """Make a call while the timer fires at some moment, or not at all.

    Returns the call's result, None if the handler took it away, and the handler's exception.
    """
    result, raised = None, None
    Alarm.is_expected = True
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, longest_s))
        result = call()
        Alarm.is_expected = False
    except Alarm as error:
        raised = error
    Alarm.is_expected = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    return result, raised


def interrupted(call: Callable[[], Any], was_done: Callable[[], bool]) -> Iterator[Any]:
    """Repeat a call; yield its result, None if the handler took it away.

    Ends when that has happened often enough after the call's work was done.
    """
    random.seed(SEED)
    met = 0
    longest_s = 1e-5
    for _ in range(ROUNDS):
        result, raised = call_with_alarm(call, longest_s)
        # So that it fires within the call as often as after it, however long that takes.
        longest_s = max(1e-5, longest_s * (1.1 if raised else 0.9))
        if raised and result is None and was_done():
            met += 1
        yield result
        if met == ENOUGH:
            return
    raise AssertionError(f"the timer fired after the work only {met} times")


def transact(store: falaj.Store, topic: falaj.Topic[Any]) -> bool:
    with store.transaction() as tx:
        tx.append(topic, b"x")
    return True


def load(topic: falaj.Topic[Any]) -> bool:
    with topic.bulk_load("load") as job:
        job.append(b"x")
    return True


#: Calls that append to a topic.
APPENDS: dict[str, Callable[[falaj.Store, falaj.Topic[Any]], Any]] = {
    "append": lambda _, topic: topic.append(b"x"),
    "append with a key": lambda _, topic: topic.append(b"x", key=b"k"),
    "append that expects": lambda _, topic: topic.append(b"x", expect=topic.end_offset),
    "durable append": lambda _, topic: topic.append(b"x", sync="durable"),
    "extend": lambda _, topic: topic.extend([b"x", b"y"]),
    "tombstone": lambda _, topic: topic.tombstone(b"k"),
    "transaction": transact,
    "job": lambda _, topic: load(topic),
    "put": lambda store, _: store.queue("orders").put(b"x"),
}


@pytest.mark.parametrize("how", APPENDS)
def test_what_an_interrupted_call_appended_is_in_its_receipts(
    store: falaj.Store, topic: falaj.Topic[Any], how: str
) -> None:
    end = topic.end_offset
    rounds = interrupted(lambda: APPENDS[how](store, topic), lambda: topic.end_offset > end)
    while True:
        end = topic.end_offset
        with falaj.Receipts() as receipts:
            if next(rounds, ...) is ...:
                return
        appended = receipts.appended
        assert [o for receipt in appended for o in receipt.offsets] == list(
            range(end, topic.end_offset)
        )
        assert {(receipt.topic, receipt.partition) for receipt in appended} <= {("orders", 0)}


def test_receipts_are_of_their_own_thread_and_their_own_block(topic: falaj.Topic[Any]) -> None:
    topic.append(b"before")
    with falaj.Receipts() as outer, falaj.Receipts() as inner:
        topic.append(b"within")
        with ThreadPoolExecutor() as pool:
            pool.submit(topic.append, b"elsewhere").result()
    topic.append(b"behind")
    expected = [Receipt("orders", 0, range(1, 2))]
    assert outer.appended == inner.appended == expected


def test_receipts_name_each_partition_of_each_topic(store: falaj.Store) -> None:
    one = store.partitioned_topic("one", partitions=2, log="shop")
    two = store.topic("two", log="shop")
    with falaj.Receipts() as receipts:
        with store.transaction() as tx:
            tx.append(one, b"x", partition=1)
            tx.append(two, b"x")
        one.extend([b"y"], partition=0)
    assert receipts.appended == [
        Receipt("one", 1, range(1)),
        Receipt("two", 0, range(1)),
        Receipt("one", 0, range(1)),
    ]


def test_the_exception_that_interrupts_a_durable_append_says_that_it_was_appended(
    topic: falaj.Topic[Any],
) -> None:
    random.seed(SEED)
    notes: list[str] = []
    end = 0
    for _ in range(ROUNDS):
        end = topic.end_offset
        _, raised = call_with_alarm(lambda: topic.append(b"x", sync="durable"), 1e-3)
        notes = getattr(raised, "__notes__", [])
        if notes:
            break
    assert notes == [f"falaj: the records were appended, from offset {end} on"]


def test_a_transaction_that_was_interrupted_behind_its_commit_has_its_offsets(
    store: falaj.Store, topic: falaj.Topic[Any]
) -> None:
    txs: list[falaj.Transaction] = []

    def transact() -> bool:
        txs[:] = [store.transaction(sync="durable")]
        with txs[0] as tx:
            tx.append(topic, b"x")
        return True

    end = topic.end_offset
    rounds = interrupted(transact, lambda: topic.end_offset > end)
    while next(rounds, ...) is not ...:
        went = {"orders": {0: range(end, topic.end_offset)}} if topic.end_offset > end else None
        assert [tx.offsets for tx in txs] in ([went], [])
        txs.clear()
        end = topic.end_offset


def test_a_bulk_job_that_was_interrupted_behind_its_commit_says_that_it_was_committed(
    topic: falaj.Topic[Any],
) -> None:
    jobs: list[Any] = []

    def load() -> bool:
        jobs[:] = [topic.bulk_load("load")]
        with jobs[0] as job:
            job.append(b"x")
        return True

    end = topic.end_offset
    rounds = interrupted(load, lambda: topic.end_offset > end)
    while next(rounds, ...) is not ...:
        went = {0: range(end, topic.end_offset)} if topic.end_offset > end else {}
        assert [job.offsets for job in jobs] in ([went], [])
        jobs.clear()
        end = topic.end_offset


def first_batch(consumer: Consumer[Any]) -> falaj.Batch[Any] | None:
    for batch in consumer.batches(3, timeout=0):
        return batch
    return None


def first_record(consumer: Consumer[Any]) -> falaj.Record[Any] | None:
    for record in consumer.follow():
        return record
    return None


#: Ways to read from a consumer.
READS: dict[str, Callable[[Consumer[Any]], Any]] = {
    "poll": lambda consumer: consumer.poll(3, timeout=0),
    "poll that waits": lambda consumer: consumer.poll(3, timeout=None),
    "batches": first_batch,
    "follow": first_record,
}


def offsets_of(found: Any) -> list[int]:
    if isinstance(found, falaj.Batch):
        return list(found.offsets)
    return [each.offset for each in (found if isinstance(found, list) else [found])]


@pytest.mark.parametrize("auto_commit", [False, 1e-9], ids=["by hand", "automatic"])
@pytest.mark.parametrize("how", READS)
def test_what_an_interrupted_poll_had_found_is_not_committed_and_comes_again(
    store: falaj.Store, topic: falaj.Topic[Any], how: str, auto_commit: float
) -> None:
    for _ in range(20_000):
        topic.extend([b"x"] * 5)
    consumer = store.consumer("billing", [topic], auto_commit=auto_commit)
    read, seen = READS[how], 0
    # Its position is the only trace of its results, so this counts every interruption.
    rounds = interrupted(lambda: read(consumer), lambda: True)
    while (found := next(rounds, ...)) is not ...:
        if found is None:
            if not auto_commit:
                consumer.commit()
            assert consumer.position() == seen
            assert consumer.committed() <= seen
            continue
        offsets = offsets_of(found)
        assert offsets == list(range(seen, seen + len(offsets)))
        seen += len(offsets)


def test_jobs_that_an_interrupted_take_had_taken_go_back_and_that_was_no_attempt(
    store: falaj.Store, topic: falaj.Topic[Any]
) -> None:
    topic.extend([b"x"] * 20_000)
    queue = store.queue("orders")
    rounds = interrupted(lambda: queue.take(3, timeout=0), lambda: True)
    while (jobs := next(rounds, ...)) is not ...:
        if jobs is None:
            assert queue.info()["in_flight"] == 0
            continue
        assert [job.attempt for job in jobs] == [1, 1, 1]
        queue.ack(jobs)
    left = queue.take(20_000, timeout=0)
    assert {job.attempt for job in left} == {1}


def test_a_wait_for_records_or_jobs_that_a_handler_ends_takes_nothing(
    store: falaj.Store, topic: falaj.Topic[Any]
) -> None:
    consumer, queue = store.consumer("billing", [topic]), store.queue("orders")
    for wait in (lambda: consumer.poll(timeout=None), lambda: queue.take()):
        Alarm.is_expected = True
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Alarm):
            wait()
    topic.append(b"x")
    assert [job.attempt for job in queue.take()] == [1]
    assert len(consumer.poll(timeout=0)) == 1


def test_an_append_whose_wait_for_the_lock_a_handler_ends_appends_nothing(
    path: Path, topic: falaj.Topic[Any]
) -> None:
    program = """
topic = falaj.open(path).topic("orders")
say("ready")
while True:
    topic.append(b"x")
"""
    with child(path, program) as writer:
        assert writer.hear() == "ready"
        stop_in_the_middle_of_an_append(writer.process.pid, topic)
        end = topic.end_offset
        Alarm.is_expected = True
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with falaj.Receipts() as receipts, pytest.raises(Alarm) as raised:
            topic.append(b"mine")
        assert (receipts.appended, topic.end_offset) == ([], end)
        assert not hasattr(raised.value, "__notes__")


def test_an_outbox_that_is_interrupted_anywhere_moves_each_row_once(
    tmp_path: Path, topic: falaj.Topic[Any]
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.sqlite", isolation_level=None)) as shop:
        shop.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT)")
        with Outbox(tmp_path / "shop.sqlite", topic, limit=2) as outbox:

            def relay() -> bool:
                outbox.relay()
                return True

            rows = 0
            rounds = interrupted(relay, lambda: True)
            while next(rounds, ...) is not ...:
                rows += 1
                shop.execute("INSERT INTO outbox (value) VALUES (?)", (str(rows),))
            outbox.relay()
    assert [int(record.to_bytes()) for record in topic] == list(range(1, rows + 1))


def test_an_exception_at_any_line_of_a_relay_leaves_no_lock_though_it_is_kept(
    tmp_path: Path, topic: falaj.Topic[Any]
) -> None:
    """A program may keep the exception of its handler, and with it each frame that it left."""
    path, rows, kept = tmp_path / "shop.sqlite", itertools.count(1), list[Alarm]()
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as shop:
        shop.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT)")
        with Outbox(path, topic, limit=2, timeout=0) as outbox:
            for lines in itertools.count():
                shop.execute("INSERT INTO outbox (value) VALUES (?)", (str(next(rows)),))
                if not (raised := raised_after(lines, outbox.relay)):
                    break
                kept.append(raised)
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")
    assert len(kept) > 100
    assert [int(record.to_bytes()) for record in topic] == list(range(1, next(rows)))


def raised_after(lines: int, call: Callable[[], object]) -> Alarm | None:
    """Make a call that an exception ends after so many lines of Python, calls and returns."""
    left = iter(range(lines))

    def trace(_frame: object, _event: str, _argument: object) -> Any:
        if next(left, None) is None:
            sys.settrace(None)
            raise Alarm
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Alarm as raised:
        return raised
    finally:
        sys.settrace(before)
    return None


def test_a_handler_may_close_the_outbox_in_the_midst_of_a_relay(
    tmp_path: Path, topic: falaj.Topic[Any]
) -> None:
    def ring(*_: object) -> None:
        outbox.close()

    def interrupt(row: sqlite3.Row) -> str:
        if row["id"] == 3:
            signal.raise_signal(signal.SIGALRM)
        return str(row["value"])

    signal.signal(signal.SIGALRM, ring)
    with closing(sqlite3.connect(tmp_path / "shop.sqlite", isolation_level=None)) as shop:
        shop.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT)")
        shop.executemany("INSERT INTO outbox (value) VALUES (?)", [(str(n),) for n in range(9)])
        strings = topic.store.topic("strings", codec="str")
        outbox = Outbox(tmp_path / "shop.sqlite", strings, row=interrupt, limit=2)
        assert list(outbox.run()) == [4], "the batch of the third row must be the last one"
        with pytest.raises(HandleClosed):
            outbox.relay()
        with Outbox(tmp_path / "shop.sqlite", strings) as another:
            assert another.relay() == 5
    assert [record.value for record in strings] == [str(n) for n in range(9)]
