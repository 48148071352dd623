"""A second reader of whole stores, written from docs/FORMAT.md alone, to check the first one.

It reads a closed store: settings, lock files, the chain of each log, every block of it. It returns
each topic's records by partition. On the way it compares everything redundant: snapshots with the
replayed state, indexes with blocks, marks and control page with ends. Wrong bytes raise `Damage`.
layout.py reads the bytes. The reader is slow, and simple on purpose.
"""

import json
import re
import struct
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from proof import layout
from proof.layout import PAGE, Block, Damage, Header, Mark, TopicEntry, UnsupportedVersion

STORE_MEMBERS = {"format": int, "store": str, "created_us": int, "write_mode": str}
OPTIONAL_MEMBERS = {
    "retention_bytes": int,
    "retention_age_ms": int,
    "retention_records": int,
    "retention_waits": bool,
    "retention_protected": bool,
    "properties": dict,
    "revision": int,
}
OPTIONAL_OF_STORE = ("retention_bytes", "revision")
TOPIC_MEMBERS = {
    "format": int,
    "topic": str,
    "generation": str,
    "log": str,
    "log_generation": str,
    "partitions": int,
    "number": int,
    "codec": str,
    "partitioner": str,
    "segment_bytes": int,
    "sync_interval_ms": int,
    "compacted": bool,
    "created_us": int,
}


NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
TOPICS = 10_000
TOPIC_DELETED, TRIMMED, PRODUCER = 2, 3, 4
FORGOTTEN = 2**64 - 1
SEQUENCES = 5


class Read(NamedTuple):
    """A record as this reader returns it."""

    offset: int
    timestamp_ns: int
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    value: bytes | None


@dataclass
class Partition:
    """The state of a topic number while its log is replayed, and its records."""

    entry: TopicEntry
    records: list[Read] = field(default_factory=list)

    @property
    def first(self) -> int:
        return self.entry.first

    @property
    def end(self) -> int:
        return self.entry.next


@dataclass
class Topic:
    """A topic: its settings and partitions."""

    settings: dict[str, Any]
    partitions: list[Partition]


@dataclass
class Segment:
    """A segment of a chain, and where its content ends."""

    path: Path
    data: bytes
    header: Header
    end: int | None = None
    head: int = 0
    blocks: list[Block] = field(default_factory=list)
    places: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """The start of a walk to each data block, by topic number and first offset, and the topic's
    highest timestamp before it. A walk starts at the block, or at the head of its group.
    """

    @property
    def mark(self) -> Mark | None:
        return layout.mark(self.data, self.header.salt)


@dataclass
class Facts:
    """The facts of a log beside its topics."""

    tokens: dict[tuple[int, bytes], tuple[int, int]] = field(default_factory=dict)
    """By topic number and name: version and time."""
    cursors: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)
    """By name: offset, checksum, turn."""
    producers: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    """By topic number and id: sequences and first offsets, oldest first."""

    def apply(self, kind: int, entry: layout.Entry) -> None:
        """Apply an entry."""
        if isinstance(entry, layout.TokenEntry):
            if entry.version == FORGOTTEN:
                self.tokens.pop((entry.topic, entry.name), None)
            else:
                self.tokens[entry.topic, entry.name] = entry.version, entry.time_ms
        elif isinstance(entry, layout.CursorEntry):
            if entry.offset == FORGOTTEN:
                self.cursors.pop(entry.name, None)
            else:
                self.cursors[entry.name] = entry.offset, entry.checksum, entry.turn
        elif isinstance(entry, TopicEntry):
            pass
        elif kind == PRODUCER:
            number, of, *pairs = entry
            if pairs:
                self.producers[number, of] = list(zip(pairs[::2], pairs[1::2], strict=True))
            else:
                self.producers.pop((number, of), None)
        elif kind == TOPIC_DELETED:
            self.tokens = {k: of for k, of in self.tokens.items() if k[0] != entry[0]}
            self.producers = {k: of for k, of in self.producers.items() if k[0] != entry[0]}

    def produced(self, block: Block, first: int) -> None:
        """Apply a block of a producer."""
        if block.producer is not None:
            of, sequence = block.producer
            pairs = self.producers.setdefault((block.topic, of), [])
            pairs.append((sequence, first))
            del pairs[:-SEQUENCES]


