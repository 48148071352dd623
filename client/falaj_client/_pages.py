"""Pages of records: the next one is on its way while a program works on one.

Owns what is read ahead, and how partitions are merged by time. Invariant: of each partition there
is at most one page ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from falaj_client._wire import Begin, Finish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from falaj_client._topics import Core
    from falaj_client._wire import Operation
    from falaj_client.records import Record

T = TypeVar("T")

__all__ = ["AHEAD", "PAGE", "Pages", "Part", "merged"]

#: Records of one page.
PAGE = 1000
#: A topic of more partitions is read without a page ahead of each.
AHEAD = 8


class Pages(Generic[T]):
    """Reads records of one partition a page at a time.

    While the program works on a page, the next one is on its way.
    """

    def __init__(self, core: Core[T], offsets: range, *, is_ahead: bool) -> None:
        self._core, self._offsets, self._is_ahead = core, offsets, is_ahead
        self._begun: Any = None

    def next(self) -> Operation[list[Record[T]]]:
        """Return the records of the next page; none at the end."""
        if not self._offsets:
            return []
        if self._begun is None:
            records, after = yield from self._read()
        else:
            records, after = yield Finish(self._begun)
            self._begun = None
        stop = self._offsets.stop
        self._offsets = range(after if records else stop, stop)
        if self._is_ahead and self._offsets:
            self._begun = yield Begin(self._read())
        return [record for record in records if record.offset < stop]

    def _read(self) -> Operation[tuple[list[Record[T]], int]]:
        limit = min(PAGE, len(self._offsets))
        page = yield from self._core.page({"from": self._offsets.start}, limit)
        return page


class Part(Generic[T]):
    """A partition to be merged with others."""

    def __init__(self, pages: Pages[T]) -> None:
        self._pages = pages
        self.held: list[Record[T]] = []

    def fill(self) -> Operation[None]:
        """Take the next page, if the last one was merged."""
        if not self.held:
            records = yield from self._pages.next()
            self.held = records[::-1]


def merged(parts: list[Part[T]]) -> Iterator[Record[T]]:
    """Take records in the order of their times, until a partition needs its next page."""
    while all(part.held for part in parts):
        part = min(parts, key=lambda part: (part.held[-1].timestamp_ns, part.held[-1].partition))
        yield part.held.pop()
