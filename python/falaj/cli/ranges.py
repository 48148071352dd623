"""The records that a command reads: options become a range of offsets for each partition.

Owns the rules of `--from`, `--to`, `--since` and `--until`. Offsets count within a partition, so
they require one. Times apply to all partitions. A beginning that does not exist is an error, not an
empty result.
"""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, Any, NamedTuple

from falaj.cli.exits import Stop
from falaj.cli.stores import partitions_of
from falaj.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from falaj._any_topic import AnyTopic
    from falaj._records import Record
    from falaj._topic import Topic

__all__ = ["Part", "Range", "in_order"]


class Part(NamedTuple):
    """A range of one partition: its topic, first offset, and the one behind the last."""

    topic: Topic[Any]
    start: int
    stop: int

    def records(
        self, on_corrupt: Callable[[CorruptData], None] | None = None
    ) -> Iterator[Record[Any]]:
        """Read it; with `on_corrupt`, tell of corruption and go on behind it."""
        records = self.topic._records(self.start, self.stop)
        while True:
            try:
                yield from records
            except CorruptData as corruption:
                if on_corrupt is None:
                    raise
                on_corrupt(corruption)
                records.skip_damage()
            else:
                return


class Range(NamedTuple):
    """The range that the options name; times are nanoseconds since 1970."""

    start: int | None = None
    stop: int | None = None
    since: int | None = None
    until: int | None = None
    partition: int | None = None

    def check(self) -> Range:
        """Check that the options go together.

        Raises:
            Stop: Two of them say where to begin, or where to end.
        """
        if self.start is not None and self.since is not None:
            raise Stop("--from and --since both say where to begin: give one of them")
        if self.stop is not None and self.until is not None:
            raise Stop("--to and --until both say where to end: give one of them")
        return self

    def of(self, *topics: AnyTopic[Any]) -> list[Part]:
        """Range of each partition that is asked for."""
        offsets = self.start is not None or self.stop is not None
        if offsets and len(topics) > 1:
            raise Stop("offsets count in one topic: use --since and --until for several")
        found = []
        for topic in topics:
            if offsets and self.partition is None and len(topic.partitions) > 1:
                raise Stop(
                    f"topic {topic.name} has {len(topic.partitions)} partitions, each with offsets "
                    "of its own: add --partition, or use --since and --until"
                )
            found += [self._part(part) for part in partitions_of(topic, self.partition)]
        return found

    def _part(self, part: Topic[Any]) -> Part:
        first, end = part.start_offset, part.end_offset
        begin, behind = first, end
        if self.start is not None:
            begin = part._bound(self.start)
            if not first <= begin <= end:
                raise part._out_of_range(begin)
        elif self.since is not None:
            begin = _at(part, self.since, end)
        if self.stop is not None:
            behind = min(end, part._bound(self.stop))
        elif self.until is not None:
            behind = _at(part, self.until, end)
        return Part(part, begin, max(begin, behind))


def _at(part: Topic[Any], ns: int, end: int) -> int:
    offset = part.offset_at(time_ns=ns)
    return end if offset is None else min(offset, end)


def in_order(
    parts: Sequence[Part], on_corrupt: Callable[[CorruptData], None] | None = None
) -> Iterable[Record[Any]]:
    """Read the parts as one stream: by time, and within a partition by offset."""
    streams = [part.records(on_corrupt) for part in parts]
    return streams[0] if len(streams) == 1 else merge(*streams, key=lambda r: r.timestamp_ns)
