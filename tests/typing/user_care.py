"""A user's program with all the rest: records, transactions, bulk loads, care and reports.

The type checker reads it, and nothing runs it.
"""

import logging
from array import array
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, assert_type

import falaj
from falaj import arrow
from falaj.logging import Handler
from falaj.metrics import exposition
from falaj.outbox import Outbox


def records(store: falaj.Store) -> None:
    """Read records, batches and slices, with a codec of one's own."""
    numbers = falaj.Codec("numbers", lambda n: b"%d" % n, int)
    topic = store.topic("numbers", codec=numbers)
    record = topic[0]
    assert_type(record, falaj.Record[int])
    assert_type(record.value, int)
    assert_type(record.to_bytes(), bytes)
    assert_type(topic[1:5], falaj.Slice[int])
    for batch in topic.batches():
        assert_type(batch, falaj.Batch[int])
    assert_type(topic.at(datetime.now(UTC)), falaj.Record[int] | None)
    assert_type(topic.follow(timeout=timedelta(seconds=1)), falaj.Follower[int])
    assert_type(topic.afollow("latest"), falaj.AsyncFollower[int])
    topic.extend([falaj.NewRecord(5, key="five", headers={"from": "till 3"})])
    assert_type(falaj.Position(0, 5).offset, int)
    store.topic("anything", codec=falaj.RAW)
    store.topic("orders", codec=falaj.JSON(default=str))


async def from_asyncio(store: falaj.Store) -> None:
    """Follow from asyncio."""
    async for record in store.topic("orders", codec="str").afollow():
        assert_type(record.value, str)
    members: falaj.AsyncConsumer[Any] = store.consumer("billing", "orders").afollow()
    await members.aclose()


def exactly_once(store: falaj.Store, billing: falaj.Consumer[Any]) -> None:
    """Append, and know what was appended."""
    orders = store.topic("orders", codec="json")
    with store.transaction() as tx, falaj.Receipts() as receipts:
        assert_type(tx, falaj.Transaction)
        tx.append(orders, {"id": 1})
        tx.commit_cursor(billing)
    assert_type(receipts.appended, list[falaj.Receipt])
    assert_type(orders.cursor("billing"), falaj.Cursor | None)
    assert_type(orders.producers(), list[falaj.Producer])
    session = falaj.ExpiringProducer("web-7f3a")
    assert_type(orders.last_sequence(session), int | None)


def bulk(orders: falaj.Topic[Any]) -> None:
    """Load many records at once, from one process or several."""
    with orders.bulk_load("2026-11", idempotency_key=("nightly", 1)) as load:
        assert_type(load, falaj.BulkLoad)
        assert_type(load.part, falaj.Part)
        load.append({"id": 1}, key="ann")
    assert_type(orders.commit_bulk_load("2026-11", []), falaj.BulkLoadReport)


def care(store: falaj.Store, orders: falaj.Topic[Any]) -> None:
    """Trim, compact, back up, verify and repair."""
    assert_type(orders.trim(before_time="2026-11-20T08:00:00Z"), falaj.TrimReport)
    assert_type(orders.configure(retention_age="7d"), falaj.TopicRetention)
    assert_type(orders.compact(last={0: falaj.Last(0, array("Q"))}), falaj.CompactReport)
    assert_type(store.backup("copy"), falaj.BackupReport)
    maintenance = store.maintain(dry_run=True)
    assert_type(maintenance, falaj.Maintenance)
    assert_type(maintenance["logs"], list[falaj.LogMaintenance])
    assert_type(maintenance["logs"][0]["cuts"], list[falaj.Cut])
    found = falaj.verify("events", progress=lambda done, total: done / total)
    assert_type(found, falaj.Verification)
    assert_type(found["findings"], list[falaj.Finding])
    assert_type(found["logs"], list[falaj.LogReport])
    assert_type(found["logs"][0]["topics"], list[falaj.TopicReach])
    repaired = falaj.repair("events", dry_run=True)
    assert_type(repaired, falaj.RepairReport)
    assert_type(repaired["logs"], list[falaj.LogRepair])
    assert_type(repaired["logs"][0]["steps"], list[falaj.Step])


