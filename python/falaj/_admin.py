"""`verify` and `repair`, and the reports that they, `Store.info` and `skip_damage` return.

Reports are plain dicts and lists, as for JSON. Beside a sentence about a problem stands
`error_class`, the name of its class in `falaj.errors`. The base of that class says what helps.
Verification and repair take a path, because the stores that need them may not open; `Store.backup`,
`Store.verify` and `Store.info` stand beside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypedDict

from falaj import _core
from falaj._paths import local_path

if TYPE_CHECKING:
    import os

    from falaj._arguments import QueueInfo
    from falaj._retention import TopicRetention

__all__ = [
    "BackupReport",
    "Finding",
    "GroupInfo",
    "GroupPartitionInfo",
    "LogInfo",
    "LogRepair",
    "LogReport",
    "MemberInfo",
    "RepairReport",
    "Skipped",
    "SkippedOfTopic",
    "StoreInfo",
    "TrimReport",
    "Verification",
    "repair",
    "verify",
]

Progress = Callable[[int, int], object]
Severity = Literal["note", "rebuildable", "unrecovered", "newer", "damage"]
Place = tuple[int, int]
"""Sequence of a segment, and a position in it."""


class BackupReport(TypedDict):
    """What a backup copied.

    `problems` is what is wrong with files of consumers and queues, which were copied as they are,
    and `error_classes` names the class of each in `falaj.errors`.
    """

    topics: int
    logs: int
    segments: int
    bytes: int
    problems: list[str]
    error_classes: list[str]


class TrimReport(TypedDict):
    """What a trim did: the first offset of each partition, and the files that went with it."""

    firsts: dict[int, int]
    segments: int
    bytes: int


class Finding(TypedDict):
    """Something that a verification found: where, what, and what to do about it."""

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
    """What a reader stepped over: where the damage begins, and the offsets that it took."""

    path: str
    position: int
    partition: int
    offsets: tuple[int, int]


class SkippedOfTopic(Skipped):
    """What a consumer stepped over, and of which of its topics."""

    topic: str


class TopicReach(TypedDict):
    """How far a partition of a topic reaches, as verification found it.

    `found` is above `end` where recovery, which is due, will cut off what lies between.
    """

    topic: str
    partition: int
    first: int
    end: int
    found: int
    durable: int


class LogReport(TypedDict):
    """What a verification says of a log; `recovered` is where a recovery that is due ends it."""

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
    """What a verification found; `sound` is whether everything that was written is there."""

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
    """What is done to one log, or why nothing can be."""

    path: str
    topics: list[str]
    steps: list[Step]
    ends: list[tuple[str, int, int]]
    problem: str | None
    error_class: str | None


class RepairReport(TypedDict):
    """What a repair did, or would do.

    `problems` is what it cannot mend: settings, and the files of consumers and queues, of which
    only the owner knows where to resume; `error_classes` names the class of each in `falaj.errors`.
    """

    dry_run: bool
    in_use: bool | None
    complete: bool
    logs: list[LogRepair]
    problems: list[str]
    error_classes: list[str]


class SlotInfo(TypedDict):
    """A slot for a writing process, and who took it last."""

    slot: int
    generation: int | None
    process: int | None
    since_us: int | None
    alive: bool | None


class PartitionInfo(TypedDict):
    """How far a partition reaches."""

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
    retention: TopicRetention | None
    generation: str | None
    created_us: int | None
    problem: str | None
    error_class: str | None


class SegmentInfo(TypedDict):
    """A segment: bytes of its content, and bytes that it takes on the disk with its index."""

    sequence: int
    live: int
    reserved: int


class LockInfo(TypedDict):
    """A lock of a log, and its holder where that is known."""

    held: bool
    slot: int | None
    process: int | None
    alive: bool | None
    contended: bool


class LogInfo(TypedDict):
    """A log: its ends, sizes and locks.

    `retention_problem` is what went wrong with retention last, where the asking process did it.
    """

    name: str
    path: str
    topics: list[str]
    committed: Place | None
    durable: Place | None
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
    """A member of a consumer group: its process, where that is known, its slot and its handle."""

    process: int | None
    slot: int
    handle: int


class GroupPartitionInfo(TypedDict):
    """How far a group has read a partition, and which member owns it.

    `committed` is the committed offset. `safe` is where the group resumes after a power failure
    that lost records before it. `lag` counts the records from `committed` on that are kept; it is
    None where the topic is gone or cannot be read.
    """

    topic: str
    generation: str
    partition: int
    committed: int
    safe: int
    lag: int | None
    owner: MemberInfo | None


class GroupInfo(TypedDict):
    """A consumer group: its living members and its partitions; `error` where its file is corrupt.

    `cursor_in` is the log that keeps its committed offsets, None where they are in their own file.
    """

    name: str
    cursor_in: str | None
    members: list[MemberInfo]
    partitions: list[GroupPartitionInfo]
    error: str | None
    error_class: str | None


class StoreInfo(TypedDict):
    """A store as it is now."""

    path: str
    format: int
    id: str
    created_us: int
    write_mode: Literal["mapped", "pwrite"]
    retention_bytes: int | None
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

    Every checksum, the chain of segments, offsets, indexes, control pages, settings, staged parts
    and the files of consumers and queues; also in a store that no longer opens, or that others
    write to. Reads by `pread` only, so that a dying disk is a finding and not a signal. Takes one
    pass over the store's bytes.

    Args:
        path: Directory of the store.
        topic: Name of a topic, of which the log alone is looked at; all there is by default.
        progress: Called with bytes done and bytes in all now and then; what it raises ends it.

    Raises:
        NotAStore: There is something else.
        UnknownTopic: There is none of this name.

    Example:
        >>> store.topic("orders").append(b"first")
        0
        >>> falaj.verify(store.path)["sound"]
        True
    """
    return _core._verify(local_path(path), topic, progress)


def repair(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    lock_timeout: float = 10.0,
    allow_network_fs: bool = False,
) -> RepairReport:
    """Find out what recovery would do to a store, or do it.

    Nothing is thrown away: what is cut off stays in its file, or moves to `quarantine/` in the
    directory of the log. Where opening gives up because something that was on the medium is lost,
    repair goes on before it. Cursors and queues are never set anew: where the file of one is
    damaged, `problems` says so, with what helps.

    Args:
        path: Directory of the store.
        dry_run: Only say what would be done.
        lock_timeout: Seconds to wait for a lock whose holder is alive.
        allow_network_fs: As in `falaj.open`.

    Raises:
        NotAStore: There is something else.
        LockTimeout: Others were opening or changing it all the time.

    Example:
        >>> falaj.repair(store.path)["complete"]
        True
    """
    return _core._repair(
        local_path(path),
        dry_run=dry_run,
        lock_timeout=lock_timeout,
        allow_network_fs=allow_network_fs,
    )
