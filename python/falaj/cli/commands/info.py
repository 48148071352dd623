"""`falaj info`: what there is in a store, in numbers.

Owns the tables of topics, logs and writing processes. In a pipe each row begins with its kind, so
that `grep` and `awk` can select rows. docs/cli.md names the columns.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from falaj.cli import exits, options
from falaj.cli.arguments import Command
from falaj.cli.commands import group
from falaj.cli.commands.queue import list_ as queue
from falaj.cli.paint import is_terminal
from falaj.cli.tables import Column, facts, rows_of, table
from falaj.cli.units import show_time, size, span

if TYPE_CHECKING:
    from falaj._admin import LockInfo, LogInfo, PlaceInfo, SlotInfo, StoreInfo, TopicInfo
    from falaj._retention import TopicRetention
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "LIMITS", "LOGS", "TOPICS", "limits_of", "limits_row", "log_row", "problems"]

TOPICS = (
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("codec", "codec"),
    Column("first", "start", number=True),
    Column("end", "end", number=True),
    Column("durable", "durable", number=True),
    Column("log", "log"),
    Column("state", "state"),
)
LOGS = (
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
_PLACES = (
    Column("place", "place"),
    Column("number", "number", number=True),
    Column("behind", "behind", number=True, human=size),
    Column("heard", "heard"),
    Column("problem", "problem"),
)
LIMITS = (
    Column("topic", "retention of"),
    Column("bytes", "bytes", number=True, human=size),
    Column("age", "age", number=True, human=span),
    Column("records", "records", number=True),
    Column("also", "also"),
)


def info(access: Access, as_json: bool) -> None:
    """Print what there is."""
    with access.store() as opened:
        told = opened.info()
    if as_json:
        print(json.dumps(told))
    else:
        _show(told)
    problems(told)


def problems(told: StoreInfo) -> None:
    """Say what cannot be read.

    Raises:
        Stop: Something cannot.
    """
    for log in told["logs"]:
        if log["retention_problem"]:
            exits.say(f"retention of {log['name']}: {log['retention_problem']}")
    found = [(each["problem"], each["error_class"]) for each in (*told["topics"], *told["logs"])]
    found += [(each["error"], each["error_class"]) for each in (*told["groups"], *told["queues"])]
    if code := exits.told(found):
        raise exits.Stop.silent(code)


def _show(told: StoreInfo) -> None:
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
    whole = [each for each in told["queues"] if not each["error"]]
    parts = (
        ("topic", TOPICS, [row for each in told["topics"] for row in topic_rows(each)]),
        ("log", LOGS, [log_row(log) for log in told["logs"]]),
        ("slot", _SLOTS, [_slot_row(slot) for slot in told["slots"]]),
        ("place", _PLACES, [_place_row(place) for place in told["places"]]),
        ("retention", LIMITS, [row for each in told["topics"] if (row := limits_of(each))]),
        ("group", group.COLUMNS, group.rows(told["groups"])),
        ("queue", queue.COLUMNS, queue.rows(whole)),
    )
    if not is_terminal(sys.stdout):
        for name, text in about:
            print("store", name, text, sep="\t")
        for kind, columns, rows in parts:
            rows_of(kind, columns, rows)
        return
    facts(about)
    for _, columns, rows in parts:
        if rows:
            print()
            table(columns, rows)


def topic_rows(topic: TopicInfo) -> list[dict[str, Any]]:
    same = {"topic": topic["name"], "codec": topic["codec"], "log": topic["log"]}
    same["state"] = {True: "finished", False: "open", None: None}[topic["finished"]]
    nothing = dict.fromkeys(("partition", "first", "end", "durable"))
    return [{**same, **partition} for partition in topic["partitions"]] or [{**same, **nothing}]


def limits_of(topic: TopicInfo) -> dict[str, Any] | None:
    """The retention limits of a topic as a row; None where it has none."""
    limits = topic["retention"]
    if limits is None or not any(limits.values()):
        return None
    return limits_row(topic["name"], limits)


def limits_row(topic: str, limits: TopicRetention) -> dict[str, Any]:
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


def log_row(log: LogInfo) -> dict[str, Any]:
    """Sizes, state and locks of a log as a row."""
    state = "unreadable" if log["problem"] else "failed sync" if log["latched"] else "ready"
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


def _holder(lock: LockInfo) -> str:
    if not lock["held"]:
        return "free"
    who = "held" if lock["process"] is None else f"process {lock['process']}"
    if lock["alive"] is False:
        who += ", dead"
    return f"{who}, other processes wait" if lock["contended"] else who


def _place_row(place: PlaceInfo) -> dict[str, Any]:
    heard = place["heard_us"]
    told = show_time(heard * 1000, "iso") if heard else "never"
    return place | {
        "behind": place["behind"] or 0,
        "heard": told,
        "problem": place["problem"] or "",
    }


def _slot_row(slot: SlotInfo) -> dict[str, Any]:
    state = {True: "writing", False: "free", None: "unknown"}[slot["alive"]]
    since = slot["since_us"]
    return {
        "slot": slot["slot"],
        "state": state,
        "process": slot["process"],
        "since": None if since is None else show_time(since * 1000, "iso"),
    }


COMMAND = Command(
    info,
    "Show offsets, sizes, locks, writing processes, groups, queues.",
    (),
    (*options.READS, options.AS_JSON._replace(help="Print all of it as one JSON object.")),
)
