"""Sync modes: what is acknowledged is as durable as was asked, and the innermost wish wins."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import OffsetOutOfRange

HOUR_MS = 3_600_000
SOON_S = 5.0


def slow(store: falaj.Store, **settings: Any) -> falaj.Topic[Any]:
    """Make a topic that nothing syncs by itself within a test."""
    return store.topic("slow", sync_interval_ms=HOUR_MS, **settings)


@pytest.mark.parametrize("sync", ["none", "interval"])
def test_an_append_that_is_not_durable_is_visible_and_not_yet_durable(
    store: falaj.Store, sync: Any
) -> None:
    topic = slow(store, sync=sync)
    topic.append(b"x")
    topic.extend([b"y", b"z"])
    assert (topic.committed, topic.durable, len(topic)) == (3, 0, 3)


@pytest.mark.parametrize("where", ["open", "topic", "append", "extend"])
def test_a_durable_append_returns_once_it_is_on_the_medium(path: Path, where: str) -> None:
    asked: dict[str, Any] = {
        name: "durable" if name == where else None for name in ("topic", "append", "extend")
    }
    with falaj.open(path, sync="durable" if where == "open" else "none") as store:
        topic = slow(store, sync=asked["topic"])
        topic.append(b"x", sync=asked["append"])
        topic.extend([b"y", (b"k", b"z")], sync=asked["extend"])
        assert topic.durable == {"append": 1}.get(where, 3)


def test_the_innermost_wish_wins(path: Path) -> None:
    with falaj.open(path, sync="durable") as store:
        topic = slow(store, sync="none")
        assert topic.sync == "none"
        topic.append(b"x")
        assert topic.durable == 0
        topic.append(b"y", sync="durable")
        assert topic.durable == 2
        topic.append(b"z")
        assert topic.durable == 2


def test_interval_syncs_by_itself(store: falaj.Store) -> None:
    topic = store.topic("quick", sync_interval_ms=5)
    topic.append(b"x")
    deadline = time.monotonic() + SOON_S
    while topic.durable < 1 and time.monotonic() < deadline:
        time.sleep(0.005)  # sleep: the interval of which this waits for the end
    assert topic.durable == 1


def test_flush_and_wait_durable_put_everything_on_the_medium(store: falaj.Store) -> None:
    topic = slow(store)
    topic.append(b"x")
    topic.flush()
    assert topic.durable == 1
    offset = topic.append(b"y")
    assert isinstance(offset, int)
    assert topic.wait_durable(offset)
    assert topic.durable == 2
    topic.append(b"z")
    assert topic.wait_durable(timeout=SOON_S)
    assert topic.durable == 3
    with pytest.raises(OffsetOutOfRange):
        topic.wait_durable(3)


def test_a_reader_waits_for_the_sync_of_others(path: Path, store: falaj.Store) -> None:
    topic = slow(store)
    topic.append(b"x")
    reader = falaj.open(path, "r").topic("slow")
    assert (reader.end, reader.durable) == (1, 0)
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
    assert falaj.open(path, "r").topic("slow").durable == 1


def test_many_threads_append_durably_together(store: falaj.Store) -> None:
    topic = slow(store, sync="durable")
    lost: list[int] = []

    def write() -> None:
        for _ in range(50):
            offset = topic.append(b"x")
            assert isinstance(offset, int)
            if topic.durable <= offset:
                lost.append(offset)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(topic), lost) == (400, [])