@dataclass
class Log:
    """A log that was replayed."""

    path: Path
    generation: bytes
    chain: list[Segment]
    orphans: list[Path]
    partitions: dict[int, Partition] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)

    @property
    def newest(self) -> Segment:
        return self.chain[-1]


@dataclass
class Store:
    """The content of a store; `seen` counts what was read, to show that a corpus is rich."""

    settings: dict[str, Any]
    topics: dict[str, Topic]
    logs: list[Log]
    seen: Counter[str]


# --- Settings ------------------------------------------------------------------------------------


def settings(path: Path, members: dict[str, type]) -> dict[str, Any]:
    """Read a settings file, its checksum first."""
    text = path.read_bytes()
    before, comma, after = text.rpartition(b',"checksum":"')
    found = re.fullmatch(rb'([0-9a-f]{8})"\}\s*', after)
    if not comma or not found or int(found[1], 16) != zlib.crc32(before):
        raise Damage(f"{path}: checksum")
    read = json.loads(text)
    del read["checksum"]
    if isinstance(read.get("format"), int) and read["format"] != 2:
        raise UnsupportedVersion(f"{path}: format {read['format']}")
    optional = {name: OPTIONAL_MEMBERS[name] for name in OPTIONAL_MEMBERS if name in read}
    if members is STORE_MEMBERS:
        optional = {name: optional[name] for name in optional if name in OPTIONAL_OF_STORE}
    if extra := read.keys() - members.keys() - optional.keys():
        raise UnsupportedVersion(f"{path}: {extra}")
    for name, kind in (members | optional).items():
        if type(read.get(name)) is not kind:
            raise Damage(f"{path}: {name}")
        if name.startswith("retention_") and kind is int and not 1 <= read[name] < 2**63:
            raise Damage(f"{path}: {name}")
    return read  # type: ignore[no-any-return]


def words(path: Path) -> list[str]:
    """Read a lock file's words; none if it is empty."""
    data = path.read_bytes()
    if not data:
        return []
    if len(data) != 128 or data[118:119] + data[127:] != b" \n":
        raise Damage(f"{path}: no line of 128 bytes")
    if data[119:127] != b"%08x" % zlib.crc32(data[:118]):
        raise Damage(f"{path}: checksum")
    text = data[:118].decode("ascii").rstrip(" ")
    if "  " in text:
        raise Damage(f"{path}: spaces")
    return text.split(" ")


def lock_files(store: Path) -> int | None:
    """Check the lock files, and return the incarnation if there is one."""
    slot_names = [slot.name for slot in (store / "slots").iterdir()]
    for name in slot_names:
        if not re.fullmatch("0|[1-9][0-9]{0,3}", name) or int(name) > 1023:
            raise Damage(f"slots/{name}")
        match words(store / "slots" / name):
            case [] | ["generation", _, "process", _, "since_us", _]:
                pass
            case strange:
                raise Damage(f"slots/{name}: {strange}")
    match words(store / "claim"):
        case [] | ["process", _]:
            pass
        case strange:
            raise Damage(f"claim: {strange}")
    match words(store / "presence"):
        case []:
            return None
        case ["incarnation", number, "slots", count]:
            if len(number) != 16 or int(number, 16) == 0 or int(count) > 1024:
                raise Damage("presence")
            return int(number, 16)
        case strange:
            raise Damage(f"presence: {strange}")


def wake_page(store: Path, store_id: str) -> None:
    """Check the wake page."""
    data = (store / "wake").read_bytes()
    (crc,) = struct.unpack_from("<I", data, 60)
    if len(data) != PAGE or data[:8] != b"FALAJWAK" or zlib.crc32(data[:60]) != crc:
        raise Damage("wake")
    if data[8] != 2 or data[16:32].hex() != store_id:
        raise Damage("wake: of another store")


# --- The chain -----------------------------------------------------------------------------------


def segments(log: Path) -> dict[int, Segment | None]:
    """List all segment files of a directory by sequence; None for an invalid or foreign header."""
    found: dict[int, Segment | None] = {}
    for path in sorted(log.iterdir()):
        if not re.fullmatch(r"[0-9]{20}\.log", path.name):
            continue
        data = path.read_bytes()
        named = int(path.stem)
        try:
            header = layout.header(data)
        except Damage:
            found[named] = None
            continue
        found[named] = Segment(path, data, header) if header.sequence == named else None
    return found


