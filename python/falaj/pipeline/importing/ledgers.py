"""`Ledger`: which files were imported into a topic, so that each is once.

It is a topic of the same store, `<topic>.imports`, so that backups hold both or neither. An import
appends what it is about to import to the ledger, durable, and then commits its records to the topic
under the token `falaj.import`, whose number is the offset in the ledger. Invariant: the files of an
entry are in the topic if the token says its number, or an entry that does names it in `after`, and
so on back; all other entries are of imports that died, or gave up, before they committed anything.

One import of a topic runs at a time: the lock is the one partition of a consumer of the ledger.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from falaj.errors import CorruptData, InvalidArgument, LockTimeout, OffsetOutOfRange
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from falaj import AnyTopic, Store, Topic

__all__ = ["TOKEN", "Entry", "Ledger", "SourceFile", "expect_name", "known"]

TOKEN = "falaj.import"
_SUFFIX = ".imports"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file as it was when it was looked at.

    Attributes:
        path: Absolute.
        size: In bytes.
        mtime_ns: When it was changed last, as its file system says.
    """

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An import, done or not.

    Attributes:
        generation: The topic's.
        after: Number of the import that was done before, or None.
        files: What it imports.
        bad: How many rows go to the topic `bad_to`.
        bad_to: Where malformed rows go, or None.
    """

    generation: str
    after: int | None
    files: tuple[SourceFile, ...]
    bad: int
    bad_to: str | None


class Ledger:
    """The files imported into a topic. `opened` makes it, and keeps others out meanwhile."""

    def __init__(self, topic: AnyTopic[Any], entries: Topic[Any]) -> None:
        self._topic = topic
        self._entries = entries

    @classmethod
    @contextmanager
    def opened(cls, store: Store, name: str) -> Iterator[Ledger]:
        """Open the ledger of a topic, or make it.

        Args:
            store: Open for writing.
            name: The topic's.

        Raises:
            LockTimeout: Another import is at it.
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
            CorruptData: The ledger does not hold them.
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
        """Write down what is about to be imported; return its number."""
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
    """List the files of imports by their path."""
    return {file.path: file for _, entry in reversed(done) for file in entry.files}


def expect_name(topic: str) -> None:
    """Refuse a topic whose ledger could not be named.

    Raises:
        InvalidArgument: The name is too long, or that of a ledger.
    """
    if topic.endswith(_SUFFIX):
        raise InvalidArgument(f"topic {topic} is itself the ledger of imports: import into another")
