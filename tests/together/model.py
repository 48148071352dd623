"""The expected content of a store, as plain lists: the rules, each written once.

A partition is the list of all records that were ever appended to it, and an offset is an index of
that list. A trim or a limit always removes the beginning, so `first` says how much. Compaction
removes single records: `taken`. A queue and a group are dictionaries by offset and by partition.

Two things are not exact, by the promises of docs/GUARANTEES.md: how much compaction removes, and
how much a limit of bytes or age removes. For these the model says what must stay and what may be
removed. The machine then looks what was removed, and from there on everything is exact again.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as every way of reading must return it."""

    value: Any
    key: bytes | None = None
    headers: Headers = ()
    time_ns: int = 0
    is_tombstone: bool = False
    has_time: bool = False
    """True if its time was given. Otherwise it is the clock's, and a copy of the record gets
    another.
    """


@dataclass
class Partition:
    """All records that were ever appended, and those that are left."""

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
        """The remaining offsets from one on: the count of a lag."""
        return [o for o in self.there() if o >= offset]

    def from_the_end(self, n: int) -> int:
        """The start of the last n records: what a negative start means, and `last(n)`."""
        there = self.there()
        if n == 0:
            return self.end
        return there[-n] if n <= len(there) else self.first

    def at(self, time_ns: int) -> int:
        """The first record at or after a time, or the end."""
        return next((o for o in self.there() if self.records[o].time_ns >= time_ns), self.end)

    def last_of_keys(self) -> set[int]:
        """Records that compaction must keep: the last of each key, and those without one."""
        last = {self.records[o].key: o for o in self.there()}
        return {o for o in self.there() if self.records[o].key is None} | set(last.values())

    def may_be_compacted(self, *, tombstones: bool) -> set[int]:
        """Records that compaction may remove; with `tombstones`, also a last one that is one."""
        gone = set(self.there()) - self.last_of_keys()
        if tombstones:
            gone |= {o for o in self.last_of_keys() if self.records[o].is_tombstone}
        return gone


@dataclass
class Limits:
    """The limits of a topic."""

    records: int | None = None
    bytes: int | None = None
    age_s: float | None = None
    waits: bool = False
    protected: bool = False

    def any(self) -> bool:
        """True if limits may delete anything."""
        return not self.records is self.bytes is self.age_s is None


@dataclass
class Topic:
    """A topic: its partitions and settings."""

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
    """The lowest and highest start of a partition once all limits were applied.

    A limit of records is exact: so many records stay. A limit of bytes or of the store may delete
    any file but the newest. A limit of age deletes only files in which every record is too old.
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
    """A consumer group with one member, which is open at times."""

    topics: list[str]
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    position: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass
class Work:
    """The state of a record as a job of a queue."""

    state: str = "new"
    """The state: new, late (never delivered, and delayed), out (in flight), fresh (returned before
    work began), back (returned), later (returned, and delayed), done or dead.
    """
    attempts: int = 0
    begun: bool = False
    """True if work on it began: that is what counts as an attempt."""
    suspect: bool = False
    """Work had begun when its worker left or died: it may be delivered in a batch of its own. It
    stays one until work on it fails or is done.
    """

    def begin(self) -> None:
        """Count an attempt."""
        self.attempts += not self.begun
        self.begun = True

    def back(self, state: str = "back") -> None:
        """Give it back: if work had not begun, as if it had not been delivered."""
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
        """The offset that retention waits for."""
        undone = (o for o, work in sorted(self.works.items()) if work.state not in ("done", "dead"))
        return next(undone, end)
