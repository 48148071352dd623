"""The places of numbers in each kind of file, and how to make the checksum over them right again.

Owns that table, written from docs/FORMAT.md with the readers of tests/proof. forge.py owns the
changes of the numbers.
"""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from proof import beside, layout


def put(data: bytearray, at: int, size: int, value: int) -> None:
    """Write a number, as far as it fits."""
    room = data[at : at + size]
    data[at : at + size] = (value % 2**64).to_bytes(8, "little")[: len(room)]


def get(data: bytes | bytearray, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


@dataclass(frozen=True)
class Piece:
    """A piece with a checksum of its own: the places of its numbers, and how to make it right."""

    at: int
    fields: tuple[tuple[int, int], ...]
    """Offset and size."""
    redo: Callable[[bytearray], None]


def words(start: int, end: int, size: int = 8) -> tuple[tuple[int, int], ...]:
    return tuple((at, size) for at in range(start, end, size))


def plain(at: int, length: int, before: bytes = b"", size: int = 4) -> Callable[[bytearray], None]:
    """Make the CRC-32 after so many bytes right; some other bytes may come before them."""

    def redo(data: bytearray) -> None:
        if at + length + size <= len(data):
            put(data, at + length, size, zlib.crc32(before + data[at : at + length]))

    return redo


def salted(at: int, salt: int) -> Callable[[bytearray], None]:
    return plain(at, 60, struct.pack("<Q", salt))


def of_block(at: int, salt: int) -> Callable[[bytearray], None]:
    """Make the tag and both checksums of a block right."""

    def redo(data: bytearray) -> None:
        put(data, at + 5, 3, layout.tag(salt, at))
        length, flags = get(data, at, 4), get(data, at + 30, 2)
        begin = 32 + layout.extension_bytes(flags)
        if begin <= length <= len(data) - at:
            put(data, at + 8, 4, zlib.crc32(data[at + begin : at + length]))
        put(data, at + 12, 4, at // 8)
        put(data, at + 12, 4, layout.header_crc(salt, bytes(data[at : at + begin])))

    return redo


def blocks(data: bytes | bytearray) -> list[layout.Block]:
    """List the blocks of a valid segment."""
    found: list[layout.Block] = []
    at, salt = layout.FIRST_BLOCK, get(data, 40, 8)
    while block := layout.block(bytes(data), at, salt):
        found.append(block)
        at = block.end
    return found


def of_segment(data: bytes) -> list[Piece]:
    salt = get(data, 40, 8)
    headers = [
        Piece(at, ((at + 8, 4), (at + 12, 4), *words(at + 16, at + 104)), plain(at, 508))
        for at in (0, layout.PAGE)
    ]
    marks = [Piece(at, words(at + 8, at + 48), salted(at, salt)) for at in (512, 4608)]
    inside = (
        (0, 4),
        (4, 1),
        (16, 4),
        (20, 4),
        (24, 4),
        (28, 2),
        (30, 2),
        (32, 4),
        (36, 4),
        (40, 8),
    )
    return [
        *(*headers, *marks),
        *(
            Piece(
                b.position,
                tuple((b.position + n, s) for n, s in inside),
                of_block(b.position, salt),
            )
            for b in blocks(data)
        ),
    ]


def of_index(data: bytes) -> list[Piece]:
    salt = struct.pack("<Q", get(data, 40, 8))
    entries = []
    for at in range(64, len(data) - 31, 32):
        if any(data[at : at + 32]):

            def redo(data: bytearray, at: int = at) -> None:
                put(data, at, 4, zlib.crc32(salt + data[at + 4 : at + 32]))

            entries.append(Piece(at, ((at + 4, 4), *words(at + 8, at + 32)), redo))
    return [Piece(0, ((8, 4), *words(16, 48)), plain(0, 60)), *entries]


def of_page(data: bytes) -> list[Piece]:
    """A control page, or the page of waiters: a header, and words without a checksum."""
    lines = words(64, 576, 64) + words(256, 296) + ((392, 8),)
    header = plain(0, 60)
    return [
        Piece(0, ((8, 4), *words(16, 40)), header),
        *(Piece(64, (line,), header) for line in lines),
    ]


def of_consumer(data: bytes) -> list[Piece]:
    found = [
        Piece(0, ((8, 4), *words(16, 48)), plain(0, 60)),
        Piece(64, words(64, 136, 64), plain(0, 60)),
    ]
    for at in range(beside.ENTRIES, len(data) - beside.ENTRY + 1, beside.ENTRY):
        if any(data[at : at + beside.ENTRY]):
            name = ((at, 8), (at + 16, 4), (at + 20, 4), (at + 504, 8))
            found.append(Piece(at, name, plain(at, 280)))
            for slot in (at + 512, at + 1024):
                cursor = (
                    (slot + 16, 4),
                    *words(slot + 24, slot + 48),
                    *words(slot + 56, slot + 88),
                )
                found.append(Piece(slot, cursor, plain(slot, 508)))
    return found


def of_queue(data: bytes) -> list[Piece]:
    own, places = data[32:40], get(data, 40, 8)
    found = [Piece(0, ((12, 4), (16, 8), *words(32, 48), (48, 1)), plain(0, 508))]
    for slot in (512, 1024):
        redo = plain(slot, 56, own + b"\xff" * 8, size=8)
        found.append(Piece(slot, words(slot, slot + 40), redo))
    found.append(Piece(2048, words(2048, 2248, 8), plain(0, 508)))
    for offset in range(min(places, 48)):
        for at in (beside.QUEUE_ENTRIES + 64 * offset, beside.QUEUE_ENTRIES + 64 * offset + 32):

            def redo_entry(data: bytearray, at: int = at, offset: int = offset) -> None:
                entry = own + struct.pack("<Q", offset) + data[at : at + 28] + bytes(4)
                put(data, at + 28, 4, zlib.crc32(entry))

            inside = ((at, 8), (at + 8, 4), (at + 12, 4), (at + 16, 8), (at + 24, 1), (at + 25, 3))
            found.append(Piece(at, inside, redo_entry))
    return found


def of_part(data: bytes) -> list[Piece]:
    found = [Piece(0, ((8, 4), *words(16, 72)), plain(0, 76))]
    at = 80
    while at + 32 <= len(data):

        def redo(data: bytearray, at: int = at) -> None:
            length = get(data, at + 8, 4)
            put(data, at + 12, 4, zlib.crc32(data[at + 32 : at + 32 + length]))
            plain(at, 28, bytes(data[48:56]) + struct.pack("<Q", at))(data)

        inside = ((0, 4), (4, 4), (8, 4), (16, 8), (24, 2), (26, 2), (32, 4), (40, 8))
        found.append(Piece(at, tuple((at + n, size) for n, size in inside), redo))
        at += 32 + get(data, at + 8, 4)
    return found


KINDS: dict[str, Callable[[bytes], list[Piece]]] = {
    "**/*.log": of_segment,
    "**/*.idx": of_index,
    "logs/*/control": of_page,
    "wake": of_page,
    "consumers/*": of_consumer,
    "queues/*": of_queue,
    "logs/*/staging/*/*.part": of_part,
}
OFTEN = (6, 2, 3, 1, 3, 3, 1)
