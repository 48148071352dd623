"""The bytes of format version 2, read by docs/FORMAT.md and nothing else.

Numbers, checksums, headers, marks, blocks, records, entries: each from a buffer and a position,
without a file. Names are those of the page. Wrong bytes raise `Damage`; valid bytes of a newer
version raise `UnsupportedVersion`. reader.py decides which bytes are the log's.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

PAGE = 4096
FIRST_BLOCK = 8192
NONE = 2**64 - 1
NO_TIME = -(2**63)
POSITION_MAX = 34_359_738_360

TOPIC, GROUP, MEMBER, SPARSE, PRODUCER, RICH, EVENT_TIME = (1 << bit for bit in range(4, 11))
KNOWN_FLAGS = 0x7FF
FINISHED = 1
EXPIRING = 1
METADATA_MAX = 384
KEY, HEADERS, RECORD_TIME, NO_VALUE = 1, 2, 4, 8
DATA, VOID, META, SNAPSHOT, END = range(1, 6)


class Damage(Exception):
    """Bytes that are not what was written, and where."""


class UnsupportedVersion(Exception):
    """Valid bytes that a newer version wrote."""


def crc(salt: int, data: bytes) -> int:
    """The checksum, seeded with a salt."""
    return zlib.crc32(data, zlib.crc32(struct.pack("<Q", salt)))


def _crc32c_table() -> list[int]:
    table = []
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC32C = _crc32c_table()


def header_crc(salt: int, data: bytes) -> int:
    """The CRC-32C of a block's header, seeded with a salt."""
    register = ~crc(salt, b"") & 0xFFFFFFFF
    for byte in data:
        register = register >> 8 ^ _CRC32C[(register ^ byte) & 0xFF]
    return ~register & 0xFFFFFFFF


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read a varint; return it and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise Damage("a varint leaves its container")
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            raise Damage("a varint above 64 bits")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Damage("a varint of more than ten bytes")


def counted(data: bytes, at: int, end: int, less: int = 0) -> tuple[bytes, int]:
    """Read bytes after a varint that gives their number; `less` is what that was raised by."""
    length, at = varint(data, at, end)
    length -= less
    if length > end - at:
        raise Damage("a length leaves its container")
    return data[at : at + length], at + length


def zigzag(value: int) -> int:
    """The signed number of a zigzag varint."""
    return (value >> 1) ^ -(value & 1)


def wrapped(value: int) -> int:
    """A number as an i64."""
    return (value + 2**63) % 2**64 - 2**63


def is_end(position: int) -> bool:
    """True if content can end there."""
    return position % 8 == 0 and FIRST_BLOCK <= position <= POSITION_MAX


class Header(NamedTuple):
    """A segment's header."""

    flags: int
    log: bytes
    sequence: int
    salt: int
    previous_sequence: int
    previous_salt: int
    previous_end: int
    replaces_first: int
    replaces_last: int
    time_base: int
    clean_since: int

    @property
    def supersedes(self) -> bool:
        return bool(self.flags & 1)

    @property
    def is_compacted(self) -> bool:
        return bool(self.flags & 2)

    @property
    def is_first(self) -> bool:
        return self.previous_sequence == NONE


def header(data: bytes) -> Header:
    """Read the header of a segment file from its first two pages; both hold it."""
    if len(data) < FIRST_BLOCK:
        raise Damage("a file without a header")
    try:
        return header_page(data[:PAGE])
    except Damage:
        return header_page(data[PAGE:FIRST_BLOCK])


def header_page(data: bytes) -> Header:
    """Read the header in a page."""
    if data[:8] != b"FALAJSEG" or zlib.crc32(data[:508]) != struct.unpack_from("<I", data, 508)[0]:
        raise Damage("magic or checksum of a header")
    version, flags = struct.unpack_from("<II", data, 8)
    if version != 2 or flags & ~3:
        raise UnsupportedVersion(f"segment of version {version}, flags {flags:#x}")
    found = Header(flags, data[16:32], *struct.unpack_from("<QQQQQQQqq", data, 32))
    if found.sequence > 0xFFFFFFFF:
        raise Damage("a sequence that no segment can have")
    if not found.is_first and (
        found.previous_sequence >= found.sequence or not is_end(found.previous_end)
    ):
        raise Damage("a previous segment that none can have")
    if found.is_compacted and not (
        found.replaces_first <= found.replaces_last == found.sequence
        and (found.is_first or found.previous_sequence < found.replaces_first)
    ):
        raise Damage("a compacted segment that replaces others than it can")
    return found


class Mark(NamedTuple):
    """A durable mark."""

    serial: int
    position: int
    flags: int
    control: int
    incarnation: int

    @property
    def clean(self) -> bool:
        return bool(self.flags & 1)

    @property
    def succeeded(self) -> bool:
        return bool(self.flags & 2)


