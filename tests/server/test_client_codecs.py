"""The codecs of the client refuse what those of the package falaj refuse."""

from collections import Counter, OrderedDict, UserList, defaultdict
from typing import Any, NamedTuple

import pytest

from falaj_client.codecs import resolve
from falaj_client.errors import InvalidArgument


class Shows(UserList[Any], list[Any]):  # type: ignore[misc]
    """A list that keeps its items beside it."""


class Short(dict[str, Any]):
    def __len__(self) -> int:
        return 0


class Doubled(tuple[int, ...]):
    __slots__ = ()

    def __iter__(self) -> Any:
        return (2 * each for each in tuple.__iter__(self))


class Pair(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_list_or_dict_that_shows_other_items_than_it_holds_is_refused(codec: str) -> None:
    encode = resolve(codec, None).encode
    for value in (Shows([1]), {"a": [Shows([1])]}, Short(a=1), Doubled([1])):
        with pytest.raises(InvalidArgument, match="shows other items than it holds"):
            encode(value)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_a_list_or_dict_of_another_class_is_read_back_equal(codec: str) -> None:
    found = resolve(codec, None)
    for value in (OrderedDict(b=1, a=2), Counter("abc"), defaultdict(list, {"a": [1]}), Short()):
        assert found.decode(found.encode(value)) == value
    assert found.decode(found.encode([Pair(1, 2), (3,)])) == [[1, 2], [3]]
