"""A store in numbers, for monitoring: a plain dict, and Prometheus' text.

Owns the numbers and their names. They come from a single `Store.info`, and nothing else is read or
counted. So they cost the appends nothing, and every process gets the same. `Store.metrics` and the
command `metrics` use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from falaj._admin import GroupInfo, LogInfo, StoreInfo, TopicInfo
    from falaj._arguments import QueueInfo

__all__ = [
    "GroupMetrics",
    "GroupPartitionMetrics",
    "LogMetrics",
    "Metrics",
    "PartitionMetrics",
    "QueueMetrics",
    "TopicMetrics",
    "exposition",
    "of",
]


class PartitionMetrics(TypedDict):
    """Offsets of a partition: the first, and those after the last and the last durable record."""

    partition: int
    first: int
    end: int
    committed: int
    durable: int


class TopicMetrics(TypedDict):
    """A topic, and its log; an unreadable one has no partitions."""

    log: str | None
    readable: bool
    partitions: list[PartitionMetrics]


class LogMetrics(TypedDict):
    """A log: files, bytes of content and on disk, and whether it is in the failed-sync state.

    `retention_failed` is only about the asking process: its last deletion of records.
    """

    readable: bool
    segments: int
    live_bytes: int
    disk_bytes: int
    quarantined_bytes: int
    latched: bool
    contended: bool
    retention_failed: bool


class GroupPartitionMetrics(TypedDict):
    """How far a group has read a partition; `lag` is None if the topic is gone.

    It counts what is kept, as `waiting` of queues does.
    """

    topic: str
    partition: int
    committed: int
    lag: int | None


class GroupMetrics(TypedDict):
    """A consumer group: its living members, and its partitions; none if it is corrupt."""

    readable: bool
    members: int
    partitions: list[GroupPartitionMetrics]


class QueueMetrics(TypedDict):
    """A work queue: jobs in each state, as `falaj.QueueInfo` has them.

    `readable` is False where its file is corrupt; then all numbers are 0.
    """

    readable: bool
    topic: str | None
    ready: int | None
    delayed: int
    in_flight: int
    done: int
    dead: int
    trimmed: int


class Metrics(TypedDict):
    """A store, its topics, logs, consumer groups and queues by name.

    `writers` are processes that may write.
    """

    path: str
    id: str
    format: int
    incarnation: str | None
    writers: int
    topics: dict[str, TopicMetrics]
    logs: dict[str, LogMetrics]
    groups: dict[str, GroupMetrics]
    queues: dict[str, QueueMetrics]


def of(info: StoreInfo) -> Metrics:
    """Take the metrics from the report of `Store.info`."""
    return {
        "path": info["path"],
        "id": info["id"],
        "format": info["format"],
        "incarnation": info["incarnation"],
        "writers": sum(slot["alive"] is True for slot in info["slots"]),
        "topics": {topic["name"]: _topic(topic) for topic in info["topics"]},
        "logs": {log["name"]: _log(log) for log in info["logs"]},
        "groups": {each["name"]: _group(each) for each in info["groups"]},
        "queues": {each["name"]: _queue(each) for each in info["queues"]},
    }


def _queue(queue: QueueInfo) -> QueueMetrics:
    return {
        "readable": queue["error"] is None,
        "topic": queue["topic"],
        "ready": queue["ready"],
        "delayed": queue["delayed"],
        "in_flight": queue["in_flight"],
        "done": queue["done"],
        "dead": queue["dead"],
        "trimmed": queue["trimmed"],
    }


def _group(group: GroupInfo) -> GroupMetrics:
    partitions: list[GroupPartitionMetrics] = [
        {
            "topic": each["topic"],
            "partition": each["partition"],
            "committed": each["committed"],
            "lag": each["lag"],
        }
        for each in group["partitions"]
    ]
    readable = group["error"] is None
    return {"readable": readable, "members": len(group["members"]), "partitions": partitions}


def _topic(topic: TopicInfo) -> TopicMetrics:
    partitions: list[PartitionMetrics] = [
        {
            "partition": each["partition"],
            "first": each["first"],
            "end": each["end"],
            "committed": each["end"],
            "durable": each["durable"],
        }
        for each in topic["partitions"]
    ]
    return {"log": topic["log"], "readable": topic["problem"] is None, "partitions": partitions}


def _log(log: LogInfo) -> LogMetrics:
    return {
        "readable": log["problem"] is None,
        "segments": len(log["segments"]),
        "live_bytes": log["live"],
        "disk_bytes": log["reserved"],
        "quarantined_bytes": log["quarantined"],
        "latched": log["latched"],
        "contended": log["append_lock"]["contended"],
        "retention_failed": log["retention_problem"] is not None,
    }


class _Family(NamedTuple):
    """A metric with all its samples: labels and value."""

    name: str
    kind: str
    about: str
    samples: list[tuple[dict[str, str], int]]


def exposition(metrics: Metrics) -> str:
    """Write metrics in Prometheus' text format, version 0.0.4.

    Each sample has the store's path as a label, so that those of several stores can be combined.

    Example:
        >>> _ = store.topic("orders").append(b"first")
        >>> print(exposition(store.metrics()).splitlines()[-1])
        falaj_log_retention_failed{store="...",log="orders"} 0
    """
    store = {"store": metrics["path"]}
    lines: list[str] = []
    for family in _families(metrics):
        lines.append(f"# HELP {family.name} {_escaped(family.about)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [
            f"{family.name}{{{_labels({**store, **labels})}}} {value}"
            for labels, value in family.samples
        ]
    return "\n".join([*lines, ""])


def _families(metrics: Metrics) -> Iterator[_Family]:
    """List all families, in order; including families without samples."""
    what = {
        "id": metrics["id"],
        "format": str(metrics["format"]),
        "incarnation": metrics["incarnation"] or "",
    }
    yield _Family("falaj_store_info", "gauge", "The store; always 1.", [(what, 1)])
    writers = "Processes that have the store open for writing."
    yield _Family("falaj_store_writers", "gauge", writers, [({}, metrics["writers"])])

    topics, logs = metrics["topics"].items(), metrics["logs"].items()
    about = "Whether the topic can be read; 0 if it is corrupt."
    readable = [({"topic": name}, int(topic["readable"])) for name, topic in topics]
    yield _Family("falaj_topic_readable", "gauge", about, readable)
    parts = [
        ({"topic": name, "partition": str(part["partition"])}, part)
        for name, topic in topics
        for part in topic["partitions"]
    ]
    about = "Records ever committed: the offset after the last one."
    committed = [(labels, part["committed"]) for labels, part in parts]
    yield _Family("falaj_topic_committed_records_total", "counter", about, committed)
    about = "Lowest offset that is left."
    first = [(labels, part["first"]) for labels, part in parts]
    yield _Family("falaj_topic_first_offset", "gauge", about, first)
    about = "Offset after the last record that is known to be on disk."
    durable = [(labels, part["durable"]) for labels, part in parts]
    yield _Family("falaj_topic_durable_offset", "gauge", about, durable)
    yield from _group_families(metrics["groups"].items())
    yield from _queue_families(metrics["queues"].items())
    yield from _log_families(logs)


def _group_families(groups: Iterable[tuple[str, GroupMetrics]]) -> Iterator[_Family]:
    about = "Whether the group can be read; 0 if its file is corrupt."
    readable = [({"group": name}, int(each["readable"])) for name, each in groups]
    yield _Family("falaj_group_readable", "gauge", about, readable)
    members = [({"group": name}, each["members"]) for name, each in groups]
    yield _Family("falaj_group_members", "gauge", "Members that live.", members)
    cursors = [
        ({"group": name, "topic": at["topic"], "partition": str(at["partition"])}, at)
        for name, each in groups
        for at in each["partitions"]
    ]
    about = "Offset up to which the group committed."
    committed = [(labels, at["committed"]) for labels, at in cursors]
    yield _Family("falaj_group_committed_offset", "gauge", about, committed)
    lags = [(labels, at["lag"]) for labels, at in cursors]
    lag = [(labels, lag) for labels, lag in lags if lag is not None]
    yield _Family(
        "falaj_group_lag_records", "gauge", "Records that the group has not committed.", lag
    )


def _queue_families(queues: Iterable[tuple[str, QueueMetrics]]) -> Iterator[_Family]:
    about = "Whether the queue can be read; 0 if its file is corrupt."
    readable = [({"queue": name}, int(each["readable"])) for name, each in queues]
    yield _Family("falaj_queue_readable", "gauge", about, readable)
    each = [
        ({"queue": name, "topic": queue["topic"] or ""}, queue)
        for name, queue in queues
        if queue["readable"]
    ]

    def family(name: str, about: str, values: Iterable[int | None]) -> _Family:
        known = ((labels, value) for (labels, _), value in zip(each, values, strict=True))
        samples = [(labels, value) for labels, value in known if value is not None]
        kind = "counter" if name.endswith("_total") else "gauge"
        return _Family("falaj_queue_" + name, kind, about, samples)

    found = [queue for _, queue in each]
    about = "Jobs that a worker may get now, or when the job before it of the same key is done."
    yield family("ready_jobs", about, (queue["ready"] for queue in found))
    about = "Jobs that no worker gets before a time."
    yield family("delayed_jobs", about, (queue["delayed"] for queue in found))
    about = "Jobs that workers have."
    yield family("in_flight_jobs", about, (queue["in_flight"] for queue in found))
    about = "Offsets of jobs that are done, dead and trimmed ones and compacted gaps included."
    yield family("done_jobs_total", about, (queue["done"] for queue in found))
    about = "Jobs that were dead-lettered, or given up because their records are corrupt."
    yield family("dead_jobs_total", about, (queue["dead"] for queue in found))
    about = "Records that were trimmed before they were done."
    yield family("trimmed_jobs_total", about, (queue["trimmed"] for queue in found))


def _log_families(logs: Iterable[tuple[str, LogMetrics]]) -> Iterator[_Family]:
    def family(name: str, about: str, values: Iterable[int]) -> _Family:
        samples = [({"log": log}, int(value)) for (log, _), value in zip(logs, values, strict=True)]
        return _Family("falaj_log_" + name, "gauge", about, samples)

    each = [log for _, log in logs]
    about = "Whether the log can be read; 0 if it is corrupt."
    yield family("readable", about, (log["readable"] for log in each))
    yield family("segments", "Files of the log.", (log["segments"] for log in each))
    about = "Bytes of content."
    yield family("live_bytes", about, (log["live_bytes"] for log in each))
    about = "Bytes of its files on disk, including space that is allocated ahead."
    yield family("disk_bytes", about, (log["disk_bytes"] for log in each))
    about = "Bytes that recoveries and repairs set aside."
    yield family("quarantined_bytes", about, (log["quarantined_bytes"] for log in each))
    about = "1 while a failed sync prevents appends to the log."
    yield family("latched", about, (log["latched"] for log in each))
    about = "1 while processes wait for the append lock."
    yield family("contended", about, (log["contended"] for log in each))
    about = "1 when the asking process failed to delete records beyond the limits."
    yield family("retention_failed", about, (log["retention_failed"] for log in each))


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value, quoted=True)}"' for name, value in labels.items())


def _escaped(text: str, quoted: bool = False) -> str:
    """Escape as the format requires; it has no bytes of a path that are not UTF-8."""
    text = text.encode(errors="surrogateescape").decode(errors="replace")
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text
