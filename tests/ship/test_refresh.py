"""`PlaceStore.refresh`: an answer in time, whatever the place and other threads do."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import HandleClosed, HistoryDeleted, PlaceUnreachable
from falaj.ship import reader as reading
from ship.test_reader import SECONDS, Watched, watched

__all__ = ["watched"]

Watch = Callable[[object], Watched]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """Ship a store with a record."""
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"one")
        store.ship(tmp_path / "place", once=True)
        yield store


@pytest.mark.parametrize("follow", [True, False])
def test_a_refresh_of_a_place_out_of_reach_raises_each_time_and_goes_on_later(
    tmp_path: Path,
    store: falaj.Store,
    watched: Watch,
    monkeypatch: pytest.MonkeyPatch,
    follow: bool,
) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", 0.2)
    place = watched(tmp_path / "place")
    with falaj.open_place("any", cache=tmp_path / "cache", follow=follow) as reader:
        place.down = True
        for _ in range(3):
            with pytest.raises(PlaceUnreachable, match="no answer"):
                reader.refresh()
        place.down = False
        monkeypatch.setattr(reading, "PATIENCE_S", SECONDS)
        store.topic("orders").append(b"two")
        number = store.ship(tmp_path / "place", once=True)["number"]
        reader.refresh()
        assert reader.place.number == number
        assert reader.place.error is None
        assert len(reader.topic("orders")) == 2


def test_a_refresh_leaves_the_place_to_the_thread_that_follows_it(
    tmp_path: Path, store: falaj.Store, watched: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", 0.2)
    place, goes_on, asked = watched(tmp_path / "place"), threading.Event(), threading.Event()
    asking: set[str] = set()

    def hold(key: str) -> None:
        asking.add(threading.current_thread().name)
        asked.set()
        assert goes_on.wait(SECONDS)

    with falaj.open_place("any", cache=tmp_path / "cache") as reader:
        place.before = hold
        assert asked.wait(SECONDS)
        with ThreadPoolExecutor(2) as pool:
            for refreshed in [pool.submit(reader.refresh) for _ in range(2)]:
                assert isinstance(refreshed.exception(SECONDS), PlaceUnreachable)
        assert asking == {"falaj-place"}
        goes_on.set()
        monkeypatch.setattr(reading, "PATIENCE_S", SECONDS)
        store.topic("orders").append(b"two")
        number = store.ship(tmp_path / "place", once=True)["number"]
        asking.clear()
        reader.refresh(number)
        assert reader.place.number == number
        assert asking == {"falaj-place"}


def test_a_refresh_that_was_interrupted_is_followed_by_one_that_works(
    tmp_path: Path, store: falaj.Store, watched: Watch
) -> None:
    place = watched(tmp_path / "place")

    def interrupt(key: str) -> None:
        raise KeyboardInterrupt

    with falaj.open_place("any", cache=tmp_path / "cache", follow=False) as reader:
        place.before = interrupt
        with pytest.raises(KeyboardInterrupt):
            reader.refresh()
        place.before = lambda key: None
        store.topic("orders").append(b"two")
        number = store.ship(tmp_path / "place", once=True)["number"]
        reader.refresh()
        assert reader.place.number == number


@pytest.mark.parametrize("follow", [True, False])
def test_a_refresh_of_a_number_that_the_place_never_had_says_where_it_ends(
    tmp_path: Path, store: falaj.Store, follow: bool
) -> None:
    with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache", follow=follow) as reader:
        with pytest.raises(HistoryDeleted, match=r"has no number 99: it ends at number 2"):
            reader.refresh(99)
        reader.refresh(2)


@pytest.mark.parametrize("follow", [True, False])
def test_a_refresh_of_a_closed_store_is_refused(
    tmp_path: Path, store: falaj.Store, follow: bool
) -> None:
    with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache", follow=follow) as reader:
        pass
    for number in (None, 2):
        with pytest.raises(HandleClosed, match="open it again"):
            reader.refresh(number)


@pytest.mark.parametrize("follow", [True, False])
def test_a_close_ends_a_refresh_that_waits(
    tmp_path: Path, store: falaj.Store, watched: Watch, follow: bool
) -> None:
    place, asked = watched(tmp_path / "place"), threading.Event()

    def fail(key: str) -> None:
        asked.set()
        raise PlaceUnreachable("away")

    with falaj.open_place("any", cache=tmp_path / "cache", follow=follow) as reader:
        place.before = fail
        with ThreadPoolExecutor(1) as pool:
            refreshed = pool.submit(reader.refresh)
            assert asked.wait(SECONDS)
            reader.close()
            assert isinstance(refreshed.exception(5), HandleClosed)


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_refreshes_nothing_of_its_parent(
    tmp_path: Path, store: falaj.Store, follow: bool
) -> None:
    with falaj.open_place(tmp_path / "place", cache=tmp_path / "cache", follow=follow) as reader:
        child = os.fork()
        if child == 0:
            try:
                reader.refresh()
            except HandleClosed:
                os._exit(17)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
        reader.refresh()
