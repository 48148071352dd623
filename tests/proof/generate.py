"""Small stores with everything in them that a store may hold, each from a seed.

A store is made by random moves through falaj; beside it stands what was acknowledged, per topic and
partition. Processes die in it: with a block half written while others go on (which leaves a void
block), with a tail that then loses sectors as in a power cut, with a latched log (which both leave
a segment that supersedes). `make` returns what the store must hold; who compares is test_reader.py.
"""

import json
import os
import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import falaj
from proof import reader
from proof.forks import forked

SEGMENT_BYTES = 1 << 16
LARGEST = SEGMENT_BYTES // 4 - 1600
APPEND_LOCK, DIRTY, TAIL, FLAGS = 128, 256, 264, 384
LATCHED = 1
PAGE = 4096

Record = tuple[bytes, bytes | None, tuple[tuple[str, bytes | None], ...], int | None]
"""Value, key, headers, and event time in ns."""


@dataclass
class Expected:
    """What a topic must hold, per partition."""

    codec: str
    partitions: list[list[Record]] = field(default_factory=list)


Model = dict[str, Expected]


class Maker:
    """A store in the making."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.model: Model = {}
        self.store: falaj.Store | None = None
        self.held: list[falaj.Topic[Any]] = []
        """Handles, whose last one would sync when it goes."""
        self.sync: Any = self.random.choice(["none", "interval", "interval", "durable"])

    # --- Values ----------------------------------------------------------------------------------

    def record(self) -> Record:
        pick = self.random.random()
        size = (
            0
            if pick < 0.05
            else self.random.randrange(300)
            if pick < 0.9
            else self.random.randrange(5000)
            if pick < 0.98
            else self.random.randrange(LARGEST)
        )
        key = headers = time = None
        if self.random.random() < 0.4:
            key = self.random.randbytes(self.random.choice([0, 1, 8, 200]))
        if self.random.random() < 0.2:
            names = ["a", "a", "", "trace", "ä", "\N{SNOWMAN}" * 20]
            values = [None, b"", b"1", self.random.randbytes(150)]
            headers = [
                (self.random.choice(names), self.random.choice(values))
                for _ in range(self.random.randrange(5))
            ]
        if self.random.random() < 0.3:
            far = self.random.choice([10, 2**20, 2**33])
            time = self.random.randrange(-far, far) * 10**9
        return self.random.randbytes(size), key, tuple(headers or ()), time

    def value(self, codec: str, raw: bytes) -> tuple[Any, bytes]:
        """What is given to falaj, and the payload that comes of it."""
        if codec == "str":
            text = raw[: LARGEST // 2].hex()
            return text, text.encode()
        if codec == "json":
            return {"n": raw[:50].hex()}, b'{"n":"%s"}' % raw[:50].hex().encode()
        return raw, raw

    # --- Moves -----------------------------------------------------------------------------------

    def opened(self) -> falaj.Store:
        if self.store is None:
            self.store = falaj.open(self.path, sync=self.sync)
        return self.store

    def close(self) -> None:
        if self.store is not None:
            self.held.clear()
            self.store.close()
            self.store = None

    def topic(self, name: str) -> falaj.Topic[Any]:
        topic: falaj.Topic[Any] = self.opened().topic(name)
        self.held.append(topic)
        return topic

    def create(self) -> None:
        name = self.random.choice(["a", "b", "long" * 60, "..x", "-", "x.tmp", "y.deleted"])
        if name in self.model:
            return
        codec = self.random.choice(["bytes", "bytes", "str", "json"])
        partitions = self.random.choice([1, 1, 1, 2, 5])
        self.opened().topic(name, codec=codec, partitions=partitions, segment_bytes=SEGMENT_BYTES)
        self.model[name] = Expected(codec, [[] for _ in range(partitions)])

    def append(self) -> None:
        name, expected = self.any_topic()
        given, key, headers, time = self.record()
        value, payload = self.value(expected.codec, given)
        seconds = None if time is None else time // 10**9
        partition = self.random.randrange(len(expected.partitions))
        self.topic(name).append(value, key, headers, seconds, partition=partition)
        expected.partitions[partition].append((payload, key, headers, time))

    def extend(self) -> None:
        """Append several as one, over the partitions where there are some: a group."""
        name, expected = self.any_topic()
        records, room = [], LARGEST
        for _ in range(self.random.choice([1, 2, 10, 60])):
            record = self.record()
            room -= 2 * len(record[0]) + 700 + len(record[1] or b"")
            if room < 0:
                break
            records.append(record)
        new = []
        payloads = []
        for given, key, headers, time in records:
            value, payload = self.value(expected.codec, given)
            seconds = None if time is None else time // 10**9
            new.append(falaj.NewRecord(value, key, headers, seconds))
            payloads.append(payload)
        if not new:
            return
        topic = self.topic(name)
        before = [topic.partition(p).end for p in topic.partitions]
        topic.extend(new)
        # Which key goes where is falaj's affair; that each went once and in order is checked here.
        left = [(payload, *record[1:]) for payload, record in zip(payloads, records, strict=True)]
        for p in topic.partitions:
            for read in topic.partition(p)[before[p] :]:
                found = next(n for n, r in enumerate(left) if self.same(read, r))
                expected.partitions[p].append(left.pop(found))
        assert not left

    def same(self, read: Any, record: Record) -> bool:
        value, key, headers, time = record
        return (read.bytes(), read.key, read.headers) == (value, key, headers) and (
            time is None or read.timestamp_ns == time
        )

    def fill(self) -> None:
        """Append until the log rolls, more or less."""
        name, expected = self.any_topic()
        for n in range(self.random.randrange(1, 12)):
            given = bytes([n]) * LARGEST
            value, payload = self.value(expected.codec, given)
            self.topic(name).append(value, partition=0)
            expected.partitions[0].append((payload, None, (), None))

    def flush(self) -> None:
        self.topic(self.any_topic()[0]).flush()

    def delete(self) -> None:
        if len(self.model) > 1:
            name, _ = self.any_topic()
            self.opened().delete(name)
            del self.model[name]

    def any_topic(self) -> tuple[str, Expected]:
        while not self.model:
            self.create()
        name = self.random.choice(sorted(self.model))
        return name, self.model[name]

    def moves(self, count: int) -> None:
        weights: dict[Callable[[], None], int] = {
            self.append: 30,
            self.extend: 15,
            self.fill: 3,
            self.flush: 4,
            self.close: 3,
            self.create: 3,
            self.delete: 1,
        }
        for move in self.random.choices(list(weights), list(weights.values()), k=count):
            move()

    # --- Deaths ----------------------------------------------------------------------------------

    def die(self, last: Callable[[], None] = lambda: None) -> None:
        """Go on in a child, which is killed at the end."""
        self.model = forked(self.go_on, last)
        self.random = random.Random(self.random.random())

    def go_on(self) -> Model:
        self.store = None
        self.held = []
        self.sync = "none"
        self.moves(self.random.randrange(1, 12))
        self.append()
        return self.model

    def die_half_way(self) -> None:
        """Die in the middle of an append while another process has the store open."""
        name, expected = self.any_topic()
        value, payload = self.value(expected.codec, b"before")
        self.topic(name).append(value, partition=0)
        expected.partitions[0].append((payload, None, (), None))
        self.die(self.leave_half_a_block)
        for name, expected in self.model.items():
            value, payload = self.value(expected.codec, b"after")
            self.topic(name).append(value, partition=0)
            expected.partitions[0].append((payload, None, (), None))

    def leave_half_a_block(self) -> None:
        """Leave a log as who is killed between the first store of an append and the last."""
        log = self.log(self.any_topic()[0])
        identity = own_identity(self.path)
        with (log / "control").open("r+b") as control:
            tail = word(control, TAIL)
            length = self.random.randrange(8, PAGE, 8)
            if settings(self.path / "falaj.json")["write_mode"] == "mapped":
                store_word(control, APPEND_LOCK, identity << 32 | 1)
            store_word(control, DIRTY, tail + length // 8)
        with (log / f"{tail >> 32:020}.log").open("r+b") as segment:
            # The commit word comes last: it is still zero.
            segment.seek((tail & 0xFFFFFFFF) * 8 + 8)
            segment.write(self.random.randbytes(self.random.randrange(length - 7)))

    def lose_power(self) -> None:
        """Die, and lose or spoil sectors of what no mark says is on the medium."""
        self.close()
        self.die()
        for name in self.model:
            if self.random.random() < 0.7:
                self.spoil(self.log(name))
        for name, expected in self.model.items():
            topic = self.topic(name)
            for p, records in enumerate(expected.partitions):
                del records[topic.partition(p).end :]

    def spoil(self, log: Path) -> None:
        """Change a sector behind the newest mark."""
        links, _ = reader.chain(log)
        marked = max(
            (n for n, s in enumerate(links) if s.mark is not None and s.mark.position), default=0
        )
        n = self.random.randrange(marked, len(links))
        segment = links[n]
        begin = PAGE if n > marked or segment.mark is None else segment.mark.position
        end = len(segment.data.rstrip(b"\0")) + 600
        at = self.random.randrange(begin, max(end, begin + 1))
        sector = self.random.choice([bytes(512), self.random.randbytes(512)])
        with segment.path.open("r+b") as file:
            file.seek(at)
            file.write(sector[: min(512, len(segment.data) - at)])

    def latch(self) -> None:
        """Leave a log as whose sync failed and whose processes all ended."""
        self.close()
        self.die()
        for name in self.model:
            with (self.log(name) / "control").open("r+b") as control:
                store_word(control, FLAGS, LATCHED)

    def leave_an_orphan(self) -> None:
        """Leave a segment that no end block names, as a roll that was cut short does."""
        log = self.log(self.any_topic()[0])
        newest = reader.read_log(log, Counter()).newest
        page = bytearray(newest.data[:PAGE])
        sequence, salt = newest.header.sequence + 1, self.random.getrandbits(64)
        struct.pack_into("<I", page, 12, 0)  # one that supersedes would be the log's end
        struct.pack_into("<QQ", page, 32, sequence, salt)
        struct.pack_into("<QQQ", page, 48, newest.header.sequence, newest.header.salt, newest.end)
        struct.pack_into("<I", page, 508, zlib.crc32(page[:508]))
        (log / f"{sequence:020}.log").write_bytes(page + newest.data[PAGE:])

    def log(self, name: str) -> Path:
        """The directory of a topic's log."""
        told = settings(self.path / "topics" / name / "topic.json")
        return self.path / "logs" / f"{told['log'][:200]}@{told['log_generation']}"


