"""What a store must hold, as plain lists: the rules, each written once.

A partition is the list of all records that were ever appended to it, and an offset is an index of
that list. What a trim or a limit takes is always the beginning, so `first` says it. What compaction
takes are single records: `taken`. A queue and a group are dictionaries by offset and by partition.

Two things are not exact, by what docs/GUARANTEES.md promises: how much compaction takes, and how
much a limit of bytes or of age takes. For these the model says what must stay and what may go; the
machine then looks what went, and from there on everything is exact again.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as every way of reading must give it back."""

    value: Any
    key: bytes | None = None
    headers: Headers = ()
    time_ns: int = 0
    is_tombstone: bool = False
    has_time: bool = False
    """Whether its time was given; else it is the clock's, and a copy of the record gets another."""


@dataclass
class Partition:
    """All that was ever appended, and what of it is left."""

    records: list[Record] = field(default_factory=list)
    first: int = 0
    taken: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return len(self.records)

    def there(self) -> list[int]:
        """The offsets of the records that are left."""
        return [o for o in range(self.first, self.end) if o not in self.taken]

    def behind(self, offset: int) -> list[int]:
        """Those of them from an offset on: what a lag counts."""
        return [o for o in self.there() if o >= offset]

    def from_the_end(self, n: int) -> int:
        """Where the last n records begin: what every negative start means, and `last(n)`."""
        there = self.there()
        if n == 0:
            return self.end
        return there[-n] if n <= len(there) else self.first

    def at(self, time_ns: int) -> int:
        """The first record that is at or after a time, or the end."""
        return next((o for o in self.there() if self.records[o].time_ns >= time_ns), self.end)

    def last_of_keys(self) -> set[int]:
        """What no compaction may take: of each key the last record, and records without a key."""
        last = {self.records[o].key: o for o in self.there()}
        return {o for o in self.there() if self.records[o].key is None} | set(last.values())

    def may_be_compacted(self, *, tombstones: bool) -> set[int]:
        """What compaction may take; tombstones that are the last of their key when time is over."""
        gone = set(self.there()) - self.last_of_keys()
        if tombstones:
            gone |= {o for o in self.last_of_keys() if self.records[o].is_tombstone}
        return gone


@dataclass
class Limits:
    """What was configured for a topic."""

    records: int | None = None
    bytes: int | None = None
    age_s: float | None = None
    waits: bool = False
    protected: bool = False

    def any(self) -> bool:
        """Whether anything may go by itself."""
        return not self.records is self.bytes is self.age_s is None


@dataclass
class Topic:
    """A topic: its partitions, and what it was told."""

    codec: str
    log: str | None
    partitions: list[Partition]
    compacted: bool = False
    limits: Limits = field(default_factory=Limits)
    sequences: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """The last appends of each producer: number and offset."""
    tokens: dict[str, int] = field(default_factory=dict)
    """The last bulk load of each series."""


Bounds = tuple[int, int]


def first_after_limits(
    part: Partition, limits: Limits, store_limit: bool, now_ns: int, needed: int | None
) -> Bounds:
    """Where a partition begins once all limits were seen to: at least here, at most there.

    A limit of records is exact: so many records stay. A limit of bytes or of the store may take
    any file but the newest; one of age only files in which every record is too old.
    """
    least = part.first
    if limits.records is not None:
        least = max(least, part.from_the_end(limits.records))
    most = least
    if limits.age_s is not None:
        too_old = now_ns - int(limits.age_s * 1e9)
        most = max(most, part.at(too_old))
    if limits.bytes is not None or (store_limit and not limits.protected):
        most = part.end
    if limits.waits and needed is not None:
        least = max(part.first, min(least, needed))
        most = max(part.first, min(most, needed))
    return least, most


@dataclass
class Group:
    """A consumer group with one member, which is open now and then."""

    topics: list[str]
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    position: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass
class Work:
    """What became of a record as a job of a queue."""

    state: str = "new"
    """new, late (never delivered, and its time has not come), out, fresh (it came back, and nobody
    had begun it), back, later (it came back, and its time has not come), done or dead."""
    attempts: int = 0
    begun: bool = False
    """Whether whoever has it began to work on it: that is what counts as an attempt."""
    suspect: bool = False
    """It was begun when its worker left or died: it may come in a batch of its own."""

    def begin(self) -> None:
        """Count an attempt."""
        self.attempts += not self.begun
        self.begun = True

    def back(self, state: str = "back") -> None:
        """Give it back: as if nobody had had it, where nobody began it."""
        self.state = state if self.begun or self.attempts or state == "later" else "fresh"
        self.begun = False


@dataclass
class Queue:
    """A work queue over a topic of one partition."""

    topic: str
    max_attempts: int | None
    works: dict[int, Work] = field(default_factory=dict)
    dead: int = 0

    def of(self, state: str) -> list[int]:
        """The offsets of the jobs in a state."""
        return [o for o, work in sorted(self.works.items()) if work.state == state]

    def lowest_undone(self, end: int) -> int:
        """What retention waits for."""
        undone = (o for o, work in sorted(self.works.items()) if work.state not in ("done", "dead"))
        return next(undone, end)
