"""The environment of Spark's drivers of their own, and of the shared session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from house import ROOT

if TYPE_CHECKING:
    import falaj

ON_PATH = Path(__file__).with_name("installed")
"""Put on PYTHONPATH, it lets workers start and go on sooner: `installed/sitecustomize.py`."""


def environment() -> dict[str, str]:
    """Give the environment of a program that starts a Spark."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ON_PATH, ROOT / "python")))}


def topic_of(
    store: falaj.Store, name: str, partitions: int | None = None
) -> falaj.Topic[Any] | falaj.PartitionedTopic[Any]:
    """Open a topic, or create it with so many partitions."""
    if name in store.topics:
        return store.any_topic(name)
    if partitions is None:
        return store.topic(name)
    return store.partitioned_topic(name, partitions=partitions)
