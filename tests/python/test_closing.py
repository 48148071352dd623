"""Every call that waits ends alike when its topic, queue, consumer or store is closed."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import falaj
from falaj.errors import HandleClosed, NoSpace
from falaj.logging import Handler

SOON_S = 30.0
"""Far more than anything here takes: a limit, not a duration."""


async def all_of(records: Any) -> list[Any]:
    return [record async for record in records]


TOPICS: dict[str, Callable[[Any], Any]] = {
    "follow": lambda topic: list(topic.follow()),
    "afollow": lambda topic: asyncio.run(all_of(topic.afollow())),
}
QUEUES: dict[str, Callable[[Any], Any]] = {
    "take": lambda queue: queue.take(),
    "for": list,
    "work": lambda queue: queue.work(print) or [],
    "atake": lambda queue: asyncio.run(queue.atake(1)),
    "ajobs": lambda queue: asyncio.run(all_of(queue.ajobs())),
}
CONSUMERS: dict[str, Callable[[Any], Any]] = {
    "poll": lambda consumer: consumer.poll(),
    "follow": lambda consumer: list(consumer.follow()),
    "batches": lambda consumer: list(consumer.batches()),
    "apoll": lambda consumer: asyncio.run(consumer.apoll()),
    "afollow": lambda consumer: asyncio.run(all_of(consumer.afollow())),
    "abatches": lambda consumer: asyncio.run(all_of(consumer.abatches())),
}
CALLS = [
    *(("topic", name) for name in TOPICS),
    *(("partitioned", name) for name in TOPICS),
    *(("queue", name) for name in QUEUES),
    *(("consumer", name) for name in CONSUMERS),
    *(("pattern", name) for name in CONSUMERS),
]
MADE: dict[str, tuple[Callable[[falaj.Store], Any], dict[str, Callable[[Any], Any]]]] = {
    "topic": (lambda store: store.topic("orders"), TOPICS),
    "partitioned": (lambda store: store.partitioned_topic("parts", partitions=2), TOPICS),
    "queue": (lambda store: store.queue("emails"), QUEUES),
    "consumer": (lambda store: store.consumer("billing", "orders"), CONSUMERS),
    "pattern": (lambda store: store.consumer("audit", pattern="no.*"), CONSUMERS),
}


@pytest.mark.parametrize("closed", ["itself", "store"])
@pytest.mark.parametrize(("of", "call"), CALLS)
def test_every_waiting_call_ends_alike_when_it_is_closed(
    path: Path, of: str, call: str, closed: str
) -> None:
    with falaj.open(path) as store:
        store.topic("orders")
        make, calls = MADE[of]
        waits_on = make(store)
        ended: list[Any] = []

        def wait() -> None:
            try:
                ended.append(list(calls[call](waits_on)))
            except BaseException as error:  # noqa: BLE001  # the assertion shows it
                ended.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join(0.2)  # until it waits: nothing else tells
        assert waiter.is_alive()
        (waits_on if closed == "itself" else store).close()
        waiter.join(SOON_S)
        assert not waiter.is_alive()
        assert ended == [[]]
        with pytest.raises(HandleClosed):
            list(calls["follow" if "follow" in calls else "take"](waits_on))


@pytest.mark.parametrize("call", ["apoll", "afollow", "abatches"])
def test_a_closed_consumer_of_a_pattern_without_topics_ends_before_its_next_look(
    store: falaj.Store, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(falaj.Consumer, "_due", lambda _: 3600.0)
    consumer = store.consumer("audit", pattern="no.*")

    async def wait() -> list[Any]:
        asyncio.get_running_loop().call_later(0.1, consumer.close)
        if call == "apoll":
            return list(await consumer.apoll())
        return await all_of(getattr(consumer, call)())

    assert asyncio.run(asyncio.wait_for(wait(), SOON_S)) == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_waiting_for_a_topic_that_did_not_come_raises_when_the_store_is_closed(
    path: Path, asynchronous: bool
) -> None:
    store = falaj.open(path)
    closer = threading.Timer(0.1, store.close)
    closer.start()

    def wait() -> None:
        if asynchronous:
            asyncio.run(store.await_for_topic("orders"))
        else:
            store.wait_for_topic("orders")

    with pytest.raises(HandleClosed):  # to return would say that the topic is there
        wait()
    closer.join()


def test_a_consumer_whose_last_commit_fails_is_closed(
    store: falaj.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object) -> None:
        raise NoSpace("full")

    topic = store.topic("orders")
    topic.append(b"one")
    monkeypatch.setattr(falaj.Consumer, "commit", fail)
    with (
        pytest.raises(NoSpace, match="full"),
        store.consumer("billing", topic, auto_commit=3600) as billing,
    ):
        billing.poll(timeout=0)
    assert billing.closed


@pytest.mark.parametrize("callback", ["on_assign", "on_revoke"])
def test_a_consumer_whose_callback_fails_as_it_is_closed_is_closed(
    store: falaj.Store, callback: str
) -> None:
    def fail(*_given: object) -> None:
        raise ValueError("mine")

    topic = store.topic("orders")
    topic.append(b"one")
    with (
        pytest.raises(ValueError, match="mine"),
        store.consumer("billing", topic, **{callback: fail}) as billing,  # type: ignore[call-overload]
    ):
        billing.poll(timeout=0)
    assert billing.closed


def test_a_log_handler_closes_its_store_also_where_its_topic_does_not_close(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object) -> None:
        raise NoSpace("full")

    handler = Handler("log", store=path)
    store = handler.topic.store
    monkeypatch.setattr(type(handler.topic), "close", fail)
    monkeypatch.setattr(handler, "handleError", lambda _record: None)
    handler.close()
    assert store.closed


def test_one_store_that_does_not_close_keeps_no_other_of_its_origins_open(
    store: falaj.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise NoSpace("full")

    place = store.path.with_name("place")
    store.topic("orders").append(b"one")
    store.ship(place, once=True)
    origins = falaj.open_origins(place)
    [opened] = origins._opened
    origins._opened.append(SimpleNamespace(close=fail))  # type: ignore[arg-type]
    origins._opened.insert(0, SimpleNamespace(close=fail))  # type: ignore[arg-type]
    with pytest.raises(NoSpace):
        origins.close()
    assert opened.closed
