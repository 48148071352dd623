"""Sync modes: a record is as durable as requested, and the innermost setting wins."""

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import DurabilityUnknown, HandleClosed, OffsetOutOfRange, RetryableError

HOUR_MS = 3_600_000
SOON_S = 5.0
SYNC_LOCK = 192
"""Position of the lock word in a log's `control`: docs/FORMAT.md."""


def slow(store: falaj.Store, **settings: Any) -> falaj.Topic[Any]:
    """Make a topic that is not synced automatically within a test."""
    return store.topic("slow", sync_interval_ms=HOUR_MS, **settings)


@pytest.mark.parametrize("sync", ["none", "interval"])
def test_an_append_that_is_not_durable_is_visible_and_not_yet_durable(
    store: falaj.Store, sync: Any
) -> None:
    topic = slow(store, sync=sync)
    topic.append(b"x")
    topic.extend([b"y", b"z"])
    assert (topic.visible_offset, topic.durable_offset, len(topic)) == (3, 0, 3)


@pytest.mark.parametrize("where", ["open", "topic", "append", "extend"])
def test_a_durable_append_returns_once_it_is_on_the_medium(path: Path, where: str) -> None:
    asked: dict[str, Any] = {
        name: "durable" if name == where else None for name in ("topic", "append", "extend")
    }
    with falaj.open(path, sync="durable" if where == "open" else "none") as store:
        topic = slow(store, sync=asked["topic"])
        topic.append(b"x", sync=asked["append"])
        topic.extend([b"y", (b"k", b"z")], sync=asked["extend"])
        assert topic.durable_offset == {"append": 1}.get(where, 3)


def test_the_innermost_wish_wins(path: Path) -> None:
    with falaj.open(path, sync="durable") as store:
        topic = slow(store, sync="none")
        assert topic.sync == "none"
        topic.append(b"x")
        assert topic.durable_offset == 0
        topic.append(b"y", sync="durable")
        assert topic.durable_offset == 2
        topic.append(b"z")
        assert topic.durable_offset == 2


def test_interval_syncs_by_itself(store: falaj.Store) -> None:
    topic = store.topic("quick", sync_interval_ms=5)
    topic.append(b"x")
    deadline = time.monotonic() + SOON_S
    while topic.durable_offset < 1 and time.monotonic() < deadline:
        time.sleep(0.005)  # sleep: until the interval ends
    assert topic.durable_offset == 1


def test_flush_and_wait_durable_put_everything_on_the_medium(store: falaj.Store) -> None:
    topic = slow(store)
    topic.append(b"x")
    topic.flush()
    assert topic.durable_offset == 1
    offset = topic.append(b"y")
    assert isinstance(offset, int)
    assert topic.wait_durable(offset)
    assert topic.durable_offset == 2
    topic.append(b"z")
    assert topic.wait_durable(timeout=SOON_S)
    assert topic.durable_offset == 3
    with pytest.raises(OffsetOutOfRange):
        topic.wait_durable(3)


def test_a_reader_waits_for_the_sync_of_others(path: Path, store: falaj.Store) -> None:
    topic = slow(store)
    topic.append(b"x")
    reader = falaj.open(path, read_only=True).topic("slow")
    assert (reader.end_offset, reader.durable_offset) == (1, 0)
    assert reader.wait_durable(0, timeout=0.1) is False
    flusher = threading.Timer(0.1, topic.flush)
    flusher.start()
    assert reader.wait_durable(0, timeout=SOON_S) is True
    flusher.join()


@pytest.mark.parametrize("what", ["topic", "store"])
def test_closing_syncs(path: Path, what: str) -> None:
    store = falaj.open(path)
    topic = slow(store, sync="none")
    topic.append(b"x")
    (topic if what == "topic" else store).close()
    assert falaj.open(path, read_only=True).topic("slow").durable_offset == 1


def test_many_threads_append_durably_together(store: falaj.Store) -> None:
    topic = slow(store, sync="durable")
    lost: list[int] = []

    def write() -> None:
        for _ in range(50):
            offset = topic.append(b"x")
            assert isinstance(offset, int)
            if topic.durable_offset <= offset:
                lost.append(offset)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(topic), lost) == (400, [])


@contextmanager
def somebody_syncs_and_does_not_end(path: Path) -> Iterator[falaj.Store]:
    """Open the store while another living process has the sync lock of its only log."""
    program = """
store = falaj.open(path)
store.topic("orders").append(b"0")
say(os.getpid())
hear()
"""
    with child(path, program) as syncer, falaj.open(path, lock_timeout=0.2) as store:
        pid = syncer.hear()
        slots = {slot.name: slot.read_text().split() for slot in (path / "slots").iterdir()}
        (identity,) = (int(n) << 20 | int(told[1]) for n, told in slots.items() if told[3] == pid)
        (log,) = (path / "logs").iterdir()
        with (log / "control").open("r+b", buffering=0) as control, ExitStack() as held:
            if (log / "lock.sync").exists():
                lock = held.enter_context((log / "lock.sync").open("r+b"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            os.pwrite(control.fileno(), struct.pack("<Q", identity << 32 | 1), SYNC_LOCK)
            yield store
            os.pwrite(control.fileno(), bytes(8), SYNC_LOCK)
        syncer.tell()


@pytest.mark.parametrize("how", ["append", "extend", "numbered", "job", "transaction"])
def test_an_append_whose_sync_times_out_says_that_it_is_visible(path: Path, how: str) -> None:
    def begin(topic: falaj.Topic[Any], store: falaj.Store) -> None:
        match how:
            case "append":
                topic.append(b"1", sync="durable")
            case "extend":
                topic.extend([b"1"], sync="durable")
            case "numbered":
                topic.append(b"1", sync="durable", producer="p", sequence=1)
            case "job":
                with topic.bulk_load("import") as job:
                    job.append(b"1")
            case "transaction":
                with store.transaction(sync="durable") as tx:
                    tx.append("orders", b"1")

    with somebody_syncs_and_does_not_end(path) as store:
        topic = store.topic("orders")
        with pytest.raises(
            DurabilityUnknown, match=r"visible from offset 1 .* process \d+"
        ) as told:
            begin(topic, store)
        assert not isinstance(told.value, RetryableError)
        assert [bytes(value) for value in topic] == [b"0", b"1"]
    with falaj.open(path) as store:
        topic = store.topic("orders")
        topic.flush()
        assert (topic.durable_offset, len(topic)) == (2, 2)


def test_an_append_that_raises_closed_was_not_appended(
    path: Path, budget: Callable[[int, int], int]
) -> None:
    def append(topic: falaj.Topic[Any], how: str, done: list[Any], began: threading.Event) -> None:
        with suppress(HandleClosed):
            while True:
                if how == "append":
                    done.append(topic.append(b"x", sync="durable"))
                else:
                    done.extend(topic.extend([b"x"], sync="durable"))
                began.set()

    with falaj.open(path) as store:
        acknowledged = 0
        for _ in range(budget(40, 1000)):
            topic = store.topic("orders")
            done: list[list[Any]] = [[], [], []]
            began = [threading.Event() for _ in done]
            threads = [
                threading.Thread(target=append, args=(topic, how, *told))
                for how, *told in zip(("append", "extend", "append"), done, began, strict=True)
            ]
            for thread in threads:
                thread.start()
            for event in began:
                event.wait(SOON_S)
            topic.close()
            for thread in threads:
                thread.join()
            acknowledged += sum(map(len, done))
            assert len(store.topic("orders")) == acknowledged
