"""Types of arguments, for annotations: `Start`, `Sync`, `Visibility`, `Settings`, `Retention`.

Needs `typing`, so nothing that `import falaj` loads imports this at run time.
"""

from typing import Literal, TypedDict

from falaj._time import Duration, Time

__all__ = [
    "BulkLoadReport",
    "Existing",
    "QueueInfo",
    "Retention",
    "Settings",
    "Start",
    "Sync",
    "Visibility",
]

Start = int | Literal["earliest", "latest"] | Time
Sync = Literal["none", "interval", "durable", "remote"]
Visibility = Literal["visible", "durable", "remote"]


class Retention(TypedDict, total=False):
    """The keyword arguments of `Topic.configure`."""

    retention_bytes: int | None
    retention_age: Duration | None
    retention_records: int | None
    retention_waits: bool
    retention_protected: bool


class Existing(TypedDict, total=False):
    """The keyword arguments of `Store.any_topic`, but for the codec."""

    sync: Sync | None
    verify: bool | None
    visibility: Visibility


class Settings(Retention, total=False):
    """The keyword arguments of `Store.topic`, without the codec."""

    log: str | None
    segment_bytes: int | None
    sync_interval_ms: int | None
    sync: Sync | None
    verify: bool | None
    visibility: Visibility
    compacted: bool | None
    create: bool


class BulkLoadReport(TypedDict):
    """The result of a bulk load, as `Topic.commit_bulk_load` returns it."""

    committed: bool
    records: int
    offsets: dict[int, tuple[int, int]]


class QueueInfo(TypedDict):
    """A work queue in numbers, as `Queue.info`, `store.queues` and `Store.info` give it.

    A job is in one state. `ready` jobs go to the next worker that asks; a job that waits behind
    another of its key counts as ready too. `delayed` jobs wait for a time, `in_flight` ones are
    with the workers that `holders` names. `done` counts offsets from the beginning of the topic.
    It has those of acked, `dead` and `trimmed` jobs, and the gaps that compaction left. `ready` is
    None where the topic is gone or cannot be read. `error` says what is wrong with the queue's
    file; then all numbers are 0.
    """

    name: str
    topic: str | None
    generation: str | None
    order: Literal["key"] | None
    ready: int | None
    delayed: int
    in_flight: int
    done: int
    dead: int
    trimmed: int
    floor: int
    holders: dict[str, int]
    error: str | None
    error_class: str | None
