"""Clients lose requests and replies, and their server is killed: nothing is lost or there twice."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

import falaj
import falaj_client
from server.doors import Server
from server.lossy import Lossy

SEED, SHARE = 20261127, 0.3
LIVES = 4
"""Lives of a server: each but the last ends by a kill."""


class Door:
    """A server behind a proxy that loses, killed and started again while clients use it."""

    def __init__(self, store: Path, share: float = SHARE) -> None:
        self.store, self.proxy = store, Lossy(SEED, share)
        self.server = self._start()

    def _start(self) -> Server:
        server = Server(self.store)
        self.proxy.behind = server.port
        return server

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self.proxy.port}"

    def run(self, *clients: Callable[[], None]) -> None:
        """Run clients in threads, and kill the server while they work."""
        failures: list[BaseException] = []

        def safely(client: Callable[[], None]) -> None:
            try:
                client()
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=safely, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for _ in range(LIVES - 1):
            while (
                any(thread.is_alive() for thread in threads)
                and sum(self.proxy.lost.values()) < 5 * LIVES
            ):
                threads[0].join(0.05)
            threads[0].join(0.2)
            self.proxy.behind = 0
            self.server.stop()
            self.server = self._start()
        for thread in threads:
            thread.join()
        assert not failures, failures

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.server.stop()
        self.proxy.__exit__(None, None, None)


def test_appends_happen_once_through_lost_replies_and_kills(tmp_path: Path) -> None:
    with Door(tmp_path / "events") as door:
        with falaj.open(door.store) as native:
            for name in ("shared", "parts", "paid"):
                native.topic(name, codec="json", log="shop") if name != "parts" else (
                    native.partitioned_topic(name, partitions=3, codec="json")
                )
        told: dict[Any, tuple[str, int, int]] = {}
        store = falaj.connect(door.url, token=door.server.token, timeout=60)

        def appends(who: int) -> None:
            shared, parts = store.topic("shared"), store.partitioned_topic("parts")
            for i in range(40):
                told[who, i, "one"] = ("shared", 0, shared.append([who, i, "one"]))
                for at, offset in enumerate(shared.extend([[who, i, each] for each in range(3)])):
                    told[who, i, at] = ("shared", 0, offset)
                place = parts.append([who, i, "key"], f"{i}")
                told[who, i, "key"] = ("parts", *place)
                with store.transaction() as tx:
                    tx.append("paid", [who, i, "paid"])
                    tx.append("shared", [who, i, "both"])
                assert tx.offsets is not None
                told[who, i, "paid"] = ("paid", 0, tx.offsets["paid"][0][0])
                told[who, i, "both"] = ("shared", 0, tx.offsets["shared"][0][0])

        with store:
            door.run(*(lambda who=who: appends(who) for who in range(3)))
    assert min(door.proxy.lost.values()) > 3, door.proxy.lost
    with falaj.open(door.store) as native:
        there = {
            tuple(record.value): (record.topic, record.partition, record.offset)
            for name in native.topics
            for record in native.any_topic(name)
        }
        count = sum(native.any_topic(name).count() for name in native.topics)
        producers = len(native.topic("shared").producers())
    assert there == told
    assert count == len(told) == 3 * 40 * 7
    # The same few producers served all of them.
    assert 0 < producers < 20


def test_conditional_appends_are_answered_truly_through_lost_replies(tmp_path: Path) -> None:
    with Door(tmp_path / "events") as door:
        won: list[tuple[int, int]] = []

        def race(who: int) -> None:
            with falaj.connect(door.url, token=door.server.token, timeout=60) as store:
                topic = store.topic("log", codec="json")
                while (end := topic.end_offset) < 60:
                    with contextlib.suppress(falaj.errors.OffsetConflict):
                        topic.append(who, expect=end)
                        won.append((end, who))

        door.run(*(lambda who=who: race(who) for who in range(3)))
    with falaj.open(door.store) as native:
        values = [record.value for record in native.topic("log")]
    assert sorted(won) == list(enumerate(values))


def test_followers_get_each_record_once_in_order_through_broken_connections(
    tmp_path: Path,
) -> None:
    with falaj.open(tmp_path / "events") as native:
        with Door(tmp_path / "events") as door:
            parts = native.partitioned_topic("parts", partitions=3, codec="json")
            parts.extend([(f"{i}", i) for i in range(50)])
            got: list[list[falaj_client.Record[Any]]] = [[], []]
            news = threading.Condition()

            def take(follower: int, record: falaj_client.Record[Any]) -> None:
                with news:
                    got[follower].append(record)
                    news.notify()

            def follow() -> None:
                with falaj.connect(door.url, token=door.server.token, timeout=60) as store:
                    for record in store.partitioned_topic("parts").follow():
                        take(0, record)

            def follow_from_asyncio() -> None:
                async def run() -> None:
                    async with falaj.aconnect(
                        door.url, token=door.server.token, timeout=60
                    ) as store:
                        topic = await store.partitioned_topic("parts")
                        async for record in topic.follow(0):
                            take(1, record)

                asyncio.run(run())

            def write() -> None:
                for i in range(50, 400):
                    parts.append(i, f"{i}")
                    if i % 10 == 0:
                        with news:
                            assert news.wait_for(lambda: min(map(len, got)) > i - 5, 60)  # noqa: B023
                        door.proxy.cut()
                parts.finish()

            door.run(write, follow, follow_from_asyncio)
        for records in got:
            for number in range(3):
                mine = [record.value for record in records if record.partition == number]
                assert mine == [record.value for record in parts.partition(number)]
            assert len(records) == 400


def test_a_call_that_may_have_happened_says_so_and_its_producer_is_never_used_again(
    tmp_path: Path,
) -> None:
    with (
        Door(tmp_path / "events", share=0.0) as door,
        falaj.connect(door.url, token=door.server.token, timeout=1) as store,
    ):
        topic = store.topic("orders", codec="str")
        assert topic.append("a") == 0
        door.proxy.always = "reply"
        with pytest.raises(falaj_client.errors.ServerUnavailable) as unknown:
            topic.append("b")
        assert unknown.value.may_have_happened
        assert "may have been carried out" in str(unknown.value)
        door.proxy.always = "request"
        with pytest.raises(falaj_client.errors.ServerUnavailable):
            topic.append("c")
        door.proxy.always = ""
        assert topic.append("d") == 2
        assert topic.append("e") == 3
        assert [record.value for record in topic] == ["a", "b", "d", "e"]


def test_a_busy_server_is_asked_again_and_an_append_waits_for_its_log(tmp_path: Path) -> None:
    flags = ("--limits-followers", "1")
    with (
        Server(tmp_path / "events", *flags) as server,
        falaj.connect(f"http://127.0.0.1:{server.port}", token=server.token) as store,
    ):
        topic = store.topic("orders", codec="str")
        topic.extend(["a", "b"])
        first = topic.follow()
        assert next(first).value == "a"
        url = f"http://127.0.0.1:{server.port}"
        refused = pytest.raises(falaj_client.errors.ServerUnavailable, match=r"limits\.followers")
        with falaj.connect(url, token=server.token, timeout=1.5) as impatient, refused:
            next(impatient.topic("orders").follow())
        second = topic.follow("earliest")
        first.close()
        assert next(second).value == "a"