def mark(data: bytes, salt: int) -> Mark | None:
    """Read the newest valid durable mark of a segment."""
    found = []
    for slot in (0, 1):
        at = 512 + PAGE * slot
        page = data[at : at + 64]
        if page[:8] != b"FALAJMRK" or crc(salt, page[:60]) != struct.unpack_from("<I", page, 60)[0]:
            continue
        one = Mark(*struct.unpack_from("<QQQQQ", page, 8))
        if one.position == 0 or is_end(one.position):
            if one.serial & 1 != slot:
                raise Damage("a mark in the other slot")
            found.append(one)
    return max(found, default=None)


@dataclass
class Block:
    """A block with valid checksums."""

    position: int
    length: int
    kind: int
    body_crc: int
    offset: int
    count: int
    time: int
    flags: int
    topic: int
    group: int
    span: int
    producer: tuple[int, int] | None
    body: bytes = field(repr=False)

    @property
    def end(self) -> int:
        """Position of the next block."""
        return self.position + (self.length + 7) // 8 * 8

    @property
    def codec(self) -> int:
        return self.flags & 15


def tag(salt: int, position: int) -> int:
    """The upper bits of a commit word at a position."""
    return ((salt ^ position) * 0x9E3779B97F4A7C15 % 2**64) >> 40


def extension_bytes(flags: int) -> int:
    """Bytes of a header's extensions."""
    return 4 * sum(bool(flags & bit) for bit in (TOPIC, GROUP, SPARSE)) + 24 * bool(
        flags & PRODUCER
    )


