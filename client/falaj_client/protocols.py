"""The subset of falaj's classes that a client has too, as types.

A program that is annotated with these takes a native store or one behind a server. `tests/typing`
holds both against them, and one suite of tests runs over both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = [
    "AnyTopicLike",
    "ConsumerLike",
    "FollowerLike",
    "JobLike",
    "PartitionedTopicLike",
    "QueueLike",
    "RecordLike",
    "SliceLike",
    "StoreLike",
    "TopicLike",
    "TransactionLike",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Key = str | bytes
Headers = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]
Start = int | Literal["earliest", "latest"] | datetime | str
Sync = Literal["none", "interval", "durable", "remote"]


class RecordLike(Protocol[T_co]):
    """A record that was read. `raw` is a view or bytes: `to_bytes` is the same for both."""

    @property
    def value(self) -> T_co:
        """The value, as the codec reads it."""

    @property
    def is_tombstone(self) -> bool:
        """True for a record without a value, which deletes its key."""

    @property
    def key(self) -> bytes | None:
        """The key, or None."""

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """Names and values, in order."""

    @property
    def topic(self) -> str:
        """Name of its topic."""

    @property
    def partition(self) -> int:
        """Number of its partition."""

    @property
    def offset(self) -> int:
        """Its number in its partition."""

    @property
    def timestamp(self) -> datetime:
        """When it happened, in microseconds."""

    @property
    def timestamp_ns(self) -> int:
        """The same in nanoseconds since 1970."""

    def to_bytes(self) -> bytes:
        """A copy of the payload."""


class FollowerLike(Protocol[T_co]):
    """An iterator over records that closes, as `follow` returns it."""

    def __iter__(self) -> Iterator[RecordLike[T_co]]: ...
    def __next__(self) -> RecordLike[T_co]: ...
    def close(self) -> None:
        """End it."""


class SliceLike(Protocol[T_co]):
    """Records of a range of offsets, read when they are iterated."""

    @property
    def offsets(self) -> range:
        """Its offsets."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[RecordLike[T_co]]: ...
    def __reversed__(self) -> Iterator[RecordLike[T_co]]: ...


class AnyTopicLike(Protocol[T_co]):
    """A topic of either kind."""

    @property
    def name(self) -> str:
        """Name of the topic."""

    @property
    def codec(self) -> str:
        """Name of its codec."""

    @property
    def partitions(self) -> range:
        """Numbers of its partitions."""

    @property
    def offsets(self) -> dict[int, range]:
        """The offsets of each partition."""

    @property
    def finished(self) -> bool:
        """True once no record comes after those that are there."""

    @property
    def properties(self) -> dict[str, str]:
        """The texts that programs keep with the topic, by name."""

    def count(self) -> int:
        """Count the records, without reading them."""

    def __iter__(self) -> Iterator[RecordLike[T_co]]: ...
    def __len__(self) -> int: ...
    def follow(self, start: Start = ..., *, timeout: float | None = ...) -> FollowerLike[T_co]:
        """Read from a place on, and go on as records are appended."""

    def partition(self, partition: int) -> TopicLike[Any]:
        """View one partition as a topic of its own."""

    def configure(
        self,
        *,
        compacted: bool | None = ...,
        properties: Mapping[str, str | None] | None = ...,
        retention_bytes: int | None = ...,
        retention_age: timedelta | float | str | None = ...,
        retention_records: int | None = ...,
        retention_waits: bool = ...,
        retention_protected: bool = ...,
    ) -> Mapping[str, Any]:
        """Change what the topic keeps."""

    def compact(
        self, *, delete_retention: timedelta | float | str = ..., seal: bool = ...
    ) -> Mapping[str, Any]:
        """Remove all but the last record of each key."""

    def finish(self) -> None:
        """Finish the topic."""

    def delete(self) -> None:
        """Delete the topic with its records."""

    def close(self) -> None:
        """Close the handle."""


