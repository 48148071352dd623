"""`Ledger`: which files were imported into a topic, so that each is imported once.

The ledger is a topic of the same store, `<topic>.imports`, so a backup holds both or neither. An
import first appends an entry with its files to the ledger, durably. Then it commits its records to
the topic with the idempotency key `falaj.import`. The number in the key is the offset of the entry.

Invariant: the newest number of the key names an entry that is done. Its `after` names the one that
was done before, and so on back. The files of these entries are in the topic. All other entries are
of imports that died, or gave up, before they committed anything.

Only one import of a topic runs at a time. The lock is the single partition of the ledger: a
consumer group assigns it to one member.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from falaj.errors import CorruptData, LockTimeout, OffsetOutOfRange
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from falaj import AnyTopic, Store, Topic

__all__ = ["TOKEN", "Entry", "Ledger", "SourceFile", "known", "ledger_of"]

TOKEN = "falaj.import"
_SUFFIX = ".imports"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file, as it was when an import examined it.

    Attributes:
        path: Its absolute path or its URL.
        size: In bytes.
        mtime_ns: The time of its last change, as its file system reports it.
    """

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of the ledger: an import, done or not.

    Attributes:
        generation: The generation of the topic.
        after: Number of the import before that was done, or None.
        files: The files that it imports.
        bad: How many rows go to the topic `bad_to`.
        bad_to: The topic that gets malformed rows, or None.
    """

    generation: str
    after: int | None
    files: tuple[SourceFile, ...]
    bad: int
    bad_to: str | None


class Ledger:
    """The files imported into a topic. `opened` creates it, and keeps other imports out."""

    def __init__(self, topic: AnyTopic[Any], entries: Topic[Any]) -> None:
        self._topic = topic
        self._entries = entries

    @classmethod
    @contextmanager
    def opened(cls, store: Store, name: str) -> Iterator[Ledger]:
        """Open the ledger of a topic, or create it.

        Args:
            store: Open for writing.
            name: The name of the topic.

        Raises:
            LockTimeout: Another import has it open.
        """
        with (
            open_raw(store, name) as topic,
            store.topic(name + _SUFFIX, codec="json") as entries,
            store.consumer(name + _SUFFIX, [entries]) as member,
        ):
            if not member.partitions:
                raise LockTimeout(
                    f"another import into topic {name} is under way: let it end, and try again"
                )
            yield cls(topic, entries)

    @property
    def number(self) -> int:
        """Number of the next import."""
        return self._entries.end_offset

    def done(self) -> list[tuple[int, Entry]]:
        """List the imports that are in the topic, newest first.

        Raises:
            CorruptData: The ledger lacks one of them.
        """
        found = []
        number = self._topic.last_idempotency_key(TOKEN)
        while number is not None:
            entry = self._entry(number)
            earlier = entry.after is None or entry.after < number
            if entry.generation != self._topic.generation or not earlier:
                raise self._damage(number)
            found.append((number, entry))
            number = entry.after
        return found

    def begin(self, files: Sequence[SourceFile], bad: int, bad_to: str | None) -> int:
        """Append the entry of a new import; return its number."""
        entry = Entry(
            generation=self._topic.generation,
            after=self._topic.last_idempotency_key(TOKEN),
            files=tuple(files),
            bad=bad,
            bad_to=bad_to,
        )
        number = self.number
        self._entries.append({"version": _VERSION, **asdict(entry)}, sync="durable", expect=number)
        return number

    def _entry(self, number: int) -> Entry:
        try:
            kept: dict[str, Any] = self._entries[number].value
            if kept.pop("version") != _VERSION:
                raise self._damage(number)
            files = tuple(SourceFile(**one) for one in kept["files"])
            return Entry(**(kept | {"files": files}))
        except (OffsetOutOfRange, KeyError, TypeError, AttributeError, json.JSONDecodeError):
            raise self._damage(number) from None

    def _damage(self, number: int) -> CorruptData:
        name = self._topic.name
        return CorruptData(
            f"topic {name} has import {number}, and topic {name}{_SUFFIX} does not tell which "
            f"files that was: restore it from a backup, or, to import everything again, call "
            f"forget_idempotency_key({TOKEN!r}) of topic {name}"
        )


def known(done: Sequence[tuple[int, Entry]]) -> dict[str, SourceFile]:
    """Return the imported files by their paths."""
    return {file.path: file for _, entry in reversed(done) for file in entry.files}


def ledger_of(topic: str) -> str:
    """Name the ledger of a topic."""
    return topic + _SUFFIX