def settings(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes())  # type: ignore[no-any-return]


def word(page: BinaryIO, at: int) -> int:
    page.seek(at)
    return int(struct.unpack("<Q", page.read(8))[0])


def store_word(page: BinaryIO, at: int, value: int) -> None:
    page.seek(at)
    page.write(struct.pack("<Q", value))
    page.flush()


def own_identity(store: Path) -> int:
    """Slot and generation of this process."""
    for slot in (store / "slots").iterdir():
        told = reader.words(slot)
        if told[3:4] == [str(os.getpid())]:
            return int(slot.name) << 20 | int(told[1])
    raise AssertionError("this process has no slot")


def write_through(path: Path, mode: int = 0o700) -> None:
    """Make an empty store one that is written to by pwrite, as on btrfs or overlay."""
    falaj.open(path, mode).close()
    text = (path / "falaj.json").read_text().rpartition(',"checksum"')[0]
    text = text.replace('"write_mode":"mapped"', '"write_mode":"pwrite"')
    checksum = zlib.crc32(text.encode())
    (path / "falaj.json").write_text(f'{text},"checksum":"{checksum:08x}"}}\n')


def make(path: Path, seed: int) -> Model:
    """Make a store, and tell what it must hold."""
    maker = Maker(path, seed)
    if maker.random.random() < 0.15:
        write_through(path)
    deaths = [maker.die_half_way, maker.lose_power, maker.latch, maker.die]
    for _ in range(maker.random.randrange(1, 4)):
        maker.moves(maker.random.randrange(20))
        maker.random.choice(deaths)()
        if maker.random.random() < 0.2:
            maker.close()
            maker.leave_an_orphan()
    maker.moves(3)
    # Whoever opens last recovers what the dead left; so every log is sound and closed.
    for name in maker.model:
        maker.topic(name)
    maker.close()
    if maker.random.random() < 0.2:
        maker.leave_an_orphan()
    return maker.model
