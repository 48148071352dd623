"""Stores and topics as verbs need them: values as the bytes they are, whatever the codec.

Invariant: a verb that only reads opens the store for reading, so it changes nothing and creates
nothing; stores and topics are created only by `append`, so a path with a slip in it is no store.
No codec of the topic runs here, so that pickles and codecs of somebody's own can be shown too.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from falaj.cli.exits import Stop
from falaj.errors import NotAStore
from falaj.stores import Store
from falaj.stores import open as open_store
from falaj.topics import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from falaj.arguments import Sync, Visibility

__all__ = ["Access", "NewTopic", "check_partition", "partitions_of", "raw_topic"]


@dataclass(frozen=True, slots=True)
class Access:
    """How the whole program opens stores: the options in front of the verb."""

    force: bool = False
    timeout: float = 10.0

    @contextmanager
    def store(
        self, path: Path, mode: Literal["r", "w"] = "r", *, creates: bool = False
    ) -> Iterator[Store]:
        """Open a store that is there, or with `creates` any; close it behind the verb."""
        if mode == "w" and not creates:
            # Opening for writing makes a store of what is none; opening for reading says so.
            open_store(path, "r", timeout=self.timeout, force=self.force).close()
        with open_store(path, mode, timeout=self.timeout, force=self.force) as store:
            yield store

    def finds(self, path: Path) -> bool:
        """Tell whether there is a store."""
        try:
            open_store(path, "r", timeout=self.timeout, force=self.force).close()
        except NotAStore:
            return False
        return True

    @contextmanager
    def topic(self, path: Path, name: str, durable: bool = False) -> Iterator[Topic[Any]]:
        """Open a topic for reading; with `durable` only what is on the medium."""
        visibility: Visibility = "durable" if durable else "committed"
        with self.store(path) as store, raw_topic(store, name, visibility=visibility) as topic:
            yield topic


@dataclass(frozen=True, slots=True)
class NewTopic:
    """What `append` asks of a topic, or makes it with."""

    codec: str | None = None
    partitions: int | None = None
    segment_bytes: int | None = None
    sync_interval_ms: int | None = None
    sync: Sync | None = None

    def check(self, name: str) -> None:
        """Check what can be checked before there is a store.

        Raises:
            BadName: No topic can have this name.
            Invalid: A setting is beyond its limits.
        """
        Store._check_topic(
            name,
            codec=self.codec,
            partitions=self.partitions,
            segment_bytes=self.segment_bytes,
            sync_interval_ms=self.sync_interval_ms,
        )


def raw_topic(
    store: Store,
    name: str,
    wanted: NewTopic | None = None,
    visibility: Visibility = "committed",
) -> Topic[Any]:
    """Open a topic whose values are bytes in and views out; `topic.codec` names its codec."""
    wanted = wanted or NewTopic()
    opened = store._open_topic(
        name,
        codec=wanted.codec,
        resolve=lambda _: (None, None),
        partitions=wanted.partitions,
        segment_bytes=wanted.segment_bytes,
        sync_interval_ms=wanted.sync_interval_ms,
        sync=wanted.sync,
        verify=None,
        visibility=visibility,
    )
    return Topic(opened, store)


def partitions_of(topic: Topic[Any], only: int | None) -> list[Topic[Any]]:
    """The partitions that a verb is about.

    Raises:
        Stop: There is no such partition.
    """
    numbers = list(topic.partitions)
    if only is None:
        return [topic.partition(number) for number in numbers]
    check_partition(topic.name, len(numbers), only)
    return [topic.partition(only)]


def check_partition(topic: str, partitions: int, only: int) -> None:
    """Check that a topic of so many partitions has this one.

    Raises:
        Stop: There is no such partition.
    """
    if only not in range(partitions):
        last = partitions - 1
        raise Stop(f"topic {topic} has no partition {only}: choose one from 0 to {last}")
