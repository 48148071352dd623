"""Opening a store or a topic: creation, refusals, and their messages."""

from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj.errors import NotAStore, StoreNotFound, UnknownTopic


@pytest.mark.parametrize("option", ["read_only", "create"])
@pytest.mark.parametrize("value", ["r", 0, 1, None])
def test_an_option_that_is_true_or_false_takes_nothing_else(
    path: Path, option: str, value: Any
) -> None:
    with pytest.raises(TypeError, match=f"{option} is True or False"):
        falaj.open(path, **{option: value})
    assert not path.exists()


def test_a_missing_directory_above_the_store_is_a_file_not_found_error_that_says_so(
    tmp_path: Path,
) -> None:
    path = tmp_path / "missing" / "events"
    for options in ({}, {"read_only": True}, {"create": False}):
        with pytest.raises(FileNotFoundError, match="missing does not exist; create it first") as e:
            falaj.open(path, **options)  # type: ignore[arg-type]
        assert isinstance(e.value, StoreNotFound)
        assert e.value.path == str(path)
    assert not path.parent.exists()


def test_create_false_makes_no_store(path: Path) -> None:
    with pytest.raises(StoreNotFound, match="no store at"):
        falaj.open(path, create=False)
    path.mkdir()
    with pytest.raises(NotAStore, match=r"holds no falaj\.json"):
        falaj.open(path, create=False)
    assert not list(path.iterdir())
    falaj.open(path).close()
    falaj.open(path, create=False).close()


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with falaj.open("~/events") as store:
        assert store.path == tmp_path / "events"
    with falaj.open(Path("~/events"), create=False) as store:
        assert falaj.verify("~/events")["sound"]


def test_create_false_makes_no_topic_and_the_error_lists_those_that_there_are(
    store: falaj.Store,
) -> None:
    with pytest.raises(UnknownTopic, match="the store has no topics"):
        store.topic("orders", create=False)
    for n in range(12):
        store.topic(f"t{n:02}")
    with pytest.raises(UnknownTopic, match=r'the store has "t00", .*"t09" and 2 more') as raised:
        store.topic("orders", create=False)
    assert isinstance(raised.value, KeyError)
    with pytest.raises(UnknownTopic, match='"t00"'):
        store.consumer("billing", "orders")
    assert "orders" not in store.topics
    assert store.topic("t00", create=False).name == "t00"
