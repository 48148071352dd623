"""Pages of the client: frames of bytes, and the next page on its way while a program works."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import falaj
import falaj_client
from falaj_client._frames import records_of
from falaj_client.codecs import RAW
from server.doors import Server
from server.test_client import connect

PATIENCE_S = 30.0


def pages_of(store: Any) -> list[str]:
    """Note each page that a store asks for from now on."""
    asked = list[str]()

    def note(request: Any) -> None:
        if request.url.path.endswith("/records") and request.method == "GET":
            asked.append(request.url.query.decode())

    async def likewise(request: Any) -> None:
        note(request)

    hook = likewise if isinstance(store, falaj_client.AsyncStore) else note
    store._driver._client.event_hooks = {"request": [hook]}
    return asked


def test_the_next_page_is_asked_for_while_a_program_works_on_one_and_no_other(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server, connect(server) as store:
        topic = store.topic("orders", codec="json")
        topic.extend(range(4500))
        asked = pages_of(store)
        records = iter(topic)
        assert next(records).value == 0
        end = time.monotonic() + PATIENCE_S
        while len(asked) < 2:
            assert time.monotonic() < end, asked
            time.sleep(0.001)  # sleep: the page is asked for by another thread
        time.sleep(0.05)  # sleep: a third page would be asked for by now
        assert [query.split("&")[0] for query in asked] == ["from=0", "from=1000"]
        for _ in range(1000):
            next(records)
        while len(asked) < 3:
            assert time.monotonic() < end, asked
            time.sleep(0.001)  # sleep: the page is asked for by another thread
        assert [record.value for record in records] == list(range(1001, 4500))
        assert len(asked) == 5
        assert [record.value for record in topic.partition(0)[2000:2010]] == list(range(2000, 2010))
        assert len(asked) == 6


def test_from_asyncio_the_next_page_is_on_its_way_and_ends_with_the_iteration(
    tmp_path: Path,
) -> None:
    async def use(url: str, token: str) -> None:
        async with falaj.aconnect(url, token=token) as store:
            topic = await store.topic("orders", codec="json")
            await topic.extend(range(2500))
            asked = pages_of(store)
            async with topic.__aiter__() as records:  # type: ignore[attr-defined]
                assert (await anext(records)).value == 0
                async with asyncio.timeout(PATIENCE_S):
                    while len(asked) < 2:
                        await asyncio.sleep(0)  # sleep: the page is asked for by another task
                assert [record.value async for record in records] == list(range(1, 2500))
                assert len(asked) == 3
            async with topic.__aiter__() as records:  # type: ignore[attr-defined]
                assert (await anext(records)).value == 0
            assert asyncio.all_tasks() == {asyncio.current_task()}
            parts = await store.partitioned_topic("parts", partitions=3, codec="json")
            for part in range(3):
                await parts.extend(range(1200), partition=part)
            found = [(record.partition, record.value) async for record in parts]
            assert sorted(found) == [(part, i) for part in range(3) for i in range(1200)]

    with Server(tmp_path / "events") as server:
        asyncio.run(use(f"http://127.0.0.1:{server.port}", server.token))


def test_an_error_of_the_next_page_comes_behind_the_records_of_this_one(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, connect(server, timeout=0.5) as store:
        topic = store.topic("orders", codec="json")
        topic.extend(range(2500))
        records = iter(topic)
        first = [next(records).value]
        server.stop()
        with pytest.raises(falaj_client.errors.ServerUnavailable):
            first.extend(record.value for record in records)
    # The second page may have been answered before.
    assert first == list(range(len(first)))
    assert len(first) in (1000, 2000)


def test_an_iteration_that_is_left_early_keeps_nothing_open(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, connect(server) as store:
        topic = store.topic("orders", codec="json")
        topic.extend(range(2500))
        for record in topic:
            assert record.value == 0
            break
        assert topic.append(2500) == 2500


def test_a_page_that_is_cut_off_is_refused_with_the_place(tmp_path: Path) -> None:
    with falaj.open(tmp_path / "events") as native, Server(tmp_path / "events") as server:
        here = native.topic("orders")
        here.append(b"tea", "k", headers={"a": b"1", "b": None})
        here.tombstone("k")
        body = server.get("/v1/topics/orders/records", Accept="application/octet-stream").body
    first, second = records_of(body, "orders", 0, RAW)
    assert (first.key, first.raw, first.headers) == (b"k", b"tea", (("a", b"1"), ("b", None)))
    assert (second.offset, second.is_tombstone, second.raw) == (1, True, None)
    whole = {0, len(body)} | {4 + int.from_bytes(body[:4], "little")}
    for cut in set(range(len(body))) - whole:
        with pytest.raises(falaj_client.errors.ServerUnavailable, match="inside the frame at byte"):
            records_of(body[:cut], "orders", 0, RAW)
