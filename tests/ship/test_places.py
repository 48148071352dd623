"""Each kind of place keeps the promise of `Place`; keys and URLs that are none are refused."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import falaj
from falaj.errors import CorruptData, InvalidArgument, ObjectMissing
from falaj.ship.directory import DirectoryPlace
from falaj.ship.place import Place, check_key, check_prefix, open_place

RACES, RACERS = 100, 8


def test_an_object_is_created_once_and_keeps_its_bytes(place: Place) -> None:
    assert place.put_new("a/b", b"first")
    assert not place.put_new("a/b", b"second")
    assert place.get("a/b") == b"first"
    assert place.get("a/c") is None
    assert place.get("b") is None


def test_a_body_is_any_bytes(place: Place) -> None:
    for key, body in (("none", b""), ("view", memoryview(b"xyz")[1:]), ("all", bytes(range(256)))):
        assert place.put_new(key, bytes(body))
        assert place.get(key) == body


def test_a_range_is_whole_or_an_error(place: Place) -> None:
    place.put_new("a", b"0123456789")
    assert place.get_range("a", 3, 7) == b"3456"
    assert place.get_range("a", 0, 10) == b"0123456789"
    assert place.get_range("a", 4, 4) == b""
    with pytest.raises(CorruptData):
        place.get_range("a", 8, 11)
    with pytest.raises(ObjectMissing) as missing:
        place.get_range("b", 0, 1)
    assert (missing.value.url, missing.value.key) == (place.url, "b")


def test_objects_are_listed_below_a_folder_in_order_of_their_keys(place: Place) -> None:
    keys = ["n/1", "n/2", "n-x/1", "n/10", "n.y", "n/2d/deep", "n/2-x", "o/1"]
    for key in keys:
        place.put_new(key, key.encode())
    listed = [one.key for one in place.list_after("n")]
    assert listed == sorted(key for key in keys if key.startswith("n/"))
    assert [one.key for one in place.list_after("n/")] == listed
    assert [one.key for one in place.list_after("")] == sorted(keys)
    assert list(place.list_after("nowhere")) == []
    for after in [*keys, "n/", "n/2d/", "n/15", "", "z"]:
        behind = [one.key for one in place.list_after("", after)]
        assert behind == sorted(key for key in keys if key > after), after


def test_a_listing_has_sizes_and_dates_of_the_place(place: Place) -> None:
    place.put_new("a", b"xyz")
    place.put_new("b", b"")
    first, second = place.list_after("")
    assert (first.size, second.size) == (3, 0)
    assert 0 < first.modified_us <= second.modified_us


def test_deleted_objects_are_gone_and_may_be_created_again(place: Place) -> None:
    place.put_new("a/1", b"x")
    place.put_new("a/2", b"y")
    place.delete(["a/1", "a/none", "none/1", "a"])
    assert place.get("a/1") is None
    assert [one.key for one in place.list_after("")] == ["a/2"]
    assert place.put_new("a/1", b"z")
    place.delete([])


def test_of_creates_that_race_one_wins_and_its_body_is_read(place: Place) -> None:
    together = Barrier(RACERS)

    def race(racer: int) -> list[bool]:
        won = []
        for key in range(RACES):
            together.wait()
            won.append(place.put_new(f"race/{key:03}", f"{racer}".encode()))
        return won

    with ThreadPoolExecutor(RACERS) as pool:
        results = list(pool.map(race, range(RACERS)))
    for key in range(RACES):
        winners = [racer for racer, won in enumerate(results) if won[key]]
        assert len(winners) == 1
        assert place.get(f"race/{key:03}") == f"{winners[0]}".encode()
    assert len(list(place.list_after("race"))) == RACES


BAD_KEYS = ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", ".new", "a/.b", "a b", "ä"]
BAD_KEYS += ["a\0b", "a\\b", "a%2Fb", "x" * 513]


@pytest.mark.parametrize("key", BAD_KEYS)
def test_a_key_that_is_none_is_refused_by_every_call(place: Place, key: str) -> None:
    calls: list[Any] = [
        lambda: place.get(key),
        lambda: place.get_range(key, 0, 1),
        lambda: place.put_new(key, b"x"),
        lambda: place.delete([key]),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match="key of a place"):
            call()
    if key.strip("/"):
        with pytest.raises(InvalidArgument):
            list(place.list_after(key if key != "a/" else "a//"))


def test_keys_of_the_layout_are_well_formed() -> None:
    store, digest = "0" * 32, "f" * 64
    for key in (f"{store}/o/{store}/n/{1:020}", f"{store}/o/{store}/s/12-{digest}", "a_b.c-d"):
        assert check_key(key) == key
    assert (check_prefix("a/"), check_prefix("a"), check_prefix("")) == ("a/", "a/", "")


# --- URLs -----------------------------------------------------------------------------------------


def test_a_path_and_its_url_open_the_same_directory(tmp_path: Path) -> None:
    root = tmp_path / "a place"
    opened = open_place(root)
    assert isinstance(opened, DirectoryPlace)
    opened.put_new("a", b"x")
    for url in (os.fspath(root), root.as_uri(), opened.url):
        assert open_place(url).get("a") == b"x"


def test_a_relative_directory_stays_the_same_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    opened = open_place("place")
    opened.put_new("a", b"x")
    monkeypatch.chdir("/")
    assert opened.get("a") == b"x"


@pytest.mark.parametrize("url", ["ftp://x/y", "http://x", "file://elsewhere/x", "hdfs:/x"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        open_place(url)


def test_a_directory_takes_no_options(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="option of buckets"):
        open_place(tmp_path, region="eu-west-1")


def test_places_in_memory_share_objects_by_name() -> None:
    open_place("memory://shared").put_new("a", b"x")
    assert open_place("memory://shared").get("a") == b"x"
    assert open_place("memory://other").get("a") is None
    assert issubclass(falaj.errors.ObjectMissing, falaj.errors.PlaceError)
