"""The topics of a stream, which stay open between the calls of Spark.

Spark asks a stream without new records a hundred times a second how far it reaches. Opening topics
would take most of the time of such a call.

Invariant: a topic that was deleted or created again meanwhile is opened again. Its settings file
shows that: it is written once, as a new file, and never changed in place (docs/FORMAT.md).
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from falaj.errors import UnknownTopic
from falaj.spark import stores
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from falaj import AnyTopic, Store
    from falaj.spark.reading.options import ReadOptions

__all__ = ["HeldTopics"]

_Mark = tuple[int, int, int] | None


class HeldTopics:
    """Open topics; a pickled copy of them has none open."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._store: Store | None = None
        self._held = ExitStack()
        self._topics: dict[str, tuple[_Mark, AnyTopic[Any] | None]] = {}

    def now(self) -> dict[str, AnyTopic[Any]]:
        """Return the existing topics that are read, in the order of `chosen`.

        Returns:
            Open topics, which stay valid until the next call.
        """
        if any(self._mark(name) != mark for name, (mark, _) in self._topics.items()):
            self.close()  # the store may be another one, too
        if self._store is None:
            at = stores.opened(self._options.store, self._options.origin)
            self._store = self._held.enter_context(at)
        else:
            stores.renew(self._store)
        known = [] if self._options.pattern is None else list(self._store.topics)
        names = self._options.chosen(known)
        for name in names:
            if name not in self._topics:
                mark = self._mark(name)  # before it is opened: what changes meanwhile is seen later
                topic = None
                with suppress(UnknownTopic):
                    topic = open_raw(self._store, name, self._options.visibility)
                self._topics[name] = mark, topic
        found = {name: self._topics[name][1] for name in names}
        return {name: topic for name, topic in found.items() if topic is not None}

    def close(self) -> None:
        """Close the topics and the store."""
        for _, topic in self._topics.values():
            if topic is not None:
                topic.close()
        self._topics = {}
        self._store = None
        self._held.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_store": None, "_held": ExitStack(), "_topics": {}}

    def _mark(self, name: str) -> _Mark:
        at = self._options.store
        if isinstance(at, str):  # a place, whose settings files are where it is read
            if self._store is None:
                return None
            at = self._store.path
        try:
            found = os.stat(at / "topics" / name / "topic.json")
        except (OSError, ValueError):  # no such file, or no name of a file
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