class TopicLike(AnyTopicLike[T], Protocol[T]):
    """A topic of one partition."""

    def append(
        self,
        value: T,
        key: Key | None = None,
        *,
        headers: Headers | None = None,
        timestamp: datetime | str | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: float | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> int:
        """Append a record, and return its offset."""

    def extend(
        self,
        records: Iterable[T | tuple[Key, T]],
        *,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: float | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> range:
        """Append many records at once."""

    def tombstone(self, key: Key) -> int:
        """Append a tombstone, which deletes the key."""

    @property
    def start_offset(self) -> int:
        """Lowest offset that is still there."""

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""

    def read(self, start: int, n: int) -> Sequence[RecordLike[T]]:
        """Read up to `n` records from an offset on."""

    def last(self, n: int = 1) -> Sequence[RecordLike[T]]:
        """Read the last `n` records."""

    def range(
        self, start: int | datetime | str | None = None, end: int | datetime | str | None = None
    ) -> SliceLike[T]:
        """Take the records from one offset or time up to another."""

    def at(self, time: datetime | str) -> RecordLike[T] | None:
        """Find the first record of a time or later."""

    def offset_at(self, time: datetime | str) -> int | None:
        """Find its offset."""

    def trim(
        self, *, before_offset: int | None = None, before_time: datetime | str | None = None
    ) -> Mapping[str, Any]:
        """Delete the oldest records."""

    def __reversed__(self) -> Iterator[RecordLike[T]]: ...


class PartitionedTopicLike(AnyTopicLike[T], Protocol[T]):
    """A topic of several partitions."""

    def append(
        self,
        value: T,
        key: Key | None = None,
        *,
        headers: Headers | None = None,
        timestamp: datetime | str | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: float | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> tuple[int, int]:
        """Append a record, and return its partition and offset."""

    def extend(
        self,
        records: Iterable[T | tuple[Key, T]],
        *,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: float | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> dict[int, range]:
        """Append many records at once."""

    def __getitem__(self, position: tuple[int, int], /) -> RecordLike[T]: ...


class TransactionLike(Protocol):
    """Records for several topics that become visible together."""

    def append(
        self,
        topic: str,
        value: Any,
        key: Key | None = None,
        *,
        headers: Headers | None = None,
        timestamp: datetime | str | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        expect: int | None = None,
    ) -> None:
        """Append a record at the end of the transaction."""

    def tombstone(self, topic: str, key: Key) -> None:
        """Append a tombstone at the end of the transaction."""

    def extend(self, topic: str, records: Iterable[Any]) -> None:
        """Append many records at the end of the transaction."""

    def commit_cursor(self, cursors: Any, *, metadata: str | None = None) -> None:
        """Commit a consumer's offsets at the end of the transaction."""

    @property
    def offsets(self) -> dict[str, dict[int, range]] | None:
        """After its end, the offsets of each topic's partitions."""


class ConsumerLike(Protocol[T_co]):
    """A member of a consumer group."""

    @property
    def group(self) -> str:
        """The group that it is a member of."""

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """The partitions of this member."""

    def __iter__(self) -> Iterator[RecordLike[T_co]]: ...
    def poll(
        self, max_records: int = 500, timeout: float | None = None
    ) -> Sequence[RecordLike[T_co]]:
        """Return the next records."""

    def follow(self, timeout: float | None = None) -> Iterator[RecordLike[T_co]]:
        """Iterate over the records that are there and later ones."""

    def commit(
        self,
        offset: int | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        metadata: str | None = None,
    ) -> None:
        """Commit after all delivered records, or an offset."""

    def seek(self, to: Start, *, topic: str | None = None, partition: int | None = None) -> None:
        """Move the position."""

    def close(self) -> None:
        """Leave the group."""


class JobLike(Protocol[T_co]):
    """A job of a queue, and the right to work on it until its lease ends."""

    @property
    def value(self) -> T_co:
        """The value of its record."""

    @property
    def key(self) -> bytes | None:
        """The key of its record."""

    @property
    def offset(self) -> int:
        """The offset of its record."""

    @property
    def attempt(self) -> int:
        """The number of attempts, this one included."""

    @property
    def settled(self) -> bool:
        """True once it was acked or given back."""

    def ack(self) -> None:
        """Say that the job is done."""

    def nack(self, delay: float | None = None, *, reason: str | None = None) -> None:
        """Return the job because it failed."""

    def extend(self, lease: float = 30.0) -> None:
        """Keep the job for longer."""

    def __enter__(self) -> JobLike[T_co]: ...
    def __exit__(self, kind: Any, error: BaseException | None, trace: Any, /) -> None: ...


class QueueLike(Protocol[T]):
    """A work queue over a topic."""

    def put(self, value: T, key: Key | None = None, *, delay: float = 0.0) -> int:
        """Append a job."""

    def put_many(self, values: Iterable[T | tuple[Key, T]], *, delay: float = 0.0) -> range:
        """Append jobs in one append."""

    def take(
        self, n: int = 1, lease: float = 30.0, timeout: float | None = None
    ) -> Sequence[JobLike[T]]:
        """Take jobs, waiting for the first of them."""

    def jobs(self, lease: float = 30.0, timeout: float | None = None) -> Iterator[JobLike[T]]:
        """Iterate over jobs, one at a time."""

    def redrive(self, limit: int | None = None) -> int:
        """Put dead letters back into the queue."""

    def __iter__(self) -> Iterator[JobLike[T]]: ...


class StoreLike(Protocol):
    """A store: `falaj.open` and `falaj.connect` both return one."""

    def topic(self, name: str, *, codec: str | None = None, create: bool = True) -> TopicLike[Any]:
        """Open a topic of one partition."""

    def partitioned_topic(
        self, name: str, *, partitions: int | None = None, codec: str | None = None
    ) -> PartitionedTopicLike[Any]:
        """Open a topic of several partitions."""

    def any_topic(self, name: str, *, codec: str | None = None) -> AnyTopicLike[Any]:
        """Open a topic that exists."""

    @property
    def topics(self) -> Mapping[str, Any]:
        """The topics, by name."""

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""

    def transaction(self) -> AbstractContextManager[TransactionLike]:
        """Begin to write to several topics at once."""

    def consumer(
        self,
        group: str,
        topics: str | Sequence[str] | None = None,
        *,
        pattern: str | None = None,
        start: Start = "earliest",
        cursor_in: str | None = None,
    ) -> ConsumerLike[Any]:
        """Join a consumer group."""

    @property
    def groups(self) -> Mapping[str, Any]:
        """The consumer groups, by name."""

    def delete_group(self, name: str) -> None:
        """Delete a consumer group."""

    def seek_group(
        self, group: str, topic: str, to: Start, *, partition: int | None = None
    ) -> dict[int, int]:
        """Move the committed offsets of a group without members."""

    def forget_topic(self, group: str, topic: str) -> None:
        """Forget the committed offsets of a group in one topic."""

    def queue(
        self,
        name: str,
        topic: str | None = None,
        *,
        codec: str | None = None,
        max_attempts: int | None = None,
        dead_letter: str | None = None,
        order: Literal["key"] | None = None,
        create: bool = True,
    ) -> QueueLike[Any]:
        """Open a work queue."""

    @property
    def queues(self) -> Mapping[str, Any]:
        """The work queues, by name."""

    def delete_queue(self, name: str) -> None:
        """Delete the state of a queue."""

    def close(self) -> None:
        """Close it."""
