"""`verify` and `repair`, and the reports that they, `Store.info` and `skip_damage` return.

Reports are plain dicts and lists, as for JSON. Beside a sentence about a problem, `error_class`
names its class in `falaj.errors`, whose base says what helps. Verification and repair take a path,
because the stores that need them may fail to open. `Store.backup`, `Store.verify` and `Store.info`
take an open store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from falaj import _core
from falaj._checks import flag
from falaj._functions import callback
from falaj._paths import local_path, name_the_place

if TYPE_CHECKING:
    import os

    from falaj._arguments import QueueInfo
    from falaj._retention import TopicRetention
    from falaj._store import Store
    from falaj._time import Duration

__all__ = [
    "BackupReport",
    "Finding",
    "GroupInfo",
    "GroupPartitionInfo",
    "LogInfo",
    "LogRepair",
    "LogReport",
    "MemberInfo",
    "PlaceInfo",
    "RepairReport",
    "Skipped",
    "SkippedOfTopic",
    "StoreInfo",
    "TrimReport",
    "Verification",
    "counted",
    "repair",
    "verify",
]

Progress = Callable[[int, int], object]
Severity = Literal["note", "rebuildable", "unrecovered", "newer", "damage"]
Place = tuple[int, int]
"""Sequence of a segment, and a position in it."""


class BackupReport(TypedDict):
    """The parts that a backup copied.

    `problems` lists errors in files of consumer groups and queues, which were copied as they are.
    `error_classes` names the class of each in `falaj.errors`.
    """

    topics: int
    logs: int
    segments: int
    bytes: int
    problems: list[str]
    error_classes: list[str]


class BuildReport(TypedDict):
    """The parts of a store that was built from pieces.

    `origin` is the id of the store as the origin of what it will write. `problems` lists errors in
    files of consumer groups and queues, which were put as they came. `error_classes` names the
    class of each in `falaj.errors`.
    """

    topics: int
    logs: int
    segments: int
    bytes: int
    origin: str
    problems: list[str]
    error_classes: list[str]


class TrimReport(TypedDict):
    """The result of a trim: the first offset of each partition, and the files that were removed."""

    firsts: dict[int, int]
    segments: int
    bytes: int


class Finding(TypedDict):
    """A finding of a verification: where, the problem, and the remedy."""

    severity: Severity
    path: str
    position: int
    length: int
    topic: str | None
    partition: int | None
    offsets: tuple[int, int] | None
    what: str
    remedy: str


class Skipped(TypedDict):
    """A corrupt part that a reader stepped over: where it begins, and the lost offsets."""

    path: str
    position: int
    partition: int
    offsets: tuple[int, int]


class SkippedOfTopic(Skipped):
    """A corrupt part that a consumer stepped over, with its topic."""

    topic: str


class TopicReach(TypedDict):
    """The extent of a partition of a topic, as verification found it.

    `found` is above `end` if a recovery is due that will cut off the records in between.
    """

    topic: str
    partition: int
    first: int
    end: int
    found: int
    durable: int


class LogReport(TypedDict):
    """The verification of a log; `recovered` is where a recovery that is due will end it."""

    path: str
    topics: list[TopicReach]
    committed: Place
    recovered: Place | None
    durable: Place
    latched: bool
    segments: int
    blocks: int
    records: int
    bytes: int
    findings: list[Finding]
    more_findings: int


class Verification(TypedDict):
    """The result of a verification; `sound` is true when all written data is there."""

    sound: bool
    worst: Severity | None
    findings: list[Finding]
    logs: list[LogReport]


class Step(TypedDict):
    """One step of a repair."""

    action: Literal[
        "cut",
        "set aside",
        "continue beyond corruption",
        "take as known",
        "rebuild header",
        "save",
        "new control page",
        "rebuild index",
        "remove temporary file",
    ]
    path: str
    position: int
    bytes: int
    why: str


class LogRepair(TypedDict):
    """The repair of one log, or why it cannot be repaired."""

    path: str
    topics: list[str]
    steps: list[Step]
    ends: list[tuple[str, int, int]]
    problem: str | None
    error_class: str | None


class RepairReport(TypedDict):
    """The result of a repair, planned or done.

    `problems` lists errors that it cannot repair, in settings and in files of consumer groups and
    queues. Only their owner knows where to resume. `error_classes` names the class of each in
    `falaj.errors`.
    """

    dry_run: bool
    in_use: bool | None
    complete: bool
    logs: list[LogRepair]
    problems: list[str]
    error_classes: list[str]


class SlotInfo(TypedDict):
    """A slot for a writing process, and the process that took it last."""

    slot: int
    generation: int | None
    process: int | None
    since_us: int | None
    alive: bool | None


class PartitionInfo(TypedDict):
    """The extent of a partition."""

    partition: int
    first: int
    end: int
    durable: int


class TopicInfo(TypedDict):
    """A topic; what is None could not be read, and `problem` says why."""

    name: str
    codec: str | None
    partitions: list[PartitionInfo]
    log: str | None
    segment_bytes: int | None
    sync_interval_ms: int | None
    compacted: bool | None
    finished: bool | None
    retention: TopicRetention | None
    properties: dict[str, str] | None
    generation: str | None
    created_us: int | None
    problem: str | None
    error_class: str | None


class SegmentInfo(TypedDict):
    """A segment: bytes of its content, and bytes on disk with its index."""

    sequence: int
    live: int
    reserved: int


class LockInfo(TypedDict):
    """A lock of a log, and its holder, if known."""

    held: bool
    slot: int | None
    process: int | None
    alive: bool | None
    contended: bool


class LogInfo(TypedDict):
    """A log: its ends, sizes and locks.

    `retention_problem` is the last error of retention, if this process ran it.
    """

    name: str
    path: str
    topics: list[str]
    committed: Place | None
    durable: Place | None
    remote: Place | None
    unshipped: int
    latched: bool
    deleted: bool
    segments: list[SegmentInfo]
    live: int
    reserved: int
    quarantined: int
    append_lock: LockInfo
    sync_lock: LockInfo
    retention_problem: str | None
    problem: str | None
    error_class: str | None


class MemberInfo(TypedDict):
    """A member of a consumer group: its process, if known, its slot and its handle."""

    process: int | None
    slot: int
    handle: int


class GroupPartitionInfo(TypedDict):
    """How far a group has read a partition, and which member owns it.

    `committed` is the committed offset, and `metadata` the text that was committed with it, empty
    if there was none. `safe` is where the group resumes after a power failure
    that lost records before it. `lag` counts the kept records from `committed` on; it is None if
    the topic is gone or cannot be read.
    """

    topic: str
    generation: str
    partition: int
    committed: int
    metadata: str
    safe: int
    lag: int | None
    owner: MemberInfo | None


class GroupInfo(TypedDict):
    """A consumer group: its living members and its partitions; `error` if its file is corrupt.

    `cursor_in` is the log that keeps its committed offsets, None if they are in their own file.
    """

    name: str
    cursor_in: str | None
    members: list[MemberInfo]
    partitions: list[GroupPartitionInfo]
    error: str | None
    error_class: str | None


class ShipperInfo(TypedDict):
    """The process that ships a store, or the last one that did."""

    state: Literal["ships", "dead", "fenced"]
    slot: int | None
    process: int | None


class PlaceInfo(TypedDict):
    """A place that the store is or was shipped to, as its shipper wrote it down last.

    `behind` are bytes of logs that the place lacked then, and `heard_us` is when it last
    acknowledged something. `problem` says why it does not go on.
    """

    place: str
    number: int
    behind: int | None
    heard_us: int | None
    problem: str | None


class StoreInfo(TypedDict):
    """A store as it is now."""

    path: str
    format: int
    id: str
    created_us: int
    write_mode: Literal["mapped", "pwrite"]
    retention_bytes: int | None
    ship_backlog_bytes: int | None
    ship_min_sync: int
    shipper: ShipperInfo | None
    places: list[PlaceInfo]
    filesystem: str
    incarnation: str | None
    slots: list[SlotInfo]
    topics: list[TopicInfo]
    logs: list[LogInfo]
    groups: list[GroupInfo]
    queues: list[QueueInfo]


def verify(
    path: str | os.PathLike[str], topic: str | None = None, progress: Progress | None = None
) -> Verification:
    """Check everything in a store, or in the log of one topic, and change nothing.

    This checks every checksum, the chain of segments, offsets, indexes, control pages, settings,
    staged parts and the files of consumer groups and queues. The store may fail to open, and others
    may write to it. It reads by `pread` only, so that a dying disk is a finding and not a signal.
    Takes one pass over the store's bytes.

    Args:
        path: Directory of the store.
        topic: Name of a topic whose log alone is checked; all logs by default.
        progress: Called with the bytes done and all bytes; its exception ends the call.

    Raises:
        StoreNotFound: There is no directory.
        NotAStore: The directory holds something else.
        UnknownTopic: There is no topic of this name.

    Example:
        >>> store.topic("orders").append(b"first")
        0
        >>> falaj.verify(store.path)["sound"]
        True
    """
    progress = callback(progress, "progress")
    local = local_path(path)
    try:
        return _core._verify(local, topic, progress)
    except OSError as error:
        name_the_place(error, local)
        raise


def repair(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    lock_timeout: Duration = 10.0,
    allow_network_fs: bool = False,
) -> RepairReport:
    """Find out what recovery would do to a store, or do it.

    No bytes are deleted: what is cut off stays in its file, or moves to `quarantine/` in the log's
    directory. If opening fails because data on disk is lost, repair ends the log before the loss
    and continues. Committed offsets and queues are never reset: `problems` lists their corrupt
    files, each with its remedy.

    Args:
        path: Directory of the store.
        dry_run: Only say what would be done.
        lock_timeout: Seconds to wait for a lock whose holder is alive.
        allow_network_fs: As in `falaj.open`.

    Raises:
        StoreNotFound: There is no directory.
        NotAStore: The directory holds something else.
        LockTimeout: Others were opening or changing it all the time.

    Example:
        >>> falaj.repair(store.path)["complete"]
        True
    """
    local = local_path(path)
    try:
        return _core._repair(
            local,
            dry_run=flag(dry_run, "dry_run"),
            lock_timeout=lock_timeout,
            allow_network_fs=flag(allow_network_fs, "allow_network_fs"),
        )
    except OSError as error:
        name_the_place(error, local)
        raise


def counted(
    store: Store, groups: list[GroupInfo], queues: list[Any]
) -> tuple[list[GroupInfo], list[QueueInfo]]:
    """Count what lies ahead of groups and queues: each log is looked at once."""
    cursors = [cursor for each in groups for cursor in each["partitions"]]
    places = [(c["topic"], c["generation"], c["partition"], c["committed"]) for c in cursors]
    places += [(q["topic"] or "", q["generation"] or "", 0, q.pop("head")) for q in queues]
    counts = iter(_core._count_from(store, places))
    for cursor in cursors:
        cursor["lag"] = next(counts)
    for queue in queues:
        new = next(counts)
        queue["ready"] = None if new is None else queue["ready"] + new
    return groups, queues
