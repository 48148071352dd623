"""`topic.latest(key)`: the newest record of a key, and handles that stay in their process."""

import copy
import pickle
from array import array
from pathlib import Path
from typing import Any

import pytest
from damaging import flip

import falaj
from falaj.errors import CorruptData, InvalidArgument


def test_the_newest_record_of_a_key_is_found_by_text_and_by_bytes(store: falaj.Store) -> None:
    prices = store.topic("prices", codec="str", compacted=True)
    prices.extend([("tea", "3"), ("kahwa ☕", "4"), ("tea", "5"), (b"", "6")])
    prices.append("of no key")
    for key in ("tea", b"tea", bytearray(b"tea"), memoryview(b"tea"), array("B", b"tea")):
        newest = prices.latest(key)
        assert newest is not None
        assert (newest.offset, newest.value) == (2, "5")
    assert [found and found.offset for found in map(prices.latest, ("kahwa ☕", "", "milk"))] == [
        1,
        3,
        None,
    ]
    prices.compact(seal=True)
    newest = prices.latest("tea")
    assert newest is not None
    assert newest.offset == 2


def test_the_newest_record_of_a_deleted_key_is_its_tombstone(store: falaj.Store) -> None:
    prices = store.topic("prices", compacted=True)
    prices.append(b"3", key="tea")
    prices.tombstone("tea")
    newest = prices.latest("tea")
    assert newest is not None
    assert newest.is_tombstone


def test_a_partition_is_searched_by_itself(store: falaj.Store) -> None:
    clicks = store.partitioned_topic("clicks", partitions=2)
    clicks.append(b"home", key="ann", partition=1)
    assert clicks.partition(0).latest("ann") is None
    newest = clicks.partition(1).latest("ann")
    assert newest is not None
    assert newest.to_bytes() == b"home"


def test_corruption_that_may_hide_a_newer_record_is_an_error(path: Path) -> None:
    with falaj.open(path) as store:
        prices = store.topic("prices")
        prices.append(b"3", key="tea")
        prices.append(b"marked " * 9, key="tea")
        prices.flush()
    files = [each for each in path.rglob("*") if each.is_file()]
    [segment] = [each for each in files if b"marked " in each.read_bytes()]
    flip(segment, segment.read_bytes().index(b"marked "))
    with falaj.open(path, read_only=True) as store, pytest.raises(CorruptData):
        store.topic("prices").latest("tea")


@pytest.mark.parametrize("key", [3, None, ["tea"], 3.5, memoryview(b"abcd").cast("I")])
def test_a_key_that_is_neither_text_nor_bytes_is_a_type_error(
    store: falaj.Store, key: object
) -> None:
    with pytest.raises(TypeError, match="a key is text or bytes"):
        store.topic("prices").latest(key)  # type: ignore[arg-type]


def test_the_name_of_a_cursor_is_what_a_key_may_be(store: falaj.Store) -> None:
    for name in ("tea", b"tea", memoryview(b"tea"), array("B", b"tea")):
        assert falaj.Cursor(name, 5).name == b"tea"  # type: ignore[arg-type]
    wrong: list[Any] = [3, None, memoryview(b"abcd").cast("I"), array("d", [1.5])]
    for name in wrong:
        with pytest.raises(TypeError, match="the name of a cursor is text or bytes"):
            falaj.Cursor(name, 5)
    with pytest.raises(InvalidArgument, match="the name of a cursor"):
        falaj.Cursor("\ud800", 5)


def test_a_cursor_is_pickled_and_copied() -> None:
    cursor = falaj.Cursor("billing", 18, 7)
    for same in (pickle.loads(pickle.dumps(cursor)), copy.copy(cursor), copy.deepcopy(cursor)):
        assert (type(same), same, same.offset) == (falaj.Cursor, cursor, 18)


def test_a_transaction_is_neither_pickled_nor_copied(store: falaj.Store) -> None:
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="begin and end it in one process"):
            leave(store.transaction())