def block(data: bytes, at: int, salt: int) -> Block | None:
    """Read the block at a position; None if there is none, which is where a log ends."""
    if at + 8 > len(data):
        return None
    (word,) = struct.unpack_from("<Q", data, at)
    if word == 0:
        return None
    length, kind = word & 0xFFFFFFFF, word >> 32 & 0xFF
    if word >> 40 != tag(salt, at):
        raise Damage("the tag of another place")
    if length < 32 or kind == 0:
        raise Damage("a length or kind that no block has")
    if at + length > len(data):
        raise Damage("a block that leaves its file")
    body_crc, told_crc, offset, count = struct.unpack_from("<IIII", data, at + 8)
    time = int.from_bytes(data[at + 24 : at + 30], "little")
    (flags,) = struct.unpack_from("<H", data, at + 30)
    begin = 32 + extension_bytes(flags)
    if begin > length:
        raise Damage("extensions that leave their block")
    covered = bytearray(data[at : at + begin])
    struct.pack_into("<I", covered, 12, at // 8)
    if header_crc(salt, bytes(covered)) != told_crc:
        raise Damage("the checksum of a block's header")
    if kind > END or flags & ~KNOWN_FLAGS:
        raise UnsupportedVersion(f"block of kind {kind}, flags {flags:#x}")
    body = data[at + begin : at + length]
    if kind == VOID:
        if body_crc:
            raise Damage("a void block with a body checksum")
    elif zlib.crc32(body) != body_crc:
        raise Damage("the checksum of a block's body")
    read = Block(at, length, kind, body_crc, offset, count, time, flags, 0, 0, count, None, body)
    _extensions(read, data, at + 32)
    return read


def _extensions(read: Block, data: bytes, at: int) -> None:
    flags = read.flags
    allowed = MEMBER if read.kind == META else 0
    if read.kind != DATA and (read.offset or read.count or flags & ~allowed):
        raise Damage("a block that is not data, with what only data has")
    if flags & GROUP and flags & MEMBER:
        raise Damage("first and later block of a group at once")
    if flags & TOPIC:
        (read.topic,) = struct.unpack_from("<I", data, at)
        at += 4
    if flags & GROUP:
        (read.group,) = struct.unpack_from("<I", data, at)
        at += 4
    if flags & SPARSE:
        (read.span,) = struct.unpack_from("<I", data, at)
        at += 4
        if read.span < read.count:
            raise Damage("a span below the count")
    if flags & PRODUCER:
        producer, sequence, _, flags = struct.unpack_from("<QQII", data, at)
        if flags & ~EXPIRING:
            raise UnsupportedVersion(f"a producer's flags {flags:#x}")
        read.producer = producer, sequence


class Record(NamedTuple):
    """A record, with its offset relative to the block's and without its topic."""

    delta: int
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    event_time: int | None


def records(of: Block) -> Iterator[Record]:
    """Read the records of a data block."""
    if of.codec:
        raise UnsupportedVersion(f"codec {of.codec}")
    data, at, end = of.body, 0, len(of.body)
    base = 0
    if of.flags & EVENT_TIME:
        if end < 8:
            raise Damage("a body without its event time")
        (base,) = struct.unpack_from("<q", data)
        at = 8
    for n in range(of.count):
        record, at = _record(of, data, at, end, n, base)
        yield record
    if at != end:
        raise Damage("bytes after the last record")


def _record(of: Block, data: bytes, at: int, end: int, n: int, base: int) -> tuple[Record, int]:
    delta, attributes = n, 0
    key = time = value = None
    headers: list[tuple[str, bytes | None]] = []
    if of.flags & SPARSE:
        delta, at = varint(data, at, end)
        if delta >= of.span:
            raise Damage("an offset delta beyond the span")
    if of.flags & RICH:
        if at >= end:
            raise Damage("a body that ends in a record")
        attributes = data[at]
        at += 1
        if attributes & 0xF0:
            raise UnsupportedVersion(f"record attributes {attributes:#x}")
    if attributes & KEY:
        key, at = counted(data, at, end)
    if attributes & RECORD_TIME:
        raw, at = varint(data, at, end)
        time = wrapped(base + zigzag(raw))
    if attributes & HEADERS:
        count, at = varint(data, at, end)
        for _ in range(count):
            name, at = counted(data, at, end)
            there, after = varint(data, at, end)
            held: bytes | None = None
            if there:
                held, after = counted(data, at, end, less=1)
            at = after
            headers.append((name.decode(), held))
    if not attributes & NO_VALUE:
        value, at = counted(data, at, end)
    return Record(delta, value, key, tuple(headers), time), at


class TopicEntry(NamedTuple):
    """An entry for a topic of the log."""

    number: int
    partition: int
    generation: bytes
    first: int
    next: int
    highest: int
    last_crc: int


class TokenEntry(NamedTuple):
    """An entry for a series of bulk loads."""

    topic: int
    version: int
    time_ms: int
    name: bytes


class CursorEntry(NamedTuple):
    """A cursor that a log keeps."""

    offset: int
    checksum: int
    turn: int
    name: bytes


Entry = tuple[int, ...] | TopicEntry | TokenEntry | CursorEntry


def entries(body: bytes) -> Iterator[tuple[int, Entry]]:
    """Read the entries of a snapshot or meta block: type and content."""
    at = 0
    while at < len(body):
        kind, at = varint(body, at, len(body))
        payload, at = counted(body, at, len(body))
        yield kind, _entry(kind, payload)


def _entry(kind: int, payload: bytes) -> Entry:
    length = len(payload)
    if kind == 1 and length == 56:
        *told, flags = struct.unpack("<II16sQQqII", payload)
        if flags & ~FINISHED:
            raise UnsupportedVersion(f"a topic's flags {flags:#x}")
        return TopicEntry(*told)
    if kind == 2 and length == 4:
        return struct.unpack("<I", payload)
    if kind == 3 and length == 12:
        return struct.unpack("<IQ", payload)
    if kind == 4 and length >= 24 and (length - 24) % 20 == 0 and length <= 124:
        topic, flags, producer = struct.unpack_from("<IIQ", payload)
        if flags & ~EXPIRING:
            raise UnsupportedVersion(f"a producer's flags {flags:#x}")
        pairs = struct.iter_unpack("<QQ4x", payload[24:])
        return (topic, producer, *(number for pair in pairs for number in pair))
    if kind == 5 and 21 <= length <= 532:
        topic, version, time_ms = struct.unpack_from("<IQq", payload)
        return TokenEntry(topic, version, time_ms, payload[20:])
    if kind == 6 and length >= 19:
        offset, checksum, turn, name = struct.unpack_from("<QIIH", payload)
        metadata = length - 18 - name
        if 1 <= name <= 512 and 0 <= metadata <= METADATA_MAX:
            return CursorEntry(offset, checksum, turn, payload[18 : 18 + name])
    if kind == 7 and length == 8:
        return struct.unpack("<Q", payload)
    if kind == 8 and length == 4:
        return struct.unpack("<I", payload)
    if 0 <= kind <= 8:
        raise Damage(f"an entry of type {kind} with {length} bytes")
    raise UnsupportedVersion(f"entry type {kind}")


def successor(of: Block) -> tuple[int, int]:
    """Return sequence and salt of the segment that an end block names."""
    if len(of.body) < 24:
        raise Damage("an end block that is too short")
    sequence, salt, staged = struct.unpack_from("<QQQ", of.body)
    if staged or len(of.body) > 24:
        raise UnsupportedVersion("staged segments")
    return sequence, salt


class IndexEntry(NamedTuple):
    """An entry of an index."""

    topic: int
    offset: int
    position: int
    highest_before: int


def index(data: bytes, of: Header) -> list[IndexEntry] | None:
    """Read an index file; None if it is not this segment's."""
    if len(data) < 64 or data[:8] != b"FALAJIDX":
        return None
    if zlib.crc32(data[:60]) != struct.unpack_from("<I", data, 60)[0]:
        return None
    if data[16:32] != of.log or struct.unpack_from("<QQ", data, 32) != (of.sequence, of.salt):
        return None
    if struct.unpack_from("<I", data, 8)[0] != 2:
        return None
    found = []
    for at in range(64, len(data) - 31, 32):
        if crc(of.salt, data[at + 4 : at + 32]) != struct.unpack_from("<I", data, at)[0]:
            break
        entry = IndexEntry(*struct.unpack_from("<IQQq", data, at + 4))
        if entry.position == 0:
            break
        found.append(entry)
    return found
