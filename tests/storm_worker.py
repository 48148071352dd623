"""A worker of the storm that uses the Python package, like worker/writer.rs and reader.rs.

Its first argument is its task as JSON. Accounts and records have the layout of acks.rs and
payload.rs. The kernel ends it with its parent.
"""

import ctypes
import json
import mmap
import os
import random
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import falaj
from falaj import errors

HEADER, LINE, LINES = 4096, 48, 1 << 20
RECORDS, CALLS, BEGUN, REFUSED, FORKS, STOP, TOLD = 0, 8, 16, 24, 32, 40, 64
INTENDED, ACKNOWLEDGED, REFUSAL = 1, 2, 3
PARTITIONS_MAX, BLOCKS, BLOCK = 8, 1 << 16, 1000
MASK = (1 << 64) - 1
SYNC = ("none", "interval", "durable")


class Account:
    """The mapped file of a worker.

    Words that show its progress are stored through views, in one store. `struct.pack_into` clears
    the place first, and a process that is killed just then would lose the word.
    """

    def __init__(self, path: str, length: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if os.fstat(descriptor).st_size < length:
            os.ftruncate(descriptor, length)
        self.map = mmap.mmap(descriptor, length)
        os.close(descriptor)
        self.words = memoryview(self.map).cast("Q")
        self.states = memoryview(self.map).cast("I")

    def word(self, at: int) -> int:
        return self.words[at // 8]

    def set_word(self, at: int, value: int) -> None:
        self.words[at // 8] = value

    def set_state(self, i: int, state: int) -> None:
        self.states[(HEADER + i * LINE) // 4] = state

    def intend(self, count: int, seq: int, crc: int, place: tuple[int, int], mode: int) -> int:
        i = self.word(BEGUN)
        at = HEADER + i * LINE
        line = (count, seq, 0, crc, *place, 0, mode << 60)
        struct.pack_into("<IQQIHHQQ", self.map, at + 4, *line)
        self.set_state(i, INTENDED)
        self.set_word(BEGUN, i + 1)
        return i

    def acknowledge(self, i: int, offset: int, mode: int) -> None:
        at = HEADER + i * LINE
        self.set_word(at + 16, offset)
        self.set_word(at + 40, mode << 60 | time.monotonic_ns() // 1000)
        self.set_state(i, ACKNOWLEDGED)

    def refuse(self, i: int) -> None:
        self.set_state(i, REFUSAL)
        self.set_word(REFUSED, self.word(REFUSED) + 1)


def crc_on(crc: int, key: bytes | None, value: bytes | memoryview) -> int:
    """Update a checksum with a record."""
    head = struct.pack("<II", 0xFFFFFFFF if key is None else len(key), len(value))
    return zlib.crc32(value, zlib.crc32(key or b"", zlib.crc32(head, crc)))


class Writer:
    """Appends one record or many until stopped."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.account = Account(task["account"], HEADER + LINES * LINE)
        self.pool = Path(task["pool"]).read_bytes()
        self.random = random.Random(task["seed"] ^ task["id"])
        self.seq = self.calls = self.forks = 0

    def run(self) -> None:
        task = self.task
        # The creator of a store chooses its write mode; here the Rust workers do that.
        settings = Path(task["store"], "falaj.json")
        while task["pwrite"] and not settings.exists():
            time.sleep(0.005)  # sleep: no event reports that a store was created
        with falaj.open(task["store"]) as store:
            topics = [
                store.partitioned_topic(
                    f"storm-{number}",
                    partitions=task["partitions"],
                    segment_bytes=task["segment_bytes"],
                    sync_interval_ms=task["interval_ms"],
                )
                for number in range(task["topics"])
            ]
            while self.goes_on():
                self.call(topics)
                self.fork()

    def goes_on(self) -> bool:
        is_done = 0 < self.task["calls"] <= self.calls
        is_full = self.account.word(BEGUN) + 8 >= LINES
        return not (is_done or is_full or self.account.word(STOP))

    def record(self, limit: int) -> tuple[bytes | None, bytes]:
        drawn, writer, seq = self.random.random(), self.task["id"], self.seq
        size = self.random.randint(60, 140) if drawn < 0.9 else int(1 / (1.0001 - drawn))
        size = min(size, limit)
        self.seq += 1
        mixed = (seq * 0x9E3779B97F4A7C15 + writer * 0xC2B2AE3D27D4EB4F) & MASK
        start = mixed >> 40 & 0xFFFF
        head = struct.pack("<IIQ", writer, size, seq)
        if size < len(head):
            return head, self.pool[start : start + size]
        return None, head + self.pool[start : start + size - len(head)]

    def call(self, topics: list[Any]) -> None:
        place = self.random.randrange(len(topics)), self.random.randrange(self.task["partitions"])
        mode = 2 if self.random.random() < 0.001 else self.task["sync"]
        count = 1 if self.random.random() < 0.9 else self.random.randint(2, 20)
        first, crc = self.seq, 0
        limit = min(self.task["value_max"], self.task["batch_max"] // count - 64)
        records = [self.record(limit) for _ in range(count)]
        for key, value in records:
            crc = crc_on(crc, key, value)
        i = self.account.intend(count, first, crc, place, mode)
        self.calls += 1
        topic, partition, sync = topics[place[0]], place[1], SYNC[mode]
        try:
            if count == 1:
                key, value = records[0]
                said = topic.append(value, key=key, partition=partition, sync=sync)
                offset = said if isinstance(said, int) else said.offset
            else:
                pairs = [value if key is None else (key, value) for key, value in records]
                said = topic.extend(pairs, partition=partition, sync=sync)
                offset = (said[partition] if isinstance(said, dict) else said).start
        except errors.LockTimeout:
            self.account.refuse(i)
            return
        except errors.DurabilityUnknown as error:
            if not isinstance(error.__cause__, errors.LockTimeout):
                raise
            return  # visible, and perhaps not for long: the line stays as it is
        self.account.acknowledge(i, offset, mode)
        self.account.set_word(CALLS, self.account.word(CALLS) + 1)
        self.account.set_word(RECORDS, self.account.word(RECORDS) + count)

    def fork(self) -> None:
        """Fork at times; the child is idle until standard input ends."""
        if not self.task["fork_ms"] or self.forks >= 2 or self.random.random() > 0.0003:
            return
        self.forks += 1
        self.account.set_word(FORKS, self.account.word(FORKS) + 1)
        if os.fork() == 0:
            while os.read(0, 1):
                pass
            os._exit(0)


class Follower:
    """Follows one partition from the beginning."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.account = Account(task["account"], HEADER + 3 * PARTITIONS_MAX * BLOCKS * 8)

    def run(self) -> None:
        chosen = random.Random(self.task["seed"] ^ self.task["id"])
        place = chosen.randrange(self.task["topics"]), chosen.randrange(self.task["partitions"])
        while not self.account.word(STOP):
            try:
                with falaj.open(self.task["store"], read_only=True) as store:
                    self.follow(store.any_topic(f"storm-{place[0]}"), place)
                return
            except (errors.NotAStore, errors.UnknownTopic):
                time.sleep(0.005)  # sleep: no event reports that a store was created

    def follow(self, topic: Any, place: tuple[int, int]) -> None:
        if self.task["partitions"] > 1:
            topic = topic.partition(place[1])
        start = 0
        while not self.account.word(STOP):
            try:
                self.follow_from(start, topic, place)
            except errors.OffsetOutOfRange as trimmed:
                start = trimmed.first

    def follow_from(self, due: int, topic: Any, place: tuple[int, int]) -> None:
        crc, whole = 0, due % BLOCK == 0
        while not self.account.word(STOP):
            for record in topic.follow(start=due, timeout=0.05):
                if record.offset != due:
                    raise SystemExit(f"{place}: offset {record.offset} came instead of {due}")
                crc = crc_on(crc, record.key, record.raw)
                due += 1
                if due % BLOCK == 0:
                    if whole:
                        self.note(place, due // BLOCK - 1, crc)
                    crc, whole = 0, True
                    if self.account.word(STOP):
                        return

    def note(self, place: tuple[int, int], block: int, crc: int) -> None:
        if block < BLOCKS:
            row = place[0] * PARTITIONS_MAX + place[1]
            self.account.set_word(HEADER + (row * BLOCKS + block) * 8, 1 << 63 | crc)
            self.account.set_word(0, self.account.word(0) + BLOCK)


def main() -> None:
    """Play the role."""
    task = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != task["parent"]:
        return
    (Writer if task["role"] == "python-writer" else Follower)(task).run()


if __name__ == "__main__":
    main()
