"""The shapes that a place is made of: pieces, segments, ends, files, and what a flush changes.

Owns plain values without behaviour of their own. docs/PLACE.md says what each of them means in
bytes. `numbers` writes and reads them. `tree` keeps what all numbers together say. Invariant: a
piece names bytes that never change, because objects of a place are created once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = [
    "FIRST_BLOCK",
    "HEADER",
    "INLINE",
    "SALT",
    "Change",
    "Claim",
    "End",
    "EndName",
    "File",
    "Flush",
    "LogChange",
    "Parent",
    "Piece",
    "Segment",
    "checkpoint_key",
    "number_key",
    "object_key",
]

FIRST_BLOCK = 8192
"""Position of the first block of a segment, docs/FORMAT.md, "Segment"."""
HEADER = 512
"""Bytes of a segment's header."""
SALT = 16
"""Random bytes at the beginning of each object below k/, so that no two have the same name."""
INLINE = ""
"""Key of bytes that stand in the number itself."""

EndName = tuple[str, int]
"""A topic's generation and a partition."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file, and where the place has them."""

    position: int
    length: int
    key: str
    offset: int
    crc: int

    @property
    def stop(self) -> int:
        """Position behind the last byte."""
        return self.position + self.length


@dataclass(slots=True)
class Segment:
    """A segment of a log: its identity, how long it is, and its pieces by position.

    A piece may reach beyond the length, where a later segment cut this one short.
    """

    sequence: int
    salt: int
    compaction: int
    header: bytes
    end: int
    length: int
    sealed: bool
    pieces: list[Piece] = field(default_factory=list)

    @property
    def identity(self) -> tuple[int, int, int]:
        """Tell segments apart that had the same sequence."""
        return self.sequence, self.salt, self.compaction

    @property
    def reach(self) -> int:
        """Position behind the last byte that the place has."""
        return self.pieces[-1].stop if self.pieces else FIRST_BLOCK

    @property
    def whole(self) -> bool:
        """Tell whether the place has it as a sealed segment."""
        return self.sealed and all(piece.key.startswith("s/") for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class End:
    """Where a partition of a topic ends: its next offset, and its last block with records."""

    topic: str
    partition: int
    name: str
    next: int
    checksum: int
    time_us: int

    @property
    def of(self) -> EndName:
        """Name the partition."""
        return self.topic, self.partition


@dataclass(slots=True)
class File:
    """A small file: its length, the digest of it all, and its blocks; all else of it is zero.

    In a flush that is not `fresh` these are the blocks that changed, and `gone` are the positions
    of blocks that are zero now.
    """

    length: int
    digest: str
    pieces: list[Piece] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    fresh: bool = True


@dataclass(slots=True)
class Change:
    """A segment that a flush changes; with `fresh` its pieces replace all earlier ones."""

    segment: Segment
    fresh: bool


@dataclass(slots=True)
class LogChange:
    """The changes of a log: segments set and gone, ends set and gone."""

    segments: list[Change] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    ends_gone: list[EndName] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Tell whether anything changed."""
        return bool(self.segments or self.gone or self.ends or self.ends_gone)


class Parent(NamedTuple):
    """The origin that a store was restored from, and the state that it was restored to.

    Attributes:
        origin: Its id.
        number: The number of that state, in the place that it came from.
        ends: Where each partition ended: generation of the topic, partition, next offset, checksum
            of the last block.
    """

    origin: str
    number: int
    ends: tuple[tuple[str, int, int, int], ...]

    def end(self, generation: str, partition: int) -> int:
        """Return where a partition ended; 0 where that state had no such topic."""
        return next((each[2] for each in self.ends if each[:2] == (generation, partition)), 0)


@dataclass(slots=True)
class Claim:
    """A number by which a process began to ship; the number is its epoch."""

    number: int
    previous: str
    nonce: str
    time_us: int
    parent: Parent | None = None
    hash: str = ""

    @property
    def claim(self) -> int:
        """Its own number."""
        return self.number


@dataclass(slots=True)
class Flush:
    """A number that carries what changed since the one before it.

    `inline` are bytes in the number itself, `objects` the sizes of the objects that it refers to.
    None instead of a change says that the log or the file is gone.
    """

    number: int
    claim: int
    previous: str
    time_us: int
    logs: dict[str, LogChange | None] = field(default_factory=dict)
    files: dict[str, File | None] = field(default_factory=dict)
    objects: dict[str, int] = field(default_factory=dict)
    inline: bytes = b""
    hash: str = ""

    def __bool__(self) -> bool:
        """Tell whether it says anything."""
        return bool(self.logs or self.files)


def number_key(number: int) -> str:
    """Name the object of a number below its origin."""
    return f"n/{number:020}"


def checkpoint_key(number: int) -> str:
    """Name the checkpoint of a number below its origin."""
    return f"c/{number:020}"


def object_key(kind: str, claim: int, digest: str) -> str:
    """Name an object of a claim below its origin; `kind` is s or k."""
    return f"{kind}/{claim:020}-{digest}"
