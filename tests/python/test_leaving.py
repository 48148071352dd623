"""Closing a consumer: it releases everything, whatever threads use it, and its loops end."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from locks import locked, write_through

import falaj
from falaj.errors import HandleClosed, LockTimeout

SOON_S = 30.0
"""Far more than anything here takes: a limit, not a duration."""


@pytest.fixture
def written_through(path: Path) -> Path:
    write_through(path)
    return path


def filled(store: falaj.Store, **settings: Any) -> Any:
    opens: Any = store.partitioned_topic if "partitions" in settings else store.topic
    orders = opens("orders", **settings)
    orders.extend([(b"%d" % n, b"%d" % n) for n in range(10)])
    return orders


def members(store: falaj.Store) -> int:
    return len(store.info()["groups"][0]["members"])


def until(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.001)  # sleep: what other threads do in their own time


class Thread(threading.Thread):
    """A thread that keeps the error that it ended with."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.work = work
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001  # raised where it is joined
            self.error = error

    def end(self) -> None:
        self.join(SOON_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("closed", ["consumer", "store"])
def test_what_is_closed_while_a_thread_is_at_work_in_it_is_let_go_when_that_is_done(
    written_through: Path, closed: str
) -> None:
    with falaj.open(written_through) as watcher:
        store = falaj.open(written_through)
        orders = filled(store, sync="none", sync_interval_ms=3_600_000)
        billing = store.consumer("billing", "orders")
        assert len(list(billing)) == 10
        (sync_lock,) = written_through.glob("logs/orders@*/lock.sync")
        with locked(sync_lock):
            worker = Thread(lambda: billing.commit(sync="durable"))
            until(lambda: "in use" in repr(billing))
            closer = Thread(billing.close if closed == "consumer" else store.close)
            until(lambda: billing.closed)
            with pytest.raises(HandleClosed):
                billing.commit()
            assert members(watcher) == 1, "it is at work"
        worker.end()
        closer.end()
        assert members(watcher) == 0
        (cursor,) = watcher.info()["groups"][0]["partitions"]
        assert (cursor["safe"], cursor["owner"], orders.closed) == (10, None, closed == "store")


def test_a_durable_commit_has_the_patience_of_the_store(written_through: Path) -> None:
    with falaj.open(written_through) as store:
        orders = filled(store, sync="none", sync_interval_ms=3_600_000)
        billing = store.consumer("billing", "orders")
        list(billing)
        (sync_lock,) = written_through.glob("logs/orders@*/lock.sync")
        with locked(sync_lock):
            worker = Thread(lambda: billing.commit(sync="durable"))
            time.sleep(0.12)  # sleep: longer than the engine waits for a lock at a time
        worker.end()
        assert (billing.committed(), orders.durable_offset) == (10, 10)


def test_closing_has_the_patience_of_the_store_and_can_be_tried_again(
    written_through: Path,
) -> None:
    with falaj.open(written_through) as watcher:
        for patience in (0.1, SOON_S):
            store = falaj.open(written_through, lock_timeout=patience)
            filled(store)
            billing = store.consumer("billing", "orders")
            with locked(written_through / "claim"):
                closer = Thread(billing.close)
                if patience < 1:
                    with pytest.raises(LockTimeout):
                        closer.end()
                    assert billing.closed
                    assert members(watcher) == 1
                else:
                    time.sleep(0.12)  # sleep: longer than the engine waits for a lock at a time
            if patience < 1:
                billing.close()
            closer.error = None
            closer.end()
            assert members(watcher) == 0
            billing.close()
            store.close()


def test_what_is_collected_while_the_claim_is_busy_holds_up_nobody_of_its_process(
    written_through: Path,
) -> None:
    with falaj.open(written_through) as store:
        filled(store, partitions=2)
        billing = store.consumer("billing", "orders")
        with locked(written_through / "claim"):
            del billing
        assert members(store) == 1
        with store.consumer("billing", "orders") as billing:
            assert len(billing.partitions) == 2
            assert members(store) == 1
        store.delete_group("billing")


def test_asking_for_the_partitions_has_the_patience_of_the_store(written_through: Path) -> None:
    with falaj.open(written_through) as store:
        filled(store, partitions=2)
        billing = store.consumer("billing", "orders")
        other = store.consumer("billing", "orders")
        assert other.partitions == []
        with locked(written_through / "claim"):
            found: list[Any] = []
            # Releasing one needs the claim.
            worker = Thread(lambda: found.extend(billing.partitions))
            time.sleep(0.12)  # sleep: longer than the engine waits for a lock at a time
        worker.end()
        assert len(found) == 1


def by_record(billing: Any) -> Iterator[Any]:
    yield from billing


def by_following(billing: Any) -> Iterator[Any]:
    yield from billing.follow()


def by_batch(billing: Any) -> Iterator[Any]:
    yield from billing.batches(3, timeout=None)


def async_by_record(billing: Any) -> Iterator[Any]:
    return one_by_one(billing.afollow())


def async_by_batch(billing: Any) -> Iterator[Any]:
    return one_by_one(billing.abatches(3))


def one_by_one(found: Any) -> Iterator[Any]:
    """Call the asyncio methods; their work runs between two turns of the loop."""
    with asyncio.Runner() as runner:
        while (each := runner.run(anext(found, None))) is not None:
            yield each


HOW = [by_record, by_following, by_batch, async_by_record, async_by_batch]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("closed", ["consumer", "store"])
def test_a_loop_over_what_is_closed_in_it_ends_and_calls_are_told(
    path: Path, how: Callable[[Any], Iterator[Any]], closed: str
) -> None:
    with falaj.open(path) as watcher:
        store = falaj.open(path)
        for _ in range(3):
            filled(store)
        billing = store.consumer("billing", "orders")
        for rounds, _ in enumerate(how(billing)):
            assert rounds == 0
            (billing if closed == "consumer" else store).close()
            with pytest.raises(HandleClosed):
                billing.commit()
            with pytest.raises(HandleClosed):
                billing.poll(timeout=0)
        assert members(watcher) == 0
        with pytest.raises(HandleClosed):
            next(how(billing))


@pytest.mark.parametrize("how", HOW[1:])
def test_a_loop_tells_that_a_topic_was_closed(
    path: Path, how: Callable[[Any], Iterator[Any]]
) -> None:
    with falaj.open(path) as store:
        orders = filled(store)
        found = how(store.consumer("billing", [orders]))
        next(found)
        orders.close()
        with pytest.raises(HandleClosed, match="topic"):
            list(found)
