"""A store in memory as the shipper sees it: cuts of logs and files, and a builder that collects.

Owns what real stores cannot do at will: rot, segments that vanish between a cut and its reading,
thousands of flushes in a second. Bytes of segments are random; the engine reads none of them here.
"""

from __future__ import annotations

import json
import os
import random
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from falaj.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from falaj.ship.tree import View

FIRST = 8192
TOPIC = "c" * 32


@dataclass
class FakeSegment:
    """A segment; `holes` are ranges that extents leave out."""

    sequence: int
    salt: int
    compaction: int = 0
    data: bytearray = field(default_factory=bytearray)
    sealed: bool = False
    hole: tuple[int, int] | None = None

    @property
    def header(self) -> bytes:
        """Return bytes that tell segments apart."""
        return f"{self.sequence} {self.salt} {self.compaction}".encode().ljust(512, b"h")


@dataclass(frozen=True)
class CutSegment:
    """A segment at the moment of a cut."""

    source: FakeSegment
    length: int
    sealed: bool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    @property
    def end(self) -> int:
        """Return where the content ends."""
        return self.length

    def extents(self, start: int) -> list[tuple[int, int]]:
        """List ranges without the hole."""
        start = max(start, FIRST)
        hole = self.source.hole
        if hole is None or hole[1] <= start:
            return [(start, self.length)]
        found = [(start, hole[0])] if start < hole[0] else []
        return [*found, (hole[1], self.length)]


@dataclass(frozen=True)
class CutEnd:
    """Where a partition ends."""

    topic: str
    name: str
    partition: int
    next: int
    checksum: int
    time_us: int = 0


@dataclass(frozen=True)
class CutLog:
    """A log at the moment of a cut."""

    directory: str
    segments: tuple[CutSegment, ...]
    ends: tuple[CutEnd, ...]


@dataclass(frozen=True)
class CutFile:
    """A small file."""

    path: str
    length: int
    parts: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class FakeCut:
    """A cut."""

    store: str
    logs: tuple[CutLog, ...]
    files: tuple[CutFile, ...]

    def read(self, log: str, sequence: int, start: int, stop: int) -> bytes:
        """Return bytes of a segment, if it is still there."""
        for each in self.logs:
            for segment in each.segments if each.directory == log else ():
                if segment.sequence == sequence:
                    if segment.source.salt < 0:
                        raise CorruptData("the segment is gone")
                    return bytes(segment.source.data[start - FIRST : stop - FIRST])
        raise CorruptData("there is no such segment")

    def gather(self, parts: Sequence[bytes | tuple[str, int, int, int]]) -> tuple[bytes, list[int]]:
        """Join bytes and ranges of segments."""
        found = [each if isinstance(each, bytes) else self.read(*each) for each in parts]
        return b"".join(found), [zlib.crc32(each) for each in found]


class FakeLog:
    """A log of one topic with one partition."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.directory = f"{name}@{chance.randbytes(16).hex()}"
        self.name, self._chance = name, chance
        self.topic = chance.randbytes(16).hex()
        self.segments: list[FakeSegment] = []
        self.history = [0]
        self._sequence = 0
        self.roll()

    def append(self, size: int) -> None:
        """Append random bytes: one record."""
        data = self._chance.randbytes(size)
        self.segments[-1].data += data
        self.history.append(zlib.crc32(data, self.history[-1]))

    def roll(self) -> None:
        """Seal the last segment and begin another."""
        if self.segments:
            self.segments[-1].sealed = True
        self._sequence += 1
        self.segments.append(FakeSegment(self._sequence, self._chance.getrandbits(63)))

    def drop(self) -> None:
        """Delete the oldest segment, as retention does."""
        if len(self.segments) > 1:
            self.segments.pop(0)

    def compact(self) -> None:
        """Replace the sealed segments by one with a hole."""
        if len(self.segments) < 2:
            return
        last = self.segments[-2]
        made = FakeSegment(last.sequence, last.salt, self._chance.getrandbits(63) | 1)
        made.data = bytearray(self._chance.randbytes(max(len(last.data), 64)))
        middle = FIRST + len(made.data) // 2
        made.hole, made.sealed = (FIRST + 8, middle), True
        made.data[8 : middle - FIRST] = bytes(middle - FIRST - 8)
        self.segments[:-1] = [made]


class FakeGuard:
    """Says that the store is shipped; no process waits."""

    def waiting(self) -> bool:
        """Tell that none waits."""
        return False

    def wait(self, timeout: float) -> bool:
        """Sleep as long as a store where no process waits."""
        time.sleep(timeout)  # sleep: this is what it stands for
        return False

    def fence(self) -> None:
        """Forget that it was fenced."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End."""


