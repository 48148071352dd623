"""Waiting for a topic that another process creates: `Store.wait_for_topic` and its async twin.

A topic appears seldom, and a look costs one `stat`: so this looks repeatedly, and needs no flag as
waiters for records do. It also works for a store that was opened for reading.

Invariant: no topic of another store counts as one of this. Once a second, and before a wait
ends, its files are compared with those at its beginning. `falaj.json` is replaced when the store is
configured, so only the id in it counts. Nothing replaces the directory and `presence`: see
docs/FORMAT.md, Lock files.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TypeVar

from falaj._numbers import seconds
from falaj.errors import FilesRemoved, LockFileReplaced

if TYPE_CHECKING:
    from pathlib import Path

    from falaj._store import Store
    from falaj._time import Duration

__all__ = ["await_for_topic", "wait_for_topic"]

T = TypeVar("T", FilesRemoved, LockFileReplaced)

_EVERY_S = 0.02
#: Seconds between two looks at the store's own files.
_FILES_S = 1.0


def wait_for_topic(store: Store, name: str, timeout: Duration | None) -> None:
    """Wait; see `Store.wait_for_topic`."""
    wait = _Wait(store, name, timeout)
    while (pause := wait.pause()) is not None:
        time.sleep(pause)


async def await_for_topic(store: Store, name: str, timeout: Duration | None) -> None:
    """Wait from asyncio; see `Store.await_for_topic`."""
    import asyncio  # it takes as long to import as all of falaj

    wait = _Wait(store, name, timeout)
    while (pause := wait.pause()) is not None:
        await asyncio.sleep(pause)


class _Wait:
    """One wait for a topic, with its deadline."""

    def __init__(self, store: Store, name: str, timeout: Duration | None) -> None:
        store._check_topic(
            name, codec=None, partitions=None, segment_bytes=None, sync_interval_ms=None
        )
        self._store = store
        self._name = name
        wait = seconds(timeout)
        began = time.monotonic()
        self._until = None if wait is None else began + wait
        self._files = _Files(store)
        self._files_due = began + _FILES_S

    def pause(self) -> float | None:
        """Seconds to wait before the next look; None if the topic is there.

        Raises:
            UnknownTopic: The time is over.
            FilesRemoved, LockFileReplaced: The store is no longer there.
        """
        is_there = self._store._has_topic(self._name)
        now = time.monotonic()
        left = _EVERY_S if self._until is None else self._until - now
        if is_there or left <= 0 or now >= self._files_due:
            self._files.expect()
            self._files_due = now + _FILES_S
        if is_there:
            return None
        if left <= 0:
            self._store._topic_info(self._name)  # raises, with the topics there are
            return None
        return min(_EVERY_S, left)


class _Files:
    """The files of a store that say whether it is still the same."""

    def __init__(self, store: Store) -> None:
        self._root, self._id = store.path, store.id
        self._directory = _file(self._root)
        self._presence = _file(self._root / "presence")
        self.expect()

    def expect(self) -> None:
        """Check that they are still those of the store.

        Raises:
            FilesRemoved: The store was removed, or moved away.
            LockFileReplaced: Another store is there, or an older copy.
        """
        settings, lock = self._root / "falaj.json", self._root / "presence"
        directory, presence = _file(self._root), _file(lock)
        if _file(settings) is None:
            raise _error(
                FilesRemoved,
                self._root,
                "was removed, or moved away, while in use; open the store again, or restore a "
                "backup",
            )
        if directory != self._directory or _id(settings) not in (None, self._id):
            raise _replaced(self._root)
        if self._presence is None:
            self._presence = presence  # the first process that writes makes it
        elif presence != self._presence:
            raise _replaced(lock)


def _file(path: Path) -> tuple[int, int] | None:
    """Identify what a path leads to; None for nothing."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _id(settings: Path) -> str | None:
    """Read the id of the store that is there; None if that cannot be had."""
    import json  # asked for once a second

    try:
        found: str = json.loads(settings.read_bytes())["store"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found


def _replaced(path: Path) -> LockFileReplaced:
    return _error(
        LockFileReplaced,
        path,
        "was replaced while in use; stop all processes of this store and open it again, or restore "
        "a backup",
    )


def _error(kind: type[T], path: Path, why: str) -> T:
    error = kind(f"{path} {why}")
    error.path = os.fspath(path)
    return error
