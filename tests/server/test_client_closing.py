"""Closing a store ends what waits in it: loops, polls, takes; as a native store does."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import falaj
import falaj_client
from falaj.errors import HandleClosed
from server.doors import Server
from server.test_client import connect

SOON_S = 15.0
"""Far more than anything here takes, and less than a waiting call is open at the server."""

CALLS: dict[str, Callable[[Any], Any]] = {
    "follow": lambda store: store.topic("orders").follow,
    "follow partitions": lambda store: store.partitioned_topic("parts", partitions=2).follow,
    "poll": lambda store: store.consumer("billing", "orders").poll,
    "follow a group": lambda store: store.consumer("billing", "orders").follow,
    "take": lambda store: store.queue("jobs", "orders").take,
    "jobs": lambda store: store.queue("jobs", "orders").jobs,
}


@pytest.mark.parametrize("name", CALLS)
def test_closing_a_store_ends_what_waits_in_it_at_once(tmp_path: Path, name: str) -> None:
    with Server(tmp_path / "events") as server:
        store = connect(server)
        store.topic("orders")
        call = CALLS[name](store)
        ended: list[Any] = []

        def wait() -> None:
            try:
                ended.append(list(call()))
            except BaseException as error:  # noqa: BLE001  # the assertion shows it
                ended.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join(0.2)  # until it waits: nothing else tells
        assert waiter.is_alive()
        store.close()
        waiter.join(SOON_S)
        assert not waiter.is_alive()
        assert ended == [[]]
        with pytest.raises(HandleClosed):
            list(call())


async def all_of(given: Any) -> list[Any]:
    return [each async for each in given] if hasattr(given, "__aiter__") else list(await given)


@pytest.mark.parametrize("name", CALLS)
def test_from_asyncio_closing_a_store_ends_what_waits_in_it_at_once(
    tmp_path: Path, name: str
) -> None:
    made: dict[str, Callable[[Any], Any]] = {
        "follow": lambda store: store.topic("orders"),
        "follow partitions": lambda store: store.partitioned_topic("parts", partitions=2),
        "poll": lambda store: store.consumer("billing", "orders"),
        "follow a group": lambda store: store.consumer("billing", "orders"),
        "take": lambda store: store.queue("jobs", "orders"),
        "jobs": lambda store: store.queue("jobs", "orders"),
    }

    async def use(url: str, token: str) -> None:
        store = falaj_client.aconnect(url, token=token)
        await store.topic("orders")
        call = getattr(await made[name](store), name.partition(" ")[0])
        waiting = asyncio.ensure_future(all_of(call()))
        done, _ = await asyncio.wait([waiting], timeout=0.2)  # until it waits
        assert not done
        await store.aclose()
        assert await asyncio.wait_for(waiting, SOON_S) == []
        with pytest.raises(HandleClosed):
            await all_of(call())

    with Server(tmp_path / "events") as server:
        asyncio.run(use(f"http://127.0.0.1:{server.port}", server.token))


def test_a_job_that_comes_after_its_store_was_closed_is_free_for_others(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, connect(server) as other:
        store = connect(server)
        queue = store.queue("jobs", codec="str")
        waiter = threading.Thread(target=queue.take)
        waiter.start()
        waiter.join(0.2)  # until it waits: nothing else tells
        store.close()
        waiter.join(SOON_S)
        assert not waiter.is_alive()
        mine = other.queue("jobs")
        mine.put("x")
        (job,) = mine.take(timeout=SOON_S)
        assert (job.value, job.attempt) == ("x", 1)


LOOPS: dict[str, Callable[[Any], Any]] = {
    "topic": lambda store: store.topic("orders"),
    "slice": lambda store: store.topic("orders")[:],
    "follow": lambda store: store.topic("orders").follow(),
    "group": lambda store: store.consumer("billing", "orders"),
    "jobs": lambda store: store.queue("jobs", "orders"),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_in_which_its_store_is_closed_ends(tmp_path: Path, name: str) -> None:
    with Server(tmp_path / "events") as server:
        store = connect(server)
        store.topic("orders").extend([b"1", b"2", b"3"])
        loop = LOOPS[name](store)
        for rounds, _ in enumerate(loop):
            assert rounds == 0
            store.close()
        with pytest.raises(HandleClosed):
            store.topic("orders")
        if name == "group":
            assert loop.closed
            loop.close()  # it left with its store
            with pytest.raises(HandleClosed):
                loop.poll(timeout=0)


def test_a_call_that_waits_to_be_repeated_ends_when_its_store_is_closed() -> None:
    store = falaj.connect("http://127.0.0.1:1", timeout=3600)
    store._driver._client._transport = httpx.MockTransport(
        lambda _: httpx.Response(503, headers={"Retry-After": "60"})
    )
    closing = threading.Timer(0.1, store.close)
    closing.start()
    begin = time.monotonic()
    with pytest.raises(HandleClosed):
        list(store.topics)
    assert time.monotonic() - begin < SOON_S
    closing.join()
