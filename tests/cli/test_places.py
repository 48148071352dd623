"""Commands that are given a place, and what they say of it."""

from pathlib import Path

import pytest

from cli.shell import Shell


@pytest.fixture
def place(falaj: Shell) -> Path:
    """Ship the store `s` to the place `p`."""
    falaj.environment["FALAJ_CACHE"] = str(falaj.folder / "cache")
    falaj.ok("append", "-s", "s", "orders", given=b"one\n")
    falaj.ok("queue", "create", "-s", "s", "jobs", "--topic", "orders")
    falaj.ok("tail", "-s", "s", "orders", "--group", "readers", "--commit")
    falaj.ok("ship", "-s", "s", "p", "--once")
    return falaj.folder / "p"


@pytest.mark.parametrize(
    "words",
    [
        ("verify",),
        ("verify", "orders"),
        ("backup", "copy"),
        ("repair",),
        ("maintain", "--dry-run"),
    ],
)
def test_what_looks_after_a_store_refuses_a_place_and_names_what_does_it(
    falaj: Shell, place: Path, words: tuple[str, ...]
) -> None:
    ended = falaj(*words, "-s", "p")
    assert (ended.code, ended.out) == (2, "")
    assert "`falaj place verify p`" in ended.err
    assert "`falaj restore p --store …`" in ended.err
    assert not (falaj.folder / "copy").exists()
    assert "is a place" in falaj(*words, "-s", "s3://bucket/shop").err


def test_messages_and_numbers_name_the_place_and_not_the_cache(falaj: Shell, place: Path) -> None:
    url = place.as_uri()
    assert f'falaj_store_info{{store="{url}"' in falaj.ok("metrics", "-s", "p")
    assert f"store\tpath\t{url}\n" in falaj.ok("info", "-s", "p")
    for words in (
        ("tail", "nosuch"),
        ("cat", "nosuch"),
        ("group", "describe", "nosuch"),
        ("tail", "orders", "--group", "nosuch", "--no-commit"),
        ("queue", "put", "nosuch"),
        ("topic", "describe", "nosuch"),
        ("producer", "list", "nosuch"),
    ):
        ended = falaj(*words, "-s", "p")
        assert ended.code == 2, ended
        assert f"'nosuch' in {url}; it has" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("ship", "-s", "s", "", "--once"),
        ("place", "list", ""),
        ("place", "verify", ""),
        ("restore", "", "-s", "new"),
        ("restore", "p", "-s", ""),
        ("cat", "-s", "", "orders"),
        ("backup", "-s", "s", ""),
    ],
)
def test_an_empty_word_is_no_path(falaj: Shell, place: Path, words: tuple[str, ...]) -> None:
    before = sorted(falaj.folder.iterdir())
    ended = falaj(*words)
    assert ended.code == 2, ended
    assert "an empty path names no directory" in ended.err
    assert sorted(falaj.folder.iterdir()) == before


@pytest.mark.parametrize("into", ["s", "s/place", "link/place"])
def test_a_store_is_not_shipped_into_its_own_directory(
    falaj: Shell, place: Path, into: str
) -> None:
    (falaj.folder / "link").symlink_to("s")
    ended = falaj("ship", "-s", "s", into, "--once")
    assert ended.code == 2, ended
    assert "is a store, and no place" in ended.err or "lies in the store" in ended.err
    assert not (falaj.folder / "s" / "place").exists()


def test_capitals_of_a_scheme_are_those_of_a_place(falaj: Shell) -> None:
    ended = falaj("place", "list", "S3://")
    assert ended.code == 2, ended
    assert "the URL of a bucket is such as s3://bucket/prefix" in ended.err
