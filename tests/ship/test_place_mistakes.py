"""A store taken for a place, a place for a store, and calls that a place does not have."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import InvalidArgument, LockTimeout, NotAStore, NotWritable
from falaj.ship.place import open_place


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ship `store` to `place`, and let this process be above both."""
    with falaj.open(tmp_path / "store") as store:
        store.topic("orders").append(b"one")
        store.topic("returns").append(b"two")
        store.ship(tmp_path / "place", once=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "cache"))
    return tmp_path


def listed(folder: Path) -> set[str]:
    """List all that there is below a folder."""
    return {str(each.relative_to(folder)) for each in folder.rglob("*")}


@pytest.mark.parametrize("follow", [True, False])
def test_a_place_is_neither_verified_nor_backed_up_and_the_error_says_what_to_run(
    shipped: Path, follow: bool
) -> None:
    with falaj.open_place("place", follow=follow) as reader:
        reader.topic("orders")  # one log is here, and the other is not
        url = reader.place.url
        for call in (lambda: reader.backup("copy"), reader.verify, lambda: reader.verify("orders")):
            with pytest.raises(InvalidArgument) as raised:
                call()
            assert f"`falaj place verify {url}`" in str(raised.value)
            assert f"`falaj restore {url} --store …`" in str(raised.value)
    assert not (shipped / "copy").exists()


def test_no_limit_is_tried_on_a_place_which_has_not_all_that_it_decides_by(shipped: Path) -> None:
    with falaj.open_place("place") as reader:
        for dry_run in (True, False):
            with pytest.raises(NotWritable, match="shipped there"):
                reader.maintain(dry_run=dry_run)


def test_info_and_metrics_name_the_place_and_not_the_cache(shipped: Path) -> None:
    with falaj.open_place("place") as reader:
        url = (shipped / "place").as_uri()
        assert reader.info()["path"] == reader.metrics()["path"] == url
        assert "cache" not in falaj.metrics.exposition(reader.metrics())


@pytest.mark.parametrize(
    "call",
    [
        falaj.open_place,
        falaj.list_origins,
        falaj.open_origins,
        lambda place: falaj.restore(place, "new"),
        lambda place: falaj.open_place("place", cache=place),
        lambda place: falaj.open_origins("place", cache=place),
        lambda place: falaj.open("store").ship(place, once=True),
        lambda place: falaj.open("store").ship(["other", place], once=True),
    ],
)
def test_an_empty_text_is_no_place_and_no_cache(
    shipped: Path, call: Callable[[Any], object]
) -> None:
    before = listed(shipped)
    with pytest.raises(InvalidArgument, match="an empty path names no directory"):
        call("")
    assert listed(shipped) == before


@pytest.mark.parametrize(
    "place", ["store", "store/place", "store/logs/../deep/er", "link", "link/x", "deep/../store"]
)
def test_a_store_ships_nothing_into_its_own_directory(shipped: Path, place: str) -> None:
    (shipped / "link").symlink_to("store")
    (shipped / "deep").mkdir()
    before = listed(shipped / "store")
    with falaj.open("store") as store:
        for given in (place, f"file://{shipped}/{place}", ["other", place]):
            with pytest.raises(
                InvalidArgument, match=r"is a store, and no place|lies in the store"
            ):
                store.ship(given, once=True)
    assert listed(shipped / "store") - before <= {"claim", "presence"}
    assert not (shipped / "other").exists()


def test_a_store_ships_beside_itself_and_a_name_that_begins_alike_is_elsewhere(
    shipped: Path,
) -> None:
    with falaj.open("store") as store:
        assert store.ship("store2", once=True)["flushes"] == 1
    with falaj.open_place("store2") as reader:
        assert len(reader.topic("orders")) == 1


@pytest.mark.parametrize(
    "call", [falaj.open_place, falaj.list_origins, lambda place: falaj.restore(place, "new")]
)
def test_a_store_that_is_taken_for_a_place_is_named_as_one(
    shipped: Path, call: Callable[[Any], object]
) -> None:
    for given in ("store", Path("store"), f"file://{shipped}/store"):
        with pytest.raises(InvalidArgument, match=r"store is a store, and no place: .*falaj.open"):
            call(given)


@pytest.mark.parametrize(
    "call",
    [
        falaj.open,
        lambda path: falaj.open(path, read_only=True),
        lambda path: falaj.open(path, create=False),
        falaj.verify,
        falaj.repair,
    ],
)
def test_a_place_that_is_taken_for_a_store_is_named_as_one(
    shipped: Path, call: Callable[[Any], object]
) -> None:
    for given in ("place", b"place", Path("place"), f"file://{shipped}/place"):
        with pytest.raises(NotAStore, match=r"place is a place, .*falaj\.open_place\(\)"):
            call(given)


def test_a_directory_that_is_neither_is_no_place_in_the_error(shipped: Path) -> None:
    (shipped / "other").mkdir()
    (shipped / "other" / "file").touch()
    with pytest.raises(NotAStore, match="creat") as raised:
        falaj.open("other")
    assert "open_place" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("S3://bucket/shop", "s3://bucket/shop"),
        (" Gs://bucket", "gs://bucket"),
        ("MEMORY://x", "memory://x"),
        ("HTTPS://host/shop", "https://host/shop"),
    ],
)
def test_the_scheme_of_a_place_may_have_capitals(
    given: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setitem(os.environ, "AWS_SECRET_ACCESS_KEY", "secret")
    assert open_place(given).url == url


def test_a_second_shipper_of_a_directory_is_told_which_process_to_stop(shipped: Path) -> None:
    with falaj.open("store") as store, store._shipping():
        second = falaj.open("store", lock_timeout=0.05)
        with second, pytest.raises(LockTimeout) as raised:
            second.ship("place", once=True)
    assert f"process {os.getpid()} " in str(raised.value)
    assert "stop that process first" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "none"),
    [("ship_min_sync", "1"), ("ship_backlog_bytes", "1 GiB"), ("retention_bytes", "no limit")],
)
def test_a_setting_out_of_range_says_what_none_stands_for(
    shipped: Path, name: str, none: str
) -> None:
    settings: dict[str, Any] = {name: 0}
    with falaj.open("store") as store:
        with pytest.raises(InvalidArgument, match=rf"2\*\*63 - 1, or None for {none}, not 0"):
            store.configure(**settings)
        settings[name] = "much"
        with pytest.raises(TypeError, match=f"a whole number, or None for {none}, not"):
            store.configure(**settings)
