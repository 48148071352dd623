"""A handle of a deleted topic reaches no other topic that has its name now."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import falaj
import falaj_client
from falaj_client.protocols import StoreLike
from server.doors import Server
from server.lossy import Lossy
from server.test_client import connect


@pytest.fixture(params=["native", "client"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLike]:
    """A store of each kind."""
    if request.param == "native":
        with falaj.open(tmp_path / "events") as native:
            yield native
        return
    with Server(tmp_path / "events") as server, connect(server) as client:
        yield client


def together(store: Any, *topics: Any, **options: Any) -> None:
    with store.transaction() as tx:
        for topic in topics:
            tx.append(topic, b"y" if topic.codec == "bytes" else "y", **options)


CALLS: dict[str, Callable[[Any, Any], object]] = {
    "append": lambda _, old: old.append("x"),
    "append of a producer": lambda _, old: old.append("x", producer="p", sequence=0),
    "extend": lambda _, old: old.extend(["1"]),
    "tombstone": lambda _, old: old.tombstone("k"),
    "an offset": lambda _, old: old[0].value,
    "a slice": lambda _, old: list(old[:]),
    "last": lambda _, old: old.last(2),
    "read": lambda _, old: old.read(0, 1),
    "at": lambda _, old: old.at("2026-11-20T08:00Z"),
    "loop": lambda _, old: list(old),
    "follow": lambda _, old: list(old.follow(timeout=0)),
    "len": lambda _, old: len(old),
    "count": lambda _, old: old.count(),
    "properties": lambda _, old: old.properties,
    "configure": lambda _, old: old.configure(compacted=True),
    "compact": lambda _, old: old.compact(),
    "trim": lambda _, old: old.trim(before_offset=1),
    "transaction": together,
    "transaction of an offset": lambda store, old: together(store, old, expect=0),
    "finish": lambda _, old: old.finish(),
    "delete": lambda _, old: old.delete(),
}


@pytest.mark.parametrize("codec", [None, "json"])
def test_a_handle_of_a_deleted_topic_reaches_no_other_of_its_name(
    both: StoreLike, codec: str | None
) -> None:
    old = both.topic("orders", codec="str")
    both.delete_topic("orders")
    if codec is not None:
        both.topic("orders", codec=codec).append({"keep": 1})
    for name, call in CALLS.items():
        try:
            call(both, old)
        except falaj.errors.TopicDeleted:
            continue
        pytest.fail(f"{name} reached a topic")
    if codec is not None:
        now: Any = both.topic("orders")
        assert [record.value for record in now] == [{"keep": 1}]
        assert (now.finished, dict(now.properties)) == (False, {})
        now.append({"keep": 2})
        together(both, now)
        assert len(now) == 3
    else:
        assert "orders" not in both.topics


def test_a_transaction_with_a_deleted_topic_appends_nothing_to_any(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, connect(server) as store:
        old, other = store.topic("orders", log="all"), store.topic("other", log="all")
        old.delete()
        new = store.topic("orders", log="all")
        for topics in ((other, old), (old, new), (new, old)):
            with pytest.raises(falaj.errors.TopicDeleted):
                together(store, *topics)
        assert len(new) == len(other) == 0


def test_a_stream_that_is_taken_up_again_ends_where_another_topic_has_the_name(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server, Lossy(0, 0.0) as between:
        between.behind = server.port
        url = f"http://127.0.0.1:{between.port}"
        with falaj.connect(url, token=server.token) as store, connect(server) as other:
            topic = store.topic("orders", codec="str")
            topic.append("old")
            followed = topic.follow()
            assert next(followed).value == "old"
            other.delete_topic("orders")
            other.topic("orders", codec="str").append("new")
            between.cut()
            with pytest.raises(falaj.errors.TopicDeleted):
                next(followed)


def test_a_topic_whose_deletion_got_no_answer_is_deleted_once_and_no_other(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "events") as server, Lossy(0, 0.0) as between:
        between.behind = server.port
        url = f"http://127.0.0.1:{between.port}"
        with falaj.connect(url, token=server.token) as store:
            topic = store.topic("orders")
            draw = between._draw
            lost = iter(["reply"])
            between._draw = lambda request: next(  # type: ignore[method-assign]
                lost if request.startswith(b"DELETE") else iter([""]), ""
            )
            topic.delete()
            between._draw = draw  # type: ignore[method-assign]
            assert between.lost["reply"] == 1
            with pytest.raises(falaj.errors.TopicDeleted):
                topic.delete()


def test_from_asyncio_a_deleted_topic_is_told_alike(tmp_path: Path) -> None:
    async def use(url: str, token: str) -> None:
        async with falaj_client.aconnect(url, token=token) as store:
            old = await store.topic("orders", codec="str")
            await old.delete()
            new = await store.topic("orders", codec="json")
            await new.append(1)
            for call in (old.append("x"), old[0], old.last(2), old.finish(), old.delete()):
                with pytest.raises(falaj.errors.TopicDeleted):
                    await call
            with pytest.raises(falaj.errors.TopicDeleted):
                async with store.transaction() as tx:
                    tx.append(old, "y")
            assert [record.value async for record in new] == [1]

    with Server(tmp_path / "events") as server:
        asyncio.run(use(f"http://127.0.0.1:{server.port}", server.token))
