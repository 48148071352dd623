"""A store taken for a place, a place for a store, and calls that a place does not have."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj._place import places_of
from falaj.errors import InvalidArgument, LockTimeout, NotAStore, NotWritable, SystemCallFailed
from falaj.ship.bucket import BucketPlace
from falaj.ship.peer import PeerPlace
from falaj.ship.place import _OF_BUCKETS, _OF_PEERS, open_place, options_for


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


@pytest.mark.parametrize("place", ["above", "above/", "link", "above/deep/.."])
def test_a_store_ships_to_no_directory_that_it_lies_in(shipped: Path, place: str) -> None:
    (shipped / "link").symlink_to("above")
    (shipped / "above" / "deep").mkdir(parents=True)
    with falaj.open("above/deep/store") as store:
        store.topic("orders").append(b"one")
        for given in (place, f"file://{shipped}/{place}", ["other", place]):
            with pytest.raises(InvalidArgument, match=r"store lies in .*lost with that place"):
                store.ship(given, once=True)
    assert {each.name for each in (shipped / "above").iterdir()} == {"deep"}
    assert not (shipped / "other").exists()


@pytest.mark.parametrize("path", ["store/copy", "store/logs/copy", "link/copy"])
def test_nothing_is_restored_into_a_store_and_no_cache_lies_in_one(
    shipped: Path, path: str
) -> None:
    (shipped / "link").symlink_to("store")
    before = listed(shipped)
    with pytest.raises(InvalidArgument, match=r"the new store .*copy lies in the store"):
        falaj.restore("place", path)
    for call in (falaj.open_place, falaj.open_origins):
        with pytest.raises(InvalidArgument, match=r"the cache .*copy lies in the store"):
            call("place", cache=path)
        with pytest.raises(InvalidArgument, match="the cache store is a store"):
            call("place", cache="store")
    assert listed(shipped) == before


def test_a_new_origin_names_the_file_that_is_in_its_way(shipped: Path) -> None:
    (shipped / "store" / "origin").unlink()
    (shipped / "store" / "origin").mkdir()
    with falaj.open("store") as store:
        for places in ("place", ["place", "other"]):
            with pytest.raises(SystemCallFailed, match="store/origin cannot be removed") as refused:
                store.ship(places, once=True, new_origin=True)
            assert refused.value.filename == str(shipped / "store" / "origin")
            assert refused.value.errno == refused.value.__cause__.errno  # type: ignore[union-attr]


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


MISTYPED: dict[str, tuple[str, str, Callable[[Any], object]]] = {
    "restore": ("to_nmber", "to_number", lambda each: falaj.restore("place", "new", **each)),
    "ship": ("histry", "history", lambda each: falaj.open("store").ship("place", **each)),
    "open_place": ("cache_byte", "cache_bytes", lambda each: falaj.open_place("place", **each)),
    "open_origins": ("orgins", "origins", lambda each: falaj.open_origins("place", **each)),
    "list_origins": ("endpont", "endpoint", lambda each: falaj.list_origins("place", **each)),
}


@pytest.mark.parametrize("name", MISTYPED)
def test_a_mistyped_option_is_named_with_the_one_that_was_meant(shipped: Path, name: str) -> None:
    before = listed(shipped)
    given, meant, call = MISTYPED[name]
    with pytest.raises(TypeError, match=rf"^{name}\(\) has no option '{given}': .*'{meant}'\?$"):
        call({given: 1})
    assert listed(shipped) - before <= {"store/claim", "store/presence"}


def test_an_option_of_another_kind_of_place_is_refused_with_those_that_this_one_takes() -> None:
    for url, option, told in (
        ("place", {"endpoint": "x"}, "'endpoint' is an option of buckets: a directory takes none"),
        ("place", {"timeout": 1}, "'timeout' is an option of buckets and peers: a directory"),
        ("s3://bucket", {"token": "x"}, "'token' is an option of peers: a bucket takes endpoint,"),
        ("http://host", {"region": "x"}, "'region' is an option of buckets: a peer takes token,"),
    ):
        with pytest.raises(InvalidArgument, match=told):
            open_place(url, **option)
    with pytest.raises(TypeError, match="has no option 'walnut'; a place takes account, allow_ht"):
        open_place("s3://bucket", walnut=1)


def test_options_go_to_the_places_that_take_them_and_one_that_none_takes_is_refused(
    shipped: Path,
) -> None:
    places = ["place", "s3://bucket", "https://host/x"]
    given = {"region": "x", "token": "y", "timeout": 3}
    assert options_for(places, given) == [
        {},
        {"region": "x", "timeout": 3},
        {"token": "y", "timeout": 3},
    ]
    with falaj.open("store") as store:
        for some in (["place"], ["place", "https://host/x"], ["memory://x", "place"]):
            with pytest.raises(InvalidArgument, match="'region' is an option of buckets"):
                store.ship(some, once=True, region="x")
        with pytest.raises(InvalidArgument, match="'region' is an option of buckets"):
            falaj.open_origins("place", "https://host/x", region="x")
        (directory, bucket) = places_of(store, places[:2], endpoint="https://host", region="x")
        assert (directory.url, bucket.url) == ((shipped / "place").as_uri(), "s3://bucket")


@pytest.mark.parametrize("url", ["s3://bucket", "gs://bucket", "az://c", "http://127.0.0.1:1"])
def test_a_timeout_that_no_socket_has_is_refused(url: str) -> None:
    options = {"account": "a"} if url.startswith("az") else {}
    for wrong in (1e300, 1e10, 10**400, 3_000_000, "9000d"):
        with pytest.raises(InvalidArgument, match="timeout"):
            open_place(url, timeout=wrong, **options)
    open_place(url, timeout=1e6, **options)


def test_a_url_of_a_peer_says_how_its_place_is_read(shipped: Path) -> None:
    for read_only in (True, False):
        with pytest.raises(
            InvalidArgument, match=r"falaj\.open_place\(\) a place there.*restore it"
        ):
            falaj.open("http://127.0.0.1:1/shop", read_only=read_only)


def test_the_options_that_errors_list_are_those_of_buckets_and_peers() -> None:
    for kind, listed_options in ((BucketPlace, _OF_BUCKETS), (PeerPlace, _OF_PEERS)):
        taken = inspect.signature(kind).parameters.values()
        assert {each.name for each in taken if each.kind is each.KEYWORD_ONLY} == {*listed_options}


def test_a_url_that_no_place_has_is_refused_with_the_kinds_that_there_are(shipped: Path) -> None:
    for call in (open_place, falaj.open_place, falaj.open("store").ship):
        with pytest.raises(InvalidArgument, match=r"^a place is .* s3://, .*, not 's4://bucket'$"):
            call("s4://bucket")


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
