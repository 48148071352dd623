"""A user's program with stores, groups and queues: the type checker reads it, nothing runs it."""

from collections.abc import AsyncIterator, Iterator, Mapping
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


async def waiting(store: falaj.Store) -> None:
    """The same from asyncio."""
    await store.await_for_topic("orders")
    billing = store.consumer("billing", ["orders"])
    assert_type(await billing.apoll(), list[falaj.Record[Any]])
    assert_type(billing.abatches(), AsyncIterator[falaj.Batch[Any]])
    async for job in store.queue("jobs"):
        assert_type(job, falaj.Job[Any])
