"""A second writer: by docs/FORMAT.md it writes what falaj reads and does not write.

It adds blocks at the end of a closed log, and a mark after them. So it makes tombstones, gaps in
offsets, producers, entries for later versions, and everything that a newer version might write.
"""

import json
import struct
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from proof import layout, reader


def varint(value: int, needless: int = 0) -> bytes:
    """A varint, with needless zero bytes after it if asked for."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value | (0x80 if needless else 0))
    if needless:
        out += b"\x80" * (needless - 1) + b"\0"
    return bytes(out)


def zigzag(value: int) -> bytes:
    return varint(((value << 1) ^ (value >> 63)) % 2**64)


def counted(data: bytes) -> bytes:
    return varint(len(data)) + data


def record(of: layout.Record, flags: int, base: int = 0) -> bytes:
    """The bytes of a record in a block with these flags."""
    out = varint(of.delta) if flags & layout.SPARSE else b""
    if flags & layout.RICH:
        has = (of.key is not None, bool(of.headers), of.event_time is not None, of.value is None)
        out += bytes([sum(bit << n for n, bit in enumerate(has))])
    if of.key is not None:
        out += counted(of.key)
    if of.event_time is not None:
        out += zigzag(of.event_time - base)
    if of.headers:
        out += varint(len(of.headers))
        for name, value in of.headers:
            out += counted(name.encode())
            out += b"\0" if value is None else varint(len(value) + 1) + value
    return out if of.value is None else out + counted(of.value)


def entry(kind: int, payload: bytes) -> bytes:
    """An entry of a meta block."""
    return varint(kind) + counted(payload)


class Craft:
    """A log that is extended; `finish` writes it."""

    def __init__(self, store: Path, topic: str) -> None:
        told = json.loads((store / "topics" / topic / "topic.json").read_bytes())
        self.log = store / "logs" / f"{topic}@{told['log_generation']}"
        replayed = reader.read_log(self.log, Counter())
        self.segment = replayed.newest
        self.data = bytearray(self.segment.data)
        self.at = self.segment.blocks[-1].end
        self.time = max(block.time for block in self.segment.blocks)
        partition = replayed.partitions[told["number"]]
        self.next = partition.end
        self.base = partition.end
        for block in self.segment.blocks:
            if block.kind == layout.DATA and block.topic == told["number"]:
                self.base = partition.end - block.offset - block.span
        self.salt = self.segment.header.salt

    def block(
        self,
        kind: int,
        body: bytes,
        offset: int = 0,
        count: int = 0,
        flags: int = 0,
        more: bytes = b"",
    ) -> int:
        """Add any block, with `more` as its extensions; return its position."""
        at, length = self.at, 32 + len(more) + len(body)
        word = length | kind << 32 | layout.tag(self.salt, at) << 40
        time = self.time.to_bytes(6, "little") if kind == layout.DATA else bytes(6)
        head = struct.pack("<QIIII", word, zlib.crc32(body), at // 8, offset, count)
        head += time + struct.pack("<H", flags) + more
        crc = layout.header_crc(self.salt, head)
        self.data[at : at + length] = head[:12] + struct.pack("<I", crc) + head[16:] + body
        self.at = (at + length + 7) // 8 * 8
        return at

    def records(
        self,
        records: list[layout.Record],
        flags: int,
        base: int | None = None,
        span: int = 0,
        producer: tuple[int, int] | None = None,
    ) -> int:
        """Add a data block of topic number 0."""
        body, more = b"", b""
        if base is not None:
            flags |= layout.EVENT_TIME
            body = struct.pack("<q", base)
        if span:
            flags |= layout.SPARSE
            more += struct.pack("<I", span)
        if producer:
            flags |= layout.PRODUCER
            more += struct.pack("<QQII", *producer, 1, 0)
        body += b"".join(record(one, flags, base or 0) for one in records)
        offset = self.next - self.base
        self.next += span or len(records)
        return self.block(layout.DATA, body, offset, len(records), flags, more)

    def finish(self) -> None:
        """Write it, with a clean mark at its end; derived parts are built again later."""
        before = self.segment.mark
        serial = 1 if before is None else before.serial + 1
        mark = b"FALAJMRK" + struct.pack("<QQQQQ12x", serial, self.at, 1, 0, 0)
        mark += struct.pack("<I", layout.crc(self.salt, mark))
        slot = 512 + layout.PAGE * (serial % 2)
        self.data[slot : slot + 64] = mark
        self.segment.path.write_bytes(self.data)
        self.segment.path.with_suffix(".idx").unlink()
        (self.log / "control").unlink(missing_ok=True)


def change_settings(path: Path, **changes: Any) -> None:
    """Change members of a settings file, and its checksum."""
    told = json.loads(path.read_bytes())
    del told["checksum"]
    text = json.dumps(told | changes, separators=(",", ":"))[:-1]
    path.write_text(f'{text},"checksum":"{zlib.crc32(text.encode()):08x}"}}\n')
