"""A user's program over HTTP: the type checker reads it, nothing runs it."""

from typing import Any, assert_type

import falaj
import falaj_client
from falaj_client.protocols import (
    AnyTopicLike,
    ConsumerLike,
    FollowerLike,
    JobLike,
    PartitionedTopicLike,
    QueueLike,
    RecordLike,
    SliceLike,
    StoreLike,
    TopicLike,
    TransactionLike,
)


def copy(store: StoreLike, source: AnyTopicLike[Any], target: TopicLike[Any]) -> None:
    """Take a store of either kind."""
    for record in source:
        target.append(record.value, record.key)
    target.configure(compacted=True, retention_age="7d", retention_records=None)
    target.compact(seal=True)
    member = store.consumer("copies", source.name, cursor_in=target.name)
    with store.transaction() as tx:
        tx.append(target.name, b"the last one")
        tx.commit_cursor(member, metadata="done")
    store.queue("jobs", max_attempts=3).redrive(10)
    for name in [*store.groups, *store.queues]:
        store.delete_group(name)
        store.delete_queue(name)


def native(store: falaj.Store) -> None:
    """A native store is one that `copy` takes."""
    copy(store, store.any_topic("orders"), store.topic("copy"))
    text: TopicLike[str] = store.topic("text", codec="str")
    parts: PartitionedTopicLike[str] = store.partitioned_topic("parts", codec="str")
    follower: FollowerLike[str] = text.follow(timeout=0)
    record: RecordLike[Any] = store.topic("text")[0]
    some: SliceLike[Any] = store.topic("text")[1:3]
    tx: TransactionLike = store.transaction()
    member: ConsumerLike[Any] = store.consumer("billing", "orders")
    queue: QueueLike[Any] = store.queue("jobs")
    job: JobLike[Any] = store.queue("jobs").take()[0]
    assert parts, (follower, record, some, tx, member, queue, job)


def client(store: falaj_client.Store) -> None:
    """So is one behind a server."""
    copy(store, store.any_topic("orders"), store.topic("copy"))
    text: TopicLike[str] = store.topic("text", codec="str")
    parts: PartitionedTopicLike[str] = store.partitioned_topic("parts", codec="str")
    follower: FollowerLike[str] = text.follow(timeout=0)
    record: RecordLike[Any] = store.topic("text")[0]
    some: SliceLike[Any] = store.topic("text")[1:3]
    tx: TransactionLike = store.transaction()
    member: ConsumerLike[Any] = store.consumer("billing", "orders")
    queue: QueueLike[Any] = store.queue("jobs")
    job: JobLike[Any] = store.queue("jobs").take()[0]
    assert parts, (follower, record, some, tx, member, queue, job)


def types() -> None:
    """Each call has one type."""
    with falaj.connect("http://127.0.0.1:4437", token="secret", timeout="1m") as store:
        assert_type(store, falaj_client.Store)
        assert_type(store.topic("a", codec="str"), falaj_client.Topic[str])
        assert_type(store.topic("a", codec="bytes"), falaj_client.Topic[bytes])
        assert_type(store.topic("a").append(b"x"), int)
        assert_type(store.topic("a", codec="str")[0].value, str)
        assert_type(store.topic("a", codec="str").extend(["x", ("k", "y")]), range)
        parts = store.partitioned_topic("b", partitions=2)
        assert_type(parts.append("x"), falaj_client.Position)


async def from_asyncio() -> None:
    """The same, awaited."""
    async with falaj.aconnect("http://127.0.0.1:4437") as store:
        assert_type(store, falaj_client.AsyncStore)
        topic = await store.topic("a", codec="str")
        assert_type(topic, falaj_client.AsyncTopic[str])
        assert_type(await topic.append("x"), int)
        async for record in topic.follow(timeout=0):
            assert_type(record.value, str)