def is_connected(segment: Segment | None, among: dict[int, Segment | None]) -> bool:
    """True if a segment is named by its predecessor, or supersedes it."""
    if len(among) == 1:
        return segment is not None
    if segment is None:
        return False
    header = segment.header
    before = among.get(header.previous_sequence)
    if before is None or before.header.salt != header.previous_salt:
        return False
    if header.supersedes:
        return True
    try:
        end = layout.block(before.data, header.previous_end, before.header.salt)
    except Damage:
        return False
    return (
        end is not None
        and end.kind == layout.END
        and layout.successor(end) == (header.sequence, header.salt)
    )


def chain(log: Path) -> tuple[list[Segment], list[Path]]:
    """Return the segments that are the log, oldest first, and the files that are not."""
    among = segments(log)
    if not among:
        raise Damage(f"{log}: no segments")
    newest = max((n for n, s in among.items() if is_connected(s, among)), default=None)
    if newest is None:
        newest = min(among)
    at = among[newest]
    if at is None:
        raise Damage(f"{log}: no valid segment")
    found = [at]
    while not found[-1].header.is_first:
        header = found[-1].header
        before = among.get(header.previous_sequence)
        if before is None and header.previous_sequence in among:
            raise Damage(f"{log}: the header of segment {header.previous_sequence}")
        if before is None or before.header.salt != header.previous_salt:
            break
        before.end = header.previous_end
        found.append(before)
    taken = {segment.header.sequence for segment in found}
    names = [log / f"{sequence:020}.log" for sequence in among if sequence not in taken]
    return found[::-1], names


# --- Replaying -----------------------------------------------------------------------------------


def read_log(path: Path, seen: Counter[str]) -> Log:
    """Replay a log from its first segment to its last."""
    generation = bytes.fromhex(path.name.rpartition("@")[2])
    links, orphans = chain(path)
    log = Log(path, generation, links, orphans)
    for n, segment in enumerate(links):
        if segment.header.log != generation:
            raise Damage(f"{segment.path}: of another log")
        try:
            _walk(segment)
            _replay(log, segment, seen)
            _check_mark(segment, n == len(links) - 1, seen)
            _check_index(segment, seen)
        except (Damage, struct.error) as error:
            raise Damage(f"{segment.path}: {error}") from error
    for partition in log.partitions.values():
        partition.records = [r for r in partition.records if r.offset >= partition.first]
    seen["segments"] += len(links)
    seen["orphans"] += len(orphans)
    seen["supersedes"] += sum(segment.header.supersedes for segment in links)
    return log


def _walk(segment: Segment) -> None:
    """Collect the blocks of the content; a segment that is cut ends at a block's beginning."""
    at = layout.FIRST_BLOCK
    while segment.end is None or at < segment.end:
        read = layout.block(segment.data, at, segment.header.salt)
        if read is None:
            break
        segment.blocks.append(read)
        at = read.end
    if segment.end is None:
        segment.end = at
        if segment.data[at:].strip(b"\0"):
            raise Damage(f"bytes past the end at {at}")
    if at != segment.end:
        raise Damage(f"content that ends at {at} and not at {segment.end}")


