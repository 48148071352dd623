"""A store is removed while processes write to it: real processes, a real `rm -r`."""

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import FilesRemoved, LockFileReplaced

WRITER = """
store = falaj.open(path, sync="durable")
topic = store.topic("t", codec="raw")
say(topic.append(b"acknowledged"))
hear()
for call in (lambda: topic.append(b"lost"), topic.flush, lambda: topic.append(b"x", sync="none")):
    try:
        say("returned", call())
    except falaj.Error as error:
        say(type(error).__name__, str(error).split("; ")[-1])
say(topic.durable_offset)
"""
TOLD = "FilesRemoved open the store again, or restore a backup"


def remove(path: Path) -> None:
    subprocess.run(["rm", "-r", path], check=True)


def test_every_writer_of_a_removed_store_is_told_and_a_new_store_there_has_none_of_its_records(
    path: Path,
) -> None:
    with child(path, WRITER) as one, child(path, WRITER) as other:
        assert {one.hear(), other.hear()} == {"0", "1"}
        remove(path)
        with falaj.open(path, sync="durable") as new:
            topic = new.topic("t", codec="raw")
            assert topic.append(b"new") == 0
            for writer in (one, other):
                writer.tell()
                assert [writer.hear() for _ in range(3)] == [TOLD] * 3
                assert writer.hear() == "2"
                writer.end()
            assert topic.append(b"more") == 1
            assert [record.to_bytes() for record in topic] == [b"new", b"more"]
    assert falaj.verify(path)["sound"]


def test_a_removed_store_ends_every_call_that_waits_or_commits(path: Path) -> None:
    store = falaj.open(path)
    topic = store.topic("t", codec="raw", sync="durable")
    topic.append(b"read")
    consumer = store.consumer("billing", [topic])
    assert [record.to_bytes() for record in consumer.poll(timeout=0)] == [b"read"]
    follower = topic.follow(1)
    remove(path)
    with pytest.raises(FilesRemoved):
        next(follower)
    with pytest.raises(FilesRemoved):
        consumer.commit(sync="durable")
    with pytest.raises(FilesRemoved):
        consumer.poll(timeout=60)
    with pytest.raises(FilesRemoved), store.transaction() as tx:
        tx.append(topic, b"in a transaction")
    with pytest.raises(FilesRemoved):
        topic.extend([b"one", b"two"])
    with suppress(FilesRemoved):
        store.close()


def test_a_queue_of_a_removed_store_delivers_and_takes_nothing_more(path: Path) -> None:
    store = falaj.open(path)
    topic = store.topic("jobs", codec="raw")
    topic.extend([b"one", b"two"], sync="durable")
    queue = store.queue("work", topic)
    jobs = queue.take(2)
    remove(path)
    jobs[0].ack()  # acks are not synced
    put = partial(queue.put, b"three", sync="durable")
    for call in (put, topic.flush):
        with pytest.raises(FilesRemoved):
            call()
    held: list[object] = []  # a job without a reference is returned to the queue
    with suppress(FilesRemoved):
        held += queue.take(timeout=0)  # the record of `put` is visible if only its sync was refused
    with pytest.raises(FilesRemoved):
        queue.take(timeout=60)
    assert len(held) <= 1
    with suppress(FilesRemoved):
        store.close()
    assert not path.exists()


CALLS: dict[str, Callable[[falaj.Store, falaj.Topic[Any]], object]] = {
    "properties": lambda store, topic: topic.properties,
    "topic": lambda store, topic: store.topic("t", create=False),
    "any_topic": lambda store, topic: store.any_topic("other"),
    "wait_for_topic": lambda store, topic: store.wait_for_topic("other", timeout=60),
    "consumer": lambda store, topic: store.consumer("readers", "t"),
    "one of topics": lambda store, topic: store.topics["t"],
    "topics": lambda store, topic: [*store.topics],
    "in topics": lambda store, topic: "t" in store.topics,
    "groups": lambda store, topic: [*store.groups],
    "queues": lambda store, topic: [*store.queues],
    "compact": lambda store, topic: topic.compact(),
}
"""Calls that look for a name in the store."""


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_no_call_takes_a_removed_store_for_one_without_topics(
    path: Path, call: str, read_only: bool
) -> None:
    falaj.open(path).topic("t", codec="raw", compacted=True)
    store = falaj.open(path, read_only=read_only)
    topic = store.topic("t", codec="raw", create=False)
    remove(path)
    with pytest.raises(FilesRemoved, match="was removed, or moved away"):
        CALLS[call](store, topic)
    with suppress(FilesRemoved):
        store.close()


def exchanged(path: Path, other: Path) -> None:
    falaj.open(other).topic("late")
    path.rename(path.with_name("away"))
    other.rename(path)


def another_store(path: Path) -> None:
    exchanged(path, path.with_name("other"))


def an_older_copy(path: Path) -> None:
    exchanged(path, shutil.copytree(path, path.with_name("copy")))


def other_files(path: Path) -> None:
    other = path.with_name("other")
    falaj.open(other).topic("late")
    [log] = (other / "logs").iterdir()
    for name in ("presence", "falaj.json", f"logs/{log.name}", "topics/late"):
        (other / name).rename(path / name)


WAITS: dict[str, Callable[[falaj.Store], None]] = {
    "wait_for_topic": lambda store: store.wait_for_topic("late", timeout=60),
    "await_for_topic": lambda store: asyncio.run(store.await_for_topic("late", timeout=60)),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (remove, FilesRemoved),
        (another_store, LockFileReplaced),
        (an_older_copy, LockFileReplaced),
        (other_files, LockFileReplaced),
    ],
)
def test_a_wait_for_a_topic_ends_where_the_store_is_removed_or_replaced(
    path: Path,
    change: Callable[[Path], None],
    error: type[falaj.Error],
    read_only: bool,
    wait: str,
) -> None:
    falaj.open(path).topic("t", codec="raw")
    store = falaj.open(path, read_only=read_only)
    changing = threading.Timer(0.05, change, [path])
    changing.start()
    # Between two renames no store is there.
    with pytest.raises((error, FilesRemoved)) as raised:
        WAITS[wait](store)
    assert raised.value.path is not None
    changing.join()
    with suppress(FilesRemoved, LockFileReplaced):
        store.close()


def test_a_store_that_is_configured_is_still_the_one_that_a_wait_began_in(path: Path) -> None:
    backup = path.with_name("backup")  # which has no lock files
    falaj.open(path).backup(backup)
    store = falaj.open(backup, read_only=True)
    writer = falaj.open(backup)
    writer.configure(retention_bytes=1 << 30)  # which writes falaj.json again
    creating = threading.Timer(1.2, writer.topic, ["late"])
    creating.start()
    store.wait_for_topic("late", timeout=60)
    creating.join()
