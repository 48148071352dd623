"""A user's program with stores, groups and queues: the type checker reads it, nothing runs it."""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

import falaj


def stores() -> None:
    """Open stores and topics, and list their content."""
    with falaj.open(
        "~/events", read_only=False, permissions=0o750, create=True, lock_timeout=1.0, io="pread"
    ) as store:
        assert_type(store, falaj.Store)
        assert_type(store.topics, Mapping[str, falaj.TopicInfo])
        assert_type(store.groups, Mapping[str, falaj.GroupInfo])
        assert_type(store.queues, Mapping[str, falaj.QueueInfo])
        assert_type(store.groups["billing"]["partitions"][0], falaj.GroupPartitionInfo)
        store.wait_for_topic("orders", timeout=1)
        store.topic("orders", create=False)
        store.delete_topic("orders")
        store.delete_group("billing")
        store.delete_queue("jobs")
        assert_type(store.seek_group("billing", "orders", "latest"), dict[int, int])


def groups(store: falaj.Store) -> None:
    """Read as a member of a group."""
    with store.consumer("billing", "orders") as billing:
        assert_type(billing, falaj.Consumer[Any])
        assert_type(billing.group, str)
        assert_type(billing.poll(timeout=0), list[falaj.Record[Any]])
        assert_type(billing.batches(), Iterator[falaj.Batch[Any]])
        assert_type(billing.lag, int)
        billing.commit()


def resize(job: falaj.Job[Any]) -> None:
    """Do the work of a job."""
    job.extend(60)


def queues(store: falaj.Store) -> None:
    """Put, take, work and redrive."""
    queue = store.queue("jobs", max_attempts=3)
    assert_type(queue.put(b"1.png"), int)
    assert_type(queue.put_many([b"2.png", ("ann", b"3.png")], delay=5), range)
    assert_type(queue.take(10, timeout=0), falaj.Jobs[Any])
    assert_type(queue.jobs(), Iterator[falaj.Job[Any]])
    assert_type(queue.ajobs(), AsyncIterator[falaj.Job[Any]])
    for job in queue:
        with job:
            resize(job)
    assert_type(queue.work(resize, backoff=(1, 60), timeout=0), int)
    assert_type(queue.redrive(limit=10), int)


@dataclass
class Order:
    """The values of a topic."""

    cups: int


def types_of_topics(store: falaj.Store) -> None:
    """Queues, groups and transactions have the type of the topic, or of the codec that is named."""
    names = store.topic("names", codec="str")
    blobs = store.topic("blobs", codec="bytes")
    assert_type(store.queue("q", names), falaj.Queue[str])
    assert_type(store.queue("q", names, max_attempts=3, backoff=("1s", 60)), falaj.Queue[str])
    assert_type(store.queue("q", codec="str"), falaj.Queue[str])
    assert_type(store.queue("q", codec=Order), falaj.Queue[Order])
    assert_type(store.queue("q", "names", codec="raw"), falaj.Queue[memoryview])
    assert_type(store.queue("q", codec="json"), falaj.Queue[Any])
    assert_type(store.queue("q"), falaj.Queue[Any])
    store.queue("q", codec="raw").put(b"views are read, and bytes are put")
    store.queue("q", blobs).put_many([b"1", ("key", b"2")])
    store.queue("q", names).put(1)  # type: ignore[arg-type]
    for job in store.queue("q", names):
        assert_type(job.value, str)
    assert_type(store.consumer("g", names), falaj.Consumer[str])
    assert_type(store.consumer("g", [names], start="latest"), falaj.Consumer[str])
    assert_type(store.consumer("g", ["names", blobs]), falaj.Consumer[Any])
    assert_type(store.consumer("g", [names, blobs]), falaj.Consumer[Any])
    assert_type(store.consumer("g", pattern="n*"), falaj.Consumer[Any])
    with store.transaction() as tx:
        tx.append(names, "ann")
        tx.append(blobs, memoryview(b"1"))
        tx.append("names", "by name, whatever it takes")
        tx.append(names, 1)  # type: ignore[misc]
        tx.extend(names, ["ann", ("key", "ben"), falaj.NewRecord("cem")])
        tx.append(store.partitioned_topic("orders", partitions=2, codec=Order), Order(1))
        tx.append(store.any_topic("names"), "either kind")


def durations(store: falaj.Store) -> None:
    """Waits and delays are seconds, timedeltas or text."""
    falaj.open("events", lock_timeout="5s").close()
    falaj.repair("events", lock_timeout=timedelta(seconds=5))
    store.wait_for_topic("orders", timeout="5m")
    store.queue("q", backoff=(timedelta(seconds=1), "5m"))
    store.queue("q", backoff=lambda attempts: f"{attempts}s")
    store.consumer("g", "orders").poll(timeout=timedelta(0))


async def waiting(store: falaj.Store) -> None:
    """The same from asyncio."""
    await store.await_for_topic("orders")
    billing = store.consumer("billing", ["orders"])
    assert_type(await billing.apoll(), list[falaj.Record[Any]])
    assert_type(billing.abatches(), AsyncIterator[falaj.Batch[Any]])
    async for job in store.queue("jobs"):
        assert_type(job, falaj.Job[Any])
