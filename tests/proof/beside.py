"""Files beside the logs, read by docs/FORMAT.md alone: groups, queues, staged parts.

Reads files of a store that no process has open, each from its bytes. It ignores the parts of one
incarnation: rows, owners, derived lists. Wrong bytes raise `Damage`.
"""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from proof import layout
from proof.layout import METADATA_MAX, Block, Damage, UnsupportedVersion

ENTRIES, ENTRY = 8192, 1536
DONE = 4
QUEUE_ENTRIES = 4096 + 8 * 1024


class Cursor(NamedTuple):
    """How far a group has read a partition, as its file says."""

    topic: str
    generation: bytes
    partition: int
    committed: int
    safe: int


@dataclass
class Consumer:
    """A group's file."""

    log: bytes
    """Generation of the log that keeps the cursors; zeros for none."""
    cursors: list[Cursor]


@dataclass
class Queue:
    """A queue's file."""

    topic: str
    generation: bytes
    ordered: bool
    floor: int
    head: int
    trimmed: int
    dead: int
    states: dict[int, tuple[int, int]]
    """State and attempts by offset, of delivered jobs at or above the lower bound."""

    @property
    def done(self) -> int:
        return sum(state == DONE for state, _ in self.states.values())


def header(data: bytes, magic: bytes, length: int) -> None:
    """Check the beginning of a file that ends with its checksum."""
    if len(data) < length:
        raise Damage("a header that is cut off")
    if data[:8] != magic or checksum(data, length - 4):
        raise Damage("magic or checksum")
    if (version := struct.unpack_from("<I", data, 8)[0]) != 2:
        raise UnsupportedVersion(f"version {version}")


def checksum(data: bytes, length: int) -> bool:
    """True if a CRC after so many bytes does not match them."""
    (told,) = struct.unpack_from("<I", data, length)
    return zlib.crc32(data[:length]) != int(told)


def consumer(path: Path, store: str) -> Consumer:
    """Read `consumers/<name>`."""
    data = path.read_bytes()
    header(data, b"FALAJCON", 64)
    if data[16:32].hex() != store:
        raise Damage(f"{path}: of another store")
    found = Consumer(data[32:48], [])
    for at in range(ENTRIES, len(data) - ENTRY + 1, ENTRY):
        entry = data[at : at + ENTRY]
        if not any(entry):
            continue
        generation, partition, length = struct.unpack_from("<16sII", entry)
        if checksum(entry, 280) or length > 249:
            raise Damage(f"{path}: entry at {at}")
        held = []
        for slot in (512, 1024):
            cursor = entry[slot : slot + 512]
            of, p, serial, committed, safe, more = struct.unpack_from("<16sI4xQQ16xQ36xH", cursor)
            if (
                not checksum(cursor, 508)
                and more <= METADATA_MAX
                and (of, p) == (generation, partition)
            ):
                held.append((serial, committed, safe))
        if not held:
            raise Damage(f"{path}: no cursor at {at}")
        name = entry[24 : 24 + length].decode()
        found.cursors.append(Cursor(name, generation, partition, *max(held)[1:]))
    return found


def queue(path: Path) -> Queue:
    """Read `queues/<queue>`."""
    data = path.read_bytes()
    header(data, b"FALAJQUE", 512)
    flags, generation, own, places, length = struct.unpack_from("<I16s8sQB", data, 12)
    if flags > 3:
        raise UnsupportedVersion(f"{path}: flags {flags:#x}")
    ends = []
    for slot in (512, 1024):
        *told, crc = struct.unpack_from("<5Q16xQ", data, slot)
        if zlib.crc32(own + b"\xff" * 8 + data[slot : slot + 56]) == crc:
            ends.append(tuple(told))
    if not ends:
        raise Damage(f"{path}: ends")
    _, floor, head, trimmed, dead = max(ends)
    name = data[49 : 49 + length].decode()
    found = Queue(name, generation, bool(flags & 1), floor, head, trimmed, dead, {})
    for offset in range(floor, head):
        at = QUEUE_ENTRIES + 64 * (offset % places)
        sound = []
        for one in (data[at : at + 32], data[at + 32 : at + 64]):
            _, _, serial, _, word, crc = struct.unpack("<QIIQII", one)
            if zlib.crc32(own + struct.pack("<Q", offset) + one[:28] + bytes(4)) == crc:
                sound.append((serial, word & 0xF, word >> 8))
        if sound:
            found.states[offset] = max(sound)[1:]
    return found


class Staged(NamedTuple):
    """A staged part."""

    whole: bool
    token_version: int
    records: list[tuple[int, layout.Record]]
    """With their partitions."""


def part(path: Path, log: bytes) -> Staged:
    """Read a file of `staging/`."""
    data = path.read_bytes()
    header(data, b"FALAJPRT", 80)
    own, version = data[48:56], struct.unpack_from("<Q", data, 64)[0]
    if data[16:32] != log or path.name.split(".")[-2] != f"{int.from_bytes(own, 'little'):016x}":
        raise Damage(f"{path}: of another log, or another part")
    found = Staged(path.suffix == ".part", version, [])
    at = 80
    while at + 32 <= len(data):
        head = data[at : at + 32]
        partition, count, length, body_crc, _, flags, _, crc = struct.unpack("<IIIIqHHI", head)
        if zlib.crc32(own + struct.pack("<Q", at) + head[:28]) != crc:
            raise Damage(f"{path}: the head of a frame at {at}")
        body = data[at + 32 : at + 32 + length]
        if zlib.crc32(body) != body_crc:
            raise Damage(f"{path}: the body of a frame at {at}")
        block = Block(
            at, length, layout.DATA, body_crc, 0, count, 0, flags, 0, 0, count, None, body
        )
        found.records.extend((partition, record) for record in layout.records(block))
        at += 32 + length
    return found
