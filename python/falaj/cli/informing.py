"""The verbs `info` and `metrics`: what there is in a store, in numbers.

Owns the tables of topics, logs and writing processes. In a pipe each row begins with what it is,
so that `grep` and `awk` find their way; docs/cli.md names the columns.
"""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from falaj.cli import consuming, exits, options, queueing
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, facts, rows_of, table
from falaj.cli.units import show_time, size, span
from falaj.errors import NoSuchTopic
from falaj.metrics import exposition

if TYPE_CHECKING:
    from falaj.admin import LockInfo, LogInfo, SlotInfo, StoreInfo, TopicInfo
    from falaj.retention import TopicRetention

__all__ = ["LIMITS", "info", "limits_row", "metrics"]

_TOPICS = (
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("codec", "codec"),
    Column("first", "first", number=True),
    Column("end", "end", number=True),
    Column("durable", "durable", number=True),
    Column("log", "log"),
)
_LOGS = (
    Column("log", "log"),
    Column("segments", "segments", number=True),
    Column("live", "live", number=True, human=size),
    Column("reserved", "reserved", number=True, human=size),
    Column("quarantined", "quarantined", number=True, human=size),
    Column("state", "state"),
    Column("append_lock", "append lock"),
    Column("sync_lock", "sync lock"),
)
_SLOTS = (
    Column("slot", "slot", number=True),
    Column("state", "state"),
    Column("process", "process"),
    Column("since", "since"),
)
LIMITS = (
    Column("topic", "retention of"),
    Column("bytes", "bytes", number=True, human=size),
    Column("age", "age", number=True, human=span),
    Column("records", "records", number=True),
    Column("also", "also"),
)


def info(
    context: options.Context,
    store: options.StoreArgument,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Only this topic and its log.")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show offsets, sizes, segments, locks, which processes write, consumers, queues."""
    with options.access_of(context).store(store) as opened:
        told = opened.info()
    if topic is not None:
        _keep(told, topic)
    if as_json:
        print(json.dumps(told))
    else:
        _show(told)
    for log in told["logs"]:
        if log["retention_problem"]:
            exits.say(f"retention of {log['name']}: {log['retention_problem']}")
    problems = [(each["problem"], each["remedy"]) for each in (*told["topics"], *told["logs"])]
    problems += [(each["error"], each["remedy"]) for each in (*told["consumers"], *told["queues"])]
    if code := exits.told(problems):
        raise typer.Exit(code)


def metrics(
    context: options.Context, store: options.StoreArgument, as_json: options.JsonOption = False
) -> None:
    """Print metrics of a store in the text format of Prometheus."""
    with options.access_of(context).store(store) as opened:
        told = opened.metrics()
    print(json.dumps(told) if as_json else exposition(told), end="\n" if as_json else "")


def _keep(told: "StoreInfo", topic: str) -> None:
    """Leave only a topic and its log."""
    told["topics"] = [each for each in told["topics"] if each["name"] == topic]
    if not told["topics"]:
        raise NoSuchTopic(
            f"there is no topic {topic!r} in {told['path']}; `falaj topics` lists what there is"
        )
    told["logs"] = [log for log in told["logs"] if topic in log["topics"]]
    for consumer in told["consumers"]:
        without = consuming.idle(consumer)
        consumer["cursors"] = [each for each in consumer["cursors"] if each["topic"] == topic]
        owners = [each["owner"] for each in consumer["cursors"]]
        consumer["members"] = [each for each in consumer["members"] if each in (*owners, *without)]
    told["consumers"] = [consumer for consumer in told["consumers"] if consumer["cursors"]]
    told["queues"] = [queue for queue in told["queues"] if queue["topic"] == topic]


def _show(told: "StoreInfo") -> None:
    about = [
        ("path", told["path"]),
        ("format", str(told["format"])),
        ("id", told["id"]),
        ("created", show_time(told["created_us"] * 1000, "iso")),
        ("write mode", told["write_mode"]),
        ("file system", told["filesystem"]),
    ]
    if told["retention_bytes"] is not None:
        about.append(("retention", f"{told['retention_bytes']} bytes"))
    topics = [row for each in told["topics"] for row in _topic_rows(each)]
    logs = [_log_row(log) for log in told["logs"]]
    slots = [_slot_row(slot) for slot in told["slots"]]
    readers = consuming.rows(told["consumers"])
    queues = queueing.rows([queue for queue in told["queues"] if not queue["error"]])
    limits = [row for each in told["topics"] if (row := _limits_row(each))]
    if not is_terminal(sys.stdout):
        for name, text in about:
            print("store", name, text, sep="\t")
        rows_of("topic", _TOPICS, topics)
        rows_of("log", _LOGS, logs)
        rows_of("slot", _SLOTS, slots)
        rows_of("retention", LIMITS, limits)
        rows_of("consumer", consuming.COLUMNS, readers)
        rows_of("queue", queueing.COLUMNS, queues)
        return
    facts(about)
    for columns, rows in (
        (_TOPICS, topics),
        (LIMITS, limits),
        (_LOGS, logs),
        (_SLOTS, slots),
        (consuming.COLUMNS, readers),
        (queueing.COLUMNS, queues),
    ):
        if rows:
            print()
            table(columns, rows)


def _topic_rows(topic: "TopicInfo") -> list[dict[str, Any]]:
    same = {"topic": topic["name"], "codec": topic["codec"], "log": topic["log"]}
    nothing = dict.fromkeys(("partition", "first", "end", "durable"))
    return [{**same, **partition} for partition in topic["partitions"]] or [{**same, **nothing}]


def _limits_row(topic: "TopicInfo") -> dict[str, Any] | None:
    """What of a topic may go by itself; None where all of it is kept."""
    limits = topic["retention"]
    if limits is None or not any(limits.values()):
        return None
    return limits_row(topic["name"], limits)


def limits_row(topic: str, limits: "TopicRetention") -> dict[str, Any]:
    """A topic's limits as a row."""
    age_ms = limits["age_ms"]
    flags = [name for name in ("waits", "protected") if limits[name]]
    return {
        "topic": topic,
        "bytes": limits["bytes"],
        "age": None if age_ms is None else age_ms / 1000,
        "records": limits["records"],
        "also": " ".join(flags) or None,
    }


def _log_row(log: "LogInfo") -> dict[str, Any]:
    state = "unreadable" if log["problem"] else "latched" if log["latched"] else "ready"
    return {
        "log": log["name"],
        "segments": len(log["segments"]),
        "live": log["live"],
        "reserved": log["reserved"],
        "quarantined": log["quarantined"],
        "state": "deleted" if log["deleted"] else state,
        "append_lock": _holder(log["append_lock"]),
        "sync_lock": _holder(log["sync_lock"]),
    }


def _holder(lock: "LockInfo") -> str:
    if not lock["held"]:
        return "free"
    who = "held" if lock["process"] is None else f"process {lock['process']}"
    if lock["alive"] is False:
        who += ", dead"
    return f"{who}, others wait" if lock["contended"] else who


def _slot_row(slot: "SlotInfo") -> dict[str, Any]:
    state = {True: "writing", False: "free", None: "unknown"}[slot["alive"]]
    since = slot["since_us"]
    return {
        "slot": slot["slot"],
        "state": state,
        "process": slot["process"],
        "since": None if since is None else show_time(since * 1000, "iso"),
    }
