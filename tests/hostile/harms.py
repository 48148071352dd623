"""Harm by bad disks, other programs and careless copies: no checksum is made right after it.

Owns what a harm is, and how far answers can be trusted after it. Harm that knows the format, and
may make checksums right again, is in forge.py.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from proof import beside

SECTOR = 512
ENTRIES, ENTRY = beside.ENTRIES, beside.ENTRY
MARKS = {1, 9}
"""Sectors of a segment that say how much of it is on disk."""


class Trust(IntEnum):
    """How strict the judgement is."""

    NOTHING = 0
    """Checksums were made right again: calls must end, without a crash, or raise falaj's errors."""
    VALUES = 1
    """The store may look older or shorter, which falaj cannot know. Records that are returned are
    right, and ends may come early.
    """
    ALL = 2
    """Every answer is the true one, or an error that says that bytes are not what was written."""


@dataclass(frozen=True)
class Harm:
    """One harm."""

    kind: str
    story: str
    path: Path
    """The file, relative to the store."""
    trust: Trust


@dataclass(frozen=True)
class Place:
    """A store to be harmed, and its earlier copy."""

    store: Path
    earlier: Path

    def files(self, *patterns: str) -> list[Path]:
        """List non-empty files, in a fixed order."""
        found = {path for pattern in patterns or ("**/*",) for path in self.store.glob(pattern)}
        return sorted(path for path in found if path.is_file() and path.stat().st_size)


def flip(chance: random.Random, content: bytearray, at: int) -> None:
    content[at] ^= 1 << chance.randrange(8)


def hole(chance: random.Random, content: bytearray, at: int) -> None:
    start = at // SECTOR * SECTOR
    end = min(len(content), start + SECTOR * chance.randint(1, 8))
    content[start:end] = bytes(end - start)


def cut(chance: random.Random, content: bytearray, at: int) -> None:
    del content[at:]


def noise(chance: random.Random, content: bytearray, at: int) -> None:
    end = min(len(content), at + chance.randint(1, 100))
    content[at:end] = chance.randbytes(end - at)


def swap(chance: random.Random, content: bytearray, at: int) -> None:
    """Swap two sectors; in a file of less than two, its halves."""
    size = min(SECTOR, max(1, len(content) // 2))
    # One that holds something, and most often another such.
    many = max(2, used(content) // size if chance.random() < 0.8 else len(content) // size)
    one = at // size % (len(content) // size)
    other = chance.choice([n for n in range(min(many, len(content) // size)) if n != one] or [one])
    a, b = slice(one * size, (one + 1) * size), slice(other * size, (other + 1) * size)
    content[a], content[b] = content[b], content[a]


def used(content: bytes | bytearray) -> int:
    """Count bytes up to the last that was written: the rest is mostly empty space."""
    return max(1, len(content.rstrip(b"\0")))


Bytes = Callable[[random.Random, bytearray, int], None]


def of_bytes(how: Bytes) -> Callable[[random.Random, Place], Harm]:
    """Harm one file; most often one with data, or one beside it."""

    def harm(chance: random.Random, place: Place) -> Harm:
        kinds = ["**/*.log", "consumers/*", "queues/*", "**/*"]
        [pattern] = chance.choices(kinds, [10, 3, 3, 6])
        path = chance.choice(place.files(pattern))
        before = path.read_bytes()
        content = bytearray(before)
        at = chance.randrange(used(content))
        how(chance, content, at)
        path.write_bytes(content)
        return told(how.__name__, f"{how.__name__} at {at}", place, path, before, content)

    return harm


def told(
    kind: str, story: str, place: Place, path: Path, before: bytes, after: bytes | bytearray
) -> Harm:
    """Describe a harm, and how far to trust the rest."""
    changed = {
        n // SECTOR
        for n in range(0, len(before), SECTOR)
        if before[n : n + SECTOR] != after[n : n + SECTOR]
    }
    # A segment without its marks looks like one with a torn end: so this harms two places.
    blurred = bool(path.suffix == ".log" and changed & MARKS and len(changed) > 1)
    if path.parent.name == "consumers":
        # A cursor whose bytes are all gone looks like one that was never committed, and the file
        # does not say whose it was.
        blurred = kind == "over" or begun(before) != begun(after)
    trust = Trust.VALUES if blurred else Trust.ALL
    name = path.relative_to(place.store)
    return Harm(kind, f"{story} of {name}", name, trust)


def begun(consumer: bytes | bytearray) -> list[int]:
    """The entries of a group's file that have a cursor of their own, or a torn one."""
    found = []
    for at in range(ENTRIES, len(consumer) - ENTRY + 1, ENTRY):
        own = consumer[at : at + 20]
        is_named = not beside.checksum(bytes(consumer[at : at + 284]), 280)
        for slot in (at + SECTOR, at + 2 * SECTOR):
            cursor = bytes(consumer[slot : slot + SECTOR])
            of_another = is_named and not beside.checksum(cursor, 508) and cursor[:20] != own
            if any(cursor) and not of_another:
                found.append(at)
    return sorted(set(found))


def garbage(chance: random.Random, place: Place) -> Harm:
    """Random bytes over a control page: all of it, its header, or its words."""
    path = chance.choice(place.files("logs/*/control"))
    before = path.read_bytes()
    content = bytearray(before)
    start, end = chance.choice([(0, 4096), (0, 64), (64, 576), (0, 576), (72, 576)])
    content[start:end] = chance.randbytes(end - start)
    path.write_bytes(content)
    return told("garbage", f"garbage from {start} to {end}", place, path, before, content)


def over(chance: random.Random, place: Place) -> Harm:
    """Another file of the same kind in a file's place, of this log or another one."""
    kinds = ["**/*.log", "**/*.idx", "**/control", "topics/*/topic.json", "consumers/*"]
    [pattern] = chance.choices(kinds, [4, 1, 1, 1, 1])
    other, path = chance.sample(place.files(pattern), 2)
    before, content = path.read_bytes(), other.read_bytes()
    path.write_bytes(content)
    return told("over", f"{other.relative_to(place.store)} in place", place, path, before, content)


def under(chance: random.Random, place: Place) -> Harm:
    """A copy of a segment, under the next number or one out of order."""
    path = chance.choice(place.files("**/*.log"))
    target = chance.choice(place.files("**/*.log"))
    number = int(target.stem) + chance.choice([1, 1, 2, 1000, 2**32])
    target = target.with_name(f"{number:020}.log")
    target.write_bytes(path.read_bytes())
    name = target.relative_to(place.store)
    story = f"{path.relative_to(place.store)} as {name}"
    # The number may be taken: then that file is gone.
    return Harm("under", story, name, Trust.VALUES)


def older(chance: random.Random, place: Place) -> Harm:
    """The earlier state of a file."""
    files = [path for path in place.files() if path.suffix != ".part"]
    then = [place.earlier / path.relative_to(place.store) for path in files]
    pairs = [(a, b) for a, b in zip(files, then, strict=True) if b.exists()]
    changed = [(a, b) for a, b in pairs if a.read_bytes() != b.read_bytes()]
    path, before = chance.choice(changed)
    path.write_bytes(before.read_bytes())
    name = path.relative_to(place.store)
    return Harm("older", f"{name} as it was earlier", name, Trust.VALUES)
