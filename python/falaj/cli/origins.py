"""`--origin all`: records of all origins of a place, for `cat` and `tail`.

Owns how a line names its origin. Which origins are read, and how they are followed, is left to
`falaj.open_origins`; `ranges` chooses the records of each origin, as for a store.
"""

from __future__ import annotations

import sys
from collections import deque
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any

from falaj.cli.names import no_such
from falaj.cli.paint import is_terminal
from falaj.cli.ranges import in_order
from falaj.cli.reading import show_of
from falaj.cli.stores import raw_topic
from falaj.codecs import RAW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from falaj._any_topic import AnyTopic
    from falaj._arguments import Visibility
    from falaj._origins import Origins
    from falaj._records import Record
    from falaj.cli.ranges import Part, Range
    from falaj.cli.reading import Match
    from falaj.cli.show import Look
    from falaj.errors import CorruptData

    Pair = tuple[str, Record[Any]]

__all__ = ["EveryOrigin"]

_DIGITS = 8


class EveryOrigin:
    """Topics of all origins, and how their records are printed."""

    def __init__(
        self,
        origins: Origins,
        names: list[str],
        wanted: Range,
        look: Look,
        matches: Match | None,
        *,
        durable: bool,
    ) -> None:
        self._origins, self._names, self._wanted = origins, names, wanted
        self._visibility: Visibility = "durable" if durable else "visible"
        self._matches = matches
        there = sorted({topic for store in origins.values() for topic in store.topics})
        for name in names:
            if name not in there:
                raise no_such("topic", name, there, "any origin")
        opened = {
            origin: [
                raw_topic(store, name, visibility=self._visibility)
                for name in names
                if name in store.topics
            ]
            for origin, store in origins.items()
        }
        self.parts: dict[str, list[Part]] = {
            origin: wanted.of(*topics) for origin, topics in opened.items() if topics
        }
        every: dict[str, AnyTopic[Any]] = {}
        for topic in (topic for topics in opened.values() for topic in topics):
            if len(topic.partitions) > 1 or topic.name not in every:
                every[topic.name] = topic
        self._show = _shower(look, [*every.values()])

    def _records(self, on_corrupt: Callable[[CorruptData], None] | None = None) -> Iterable[Pair]:
        def of(origin: str, parts: list[Part]) -> Iterator[Pair]:
            return ((origin, record) for record in in_order(parts, on_corrupt))

        streams = [of(origin, parts) for origin, parts in self.parts.items()]
        found: Iterable[Pair] = merge(*streams, key=lambda pair: pair[1].timestamp_ns)
        matches = self._matches
        return found if matches is None else (pair for pair in found if matches(pair[1]))

    def _write(self, pairs: Iterable[Pair]) -> None:
        out = sys.stdout.buffer
        try:
            for pair in pairs:
                out.write(self._show(pair))
        finally:
            out.flush()

    def cat(self, most: int | None, on_corrupt: Callable[[CorruptData], None] | None) -> None:
        """Print what there is now."""
        self._write(islice(self._records(on_corrupt), most))

    def tail(self, last: int | None) -> None:
        """Print the last records, or with None all of the range."""
        records = self._records()
        self._write(records if last is None else deque(records, maxlen=min(last, sys.maxsize)))

    def follow(self, idle: float | None) -> None:
        """Print what comes behind the range, until nothing came for `idle` seconds."""
        from falaj.cli.following import follow_several

        followers = [
            self._origins.follow(
                name,
                codec=RAW,
                start=self._ends(name),
                timeout=idle if len(self._names) == 1 else None,
                visibility=self._visibility,
            )
            for name in self._names
        ]
        only, matches = self._wanted.partition, self._matches

        def is_wanted(pair: Pair) -> bool:
            is_there = only is None or pair[1].partition == only
            return is_there and (matches is None or matches(pair[1]))

        follow_several(followers, idle, self._show, is_wanted)

    def _ends(self, name: str) -> dict[str, dict[int, int]]:
        """Return where the range of a topic ends; a partition that is left out ends at its end."""
        found: dict[str, dict[int, int]] = {}
        for origin, parts in self.parts.items():
            of_topic: list[Any] = [each for each in parts if each.topic.name == name]
            if of_topic:
                found[origin] = {each.topic.partitions[0]: each.stop for each in of_topic}
        return found


def _shower(look: Look, topics: list[AnyTopic[Any]]) -> Callable[[Pair], bytes]:
    """Make the function that turns a pair into a line."""
    show = show_of(look, topics)
    if look.as_json:
        return lambda pair: b'{"origin":"%s",%s' % (pair[0].encode(), show(pair[1])[1:])
    if look.raw or look.form is not None:
        return lambda pair: show(pair[1])
    between = b"  " if is_terminal(sys.stdout) else b"\t"
    return lambda pair: pair[0][:_DIGITS].encode() + between + show(pair[1])