def _replay(log: Log, segment: Segment, seen: Counter[str]) -> None:
    """Apply the blocks of a segment to the state; its snapshots must agree with it."""
    first_other = next(
        (n for n, b in enumerate(segment.blocks) if b.kind != layout.SNAPSHOT), len(segment.blocks)
    )
    if first_other == 0:
        raise Damage("a segment without a snapshot at its beginning")
    bases: dict[int, int] = {}
    told: dict[int, TopicEntry] = {}
    facts = Facts()
    for block in segment.blocks[:first_other]:
        for kind, entry in layout.entries(block.body):
            facts.apply(kind, entry)
            if isinstance(entry, TopicEntry):
                told[entry.number] = entry
    if segment is log.chain[0]:
        log.partitions = {number: Partition(entry) for number, entry in told.items()}
        log.facts = facts
    elif told != {n: p.entry for n, p in log.partitions.items()}:
        raise Damage(f"a snapshot of {told} instead of {log.partitions}")
    elif facts != log.facts:
        raise Damage(f"a snapshot of {facts} instead of {log.facts}")
    bases = {number: entry.next for number, entry in told.items()}
    _check_groups(segment.blocks)
    for block in segment.blocks:
        seen[["data", "void", "meta", "snapshot", "end"][block.kind - 1]] += 1
        seen["group"] += bool(block.flags & layout.GROUP)
        if block.kind == layout.END:
            raise Damage(f"an end block at {block.position} inside the content")
    for block in segment.blocks[first_other:]:
        if block.kind in (layout.SNAPSHOT, layout.META):
            _apply(log, bases, block)
        elif block.kind == layout.DATA:
            if block.topic not in bases:
                raise Damage(f"topic number {block.topic}, which no entry introduces")
            first = bases[block.topic] + block.offset
            log.facts.produced(block, first)
            _append(log.partitions[block.topic], first, segment, block, seen)
            seen["compacted"] += segment.header.is_compacted
            seen["producers"] += block.producer is not None


def _check_groups(blocks: list[Block]) -> None:
    ends = {block.end for block in blocks}
    group_end = 0
    for block in blocks:
        if bool(block.flags & layout.MEMBER) != (block.position < group_end):
            raise Damage(f"a member at {block.position} that is in no group, or none in one")
        if block.flags & layout.GROUP:
            group_end = block.position + block.group
            if block.group % 8 or group_end not in ends:
                raise Damage(f"a group at {block.position} that ends nowhere")


def _apply(log: Log, bases: dict[int, int], block: Block) -> None:
    """Apply a meta block, or a snapshot in the middle of a segment."""
    for kind, entry in layout.entries(block.body):
        log.facts.apply(kind, entry)
        if isinstance(entry, TopicEntry):
            if entry.number >= TOPICS:
                raise Damage(f"topic number {entry.number}")
            log.partitions.setdefault(entry.number, Partition(entry)).entry = entry
            bases[entry.number] = entry.next
        elif kind == TOPIC_DELETED:
            del log.partitions[entry[0]]
        elif kind == TRIMMED:
            trimmed = log.partitions[entry[0]]
            trimmed.entry = trimmed.entry._replace(first=max(trimmed.first, entry[1]))


def _append(to: Partition, first: int, segment: Segment, block: Block, seen: Counter[str]) -> None:
    """Apply a data block."""
    if first != to.end:
        raise Damage(f"offset {first} instead of {to.end}")
    head = segment.head if block.flags & layout.MEMBER else block.position
    segment.head = head
    segment.places[block.topic, first] = head, to.entry.highest
    appended_ns = (segment.header.time_base + block.time) * 1000
    highest = to.entry.highest
    for record in layout.records(block):
        time = appended_ns if record.event_time is None else record.event_time
        read = Read(first + record.delta, time, record.key, record.headers, record.value)
        if read.offset >= to.first:
            to.records.append(read)
        highest = max(highest, time)
        seen["records"] += 1
        seen["keys"] += record.key is not None
        seen["headers"] += bool(record.headers)
        seen["event times"] += record.event_time is not None
        seen["tombstones"] += record.value is None
        seen["empty"] += record.value == b""
    to.entry = to.entry._replace(next=first + block.span, highest=highest, last_crc=block.body_crc)


# --- The derived parts ------------------------------------------------------------------------


def _check_mark(segment: Segment, is_newest: bool, seen: Counter[str]) -> None:
    mark = segment.mark
    if mark is None or mark.position == 0:
        seen["no mark"] += 1
        return
    assert segment.end is not None
    if mark.position > segment.end:
        raise Damage(f"a mark at {mark.position} past the content's end at {segment.end}")
    if mark.succeeded and mark.position != segment.end:
        raise Damage(f"content that ends at {segment.end}, a mark says {mark.position}")
    if mark.succeeded and is_newest:
        raise Damage("the newest segment has a mark that tells of a newer one")
    seen["succeeded"] += mark.succeeded
    seen["clean ends"] += is_newest and mark.clean and mark.position == segment.end