def beyond(store: falaj.Store, stop: Event) -> None:
    """Ship a store to a place, wait for it, and restore it from there."""
    assert_type(store.ship("s3://bucket/shop", once=True, history="14d"), falaj.ShipReport)
    assert_type(store.ship("/mnt/place", stop=stop)["number"], int)
    store.configure(ship_min_sync=2)
    assert_type(store.ship(["s3://bucket/shop", "/mnt/place"])["places"], list[falaj.PlaceReport])
    assert_type(store.info()["places"], list[falaj.PlaceInfo])
    restored = falaj.restore("s3://bucket/shop", "copy", to_time="2026-11-27T08:00:00Z")
    assert_type(restored, falaj.RestoreReport)
    assert_type(store.topic("orders").append(b"paid", sync="remote", timeout="2s"), int)
    falaj.restore("https://machine:4437/shop", "copy", token="…", certificate="/etc/ca.pem")
    falaj.restore("s3://bucket/shop", "copy", to_number=7, endpoint="http://localhost:9000")
    with falaj.open_place("s3://bucket/shop", cache="cache", cache_bytes=1 << 30) as shop:
        assert_type(shop, falaj.PlaceStore)
        assert_type(shop.place, falaj.PlaceState)
        assert_type(shop.place.number, int)
    assert_type(falaj.open("s3://bucket/shop", read_only=True), falaj.Store)


def together(store: falaj.Store) -> None:
    """Read what several machines wrote."""
    listed = falaj.list_origins("s3://bucket/shop", endpoint="http://localhost:9000")
    assert_type(listed, list[falaj.OriginInfo])
    assert_type([each.origin for each in listed if each.head], list[str])
    with falaj.open_origins(store, "s3://bucket/shop", "/mnt/place", cache="cache") as everyone:
        assert_type(everyone, falaj.Origins)
        assert_type(everyone["0f"], falaj.Store)
        assert_type(everyone.errors, dict[str, Exception])
        for origin, record in everyone.records("orders", codec="json"):
            assert_type(origin, str)
            assert_type(record.offset, int)
        with everyone.follow("orders", start=-10, timeout="5m") as follower:
            assert_type(follower, falaj.OriginsFollower[Any])
            offsets = follower.offsets
        everyone.follow("orders", start=offsets, visibility="durable")


def numbers(store: falaj.Store) -> None:
    """Ask the store for its state in numbers."""
    info = store.info()
    assert_type(info, falaj.StoreInfo)
    assert_type(info["slots"], list[falaj.SlotInfo])
    assert_type(info["topics"], list[falaj.TopicInfo])
    assert_type(info["topics"][0]["partitions"], list[falaj.PartitionInfo])
    assert_type(info["logs"], list[falaj.LogInfo])
    assert_type(info["logs"][0]["segments"], list[falaj.SegmentInfo])
    assert_type(info["logs"][0]["append_lock"], falaj.LockInfo)
    assert_type(info["groups"], list[falaj.GroupInfo])
    assert_type(info["groups"][0]["members"], list[falaj.MemberInfo])
    assert_type(info["queues"], list[falaj.QueueInfo])
    assert_type(store.queue("jobs").info(), falaj.QueueInfo)
    assert_type(exposition(store.metrics()), str)


def around(store: falaj.Store, orders: falaj.Topic[Any]) -> None:
    """Log, read tables, and relay rows of a database."""
    logging.getLogger().addHandler(Handler("log", store=store))
    assert_type(orders.to_reader().skipped, list[falaj.Skipped])
    assert_type(arrow.scan(orders, on_corrupt="skip").skipped, list[falaj.Skipped])
    for hole in store.consumer("billing", orders).skip_damage():
        assert_type(hole, falaj.SkippedOfTopic)
    with Outbox("shop.db", orders) as outbox:
        assert_type(outbox.relay(), int)
    try:
        orders.append({"id": 2}, expect=5)
    except falaj.errors.OffsetConflict as conflict:
        assert_type(conflict.next, int)
    except falaj.Error as error:
        assert_type(error.path, str | None)
