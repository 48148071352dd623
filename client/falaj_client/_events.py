"""Server-sent events, in which a followed topic's records come: their text, and their ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Event", "Events", "event_id"]


@dataclass(frozen=True)
class Event:
    """An event."""

    kind: str
    id: str
    data: bytes


class Events:
    """Splits a stream into server-sent events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Take bytes, and return the events that they complete."""
        *whole, self._rest = (self._rest + piece).split(b"\n\n")
        for text in whole:
            fields = dict(line.partition(b": ")[::2] for line in text.split(b"\n"))
            if b"data" in fields:
                kind, id_ = fields.get(b"event", b"record"), fields.get(b"id", b"")
                yield Event(kind.decode(), id_.decode(), fields[b"data"])


def event_id(generation: str, places: Mapping[int, int]) -> str:
    """Make the id of an event that comes before these offsets."""
    return f"{generation}-" + ",".join(f"{number}:{at}" for number, at in places.items())
