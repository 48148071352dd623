"""Stores of earlier versions, which all later versions must read.

`golden/` holds archives of stores. Each has a JSON of the answers that reading it gives: records,
or the error and its place. make_golden.py made them. They are never made again, only added to.
"""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import falaj
from papers import DATA_FILTER
from proof import reader

FOLDER = Path(__file__).with_name("golden")


def names() -> list[str]:
    return sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))


def expected(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_bytes())  # type: ignore[no-any-return]


def unpack(name: str, to: Path) -> Path:
    """Unpack a store into a directory, and return its path."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extraction_filter = DATA_FILTER
        archive.extractall(to)
    return to / "store"


def pack(store: Path, name: str) -> None:
    """Pack a store so that the same files give the same archive."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(FOLDER / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(store, "store", recursive=False, filter=plain)
        for path in sorted(store.rglob("*")):
            archive.add(path, f"store/{path.relative_to(store)}", recursive=False, filter=plain)


def shown(record: reader.Read) -> list[Any]:
    """Show a record as JSON: long values by their hash."""

    def text(data: bytes | None) -> str | None:
        if data is None or len(data) <= 40:
            return None if data is None else data.hex()
        return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:16]}"

    headers = [[name, text(value)] for name, value in record.headers]
    return [record.offset, record.timestamp_ns, text(record.key), headers, text(record.value)]


def complaint(error: falaj.Error) -> list[Any]:
    """Describe an error: its kind, its file, its byte."""
    name = None if error.path is None else Path(error.path).name.partition("@")[0]
    return [type(error).__name__, name, error.position]


def answers(path: Path, mode: Any, **options: Any) -> dict[str, Any]:
    """Read all of a store: each partition's records, and the error that ended the read."""
    try:
        store = falaj.open(path, read_only=mode == "r", **options)
    except falaj.Error as error:
        return {"error": complaint(error)}
    with store:
        return {name: of_topic(store, name) for name in store.topics}


def worst(path: Path) -> Any:
    """Return the worst finding of a verification, or its refusal."""
    try:
        return falaj.verify(path)["worst"]
    except falaj.Error as error:
        return complaint(error)


COUNTED = ("topic", "order", "open", "in_flight", "done", "floor", "trimmed", "dead", "error")
"""The state of a queue. Open jobs are ready or delayed: which of these, the clock decides."""


def counted(queue: dict[str, Any]) -> list[Any]:
    """Take these numbers out of what falaj tells of a queue."""
    told = {**queue, "open": queue["ready"] + queue["delayed"]}
    return [told[name] for name in COUNTED]


def beside(path: Path, mode: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Describe the parts beside the records, with keys and cursors of these topics and names."""
    with falaj.open(path, read_only=mode == "r") as store:
        told = store.info()
        topics = {name: store.any_topic(name) for name in store.topics}
        return {
            "consumers": {
                one["name"]: [
                    one["cursor_in"],
                    [
                        [c["topic"], c["partition"], c["committed"], c["lag"]]
                        for c in one["partitions"]
                    ],
                    one["error"],
                ]
                for one in told["groups"]
            },
            "queues": {one["name"]: counted(dict(one)) for one in told["queues"]},
            "tokens": [topics[topic].last_idempotency_key(name) for topic, name in asked["tokens"]],
            "cursors": [
                found and found.offset
                for found in (topics[topic].cursor(name) for topic, name in asked["cursors"])
            ],
            "producers": {
                name: [[p.id, p.sequence, p.partition, p.offset] for p in topic.producers()]
                for name, topic in topics.items()
            },
        }


def of_topic(store: falaj.Store, name: str) -> Any:
    try:
        topic = store.any_topic(name)
    except falaj.Error as error:
        return {"error": complaint(error)}
    return [of_partition(topic.partition(p)) for p in topic.partitions]


def of_partition(topic: falaj.Topic[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"first": None, "end": None, "records": [], "error": None}
    try:
        found["first"], found["end"] = topic.start_offset, topic.end_offset
        for record in topic:
            raw: memoryview | None = record.raw  # None for a tombstone
            value = None if raw is None else bytes(raw)
            read = reader.Read(
                record.offset, record.timestamp_ns, record.key, record.headers, value
            )
            found["records"].append(shown(read))
    except falaj.Error as error:
        found["error"] = complaint(error)
    return found
