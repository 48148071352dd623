"""A user's program with topics of both kinds: the type checker reads it, nothing runs it."""

from dataclasses import dataclass
from typing import Any, assert_type

import falaj


@dataclass
class Order:
    """A record of the topic of orders."""

    item: str
    quantity: int


def one(store: falaj.Store) -> None:
    """Use a topic of one partition."""
    orders = store.topic("orders", codec=Order)
    assert_type(orders, falaj.Topic[Order])
    assert_type(orders.append(Order("tea", 2), key="eu", sync="durable"), int)
    assert_type(orders.extend([Order("tea", 2), ("eu", Order("pears", 1))]), range)
    assert_type(orders.tombstone("eu"), int)
    assert_type(orders[-1].value, Order)
    assert_type(orders[2:4], falaj.Slice[Order])
    assert_type(orders.range("2026-11-20T08:00:00Z"), falaj.Slice[Order])
    assert_type(orders.start_offset, int)
    assert_type(orders.end_offset, int)
    assert_type(orders.offset_at("2026-11-20T08:00:00Z"), int | None)
    assert_type(orders.wait_durable(), bool)
    for record in reversed(orders):
        assert_type(record, falaj.Record[Order])
    assert_type(store.topic("raw", codec="raw"), falaj.Topic[memoryview])
    assert_type(store.topic("plain"), falaj.Topic[Any])


def several(store: falaj.Store, partitions: int) -> None:
    """Use a topic of several partitions."""
    with store.partitioned_topic("clicks", partitions=partitions, codec="str") as clicks:
        assert_type(clicks, falaj.PartitionedTopic[str])
        position = clicks.append("home", key="ann")
        assert_type(position, falaj.Position)
        assert_type(position.offset, int)
        assert_type(clicks[position].value, str)
        assert_type(clicks.extend([("ann", "cart")]), dict[int, range])
        assert_type(clicks.tombstone("ann"), falaj.Position)
        part = clicks.partition(position.partition)
        assert_type(part, falaj.Topic[str])
        assert_type(part.append("pay"), int)
        assert_type(clicks.offsets, dict[int, range])


def size(topic: falaj.AnyTopic[Any]) -> int:
    """Take a topic of either kind."""
    return sum(len(offsets) for offsets in topic.offsets.values()) + topic.count()


def either(store: falaj.Store) -> None:
    """Read topics of both kinds, and append to them."""
    for name in store.topics:
        topic = store.any_topic(name, codec="bytes")
        assert_type(topic, falaj.Topic[bytes] | falaj.PartitionedTopic[bytes])
        size(topic)
        assert_type(topic.append(b"x"), int | falaj.Position)
        if isinstance(topic, falaj.Topic):
            assert_type(topic.append(b"x"), int)
        else:
            assert_type(topic.append(b"x"), falaj.Position)
    with store.transaction() as tx:
        tx.append(store.any_topic("clicks"), b"x")
    store.consumer("billing", [store.any_topic("clicks"), "orders"])
    store.queue("jobs", store.topic("orders"), dead_letter=store.any_topic("clicks"))
