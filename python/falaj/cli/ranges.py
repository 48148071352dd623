"""Which records a verb is about: options become a range of offsets for each partition.

Owns the rules of `--from`, `--to`, `--since` and `--until`. Offsets count in one partition, so they
need one; times are for all of them. A beginning that is not there is an error and not an empty
answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING, Any

from falaj.cli.exits import Stop
from falaj.cli.opened import partitions_of
from falaj.cli.units import moment
from falaj.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from falaj.records import Record
    from falaj.topics import Topic

__all__ = ["Part", "Range", "in_order"]

_FARTHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Part:
    """A range of one partition: its topic, first offset, and the one behind the last."""

    topic: Topic[Any]
    start: int
    stop: int

    def records(self, on_damage: Callable[[Corrupt], None] | None = None) -> Iterator[Record[Any]]:
        """Read it; with `on_damage`, tell of damage and go on behind it."""
        records = self.topic._records(self.start, self.stop)
        while True:
            try:
                yield from records
            except Corrupt as damage:
                if on_damage is None:
                    raise
                on_damage(damage)
                records.skip_damage()
            else:
                return


@dataclass(frozen=True, slots=True)
class Range:
    """What the options say."""

    start: int | None = None
    stop: int | None = None
    since: str | None = None
    until: str | None = None
    partition: int | None = None

    def __post_init__(self) -> None:
        if self.start is not None and self.since is not None:
            raise Stop("--from and --since both say where to begin: give one of them")
        if self.start is not None and self.start > _FARTHEST:
            raise Stop(f"there is no offset {self.start}: none is larger than {_FARTHEST}")
        if self.stop is not None and self.until is not None:
            raise Stop("--to and --until both say where to end: give one of them")

    def of(self, topic: Topic[Any]) -> list[Part]:
        """Range of each partition that is asked for."""
        offsets = self.start is not None or self.stop is not None
        if offsets and self.partition is None and len(topic.partitions) > 1:
            raise Stop(
                f"topic {topic.name} has {len(topic.partitions)} partitions, each with offsets of "
                "its own: add --partition, or use --since and --until"
            )
        since = None if self.since is None else moment(self.since)
        until = None if self.until is None else moment(self.until)
        return [
            _part(part, self.start, self.stop, since, until)
            for part in partitions_of(topic, self.partition)
        ]


def _part(
    part: Topic[Any], start: int | None, stop: int | None, since: int | None, until: int | None
) -> Part:
    first, end = part.first, part.end
    begin, behind = first, end
    if start is not None:
        begin = part._bound(start)
        if not first <= begin <= end:
            raise part._out_of_range(begin)
    elif since is not None:
        begin = _at(part, since, end)
    if stop is not None:
        behind = min(end, part._bound(stop))
    elif until is not None:
        behind = _at(part, until, end)
    return Part(part, begin, max(begin, behind))


def _at(part: Topic[Any], ns: int, end: int) -> int:
    offset = part._offset_at(ns)
    return end if offset is None else min(offset, end)


def in_order(
    parts: list[Part], on_damage: Callable[[Corrupt], None] | None = None
) -> Iterable[Record[Any]]:
    """Read the parts as one stream: by time, and within a partition by offset."""
    streams = [part.records(on_damage) for part in parts]
    return streams[0] if len(streams) == 1 else merge(*streams, key=lambda r: r.timestamp_ns)
