"""Small stores with everything that a store may hold, each made from a seed.

Random moves through falaj make a store; beside it is a note of what was acknowledged, by topic and
partition. Processes die in it in these ways:

- with a block half written while others continue, which leaves a void block;
- with a tail that then loses sectors, as in a power cut;
- with a log in the failed-sync state.

The last two leave a superseding segment. `make` returns the expected content; test_reader.py
compares.
"""

import json
import os
import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import falaj
from proof import reader
from proof.forks import forked
from proof.model import Expected, Given, Model, Record

SEGMENT_BYTES = 1 << 16
LARGEST = SEGMENT_BYTES // 4 - 1600
APPEND_LOCK, DIRTY, TAIL, DURABLE, FLAGS = 128, 256, 264, 320, 384
LATCHED = 1
PAGE = 4096
FIRST_BLOCK = 8192


class Maker:
    """A store that is being made."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.model = Model()
        self.store: falaj.Store | None = None
        self.held: list[falaj.Topic[Any]] = []
        """Handles; the last one would sync when it closes."""
        self.sync: Any = self.random.choice(["none", "interval", "interval", "durable"])

    # --- Values ----------------------------------------------------------------------------------

    def record(self) -> Given:
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
        """Return the argument for falaj, and the payload that it becomes."""
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

    def topic(self, name: str) -> Any:
        topic: Any = self.opened().any_topic(name)
        self.held.append(topic)
        return topic

    def create(self) -> None:
        name = self.random.choice(["a", "b", "long" * 60, "..x", "-", "x.tmp", "y.deleted"])
        if name in self.model.topics:
            return
        codec = self.random.choice(["bytes", "bytes", "str", "json"])
        partitions = self.random.choice([1, 1, 1, 2, 5])
        log = self.random.choice([name, name, "shop"])
        compacted = log == name and self.random.random() < 0.3
        self.opened().partitioned_topic(
            name,
            codec=codec,
            log=None if log == name else log,
            partitions=partitions,
            segment_bytes=SEGMENT_BYTES,
            compacted=compacted,
        )
        held: list[dict[int, Record]] = [{} for _ in range(partitions)]
        self.model.topics[name] = Expected(codec, held, log, compacted)

    def append(self) -> None:
        name, expected = self.any_topic()
        given, key, headers, time = self.record()
        value, payload = self.value(expected.codec, given)
        partition = self.random.randrange(len(expected.partitions))
        self.note(
            expected,
            partition,
            self.topic(name).append(
                value, key, headers=headers, timestamp_ns=time, partition=partition
            ),
            (payload, key, headers, time),
        )

    def note(self, to: Expected, partition: int, at: Any, record: Record) -> None:
        """Note what was acknowledged."""
        offset = at if isinstance(at, int) else at[1]
        assert offset not in to.partitions[partition], f"offset {offset} a second time"
        to.partitions[partition][offset] = record

    def extend(self) -> None:
        """Append several as one, over all partitions if there are several: a group."""
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
            new.append(falaj.NewRecord(value, key, headers=headers, timestamp_ns=time))
            payloads.append(payload)
        if not new:
            return
        topic = self.topic(name)
        before = [topic.partition(p).end_offset for p in topic.partitions]
        topic.extend(new)
        # falaj chooses the partition of each key; this checks that each was appended once and in
        # order.
        left = [(payload, *record[1:]) for payload, record in zip(payloads, records, strict=True)]
        for p in topic.partitions:
            for read in topic.partition(p)[before[p] :]:
                found = next(n for n, r in enumerate(left) if self.same(read, r))
                expected.partitions[p][read.offset] = left.pop(found)
        assert not left
        self.model.whole.append(
            [
                (name, p, n)
                for p in topic.partitions
                for n in range(before[p], topic.partition(p).end_offset)
            ]
        )

    def same(self, read: Any, record: Record) -> bool:
        value, key, headers, time = record
        return (read.to_bytes(), read.key, read.headers) == (value, key, headers) and (
            time is None or read.timestamp_ns == time
        )

    def fill(self) -> None:
        """Append until the log rolls, more or less."""
        name, expected = self.any_topic()
        for n in range(self.random.randrange(1, 12)):
            given = bytes([n]) * LARGEST
            value, payload = self.value(expected.codec, given)
            at = self.topic(name).append(value, partition=0)
            self.note(expected, 0, at, (payload, None, (), None))

    def flush(self) -> None:
        self.topic(self.any_topic()[0]).flush()

    def delete(self) -> None:
        if len(self.model.topics) > 1:
            name, gone = self.any_topic()
            self.opened().delete_topic(name)
            del self.model.topics[name]
            if all(topic.log != gone.log for topic in self.model.topics.values()):
                self.model.cursors.pop(gone.log, None)
            for key in [key for key in self.model.consumed if key[1] == name]:
                del self.model.consumed[key]
            for queue in [queue for queue, (of, _) in self.model.queued.items() if of == name]:
                self.opened().delete_queue(queue)
                del self.model.queued[queue]
            self.model.whole = [places for places in self.model.whole if places[0][0] != name]

    def any_topic(self) -> tuple[str, Expected]:
        while not self.model.topics:
            self.create()
        name = self.random.choice(sorted(self.model.topics))
        return name, self.model.topics[name]

    def tombstone(self) -> None:
        """Append a tombstone, or the record of a producer."""
        name, expected = self.any_topic()
        p = self.random.randrange(len(expected.partitions))
        topic, key = self.topic(name), b"%d" % self.random.randrange(9)
        if self.random.random() < 0.5:
            self.note(expected, p, topic.tombstone(key, partition=p), (None, key, (), None))
            return
        value, payload = self.value(expected.codec, b"by a producer")
        last = topic.last_sequence("till")
        sequence = 0 if last is None else last + 1
        at = topic.append(value, key, partition=p, producer="till", sequence=sequence)
        self.note(expected, p, at, (payload, key, (), None))

    def trim(self) -> None:
        name, expected = self.any_topic()
        p = self.random.randrange(len(expected.partitions))
        part = self.topic(name).partition(p)
        first = self.random.randrange(part.start_offset, part.end_offset + 1)
        part.trim(before_offset=first)
        for offset in [offset for offset in expected.partitions[p] if offset < first]:
            expected.trimmed[p, offset] = expected.partitions[p].pop(offset)

    def compact(self) -> None:
        """Compact; removed records had a key that comes again later, or were tombstones."""
        several = [name for name, topic in self.model.topics.items() if topic.compacted]
        if not several:
            return
        name = self.random.choice(sorted(several))
        topic, expected = self.topic(name), self.model.topics[name]
        for n in range(self.random.choice([0, 40])):
            value, payload = self.value(expected.codec, bytes([n]) * 900)
            key = b"%d" % self.random.randrange(9)
            self.note(expected, 0, topic.append(value, key, partition=0), (payload, key, (), None))
        retention = self.random.choice([0, 86_400])
        topic.compact(seal=self.random.random() < 0.7, delete_retention=retention)
        for p, held in enumerate(expected.partitions):
            left = {read.offset: read for read in topic.partition(p)}
            assert left.keys() <= held.keys()
            last = {held[offset][1]: offset for offset in sorted(held)}
            for offset in [offset for offset in held if offset not in left]:
                deleted, of, _, _ = held.pop(offset)
                assert of is not None, f"{offset} had no key"
                assert last[of] > offset or (deleted is None and not retention), f"{offset} went"

    def transaction(self) -> None:
        """Append to several topics of a log and move a cursor, at once."""
        shop = [name for name, topic in self.model.topics.items() if topic.log == "shop"]
        names = sorted(shop) or [self.any_topic()[0]]
        log = self.model.topics[names[0]].log
        before = {
            name: [self.topic(name).partition(p).end_offset for p in self.topic(name).partitions]
            for name in names
        }
        given = []
        cursor = self.random.choice(["one", "two"])
        with self.opened().transaction() as tx:
            for name in self.random.choices(names, k=self.random.randrange(4)):
                expected = self.model.topics[name]
                p = self.random.randrange(len(expected.partitions))
                value, payload = self.value(expected.codec, self.random.randbytes(60))
                tx.append(name, value, b"k", partition=p)
                given.append((name, p, payload))
            offset = self.random.randrange(2**40)
            tx.commit_cursor(falaj.Cursor(cursor, offset), into=self.topic(names[0]))
        self.model.cursors.setdefault(log, {})[cursor] = offset
        places = []
        for name, p, payload in given:
            at = before[name][p]
            before[name][p] += 1
            self.note(self.model.topics[name], p, at, (payload, b"k", (), None))
            places.append((name, p, at))
        if places:
            self.model.whole.append(places)

    def job(self) -> None:
        """Commit a bulk load with a key, at times as a segment of its own; or leave it staged."""
        name, expected = self.any_topic()
        topic, series = self.topic(name), self.random.choice(["day", "night"])
        assert topic.last_idempotency_key(series) == expected.tokens.get(series)
        if self.random.random() < 0.2:
            part = topic.stage("left", "0")
            part.append(self.value(expected.codec, b"never seen")[0])
            part.finish()
            return
        number = expected.tokens.get(series, 0) + self.random.choice([0, 1, 5])
        size, records = self.random.choice([(100, 3), (100, 3), (5000, 30)]), []
        with topic.bulk_load("job", idempotency_key=(series, number)) as job:
            for _ in range(size[1]):
                p = self.random.randrange(len(expected.partitions))
                value, payload = self.value(expected.codec, self.random.randbytes(size[0]))
                job.append(value, key=b"j", partition=p)
                records.append((p, payload))
        assert job.committed == (number > expected.tokens.get(series, -1))
        if not job.committed:
            return
        expected.tokens[series] = number
        ends = {p: offsets.start for p, offsets in job.offsets.items()}
        places = []
        for p, payload in records:
            self.note(expected, p, ends[p], (payload, b"j", (), None))
            places.append((name, p, ends[p]))
            ends[p] += 1
        self.model.whole.append(places)

    def consume(self) -> None:
        """Read on as a group, with cursors in a file or in the log `shop`, and commit."""
        name, expected = self.any_topic()
        home = next((n for n, of in sorted(self.model.topics.items()) if of.log == "shop"), None)
        kept = home is not None and self.random.random() < 0.5
        called = f"{'kept' if kept else 'own'}.{name[:100]}"
        if kept and not self.is_kept_there(called, home):
            return
        with self.opened().consumer(called, [name], cursor_in="shop" if kept else None) as consumer:
            seen = {p: consumer.committed(name, p) for p in range(len(expected.partitions))}
            for p, committed in seen.items():
                assert committed == self.model.consumed.get((called, name, p), committed)
                if committed < self.topic(name).partition(p).start_offset:  # it was trimmed
                    consumer.seek("earliest", topic=name, partition=p)
            for record in consumer.poll(self.random.randrange(1, 200), timeout=0):
                held, behind = expected.partitions[record.partition], seen[record.partition]
                assert record.offset == min(n for n in held if n >= behind), f"{called}: {record}"
                seen[record.partition] = record.offset + 1
            consumer.commit(sync=self.random.choice([None, "durable"]))
            for p in seen:
                self.model.consumed[called, name, p] = consumer.committed(name, p)

    def is_kept_there(self, called: str, home: str | None) -> bool:
        """True if the log that keeps its cursors exists; a group is deleted with its log."""
        told = {one["name"]: one for one in self.opened().info()["groups"]}.get(called)
        if told is not None and told["error"]:
            self.opened().delete_group(called)
        return home is not None

    def queue(self) -> None:
        """Take jobs from a queue, do some of them, and leave others."""
        name, expected = self.any_topic()
        if len(expected.partitions) > 1 or expected.compacted:
            return
        called = f"q.{name[:100]}"
        _, done = self.model.queued.setdefault(called, (name, set()))
        with self.opened().queue(called, name) as queue:
            taken = queue.take(self.random.randrange(1, 40), timeout=0)
            # A record that recovery carried over is another one, so its job is delivered again.
            again = {job.offset for job in taken} & done
            assert self.model.cut or not again, f"{called}: {again}"
            for job in taken:
                if self.random.random() < 0.6:
                    job.ack()
                    done.add(job.offset)
                elif self.random.random() < 0.5:
                    job.nack(delay=self.random.choice([0, 10**6]))

    def moves(self, count: int) -> None:
        weights: dict[Callable[[], None], int] = {
            self.append: 30,
            self.extend: 15,
            self.fill: 3,
            self.flush: 4,
            self.close: 3,
            self.create: 3,
            self.delete: 1,
            self.tombstone: 6,
            self.trim: 1,
            self.compact: 2,
            self.transaction: 5,
            self.job: 2,
            self.consume: 3,
            self.queue: 2,
        }
        for move in self.random.choices(list(weights), list(weights.values()), k=count):
            move()

    # --- Deaths ----------------------------------------------------------------------------------

    def die(self, last: Callable[[], None] = lambda: None) -> None:
        """Continue in a child that is killed at the end."""
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
        at = self.topic(name).append(value, partition=0)
        self.note(expected, 0, at, (payload, None, (), None))
        self.die(self.leave_half_a_block)
        for name, expected in self.model.topics.items():
            value, payload = self.value(expected.codec, b"after")
            at = self.topic(name).append(value, partition=0)
            self.note(expected, 0, at, (payload, None, (), None))

    def leave_half_a_block(self) -> None:
        """Leave a log as a process that is killed between an append's first store and the last."""
        log = self.log(self.any_topic()[0])
        identity = own_identity(self.path)
        with (log / "control").open("r+b") as control:
            tail = word(control, TAIL)
            length = self.random.randrange(8, PAGE, 8)
            if settings(self.path / "falaj.json")["write_mode"] == "mapped":
                store_word(control, APPEND_LOCK, identity << 32 | 1)
            store_word(control, DIRTY, tail + length // 8)
        with (log / f"{tail >> 32:020}.log").open("r+b") as segment:
            # The commit word is stored last: it is still zero.
            segment.seek((tail & 0xFFFFFFFF) * 8 + 8)
            segment.write(self.random.randbytes(self.random.randrange(length - 7)))

    def lose_power(self) -> None:
        """Die, and lose or spoil sectors that no mark covers."""
        self.close()
        self.die()
        self.model.cut = True
        for log in sorted({self.log(name) for name in self.model.topics}):
            if self.random.random() < 0.7:
                self.spoil(log)
        before = {
            (name, p, offset)
            for name, expected in self.model.topics.items()
            for p, records in enumerate(expected.partitions)
            for offset in records
        }
        lost = set()
        for name, expected in self.model.topics.items():
            topic = self.topic(name)
            for p, records in enumerate(expected.partitions):
                gone = [offset for offset in records if offset >= topic.partition(p).end_offset]
                lost |= {(name, p, offset) for offset in gone}
                for offset in gone:
                    del records[offset]
                first, end = topic.partition(p).start_offset, topic.partition(p).end_offset
                back = [key for key in expected.trimmed if key[0] == p and key[1] >= first]
                untrimmed = {key[1]: expected.trimmed.pop(key) for key in sorted(back)}
                records.update({n: of for n, of in untrimmed.items() if n < end})
        for places in self.model.whole:
            there = before.intersection(places)
            assert lost.isdisjoint(there) or lost >= there, "a part of a group was lost"
        self.model.whole = [of for of in self.model.whole if lost.isdisjoint(of)]
        self.go_back()

    def go_back(self) -> None:
        """Make files beside the records older, as after a power failure; they are never newer."""
        for log, cursors in self.model.cursors.items():
            name = next(n for n, of in self.model.topics.items() if of.log == log)
            for cursor in [*cursors]:
                known = self.topic(name).cursor(cursor)
                del cursors[cursor]
                if known is not None:
                    cursors[cursor] = known.offset
        for name, expected in self.model.topics.items():
            for series, number in [*expected.tokens.items()]:
                found = self.topic(name).last_idempotency_key(series)
                assert found is None or found <= number
                del expected.tokens[series]
                if found is not None:
                    expected.tokens[series] = found
        self.model.consumed.clear()
        for name, done in self.model.queued.values():
            done &= self.model.topics[name].partitions[0].keys()

    def spoil(self, log: Path) -> None:
        """Change a sector after the newest mark and the durable end."""
        links, _ = reader.chain(log)
        marked = max(
            (n for n, s in enumerate(links) if s.mark is not None and s.mark.position), default=0
        )
        # Marks lag behind syncs. Corruption between them is not a power failure: it may take
        # records that a group committed, or a topic of a shared log.
        with (log / "control").open("rb") as control:
            durable = word(control, DURABLE)
        synced = (n for n, s in enumerate(links) if s.header.sequence == durable >> 32)
        marked = max(marked, *synced, 0)
        n = self.random.randrange(marked, len(links))
        segment = links[n]
        begin = FIRST_BLOCK if n > marked or segment.mark is None else segment.mark.position
        if durable >> 32 == segment.header.sequence:
            begin = max(begin, (durable & 0xFFFFFFFF) * 8)
        end = len(segment.data.rstrip(b"\0")) + 600
        at = self.random.randrange(begin, max(end, begin + 1))
        sector = self.random.choice([bytes(512), self.random.randbytes(512)])
        with segment.path.open("r+b") as file:
            file.seek(at)
            file.write(sector[: min(512, len(segment.data) - at)])

    def latch(self) -> None:
        """Leave a log whose sync failed and whose processes have all ended."""
        self.close()
        self.die()
        self.model.cut = True
        for name in self.model.topics:
            with (self.log(name) / "control").open("r+b") as control:
                store_word(control, FLAGS, LATCHED)

    def leave_an_orphan(self) -> None:
        """Leave a segment that no end block names, as a roll that was cut short does."""
        log = self.log(self.any_topic()[0])
        newest = reader.read_log(log, Counter()).newest
        page = bytearray(newest.data[:FIRST_BLOCK])
        sequence, salt = newest.header.sequence + 1, self.random.getrandbits(64)
        struct.pack_into("<I", page, 12, 0)  # one that supersedes would be the log's end
        struct.pack_into("<QQ", page, 32, sequence, salt)
        struct.pack_into("<QQQ", page, 48, newest.header.sequence, newest.header.salt, newest.end)
        struct.pack_into("<I", page, 508, zlib.crc32(page[:508]))
        page[PAGE : PAGE + 512] = page[:512]
        (log / f"{sequence:020}.log").write_bytes(page + newest.data[FIRST_BLOCK:])

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
    """Make an empty store one that is written by pwrite, as on btrfs or overlay."""
    falaj.open(path, permissions=mode).close()
    text = (path / "falaj.json").read_text().rpartition(',"checksum"')[0]
    text = text.replace('"write_mode":"mapped"', '"write_mode":"pwrite"')
    checksum = zlib.crc32(text.encode())
    (path / "falaj.json").write_text(f'{text},"checksum":"{checksum:08x}"}}\n')


def make(path: Path, seed: int) -> Model:
    """Make a store, and return its expected content."""
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
    # The last opening recovers what the dead left, so every log is valid and closed.
    for name in maker.model.topics:
        maker.topic(name)
    for queue, (name, _) in maker.model.queued.items():
        # Each opening checks what a power failure did to its topic.
        maker.opened().queue(queue, name).close()
    maker.close()
    if maker.random.random() < 0.2:
        maker.leave_an_orphan()
    return maker.model
