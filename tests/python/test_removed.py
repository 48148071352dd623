"""A store is removed while processes write to it: real processes, a real `rm -r`."""

import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from children import child

import falaj
from falaj.errors import FilesRemoved

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
