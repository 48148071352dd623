"""Codecs that are copied or pickled, and what `falaj.JSON` refuses as the codec "json" does."""

import copy
import pickle
from collections import OrderedDict, namedtuple
from datetime import date
from typing import Any

import pytest

import falaj
from falaj.errors import UnknownTopic

COPIES = [
    copy.copy,
    copy.deepcopy,
    *(lambda c, n=n: pickle.loads(pickle.dumps(c, n)) for n in range(6)),
]


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_RAW_is_RAW(store: falaj.Store, copied: Any) -> None:  # noqa: N802  # its name
    assert copied(falaj.RAW) is falaj.RAW
    assert copied({"codec": falaj.RAW})["codec"] is falaj.RAW
    with pytest.raises(UnknownTopic):
        store.topic("missing", codec=copied(falaj.RAW))


@pytest.mark.parametrize("copied", COPIES[:2] + COPIES[4:])
def test_a_copy_of_a_codec_encodes_the_same(store: falaj.Store, copied: Any) -> None:
    topic = store.topic("days", codec=copied(falaj.JSON(default=date.isoformat)))
    topic.append([date(2026, 11, 27)])
    assert topic[0].value == ["2026-11-27"]
    assert store.topic("days").codec == "json"
    own = copied(falaj.Codec("own", bytes, bytes))
    assert (own.name, own.encode, own.decode) == ("own", bytes, bytes)


def test_json_with_a_default_that_does_not_pickle_says_which_one() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(falaj.JSON(default=lambda value: str(value)))


class OtherItems(dict[str, Any]):
    def items(self) -> Any:
        return {"other": 1}.items()


class OtherList(list[Any]):
    def __iter__(self) -> Any:
        return iter(["other"])


class OtherTuple(tuple[Any, ...]):
    __slots__ = ()

    def __iter__(self) -> Any:
        return iter(["other"])


Point = namedtuple("Point", "x y")  # a class without annotations


@pytest.mark.parametrize("wrong", [OtherItems(a=1), OtherList([1]), OtherTuple([1])])
def test_json_with_a_default_refuses_what_shows_other_items_than_it_has(
    store: falaj.Store, wrong: Any
) -> None:
    plain = store.topic("plain", codec="json")
    own = store.topic("own", codec=falaj.JSON(default=lambda _: {"found": wrong}))
    values = [wrong, [wrong], {"a": (wrong,)}, OrderedDict(a=[wrong])]
    for topic, given in ((plain, values), (own, [*values, object(), [object()]])):
        for value in given:
            with pytest.raises(TypeError, match="shows other"):
                topic.append(value)
        assert len(topic) == 0


@pytest.mark.parametrize("fine", [OrderedDict(a=1), Point(1, 2), [Point(1, {"b": Point(2, 3)})]])
def test_json_with_a_default_takes_the_classes_that_json_takes(
    store: falaj.Store, fine: Any
) -> None:
    plain = store.topic("plain", codec="json")
    own = store.topic("own", codec=falaj.JSON(default=str))
    plain.append(fine)
    own.append(fine)
    assert own[0].to_bytes() == plain[0].to_bytes()