class FakeStore:
    """A store of a few logs and files."""

    def __init__(self, path: Path, seed: int = 1, logs: int = 2) -> None:
        path.mkdir(exist_ok=True)
        self.path = str(path)
        self.chance = random.Random(seed)
        self.id = self.chance.randbytes(16).hex()
        self.logs = [FakeLog(f"log{n}", self.chance) for n in range(logs)]
        self.files: dict[str, bytearray] = {"falaj.json": bytearray(b"{}\n")}
        self.acknowledged = 0

    def _shipping(self) -> FakeGuard:
        return FakeGuard()

    def _acknowledge_ends(self, ends: Iterable[tuple[str, int, int]]) -> None:
        self.acknowledged += len(list(ends)) > 0

    def _origin(self) -> str:
        path = Path(self.path, "origin")
        if not path.exists():
            path.write_text(json.dumps({"origin": os.urandom(16).hex()}))
        return str(json.loads(path.read_text())["origin"])

    def _cut(self, previous: FakeCut | None = None) -> FakeCut:
        before = {log.directory: log for log in previous.logs} if previous else {}
        logs = []
        for log in self.logs:
            made = CutLog(
                log.directory,
                tuple(CutSegment(s, FIRST + len(s.data), s.sealed) for s in log.segments),
                (CutEnd(log.topic, log.name, 0, len(log.history) - 1, log.history[-1]),),
            )
            same = before.get(log.directory)
            logs.append(same if same == made and same is not None else made)
        files = tuple(
            CutFile(path, len(data), ((0, bytes(data)),)) for path, data in self.files.items()
        )
        return FakeCut(self.id, tuple(logs), files)

    def _contains(
        self, directory: str, topic: str, partition: int, after: int, checksum: int
    ) -> bool:
        for log in self.logs:
            if (log.directory, log.topic) == (directory, topic):
                return after < len(log.history) and log.history[after] == checksum
        return False

    def content(self) -> dict[str, bytes]:
        """Return all bytes, as a builder would collect them."""
        found = {path: bytes(data) for path, data in self.files.items()}
        for log in self.logs:
            for segment in log.segments:
                found[f"{log.directory}/{segment.sequence}"] = segment.header + bytes(segment.data)
        return found


class FakeBuilder:
    """Collects what a restore writes."""

    built: dict[str, dict[str, bytes]] = {}  # noqa: RUF012  # shared on purpose: by path

    def __init__(self, path: Any, **_: object) -> None:
        self.path = os.fspath(path)
        self.found: dict[str, bytearray] = {}
        self.headers: dict[str, bytes] = {}

    def file(self, path: str, length: int, parts: list[tuple[int, bytes]]) -> None:
        """Collect a small file."""
        data = self.found[path] = bytearray(length)
        for position, part in parts:
            data[position : position + len(part)] = part

    def segment(self, log: str, header: bytes, end: int, length: int, sealed: bool) -> None:
        """Begin a segment."""
        key = f"{log}/{int(header.split()[0])}"
        self.found[key] = bytearray(length - FIRST)
        self.headers[key] = header

    def write(self, log: str, sequence: int, position: int, data: bytes) -> None:
        """Write bytes of a segment."""
        key = f"{log}/{sequence}"
        assert position - FIRST + len(data) <= len(self.found[key])
        self.found[key][position - FIRST : position - FIRST + len(data)] = data

    def write_checked(
        self,
        log: str,
        sequence: int,
        position: int,
        data: bytes,
        start: int,
        stop: int,
        checksum: int,
    ) -> bool:
        """Write bytes of a segment if they are right."""
        self.write(log, sequence, position, data[start:stop])
        return zlib.crc32(data[start:stop]) == checksum

    def finish(self, **_: Any) -> dict[str, Any]:
        """Keep what was collected."""
        self.built[self.path] = {
            key: self.headers.get(key, b"") + bytes(data) for key, data in self.found.items()
        }
        return {}

    def discard(self) -> None:
        """Forget it."""

    def leave(self) -> bool:
        """Forget it, too."""
        return False


def objects_of(view: View) -> int:
    """Count the live objects of a view."""
    return len(view.live())
