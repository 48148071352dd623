"""The contents of a store, by name: `Store.topics`, `Store.groups` and `Store.queues`.

A mapping reads the store at each call, so its answers are always current. Listing names reads one
directory; looking a name up reads only the files of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn, Self, TypeVar

from falaj._any_topic import GIVE_THE_PATH

__all__ = ["Named"]

T = TypeVar("T")


class Named(Mapping[str, T]):
    """A read-only mapping from names to a report about each."""

    __slots__ = ("_kind", "_look", "_names")

    def __init__(
        self,
        kind: str,
        names: Callable[[], list[str]],
        look: Callable[[str], T],
    ) -> None:
        self._kind = kind
        self._names = names
        self._look = look

    def __getitem__(self, name: str) -> T:
        if not isinstance(name, str):
            raise KeyError(name)
        return self._look(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names()

    def __copy__(self) -> Self:
        return self  # it has no state of its own

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a view of a store cannot be pickled or copied: {GIVE_THE_PATH}")

    def __repr__(self) -> str:
        return f"<falaj.Store.{self._kind}: {', '.join(map(repr, self._names())) or 'none'}>"
