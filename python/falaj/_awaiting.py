"""Waiting for a topic that another process creates: `Store.wait_for_topic` and its async twin.

A topic appears seldom, and a look costs one `stat`: so this looks repeatedly, and needs no flag as
waiters for records do. It also works for a store that was opened for reading.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from falaj._numbers import seconds

if TYPE_CHECKING:
    from falaj._store import Store

__all__ = ["await_for_topic", "wait_for_topic"]

_EVERY_S = 0.02


def wait_for_topic(store: Store, name: str, timeout: float | None) -> None:
    """Wait; see `Store.wait_for_topic`."""
    wait = _Wait(store, name, timeout)
    while (pause := wait.pause()) is not None:
        time.sleep(pause)


async def await_for_topic(store: Store, name: str, timeout: float | None) -> None:
    """Wait from asyncio; see `Store.await_for_topic`."""
    import asyncio  # it takes as long to import as all of falaj

    wait = _Wait(store, name, timeout)
    while (pause := wait.pause()) is not None:
        await asyncio.sleep(pause)


class _Wait:
    """One wait for a topic, with its deadline."""

    def __init__(self, store: Store, name: str, timeout: float | None) -> None:
        store._check_topic(
            name, codec=None, partitions=None, segment_bytes=None, sync_interval_ms=None
        )
        self._store = store
        self._name = name
        timeout = seconds(timeout)
        self._until = None if timeout is None else time.monotonic() + timeout

    def pause(self) -> float | None:
        """Seconds to wait before the next look; None if the topic is there.

        Raises:
            UnknownTopic: The time is over.
        """
        if self._store._has_topic(self._name):
            return None
        left = _EVERY_S if self._until is None else self._until - time.monotonic()
        if left <= 0:
            self._store._topic_info(self._name)  # raises, with the topics there are
            return None
        return min(_EVERY_S, left)
