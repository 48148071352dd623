"""A cache that is removed under a reader of a place: each call says so, and what to do."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import FilesRemoved, InvalidArgument, PathNotFound

SEGMENT = 1 << 16
SECONDS = 30.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with falaj.open(tmp_path / "s") as store:
        orders = store.topic("orders", codec="str", segment_bytes=SEGMENT)
        for n in range(60):
            orders.extend([f"{n}" + "x" * 100] * 50)
        store.topic("other").append(b"x")
        store.consumer("billing", "orders").close()
        store.ship(tmp_path / "place", once=True)
    return tmp_path / "place"


CALLS: dict[str, Callable[[falaj.PlaceStore, falaj.Topic[Any]], object]] = {
    "a record": lambda _, topic: topic[1500],
    "follow": lambda _, topic: list(topic.follow(timeout=0)),
    "batches": lambda _, topic: list(topic.batches()),
    "another topic": lambda reader, _: reader.topic("other"),
    "any topic": lambda reader, _: reader.any_topic("other"),
    "the topics": lambda reader, _: list(reader.topics),
    "the groups": lambda reader, _: list(reader.groups),
    "the queues": lambda reader, _: list(reader.queues),
    "info": lambda reader, _: reader.info(),
    "refresh": lambda reader, _: reader.refresh(),
}


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("what", CALLS)
def test_each_call_says_that_the_cache_was_removed(
    place: Path, tmp_path: Path, what: str, follow: bool
) -> None:
    cache = tmp_path / "cache"
    with falaj.open_place(place, cache=cache, follow=follow) as reader:
        topic = reader.topic("orders")
        assert topic[0].value.startswith("0x")
        shutil.rmtree(cache)
        with pytest.raises((FilesRemoved, PathNotFound)) as raised:
            CALLS[what](reader, topic)
        assert str(raised.value) == (
            f"the cache {cache} was removed, or a part of it, while a place was read: open the "
            "place again, which makes the cache again"
        )
    with falaj.open_place(place, cache=cache) as reader:
        assert len(list(reader.topic("orders"))) == 3000


def test_a_reader_that_follows_notes_that_its_cache_was_removed(
    place: Path, tmp_path: Path
) -> None:
    with falaj.open_place(place, cache=tmp_path / "cache") as reader:
        shutil.rmtree(tmp_path / "cache")
        begun = time.monotonic()
        while reader.place.error is None:
            assert time.monotonic() - begun < SECONDS
            time.sleep(0.01)  # sleep: a reader wakes no process when it has an error
        assert isinstance(reader.place.error, FilesRemoved)


def test_the_segments_that_readers_share_may_be_removed_under_them(
    place: Path, tmp_path: Path
) -> None:
    segments = tmp_path / "cache" / "segments"
    with falaj.open_place(place, cache=tmp_path / "cache") as reader:
        topic = reader.topic("orders")
        assert topic[0].value.startswith("0x")
        shutil.rmtree(segments)
        assert len(list(topic)) == 3000
        assert any(segments.iterdir())


@pytest.mark.parametrize("inner", ["x", "deep/x"])
def test_no_store_is_made_in_a_place(place: Path, tmp_path: Path, inner: str) -> None:
    (place / inner).parent.mkdir(exist_ok=True)
    (tmp_path / "link").symlink_to((place / inner).parent)
    there = sorted(place.rglob("*"))
    with falaj.open(tmp_path / "s") as store:
        for path in (place / inner, tmp_path / "link" / "x"):
            with pytest.raises(InvalidArgument, match=f"x lies in the place {place}, "):
                falaj.restore(place, path)
            with pytest.raises(InvalidArgument, match=f"x lies in the place {place}, "):
                store.backup(path)
    assert sorted(place.rglob("*")) == there
