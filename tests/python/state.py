"""The contents of a store, to compare before and after a call that must change nothing."""

from pathlib import Path
from typing import Any

import falaj

#: Files that change when a store is opened, or when a database is read.
_ALIVE = ("slots", "control", "presence", "claim", "shop.db-wal", "shop.db-shm")


def state(folder: Path, store: str = "store") -> Any:
    """Return records' offsets, settings, committed offsets and jobs of a store, and all files."""
    with falaj.open(folder / store, read_only=True) as opened:
        info = opened.info()
    topics = [
        {**topic, "partitions": [(p["first"], p["end"]) for p in topic["partitions"]]}
        for topic in info["topics"]
    ]
    groups = [
        (group["name"], [{**p, "owner": None} for p in group["partitions"]])
        for group in info["groups"]
    ]
    queues = [{**queue, "holders": None} for queue in info["queues"]]
    files = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not set(path.parts) & set(_ALIVE)
    )
    return topics, groups, queues, info["retention_bytes"], files