def _check_index(segment: Segment, seen: Counter[str]) -> None:
    """Compare every entry of an index with its block."""
    path = segment.path.with_suffix(".idx")
    entries = layout.index(path.read_bytes(), segment.header) if path.exists() else None
    if entries is None:
        seen["no index"] += 1
        return
    assert segment.end is not None
    told = set()
    at = 0
    for entry in entries:
        if entry.position >= segment.end:
            break  # it was made before the log was cut
        if segment.places.get((entry.topic, entry.offset)) != entry[2:]:
            raise Damage(f"{path}: {entry} leads to no such block")
        if entry.position < at:
            raise Damage(f"{path}: {entry} is out of order")
        at = entry.position
        told.add((entry.topic, entry.offset))
        seen["index entries"] += 1
    firsts: dict[int, tuple[int, int]] = {}
    for topic, offset in segment.places:
        firsts.setdefault(topic, (topic, offset))
    seen["first blocks without entry"] += len(set(firsts.values()) - told)


def _check_control(log: Log, incarnation: int | None, seen: Counter[str]) -> None:
    """Compare a valid control page with the ends."""
    path = log.path / "control"
    page = path.read_bytes() if path.exists() else b""
    if len(page) < PAGE or page[:8] != b"FALAJCTL":
        seen["no control"] += 1
        return
    (crc,) = struct.unpack_from("<I", page, 60)
    if zlib.crc32(page[:60]) != crc or page[8] != 2 or page[16:32] != log.generation:
        raise Damage(f"{path}: header")

    def word(at: int) -> int:
        return int(struct.unpack_from("<Q", page, at)[0])

    if word(64) != incarnation:
        seen["control of another incarnation"] += 1
        return
    newest = log.newest
    assert newest.end is not None
    end = newest.header.sequence << 32 | newest.end // 8
    for name, at in {"TAIL": 264, "DIRTY": 256, "DURABLE": 320}.items():
        if word(at) != end:
            raise Damage(f"{path}: {name} is {word(at):#x}, the log ends at {end:#x}")
    if word(128) & 1 or word(192) & 1 or word(384):
        raise Damage(f"{path}: a closed log with locks or flags")
    if newest.mark is not None and newest.mark.incarnation == incarnation:
        (identity,) = struct.unpack_from("<Q", page, 32)
        if newest.mark.control != identity:
            raise Damage(f"{path}: another one than the mark names")
    seen["controls"] += 1


# --- The whole store ----------------------------------------------------------------------------


def read_store(path: Path) -> Store:
    """Read a closed store; raise an error if anything is wrong."""
    seen: Counter[str] = Counter()
    store = Store(settings(path / "falaj.json", STORE_MEMBERS), {}, [], seen)
    if store.settings["write_mode"] not in ("mapped", "pwrite"):
        raise UnsupportedVersion(f"write mode {store.settings['write_mode']}")
    incarnation = lock_files(path) if (path / "presence").exists() else None
    if (path / "wake").exists():
        wake_page(path, store.settings["store"])
    logs: dict[str, Log] = {}
    for folder in sorted((path / "topics").iterdir()):
        if not (folder / "topic.json").is_file() or not NAME.fullmatch(folder.name):
            continue
        told = settings(folder / "topic.json", TOPIC_MEMBERS)
        if told["topic"] != folder.name:
            raise Damage(f"{folder}: settings of {told['topic']}")
        name = f"{told['log'][:200]}@{told['log_generation']}"
        if name not in logs:
            logs[name] = read_log(path / "logs" / name, seen)
            _check_control(logs[name], incarnation, seen)
        store.topics[folder.name] = _topic(told, logs[name])
    store.logs = list(logs.values())
    seen["quarantined"] += sum(1 for _ in path.glob("logs/*/quarantine/*"))
    return store


def _topic(told: dict[str, Any], log: Log) -> Topic:
    partitions = []
    for p in range(told["partitions"]):
        found = log.partitions[told["number"] + p]
        if (found.entry.partition, found.entry.generation.hex()) != (p, told["generation"]):
            raise Damage(f"{log.path}: topic number {told['number'] + p} is another's")
        if not told["compacted"]:
            offsets = [record.offset for record in found.records]
            if offsets != list(range(found.first, found.end)):
                raise Damage(f"{log.path}: offsets with a gap")
        partitions.append(found)
    return Topic(told, partitions)
