"""Paths: URLs of files work everywhere, other URLs are refused before they become a folder."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj._paths import local_path
from falaj.errors import InvalidArgument
from falaj.outbox import Outbox
from falaj.ship.cache import default_cache


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("file:///data/events", "/data/events"),
        ("file:/data/events", "/data/events"),
        ("FILE:///data/events", "/data/events"),
        ("file://localhost/data/events", "/data/events"),
        ("file:///all%20events/%C3%A9%25", "/all events/é%"),
        ("file:///a#b?c", "/a#b?c"),
        ("file:///%ff", "/\udcff"),
        ("a:b", "a:b"),
        ("orders:2026/x", "orders:2026/x"),
        ("lake//orders", "lake//orders"),
        ("//data/x", "//data/x"),
        ("./s3:/x", "./s3:/x"),
        ("all%20events", "all%20events"),
        ("é://x", "é://x"),
    ],
)
def test_a_url_of_a_file_is_its_path_and_any_other_path_stays(given: str, path: str) -> None:
    assert local_path(given) == path


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("s3://bucket/x", "not 's3://bucket/x': falaj locks, syncs and renames files, which s3"),
        ("S3A://bucket/x", "which s3a does not offer"),
        (Path("gs://bucket/x"), "which gs does not offer"),
        (" hdfs://name:8020/x", "which hdfs does not offer"),
        ("abfss://c@a.dfs.core.windows.net/x", "which abfss does not offer"),
        ("file://server/x", "names the machine 'server'"),
        ("file:x", "names no absolute path"),
        ("file:", "names no absolute path"),
        ("file:///a%00b", "holds %00"),
        ("C:\\data", "is a path of Windows: name it as this system does, such as /mnt/c/"),
        ("d:/data", "is a path of Windows"),
        ("", "an empty path names no directory"),
    ],
)
def test_a_url_of_another_scheme_is_refused_by_name(given: str | Path, sentence: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        local_path(given)
    assert sentence in str(raised.value)


def test_a_store_opens_by_the_url_of_its_directory(tmp_path: Path) -> None:
    place = tmp_path / "all events"
    with falaj.open(f"file://{tmp_path}/all%20events") as store:
        store.topic("orders").append(b"first")
        store.backup(f"file://localhost{tmp_path}/copy")
    assert place.is_dir()
    assert falaj.verify(place.as_uri())["sound"]
    assert falaj.repair((tmp_path / "copy").as_uri())["complete"]


def test_no_call_takes_a_url_for_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("s3:", "s3:/bucket"):  # where a mistake would find a place to write to
        Path(folder).mkdir()
    with falaj.open("s") as store, store.topic("t") as topic:
        for call in (
            lambda: falaj.open("s3://bucket/x"),
            lambda: falaj.open(Path("s3://bucket/x"), read_only=True),
            lambda: store.backup("s3://bucket/x"),
            lambda: falaj.verify("s3://bucket"),
            lambda: falaj.repair("s3://bucket"),
            lambda: Outbox("s3://bucket/shop.db", topic),
        ):
            with pytest.raises(
                InvalidArgument, match=r"which s3 does not offer|is a place, |URL of a bucket"
            ):
                call()
    assert not list(Path("s3:/bucket").iterdir())


def test_an_outbox_opens_its_database_by_a_url(tmp_path: Path) -> None:
    shop = sqlite3.connect(tmp_path / "shop.db")
    shop.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, value BLOB)")
    shop.commit()
    with falaj.open(tmp_path / "s") as store, store.topic("t") as topic:
        Outbox((tmp_path / "shop.db").as_uri(), topic).close()


@pytest.mark.parametrize("given", [None, 5, []])
def test_what_is_no_path_is_refused_as_such_by_each_call(tmp_path: Path, given: object) -> None:
    path: Any = given
    with falaj.open(tmp_path / "s") as store, store.topic("t") as topic:
        store.ship(tmp_path / "place", once=True)
        for call in (
            lambda: falaj.open(path),
            lambda: falaj.open(path, read_only=True),
            lambda: falaj.verify(path),
            lambda: falaj.repair(path),
            lambda: falaj.restore(path, tmp_path / "new"),
            lambda: falaj.restore(tmp_path / "place", path),
            lambda: falaj.open_place(path),
            lambda: falaj.list_origins(path),
            lambda: falaj.open_origins(path),
            lambda: store.backup(path),
            lambda: store.ship([path], once=True),
            lambda: Outbox(path, topic),
        ):
            with pytest.raises(TypeError, match=r"is text, bytes or os\.PathLike, not "):
                call()


def test_bytes_are_a_path_as_text_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with falaj.open(b"~/s") as store:  # type: ignore[arg-type]
        assert store.path == tmp_path / "s"
    for call in (lambda: falaj.open(b"s3://b/x"), lambda: store.backup(b"s3://b/x")):  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="which s3 does not offer"):
            call()
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [("a\0b", "no path has a zero byte in it, as "), ("\ud800", "it holds half a character")],
)
def test_a_path_that_no_file_can_have_is_refused_by_each_call(
    tmp_path: Path, given: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with falaj.open(tmp_path / "s") as store, store.topic("t") as topic:
        store.ship(tmp_path / "place", once=True)
        for call in (
            lambda: falaj.open(given),
            lambda: falaj.verify(given),
            lambda: falaj.restore("place", given),
            lambda: falaj.open_place(given),
            lambda: falaj.open_place("place", cache=given),
            lambda: falaj.open_origins("place", cache=given),
            lambda: falaj.open_place("https://127.0.0.1:1", certificate=given),
            lambda: store.backup(given),
            lambda: store.ship(given, once=True),
            lambda: Outbox(given, topic),
        ):
            with pytest.raises(InvalidArgument, match=sentence):
                call()
        with pytest.raises(InvalidArgument, match="no path has a zero byte in it"):
            falaj.open_place("https://127.0.0.1:1?certificate=%00")
    assert {each.name for each in tmp_path.iterdir()} == {"s", "place"}


def test_a_blank_variable_names_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALAJ_CACHE", " ")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "falaj"
