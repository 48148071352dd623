"""`falaj topic describe`: settings, offsets, sizes and readers of topics."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from falaj.cli import options
from falaj.cli.arguments import Command
from falaj.cli.commands import group, info
from falaj.cli.commands.queue import list_ as queue
from falaj.cli.commands.topic.config import shown_properties
from falaj.cli.paint import is_terminal
from falaj.cli.stores import expect_topics
from falaj.cli.tables import facts, objects, rows_of, table
from falaj.cli.units import show_time, size, span

if TYPE_CHECKING:
    from falaj._admin import StoreInfo, TopicInfo
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "describe"]


def describe(access: Access, topics: list[str], as_json: bool) -> None:
    """Print all there is to know of topics."""
    with access.store() as opened:
        expect_topics(opened, *topics)
        whole = opened.info()
    if as_json:
        objects([_object(whole, name) for name in topics])
    elif is_terminal(sys.stdout):
        for at, name in enumerate(topics):
            print(end="\n" if at else "")
            _show(_of(whole, name))
    else:
        for name in topics:
            found = _of(whole, name)
            for kind, columns, rows in _parts(found):
                rows_of(kind, columns, rows)
    info.problems(_of(whole, *topics))


def _of(whole: StoreInfo, *names: str) -> StoreInfo:
    """Keep the parts of a store's state that are about some topics."""
    consumers = []
    for consumer in whole["groups"]:
        without = group.idle(consumer)
        cursors = [each for each in consumer["partitions"] if each["topic"] in names]
        owners = [each["owner"] for each in cursors]
        members = [each for each in consumer["members"] if each in (*owners, *without)]
        if cursors:
            consumers.append({**consumer, "partitions": cursors, "members": members})
    return cast(
        "StoreInfo",
        {
            **whole,
            "topics": [topic for topic in whole["topics"] if topic["name"] in names],
            "logs": [log for log in whole["logs"] if not {*names}.isdisjoint(log["topics"])],
            "groups": consumers,
            "queues": [each for each in whole["queues"] if each["topic"] in names],
        },
    )


def _object(whole: StoreInfo, name: str) -> dict[str, Any]:
    found = _of(whole, name)
    return {
        **found["topics"][0],
        "log": found["logs"][0] if found["logs"] else None,
        "groups": found["groups"],
        "queues": found["queues"],
    }


def _parts(found: StoreInfo) -> Any:
    whole = [each for each in found["queues"] if not each["error"]]
    return (
        ("topic", info.TOPICS, [row for each in found["topics"] for row in info.topic_rows(each)]),
        ("log", info.LOGS, [info.log_row(log) for log in found["logs"]]),
        (
            "retention",
            info.LIMITS,
            [row for each in found["topics"] if (row := info.limits_of(each))],
        ),
        ("group", group.COLUMNS, group.rows(found["groups"])),
        ("queue", queue.COLUMNS, queue.rows(whole)),
    )


def _show(found: StoreInfo) -> None:
    facts(_settings(found["topics"][0]))
    for kind, columns, rows in _parts(found):
        if rows and kind != "retention":
            print()
            table(columns, rows)


def _settings(topic: TopicInfo) -> list[tuple[str, str]]:
    told = [
        ("topic", topic["name"]),
        ("codec", topic["codec"] or ("not named yet" if topic["log"] else "-")),
        ("partitions", str(len(topic["partitions"]))),
        ("compacted", "yes" if topic["compacted"] else "no"),
        *([("finished", "yes")] if topic["finished"] else []),
        ("log", topic["log"] or "-"),
    ]
    if topic["segment_bytes"] is not None:
        told.append(("segment size", size(topic["segment_bytes"])))
    if topic["sync_interval_ms"] is not None:
        told.append(("sync interval", f"{topic['sync_interval_ms']} ms"))
    if topic["created_us"] is not None:
        told.append(("created", show_time(topic["created_us"] * 1000, "iso")))
    return [*told, ("retention", _retention(topic)), *shown_properties(topic["properties"] or {})]


def _retention(topic: TopicInfo) -> str:
    limits = topic["retention"]
    if limits is None:
        return "-"
    age, records = limits["age_ms"], limits["records"]
    told = [
        *([] if limits["bytes"] is None else [size(limits["bytes"])]),
        *([] if age is None else [span(age / 1000)]),
        *([] if records is None else [f"{records:,} records of each partition"]),
        *(["waits for groups and queues"] if limits["waits"] else []),
        *(["exempt from the store's limit"] if limits["protected"] else []),
    ]
    return ", ".join(told) or "keeps all records"


COMMAND = Command(
    describe,
    "Show settings, offsets, sizes and readers of topics.",
    (options.TOPICS,),
    (*options.READS, options.AS_JSON),
)
