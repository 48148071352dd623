"""The contents of the compiled half; `make lint` checks this against the module itself.

Its classes are documented where they are public: `falaj.Store` and `falaj.Topic` derive from them.
"""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import GenericAlias
from typing import Any, Final, Generic, NoReturn, Self, SupportsIndex, TypeVar, final, overload

import pyarrow
from typing_extensions import Buffer, disjoint_base

from falaj._admin import (
    BackupReport,
    BuildReport,
    GroupInfo,
    Progress,
    RepairReport,
    Skipped,
    SkippedOfTopic,
    StoreInfo,
    TopicInfo,
    Verification,
)
from falaj._arguments import BulkLoadReport, QueueInfo, Sync, Visibility
from falaj._compaction import CompactReport
from falaj._records import Position, Receipt
from falaj._retention import Changes, Maintenance, TopicRetention
from falaj._slice import Slice
from falaj._time import Duration, Time

__all__ = [
    "AnyTopic",
    "ArrowBatch",
    "ArrowStream",
    "Batch",
    "BatchRecords",
    "BatchView",
    "Batches",
    "Bell",
    "Consumed",
    "Consumer",
    "Cut",
    "CutEnd",
    "CutFile",
    "CutLog",
    "CutSegment",
    "ExpiringProducer",
    "Floor",
    "Follower",
    "Job",
    "NewRecord",
    "Opened",
    "Part",
    "PartitionedTopic",
    "PlaceView",
    "Queue",
    "Receipts",
    "Record",
    "Records",
    "Shipping",
    "Store",
    "StoreBuilder",
    "Ticket",
    "Topic",
    "Transaction",
    "Values",
    "ValuesIterator",
    "View",
    "Watch",
    "__version__",
    "_acknowledge_ends",
    "_arrow",
    "_arrow_of",
    "_arrow_stream",
    "_backoff",
    "_backup",
    "_compact",
    "_configure_min_sync",
    "_configure_shipping",
    "_configure_store",
    "_configure_topic",
    "_count_from",
    "_crc32",
    "_cursor",
    "_delete_group",
    "_delete_queue",
    "_expect_json",
    "_expect_msgpack",
    "_expect_queue",
    "_expect_record",
    "_forget_topic",
    "_group_names",
    "_groups",
    "_info",
    "_maintain",
    "_mark_compacted",
    "_min_sync",
    "_position_of",
    "_queue_overview",
    "_queues",
    "_reason_of",
    "_redrive",
    "_repair",
    "_seek_group",
    "_set_properties",
    "_shipping",
    "_text_or_bytes",
    "_topic_in_log",
    "_topic_info",
    "_topic_of_queue",
    "_verify",
]

__version__: Final[str]

_T = TypeVar("_T")
_Key = str | Buffer
_Headers = Mapping[str, _Key | None] | Iterable[tuple[str, _Key | None]]

@disjoint_base
class View(Buffer):
    """The bytes of a value, at their place in the map; a detached record has its own."""

@final
class BatchView(Buffer):
    """Exports values of a batch in sequence: an object for each would cost as much as the rest of its
    memoryview.
    """

@final
class Record(View, Generic[_T]):
    """A committed record of a topic.

    Nothing is decoded or copied before it is needed. It stays valid after its topic was closed or
    deleted, and so does every view of it: they hold the map of their segment. It exports its
    payload: `memoryview(record)`, and `bytes(record)` copies it.

    `pickle`, `copy.copy` and `copy.deepcopy` make a detached record: it has its own bytes and holds
    no map. It is equal to this one. A pickle names the function that decodes, so a codec of your
    own must have one that pickles: a function of a module.

    Example:
        >>> orders = store.topic("orders")
        >>> _ = orders.append(b"10 apples", key=b"eu", timestamp="2026-11-20T08:00:00Z")
        >>> record = orders[0]
        >>> record
        <Record orders[0] b'10 apples'>
        >>> record.key, record.offset, record.timestamp.isoformat()
        (b'eu', 0, '2026-11-20T08:00:00+00:00')
        >>> record.value[3:].tobytes()
        b'apples'
    """

    @property
    def value(self) -> _T:
        """The value, as the topic's codec reads the payload. A topic of "raw" gives a read-only
        memoryview, one of "bytes" gives bytes; the result of another codec is cached. None for a
        tombstone, and for a value that is None, such as JSON's null: `is_tombstone` distinguishes
        them.

        Raises:
            DecodeFailed: The codec cannot read the payload; `raw` and `to_bytes()` return it unchanged.
        """
    @property
    def raw(self) -> memoryview | None:
        """The payload as a read-only memoryview of the mapped segment; None for a tombstone."""
    @property
    def is_tombstone(self) -> bool:
        """True for a record without a value, which deletes its key; see `Topic.tombstone`."""
    @property
    def key(self) -> builtins.bytes | None:
        """The key, or None."""
    @property
    def headers(self) -> tuple[tuple[str, builtins.bytes | None], ...]:
        """Names and values, in order; a name may appear twice."""
    @property
    def offset(self) -> int:
        """Its number in its partition."""
    @property
    def partition(self) -> int:
        """Number of its partition."""
    @property
    def timestamp(self) -> datetime:
        """The same as a datetime in UTC, in microseconds."""
    @property
    def timestamp_ns(self) -> int:
        """When it happened, or otherwise was appended, in nanoseconds since 1970."""
    @property
    def topic(self) -> str:
        """Name of its topic."""
    def to_bytes(self) -> builtins.bytes:
        """A copy of the payload."""
    def __bytes__(self) -> builtins.bytes: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @staticmethod
    def _restored(
        topic: tuple[str, builtins.bytes, str],
        decode: Callable[[builtins.bytes], Any] | None,
        place: tuple[int, int],
        time: tuple[int, bool],
        content: tuple[
            builtins.bytes | None,
            builtins.bytes | None,
            tuple[tuple[str, builtins.bytes | None], ...],
        ],
    ) -> Record[Any]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

@final
class NewRecord:
    """A record to be appended, with all its parts, for `Topic.extend`.

    Args:
        value: As for `Topic.append`. None is a value, where the codec has one; `NewRecord.tombstone` makes
            a record without a value.
        key, headers, timestamp, timestamp_ns: As for `Topic.append`.

    Example:
        >>> orders = store.topic("orders")
        >>> orders.extend([falaj.NewRecord(b"x", headers=[("trace", b"1"), ("trace", b"2")])])
        range(0, 1)
        >>> orders[0].headers
        (('trace', b'1'), ('trace', b'2'))
    """

    def __new__(
        cls,
        value: Any,
        key: _Key | None = None,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
    ) -> Self: ...
    @staticmethod
    def tombstone(
        key: _Key,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
    ) -> NewRecord:
        """Make a tombstone: a record without a value, which deletes its key, for `Topic.extend`.

        Args:
            key, headers, timestamp, timestamp_ns: As for `Topic.tombstone`.

        Example:
            >>> prices = store.topic("prices")
            >>> prices.extend([(b"tea", b"3 rials"), falaj.NewRecord.tombstone(b"coffee")])
            range(0, 2)
            >>> [record.is_tombstone for record in prices]
            [False, True]
        """
    @staticmethod
    def _of(record: Record[Any], timestamp_ns: int) -> NewRecord: ...
    @property
    def is_tombstone(self) -> bool:
        """True for the result of `NewRecord.tombstone`."""
    @property
    def value(self) -> Any:
        """The value before encoding; `None` for a tombstone."""
    @property
    def key(self) -> bytes | None:
        """Its key, or None."""
    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Names and values, in order."""
    @property
    def timestamp_ns(self) -> int | None:
        """Its time in nanoseconds since 1970, or None for the time of the append."""

@final
class ExpiringProducer:
    """A producer that a log forgets by itself a day after its last append; for `producer=`.

    It is for producers that get a new name at each start, such as one for each process or request.
    A log that is full of producers forgets those that appended longest ago. It forgets a producer
    that is given as text only when you call `forget_producer`.

    Args:
        name: Its name. A producer that is given as text is another one, even with the same name.

    Example:
        >>> orders = store.topic("orders")
        >>> session = falaj.ExpiringProducer("web-7f3a")
        >>> orders.append(b"2 pears", producer=session, sequence=0)
        0
        >>> orders.append(b"2 pears", producer=session, sequence=0)
        0
    """

    def __new__(cls, name: str) -> ExpiringProducer: ...
    @property
    def name(self) -> str:
        """Its name."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs__(self) -> tuple[str]: ...

@final
class Part:
    """A part of a bulk load; see falaj.Part."""

    def append(
        self,
        value: Any,
        key: _Key | None = None,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Append a record to the part.

        Args:
            value, key, headers, timestamp, timestamp_ns, partition: As for `Topic.append`.

        Raises:
            InvalidArgument: The topic has no such partition.
            AppendTooLarge: It is larger than one append may be.
            HandleClosed: The part was finished or aborted.
            NoSpace: The disk is full.
        """
    def tombstone(
        self,
        key: _Key,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Append a tombstone to the part: a key without a value, which deletes the key.

        Args:
            key, headers, timestamp, timestamp_ns, partition: As for `Topic.tombstone`.

        Raises:
            InvalidArgument, AppendTooLarge, HandleClosed, NoSpace: As for `append`.
        """
    def append_arrow(self, batch: Any) -> int:
        """Append the rows of record batches, without the codec.

        Args:
            batch: Anything with `__arrow_c_array__` or `__arrow_c_stream__`: a record batch, a table or a
                reader of pyarrow, a frame of Polars. It has the column value (bytes or text). It may have
                key (likewise), headers (lists of structs of a key and a value), timestamp (with a time
                zone) and partition (integers). Each may be null. A null value is a tombstone.

        Returns:
            The number of rows.

        Raises:
            InvalidArgument: A column is missing, unknown or of another type.
            AppendTooLarge, HandleClosed, NoSpace: As for `append`. Earlier rows may be staged: abort
                the part. So too after the exception of a signal's handler.
        """
    def finish(self) -> bytes:
        """Finish the part and sync it.

        Returns:
            Its manifest, a few hundred bytes, which `Topic.commit_load` takes.

        Raises:
            NotStaged: The load was committed or aborted meanwhile.
            NoSpace: The disk is full; the part is given up.
            HandleClosed: The part was finished or aborted.
        """
    def abort(self) -> None:
        """Discard the part, and remove its staged file. A second call, or one after `finish`, does
        nothing.
        """
    def spill(self) -> None:
        """Write the held records to the part's file, and release their memory. Blocks end there, so do
        not call it after each record. It is for a process that writes many parts at once.

        Raises:
            NoSpace: The disk is full.
            HandleClosed: The part was finished or aborted.
        """
    @property
    def held(self) -> int:
        """Bytes of memory for records that are not written yet: up to 16 MiB, without the last record;
        0 once the part is over.
        """
    @property
    def name(self) -> str:
        """Name of the part."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@disjoint_base
class AnyTopic(Generic[_T]):
    """An open topic of either kind; see falaj.AnyTopic."""

    def stage(
        self, name: str, part: str, *, idempotency_key: tuple[str, int] | None = None
    ) -> Part:
        """Begin a part of a bulk load: records of one process, invisible until the load is committed. Each
        process stages parts of its own; one of them collects the manifests and commits all at once with
        `commit_bulk_load`. A part may be staged several times, as where a task is tried again: the
        parts whose manifests are committed count. For a load of one process see `bulk_load`.

        Args:
            name: Name of the load, 1 to 200 of the characters that a topic's name may have.
            part: Name of the part, likewise.
            idempotency_key: What the load will be committed with, where that is known. Then what is left of
                a load that died is removed once the next of the series is committed, and not after a day.

        Returns:
            A `Part`: `append` or `append_arrow` what belongs to it, then `finish` it.

        Raises:
            InvalidArgument: A name cannot be one.
            NotWritable: The topic was opened for reading.

        Example:
            >>> flights = store.topic("flights")
            >>> part = flights.stage("import-2026-11", "0")
            >>> part.append(b"EWR to IAH")
            >>> manifest = part.finish()
            >>> len(flights)
            0
            >>> flights.commit_bulk_load("import-2026-11", [manifest])
            {'committed': True, 'records': 1, 'offsets': {0: (0, 1)}}
        """
    def commit_bulk_load(
        self, name: str, parts: list[bytes], *, idempotency_key: tuple[str, int] | None = None
    ) -> BulkLoadReport:
        """Commit a bulk load: all records of its parts become visible at once. They are on the disk when this
        returns, whatever the topic's sync mode. Then what the load staged is removed.

        Args:
            name: Name of the load.
            parts: Manifests, as `Part.finish` returned them. Records keep this order in each partition.
            idempotency_key: Name of a series of loads and the number of this one in it. Where that number,
                or a higher one, was committed to the topic before, nothing is appended. So a load with a
                key may be committed as often as it takes to know that it was. A log remembers up to
                1,024 series.

        Returns:
            A dict. `committed` is False where the key was there before. `records` is how many were appended.
            `offsets` has, for each partition that got any, the first offset and the one after the last.

        Raises:
            InvalidManifest: One is corrupt, of another load or topic, or there twice. Nothing was committed.
            NotStaged: A part is gone: the load was committed or aborted. Nothing was committed.
            CorruptData: A part is corrupt on the disk. Nothing was committed.
            AppendTooLarge: The load is larger than it may be; the limit is named. Nothing was committed.
            InvalidArgument: The log remembers as many series as it can: see `forget_idempotency_key`.
            NoSpace, SyncFailed, TopicDeleted, NotWritable: Nothing was committed.
            LockTimeout: Others had a lock for too long. Nothing was committed now: commit it again.
            DurabilityUnknown: It is visible, and perhaps not on the disk. Commit it again if it has a key,
                else call `flush`, since a second commit would append it twice.

        Example:
            >>> flights = store.topic("flights")
            >>> part = flights.stage("import", "0")
            >>> part.append(b"EWR to IAH")
            >>> parts, key = [part.finish()], ("import", 20261122)
            >>> flights.commit_bulk_load("import", parts, idempotency_key=key)["committed"]
            True
            >>> flights.commit_bulk_load("import", parts, idempotency_key=key)["committed"]
            False
            >>> len(flights), flights.last_idempotency_key("import")
            (1, 20261122)
        """
    def _commit_bulk_load(
        self,
        name: str,
        parts: list[bytes],
        idempotency_key: tuple[str, int] | None,
        told: dict[str, Any],
    ) -> None: ...
    def abort_bulk_load(self, name: str) -> None:
        """Remove all that a bulk load staged. Committed records stay; a second call does nothing."""
    def last_idempotency_key(self, series: str) -> int | None:
        """The number of the bulk load of a series that was committed last to this topic; None if there is none."""
    def forget_idempotency_key(self, series: str) -> bool:
        """Forget a series of bulk loads, so that another has a place among the 1,024 that a log remembers. A load
        of it could then be committed twice. True where there was one.
        """
    def sweep_bulk_loads(self, older_than: Duration = 86400.0) -> int:
        """Remove what failed bulk loads left in the topic's log: parts that no process is writing, and that
        did not change for so many seconds. Each commit, and `Store.maintain`, does it
        for those of a day.

        Returns:
            How many files were removed.
        """
    def last_sequence(self, producer: str | ExpiringProducer) -> int | None:
        """The highest sequence that a producer appended, so that it knows where it is.

        Args:
            producer: Its name, or an `ExpiringProducer`, as in `append(producer=…)`.

        Returns:
            The sequence; None where the log does not know the producer.

        Raises:
            NotWritable: The topic was opened for reading.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.append(b"2 pears", producer="till-3", sequence=17)
            >>> orders.last_sequence("till-3")
            17
        """
    def _producers(self) -> list[tuple[int, int, int, int, int | None, bool]]: ...
    def _forget_producers(self, names: list[str | ExpiringProducer], ids: list[int]) -> int: ...
    def __iter__(self) -> Records[_T]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __contains__(self, item: Any, /) -> NoReturn: ...
    @property
    def name(self) -> str:
        """Name of the topic."""
    @property
    def codec(self) -> str:
        """Name of the codec that the store keeps for the topic; "bytes" for one read as "raw", too. A topic that was
        created without a codec has "bytes" until an opening names another.
        """
    @property
    def sync(self) -> Sync:
        """How appends sync unless they say otherwise."""
    @property
    def visibility(self) -> Visibility:
        """How far it is read: "visible", "durable" or "remote"."""
    @property
    def generation(self) -> str:
        """Id that the topic got when it was created, as hexadecimal digits."""
    @property
    def partitions(self) -> range:
        """Numbers of the partitions that this handle reads."""
    @property
    def closed(self) -> bool:
        """True once it was closed."""
    @property
    def offsets(self) -> dict[int, range]:
        """The offsets of each partition, from the lowest that is still there to the end."""
    def flush(self) -> None:
        """Put everything that is visible on the disk.

        Raises:
            SyncFailed: The disk failed; what is visible is not durable.
        """
    def finish(self) -> None:
        """Finish the topic: no process appends to it any more.

        Followers end behind the last record, and so do the iterators of consumers that read only
        finished topics. It is on disk when this returns, and cannot be undone. A repeat changes nothing.

        Raises:
            NotWritable: The store was opened for reading.
            InvalidArgument: This is one partition of several: finish the whole topic.

        Example:
            >>> day = store.topic("2026-11-27")
            >>> day.append(b"the last one")
            0
            >>> day.finish()
            >>> day.finished, [record.offset for record in day.follow()]
            (True, [0])
            >>> day.append(b"too late")
            Traceback (most recent call last):
            falaj.errors.TopicFinished: topic "2026-11-27" is finished, so nothing was appended: ...
        """
    @property
    def properties(self) -> dict[str, str]:
        """The texts that programs keep with the topic, by name, as they are now; `configure` changes them.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.configure(properties={"content-type": "text/csv", "owner": "shop"})
            >>> _ = orders.configure(properties={"owner": None})
            >>> orders.properties
            {'content-type': 'text/csv'}
        """
    @property
    def finished(self) -> bool:
        """True once the topic is finished: no record comes after those that are there."""
    def close(self) -> None:
        """Sync and close the topic; ends every wait on it, in any thread. A second call does nothing.

        Values that were read stay valid.
        """
    @property
    def _store(self) -> Any: ...
    @property
    def _single(self) -> bool: ...
    def _view(self, partition: int) -> Opened: ...
    def _seen_as(self, visibility: Visibility) -> Opened: ...
    def _whole_as(self, visibility: Visibility) -> Opened: ...
    def _records(self, start: int, stop: int) -> Records[_T]: ...
    def _batches(self, start: int, stop: int, size: int) -> Batches[_T]: ...
    def _offset_at(self, time_ns: int) -> int | None: ...
    def _count(self, start: int, stop: int | None = None) -> int: ...
    def _start_of_last(self, records: int, stop: int | None = None) -> int: ...
    def _absolute(self, index: int) -> int: ...
    def _trim(self, firsts: list[tuple[int, int]], dry_run: bool) -> tuple[int, int]: ...
    def _follow(self, starts: Sequence[int], timeout: Duration | None) -> Follower[_T]: ...
    def _expect(self) -> None: ...
    def _out_of_range(self, offset: int) -> IndexError: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

class Topic(AnyTopic[_T]):
    """An open topic of one partition; see falaj.Topic."""

    def __new__(cls, opened: Opened, store: Any) -> Self: ...
    @overload
    def append(
        self: Topic[memoryview] | Topic[bytes],
        value: Buffer,
        key: _Key | None = None,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | ExpiringProducer | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> int:
        """Append a record.

        The fastest call is `append(value)`: each keyword costs about 20 ns.

        Args:
            value: What the codec takes, and gives back equal; without one bytes, a bytearray or another
                buffer of single bytes.
            key: Text (kept as UTF-8) or bytes that tell what the record is about.
            headers: A dict or pairs of names and values (text, bytes or None), kept in order; a name may
                stand twice.
            timestamp: When it happened: an aware datetime, or ISO text with a zone such as
                "2026-11-20T08:00:00Z". By default, when it is appended.
            timestamp_ns: The same as nanoseconds since 1970, an int: a datetime has no nanoseconds.
            partition: The topic's only partition, 0, or the one that this is a view of. So a call for topics
                of both kinds may name it.
            sync: "none", "interval", "durable" or "remote", see `falaj.open`.
            timeout: Seconds that `sync="remote"` waits for the process that ships the store; None waits as
                long as that process lives.
            producer: The name of the program that appends, so that a repeat is not appended again; goes with
                `sequence`. A log remembers up to 65,536 producers, fewer where segments are small; see
                `forget_producer`. A `falaj.ExpiringProducer` if the name is used for a short time only.
            sequence: The number of this append among the producer's: from anywhere, each one more than
                the one before. One that was appended before is answered with the offset that it got
                then, as long as it is one of the last five.
            expect: The offset that the record must get: no other process appended since it was looked up.

        Returns:
            The offset of the record.

        Raises:
            EncodeFailed: The codec does not take the value, or could not give it back. Examples are a set in JSON, a
                key of a dict that is no text, `nan`, and lists more than 128 deep. Nothing was appended.
            OffsetConflict: The next offset is another one, mostly since another append was faster.
            OutOfOrderSequence: The producer left a sequence out.
            DuplicateSequence: A repeat of an older append than the last five, or a sequence before
                the producer's first.
            AppendTooLarge: It is larger than one append may be; the limit is named.
            NoSpace, LockTimeout, SyncFailed, TopicDeleted, NotWritable, HandleClosed: Nothing was appended.
            DurabilityUnknown: It is visible, and perhaps not on the disk.
            NoShipper, Fenced: No process ships the store; nothing was appended unless the error has an
                `offset`.
            RemoteTimeout: It is on the disk from `offset` on, and did not leave the machine in time.

        The exception of a signal's handler may come when the record was appended: `falaj.Receipts` says
        whether it was, and at which offset.

        Example:
            >>> orders = store.topic("orders")
            >>> orders.append(b"10 apples", key=b"eu", headers={"trace": b"1"})
            0
            >>> orders.append(b"2 pears", producer="till-3", sequence=17)
            1
            >>> orders.append(b"2 pears", producer="till-3", sequence=17)
            1
            >>> orders.append(b"too late", expect=1)
            Traceback (most recent call last):
            falaj.errors.OffsetConflict: another append to topic "orders" came first: the next offset is 2, not 1; ...
        """
    @overload
    def append(
        self,
        value: _T,
        key: _Key | None = None,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | ExpiringProducer | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> int: ...
    @overload
    def extend(
        self: Topic[memoryview] | Topic[bytes],
        records: Iterable[Buffer | NewRecord | Record[Any] | tuple[_Key, Buffer]],
        *,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | ExpiringProducer | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> range:
        """Append many records at once: all of them become visible together, or none.

        Args:
            records: An iterable of values, pairs `(key, value)`, `NewRecord`s or `Record`s. A tuple is
                always a pair, with a key: a value that is a tuple goes into a `NewRecord`. A `Record` keeps
                key, headers and time. Its bytes stay as they are where its topic has the same codec, or this
                one has none. Else this topic's codec encodes its value. For the rows of a table see
                `Part.append_arrow`.
            partition, sync, timeout, producer, sequence, expect: As for `append`; they stand for all the records together.

        Returns:
            The range of their offsets. Without records it is empty, and nothing is appended or checked.

        Raises:
            EncodeFailed: The codec does not take a value, as for `append`.
            InvalidArgument: The value of a `Record` of another codec is not one for this topic's.
            AppendTooLarge: Together they are larger than one append may be, and as for `append`.

        Example:
            >>> orders = store.topic("orders")
            >>> orders.extend([b"plain", (b"eu", b"with a key")])
            range(0, 2)
        """
    @overload
    def extend(
        self,
        records: Iterable[_T | NewRecord | Record[Any] | tuple[_Key, _T]],
        *,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | ExpiringProducer | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> range: ...
    def _extend_with(
        self, records: Iterable[Any], headers: _Headers, sync: Sync | None
    ) -> range: ...
    def tombstone(
        self,
        key: _Key,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | ExpiringProducer | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> int:
        """Append a tombstone: a key without a value, by which the key is deleted.

        It says that what was said of the key before holds no more. `compact` removes those records, and the
        tombstone itself some time later. A reader gets a record whose `is_tombstone` is true and
        whose value is None. Nothing else writes one: a value of None is JSON's null or msgpack's
        nil, and an error where the codec has no None. In `extend` write `NewRecord.tombstone(key)`.

        Args:
            key: Text (kept as UTF-8) or bytes that tell what is deleted.
            headers, timestamp, timestamp_ns, partition, sync, timeout, producer, sequence, expect: As for `append`.

        Returns:
            The offset of the tombstone.

        Raises:
            TypeError: The key is neither text nor bytes.
            OffsetConflict, NotWritable, NoSpace, TopicDeleted: As for `append`; nothing was appended.

        Example:
            >>> prices = store.topic("prices", compacted=True)
            >>> prices.append(b"3 rials", key=b"tea"), prices.tombstone(b"tea")
            (0, 1)
            >>> prices[1].key, prices[1].is_tombstone
            (b'tea', True)
        """
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Record[_T]: ...
    @overload
    def __getitem__(self, index: slice, /) -> Slice[_T]: ...
    @property
    def start_offset(self) -> int:
        """Lowest offset that is still there."""
    @property
    def end_offset(self) -> int:
        """Offset after the last record that this handle sees. The next record gets it, unless the handle
        sees only what is durable.
        """
    @property
    def visible_offset(self) -> int:
        """Offset after the last visible record, which the next record gets."""
    @property
    def durable_offset(self) -> int:
        """Offset after the last record that is known to be on the disk."""
    def wait_durable(self, offset: int | None = None, timeout: Duration | None = None) -> bool:
        """Wait until a record is on the disk.

        Where the store is open for writing this syncs, as `flush` does, however long the disk takes. A reader waits for
        the writers.

        Args:
            offset: The record; by default all that is visible now.
            timeout: Seconds that a reader waits; None waits as long as it takes.

        Returns:
            True once it is on the disk, False after the timeout.

        Raises:
            OffsetOutOfRange: The record was not written yet.

        Example:
            >>> orders = store.topic("orders")
            >>> orders.wait_durable(orders.append(b"x"))
            True
        """
    def wait_remote(self, offset: int | None = None, timeout: Duration | None = None) -> bool:
        """Wait until records have left the machine: the process that ships the store says so.

        A store that is open for writing syncs first. A reader waits, whether a process ships or not.

        Args:
            offset: The offset of a record; by default, all that are there.
            timeout: Seconds; None waits as long as a process ships the store.

        Returns:
            True once it has left the machine, False after the timeout.

        Raises:
            NoShipper, Fenced: No process ships the store, which this process has open for writing.
            OffsetOutOfRange: The record was not written yet.
        """

class PartitionedTopic(AnyTopic[_T]):
    """An open topic of several partitions; see falaj.PartitionedTopic."""

    def __new__(cls, opened: Opened, store: Any) -> Self: ...
    @overload
    def append(
        self: PartitionedTopic[memoryview] | PartitionedTopic[bytes],
        value: Buffer,
        key: _Key | None = None,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | ExpiringProducer | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> Position:
        """Append a record to the partition that its key chooses.

        Args:
            value: As for `Topic.append`.
            key: Text (kept as UTF-8) or bytes that tell what the record is about. Records with the same key
                go to the same partition and stay in order; those without a key take turns.
            headers, timestamp, timestamp_ns: As for `Topic.append`.
            partition: The partition that the record goes to, whatever its key.
            sync: "none", "interval", "durable" or "remote", see `falaj.open`.
            timeout: Seconds that `sync="remote"` waits for the process that ships the store; None waits as
                long as that process lives.
            producer, sequence: As for `Topic.append`. Records of a producer without a key go to one partition.
            expect: The offset that the record must get, in the partition that `partition` or the key names.

        Returns:
            A `falaj.Position(partition, offset)`.

        Raises:
            InvalidArgument: There is no such partition, or an offset is expected of several partitions.
            OffsetConflict, AppendTooLarge, NoSpace, NotWritable, TopicDeleted: As for `Topic.append`, and so
                are the others.

        Example:
            >>> clicks = store.partitioned_topic("clicks", partitions=4)
            >>> position = clicks.append(b"home", key="ann")
            >>> clicks[position].to_bytes(), clicks.append(b"cart", key="ann").partition == position.partition
            (b'home', True)
        """
    @overload
    def append(
        self,
        value: _T,
        key: _Key | None = None,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | ExpiringProducer | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> Position: ...
    @overload
    def extend(
        self: PartitionedTopic[memoryview] | PartitionedTopic[bytes],
        records: Iterable[Buffer | NewRecord | Record[Any] | tuple[_Key, Buffer]],
        *,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | ExpiringProducer | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> dict[int, range]:
        """Append many records at once: all of them become visible together, or none.

        Args:
            records: As for `Topic.extend`. Keys choose the partitions; records without a key go to one.
            partition: The partition they go to, whatever their keys.
            sync, timeout, producer, sequence, expect: As for `append`; they stand for all the records together.

        Returns:
            The range of offsets of each partition that got records. Without records it is empty, and nothing
            is appended or checked.

        Raises:
            InvalidArgument: An offset is expected of several partitions; or the value of a `Record` of
                another codec is not one for this topic's.
            AppendTooLarge: Together they are larger than one append may be, and as for `append`.

        Example:
            >>> clicks = store.partitioned_topic("clicks", partitions=4)
            >>> clicks.extend([b"home", b"cart"], partition=2)
            {2: range(0, 2)}
        """
    @overload
    def extend(
        self,
        records: Iterable[_T | NewRecord | Record[Any] | tuple[_Key, _T]],
        *,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | ExpiringProducer | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> dict[int, range]: ...
    def tombstone(
        self,
        key: _Key,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | ExpiringProducer | None = None,
        sequence: int | None = None,
        expect: int | None = None,
    ) -> Position:
        """Append a tombstone, by which a key is deleted, to the key's partition; else as `Topic.tombstone`.

        Args:
            key: Text (kept as UTF-8) or bytes that tell what is deleted.
            partition: The partition that it goes to, whatever its key.
            headers, timestamp, timestamp_ns, sync, timeout, producer, sequence, expect: As for `append`.

        Returns:
            A `falaj.Position(partition, offset)`.

        Raises:
            TypeError: The key is neither text nor bytes.
            OffsetConflict, NotWritable, NoSpace, TopicDeleted: As for `append`; nothing was appended.

        Example:
            >>> prices = store.partitioned_topic("prices", partitions=2, compacted=True)
            >>> prices[prices.tombstone(b"tea")].is_tombstone
            True
        """
    def __getitem__(self, position: Position | tuple[int, int], /) -> Record[_T]: ...

@final
class Opened:
    """The contents of a Topic: an opened topic, or one partition of it."""

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
    @property
    def single(self) -> bool:
        """True when it is for one partition: the topic has one, or this is a view of one."""

@disjoint_base
class Store:
    """An open store; see falaj.Store."""

    def __new__(
        cls,
        path: object,
        *,
        read_only: bool,
        permissions: int,
        create: bool,
        sync: Sync,
        verify: bool,
        lock_timeout: Duration,
        allow_network_fs: bool,
        mapped: bool,
        view: PlaceView | None = None,
    ) -> Self: ...
    @property
    def path(self) -> Path:
        """The directory, absolute."""
    @property
    def id(self) -> str:
        """The store's id from its creation, as hexadecimal digits; copies have the same."""
    @property
    def closed(self) -> bool:
        """True once it was closed."""
    @property
    def writable(self) -> bool:
        """True when it was opened for writing."""
    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records, for all processes; values that were read stay valid.

        Raises:
            UnknownTopic: There is no topic of this name.
            NotWritable: The store was opened for reading.

        Example:
            >>> _ = store.topic("orders")
            >>> store.delete_topic("orders")
            >>> list(store.topics)
            []
        """
    def close(self) -> None:
        """Sync and close all topics that were opened through it, and the store. Values stay valid."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    @staticmethod
    def _check_topic(
        name: str,
        *,
        codec: str | None,
        partitions: int | None,
        segment_bytes: int | None,
        sync_interval_ms: int | None,
    ) -> None: ...
    def _has_topic(self, name: str) -> bool: ...
    def _topic_names(self) -> list[str]: ...
    def _cut(self, previous: Cut | None = None) -> Cut:
        """Make a cut: what the store holds now, all of it on the disk, with ends that agree.

        A log in which nothing happened since an earlier cut costs nothing. A log that cannot be
        synced ends where all of it is on the disk, at or behind its end in the earlier cut.

        Args:
            previous: The cut before, of the same store.

        Raises:
            NotWritable: The store was opened for reading.
            SyncFailed: A log that the earlier cut does not have cannot be synced.
            CorruptData: A log, or the settings of a topic, are corrupt.
        """
    def _contains(
        self, directory: str, topic: str, partition: int, next_offset: int, checksum: int
    ) -> bool:
        """Return whether the store has the end of a partition as an earlier cut had it.

        It is true where the end cannot be there any more: the topic was deleted, or its records were
        trimmed or compacted. It is false for a store with another history.

        Args:
            directory: The name of the log's directory.
            topic: The topic's generation.
            partition: The partition.
            next_offset: The offset of the next record.
            checksum: The checksum of the last block.

        Raises:
            CorruptData: The block before the end is corrupt.
        """
    def _origin(self) -> str:
        """Return the id that tells the store from its copies, and make it at the first call.

        Raises:
            NotWritable: The store was opened for reading, and has none.
            CorruptData: The file is corrupt.
        """
    def _open_topic(
        self,
        name: str,
        *,
        codec: str | None,
        resolve: Callable[[str], tuple[Callable[[Any], Any] | None, Callable[[bytes], Any] | None]],
        partitions: int | None,
        segment_bytes: int | None,
        sync_interval_ms: int | None,
        sync: Sync | None,
        verify: bool | None,
        visibility: Visibility | None = None,
        log: str | None = None,
        retention: Changes | None = None,
        compacted: bool | None = None,
        create: bool = True,
    ) -> Opened: ...

@final
class PlaceView:
    """A directory that is read as a store, and kept as a place beyond the machine has it.

    Args:
        path: The directory, which must be missing.
        bring: Called with the name of a log's directory, a sequence, and whether the whole of that
            segment is needed or only its beginning. It calls `put` or `put_beginning`. Without a
            sequence, it publishes the log. Its exceptions reach the reader.
    """

    def __new__(cls, path: object, bring: Callable[[str, int | None, bool], None]) -> Self: ...
    def file(self, path: str, length: int, parts: Iterable[tuple[int, bytes]]) -> None:
        """Put a small file: its path, its length, positions and bytes."""
    def remove_file(self, path: str) -> None:
        """Remove a small file."""
    def blank(self, path: object, log: str, segment: tuple[bytes, int, int, bool]) -> None:
        """Make a file for a segment at any path, with its header pages."""
    def give_up(self, log: str, segment: tuple[bytes, int, int, bool], following: bytes) -> None:
        """Let a stand-in take the place of a whole segment that readers know. `following` is the header of
        the segment behind it.
        """
    def put(self, log: str, sequence: int, path: object) -> None:
        """Rename a whole file of a segment into its place."""
    def put_beginning(self, log: str, sequence: int, data: bytes) -> None:
        """Keep the first bytes of the blocks of a stand-in in memory."""
    def stands_in(self, log: str, sequence: int) -> bool:
        """Return whether a segment is a stand-in now."""
    def store(self, log: str, position: int, data: bytes) -> None:
        """Store bytes of the segment in which a log ends, behind the end that readers see."""
    def publish(
        self,
        log: str,
        segment: tuple[bytes, int, int, bool],
        sealed: list[tuple[tuple[bytes, int, int, bool], bytes]],
        gone: list[int],
    ) -> None:
        """Let readers see that a log ends in this segment, and all that was stored before. At that moment
        stand-ins for these sealed segments take their names; each comes with the header of the one
        behind it. The segments with these sequences are removed.
        """
    def allow_compaction(self, log: str) -> None:
        """Say that compaction may leave out records of a log."""
    def begin_log(self, log: str) -> None:
        """Make the directory of a log, which stands for the log until `publish`."""
    def remove_log(self, log: str) -> None:
        """Tell readers that a log was deleted, and remove it."""

@final
class StoreBuilder:
    """A store that is built from pieces: bytes of segments, and small files, from another place.

    The store is built beside its path, under a name of its own. Nothing has the path before `finish`
    has checked all of it and has synced it. How processes write to the store follows from its file
    system. As a context manager it discards what was not finished.

    Args:
        path: Directory of the store: a missing or an empty one.
        permissions: Permission bits of its directories, as in `falaj.open`.
        allow_network_fs: As in `falaj.open`.
        resume: Go on where an earlier builder with this key was left or killed, such as the id of
            an origin: 32 hexadecimal digits.

    Raises:
        InvalidArgument: There is something at the path.
        LockTimeout: Another builder with this key works for this path.
        UnsupportedFilesystem: falaj cannot keep its promises there.
    """

    def __new__(
        cls,
        path: object,
        *,
        permissions: int = 0o700,
        allow_network_fs: bool = False,
        resume: str | None = None,
    ) -> StoreBuilder: ...
    @property
    def path(self) -> Path:
        """The directory that the store will have, absolute."""
    def file(self, path: str, length: int, parts: Iterable[tuple[int, Buffer]]) -> None:
        """Put a small file.

        Args:
            path: `falaj.json`, `topics/<topic>/topic.json`, `consumers/<group>` or `queues/<queue>`.
            length: Bytes of the file. Bytes that no part has are zero.
            parts: Positions and bytes, in their order.

        Raises:
            InvalidArgument: No store has such a file, or it was given before, or a part does not fit.
            CorruptData: The settings in it are corrupt.
            HandleClosed: The builder was finished or discarded.
        """
    def segment(self, log: str, header: Buffer, end: int, length: int, sealed: bool) -> bool:
        """Begin a segment of a log.

        Args:
            log: Name of the log's directory, as `orders@` and 32 hexadecimal digits.
            header: The first 512 bytes of the segment.
            end: Position at which its content ends.
            length: Position at which its bytes end, behind the end block if there is one.
            sealed: False for the last segment of the log, which alone is not sealed.

        Returns:
            True if an earlier builder left bytes of it; `keep` finds out which.

        Raises:
            InvalidArgument: No log has such a directory, or the segment was begun before.
            CorruptData: The header is corrupt or of another log, or the numbers do not fit.
            HandleClosed: The builder was finished or discarded.
        """
    def write(self, log: str, sequence: int, position: int, data: Buffer) -> None:
        """Write bytes of a segment that was begun; any thread may, and in any order. Only a compacted
        segment may keep holes, which read as zero.

        Args:
            log, sequence: The segment.
            position: Where the bytes lie in it, from 8192 on.
            data: The bytes.

        Raises:
            InvalidArgument: The segment was not begun, or the bytes lie outside of it, or some were
                written before.
            NoSpace: The disk is full; the call may be repeated.
            HandleClosed: The builder was finished or discarded.
        """
    def write_checked(
        self,
        log: str,
        sequence: int,
        position: int,
        data: Buffer,
        start: int,
        stop: int,
        checksum: int,
    ) -> bool:
        """Write a part of some bytes as `write` does, if it has this checksum.

        Args:
            log, sequence: The segment.
            position: Where the part lies in it, from 8192 on.
            data: Bytes with the part in them.
            start, stop: The part.
            checksum: The CRC-32 of the part, as of `zlib.crc32`.

        Returns:
            False if it has another checksum: then it does not count as written.

        Raises:
            InvalidArgument: As `write`, and for a part that lies outside of the bytes.
            NoSpace: The disk is full; the call may be repeated.
            HandleClosed: The builder was finished or discarded.
        """
    def keep(self, log: str, sequence: int, position: int, length: int, checksum: int) -> bool:
        """Count bytes as written that an earlier builder wrote, if they have this checksum; any thread may.

        Args:
            log, sequence: The segment.
            position: Where the bytes lie in it, from 8192 on.
            length: How many they are.
            checksum: Their CRC-32, as of `zlib.crc32`.

        Returns:
            False if they are others, or none: then `write` takes them.

        Raises:
            InvalidArgument: The bytes lie outside of the segment, or some were written before.
            HandleClosed: The builder was finished or discarded.
        """
    def finish(
        self,
        *,
        parent: str | None = None,
        number: int | None = None,
        progress: Progress | None = None,
    ) -> BuildReport:
        """Check every block, and give the store its name. After an error the builder is over, and nothing
        is left. Where a later builder can go on, `NoSpace` and an exception of `progress` leave it all.

        Args:
            parent: The origin that the pieces came from, as 32 hexadecimal digits.
            number: The number of their state in the place that has it; with a parent alone.
            progress: Called with the bytes done and all bytes; its exception ends the call.

        Raises:
            CorruptData: A piece is missing or corrupt; `path` and `position` say where.
            InvalidArgument: There is no `falaj.json`, or another thread still writes.
            HandleClosed: The builder was finished or discarded.
        """
    def leave(self) -> bool:
        """End, and keep what was written for a later builder with the same key; without a key, discard it.
        After `finish` it only tells.

        Returns:
            True if a later builder can go on.

        Raises:
            InvalidArgument: Another thread still writes.
        """
    def discard(self) -> None:
        """Remove what was built. A second call, or one after `finish`, does nothing.

        Raises:
            InvalidArgument: Another thread still writes.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Shipping:
    """Says that this process ships a store, until its block ends; `Store._shipping` makes it."""

    @property
    def closed(self) -> bool:
        """True once it was stopped."""
    def waiting(self) -> bool:
        """Return whether a process may be asleep until what it appended has left the machine.

        It looks at the logs that this process has open, which a cut leaves open. Costs some
        nanoseconds a log. A waiter that gave up counts until the next acknowledgement.
        """
    def wait(self, timeout: float) -> bool:
        """Sleep until a process waits, at most for so many seconds; return whether one may.

        It may wait for a log that this process does not have open, so a cut should follow.
        """
    def fence(self) -> None:
        """Stop, because another store's process claimed the place: waiters get `Fenced`."""
    def close(self) -> None:
        """Stop: waiters get `NoShipper`. A second call changes nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@disjoint_base
class Transaction:
    """Records for several topics that become visible together; see falaj.Transaction."""

    def __new__(
        cls,
        store: Store,
        sync: Sync | None,
        producer: str | ExpiringProducer | None = None,
        sequence: int | None = None,
        timeout: Duration | None = None,
    ) -> Self: ...
    @overload
    def append(
        self,
        topic: AnyTopic[memoryview] | AnyTopic[bytes],
        value: Buffer,
        key: _Key | None = None,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        expect: int | None = None,
    ) -> None:
        """Append a record when the transaction ends.

        Args:
            topic: The topic, or its name. It must exist, in the same log as the others.
            value, key, headers, timestamp, timestamp_ns, partition: As for `Topic.append`.
            expect: The offset that the record must get. If another append was faster, the transaction
                appends nothing at its end, and raises OffsetConflict.

        Raises:
            UnknownTopic: There is none of this name: create it before, with `store.topic(name, log=…)`.
            InvalidArgument: It is in another log, or another store, than the others. Or no record of this
                transaction can get the expected offset.

        Example:
            >>> _ = store.topic("paid", log="shop"), store.topic("audit", log="shop")
            >>> with store.transaction() as tx:
            ...     tx.append("paid", b"order 17", key=b"eu")
            ...     tx.append("audit", b"paid: order 17")
            >>> tx.offsets
            {'paid': {0: range(0, 1)}, 'audit': {0: range(0, 1)}}
        """
    @overload
    def append(
        self,
        topic: AnyTopic[_T],
        value: _T,
        key: _Key | None = None,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        expect: int | None = None,
    ) -> None: ...
    @overload
    def append(
        self,
        topic: str,
        value: Any,
        key: _Key | None = None,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        expect: int | None = None,
    ) -> None: ...
    def tombstone(
        self,
        topic: AnyTopic[Any] | str,
        key: _Key,
        *,
        headers: _Headers | None = None,
        timestamp: Time | None = None,
        timestamp_ns: int | None = None,
        partition: int | None = None,
        expect: int | None = None,
    ) -> None:
        """Append a tombstone when the transaction ends: a key without a value, which deletes the key.

        Args:
            topic: As for `append`.
            key, headers, timestamp, timestamp_ns, partition: As for `Topic.tombstone`.
            expect: As for `append`.

        Raises:
            UnknownTopic, InvalidArgument: As for `append`.

        Example:
            >>> prices = store.topic("prices", compacted=True)
            >>> with store.transaction() as tx:
            ...     tx.tombstone(prices, b"tea")
            >>> prices[0].key, prices[0].is_tombstone
            (b'tea', True)
        """
    def extend(
        self,
        topic: AnyTopic[Any] | str,
        records: Iterable[Any],
        *,
        partition: int | None = None,
        expect: int | None = None,
    ) -> None:
        """Append many records to a topic when the transaction ends.

        Args:
            topic: As for `append`.
            records, partition: As for `Topic.extend`.
            expect: The offset that the first of them must get, as for `append`. All go to one partition. Without
                records nothing is checked.

        Raises:
            AppendTooLarge: Together they are larger than one append may be.
            UnknownTopic, InvalidArgument: As for `append`.
        """
    def finish(self, topic: AnyTopic[Any] | str) -> None:
        """Finish a topic when the transaction ends, behind its records; see `Topic.finish`.

        Args:
            topic: As for `append`.

        Raises:
            UnknownTopic, InvalidArgument: As for `append`.

        Example:
            >>> day = store.topic("2026-11-27")
            >>> with store.transaction() as tx:
            ...     tx.append(day, b"the last one")
            ...     tx.finish(day)
            >>> day.finished
            True
        """
    @property
    def offsets(self) -> dict[str, dict[int, range]] | None:
        """The offsets of the records, by topic and then by partition, once it was committed; else None."""
    def _move(
        self, cursors: list[tuple[bytes, int, int]], home: AnyTopic[Any] | str | None
    ) -> None: ...
    def _move_consumer(self, consumer: Consumer[Any], metadata: str | None = None) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object = None, *_exception: object) -> None: ...

@final
class Records(Generic[_T]):
    """An iterator over records that were committed when it began."""

    def __iter__(self) -> Self: ...
    def __contains__(self, item: Any, /) -> NoReturn: ...
    def __next__(self) -> Record[_T]: ...
    def skip_damage(self) -> list[Skipped]:
        """Step over corruption after a `CorruptData`. This reader loses the records in between.
        Returns, for each partition with corruption, its path and position, the first lost offset
        and the one after the last. They are equal if no valid record follows that would tell.
        """
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

@final
class Follower(Generic[_T]):
    """An iterator over records, present and future, as `Topic.follow` yields it.

    One thread at a time may read from it; `close` ends it from any thread. A forked child may
    continue it.

    Example:
        >>> orders = store.topic("orders")
        >>> with orders.follow(timeout=0) as follower:
        ...     _ = orders.append(b"x")
        ...     next(follower)
        <Record orders[0] b'x'>
    """

    def __iter__(self) -> Self: ...
    def __contains__(self, item: Any, /) -> NoReturn: ...
    def __next__(self) -> Record[_T]: ...
    def poll(self) -> Record[_T] | None:
        """Return the next record if there is one now, else None."""
    @property
    def closed(self) -> bool:
        """True once it, or its topic, was closed."""
    def close(self) -> None:
        """End the iteration, from any thread."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    @property
    def _over(self) -> bool: ...
    @property
    def _seen(self) -> int: ...
    def _watch(self) -> Watch: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

@disjoint_base
class Consumer(Generic[_T]):
    """A member of a consumer group; see falaj.Consumer."""

    def __new__(
        cls,
        store: Store,
        group: str,
        topics: Sequence[Opened],
        pattern: tuple[str, Callable[[str], Opened], Visibility] | None,
        start: str,
        number: int,
        automatic: float | None,
        home: Opened | None = None,
    ) -> Self: ...
    @property
    def group(self) -> str:
        """The consumer group that it is a member of."""
    @property
    def topics(self) -> list[str]:
        """Names of the topics that it reads, sorted. Those of a pattern change as topics are created and
        deleted.
        """
    @property
    def pattern(self) -> str | None:
        """The pattern of the names of its topics; None when its topics were named."""
    @property
    def closed(self) -> bool:
        """True once it was closed."""
    @property
    def lag(self) -> int:
        """The number of kept records after the committed offsets, in all partitions of its topics,
        whichever members have them.
        """
    @property
    def partitions(self) -> list[tuple[str, int]]:
        """The partitions of this member: topic and number of each.

        It takes and releases partitions as needed, as reading records does.
        """
    def __iter__(self) -> Consumed[_T]: ...
    def __contains__(self, item: Any, /) -> NoReturn: ...
    def commit(
        self,
        offset: int | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        sync: Sync | None = None,
        metadata: str | None = None,
    ) -> None:
        """Commit the position: after all delivered records, or an offset (of the next record to read).

        Every process sees it at once, and it survives the death of any process. After a power
        failure the committed offset may be lower, but never beyond the log. With `sync="durable"` a
        power failure keeps it: the records before it are synced, then the committed offset. Threads
        that wait share one sync.

        Args:
            offset: The offset of the next record to read. By default, all delivered records of all
                partitions are committed.
            topic: The topic of the offset, if the consumer reads several.
            partition: The partition of the offset, if there are several.
            sync: "durable" waits for the disk; "none" and "interval" do not.
            metadata: A text of at most 384 bytes that is stored with each offset, or not at all. A commit
                without one leaves none. `committed_metadata` returns it.

        Raises:
            InvalidArgument: The metadata is too long.
            PartitionNotAssigned: Another member has the partition; nothing was committed.
            OffsetOutOfRange: The offset lies beyond the end. An offset that a trim or a limit has
                passed meanwhile is committed; the next read then raises this.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([b"one", b"two"])
            >>> billing = store.consumer("billing", ["orders"])
            >>> next(iter(billing)).to_bytes()
            b'one'
            >>> billing.commit(metadata="invoice 17")
            >>> billing.committed(), billing.committed_metadata(), billing.lag
            (1, 'invoice 17', 1)
        """
    def position(self, topic: str | None = None, partition: int | None = None) -> int:
        """Offset of the next record to be delivered.

        Args:
            topic: The topic, if the consumer reads several.
            partition: The partition, if there are several.

        Raises:
            PartitionNotAssigned: Another member has the partition.
            LogTruncated: The log no longer knows the committed offset.
        """
    def committed(self, topic: str | None = None, partition: int | None = None) -> int:
        """The committed offset, whichever member committed it.

        Args:
            topic: The topic, if the consumer reads several.
            partition: The partition, if there are several.
        """
    def committed_metadata(self, topic: str | None = None, partition: int | None = None) -> str:
        """The text that was committed with the offset, whichever member committed it; empty if there was
        none.

        Args:
            topic: The topic, if the consumer reads several.
            partition: The partition, if there are several.
        """
    def rewind(self) -> None:
        """Deliver all uncommitted records again, as after work that failed.

        Example:
            >>> _ = store.topic("orders").append(b"one")
            >>> billing = store.consumer("billing", ["orders"])
            >>> len(billing.poll()), len(billing.poll(timeout=0))
            (1, 0)
            >>> billing.rewind()
            >>> len(billing.poll())
            1
        """
    def pause(self, topic: str | None = None, partition: int | None = None) -> None:
        """Stop delivering some partitions until `resume`; they stay this member's.

        Args:
            topic: Only this topic.
            partition: Only this partition of it.
        """
    def resume(self, topic: str | None = None, partition: int | None = None) -> None:
        """Resume delivering paused partitions.

        Args:
            topic: Only this topic.
            partition: Only this partition of it.
        """
    def skip_damage(self) -> list[SkippedOfTopic]:
        """Step over corruption after a `CorruptData`. The records in between are lost to this
        consumer, and count as delivered: the next commit covers them.

        Returns:
            For each topic and partition with corruption: the path and position of the corruption,
                the first lost offset and the one after the last. They are equal if nothing was lost, or
                if no valid record follows that would tell.

        Example:
            >>> _ = store.topic("orders").append(b"one")
            >>> billing = store.consumer("billing", ["orders"])
            >>> billing.skip_damage()
            []
        """
    def uncommitted(self) -> list[tuple[bytes, int, int]]:
        """List the delivered and uncommitted records, for a program that commits them elsewhere.

        Returns:
            For each partition: the cursor's name (docs/FORMAT.md, "Cursor names"), the offset after
                the last delivered record, the checksum of the block before it.
        """
    def close(self) -> None:
        """Release all partitions, so that other members get them, and end every wait on it, in any
        thread. `on_revoke` is called first.

        Uncommitted records are delivered again to the next owner of their partition. Loops over it
        end. If another thread is using it, as in a `commit` that waits for the disk, that thread
        releases it when its call ends. A second call does nothing, or what the first one could not
        do.

        Raises:
            LockTimeout: A store that is written with `pwrite` was busy for longer than its `timeout`; call
                it again.
        """
    def _announce(self) -> None: ...
    def _expect_open(self) -> None: ...
    def _follow(self, timeout: Duration | None) -> Consumed[_T]: ...
    def _poll(self, into: list[Record[_T]], records: int, timeout: Duration | None) -> None: ...
    def _batch(self, into: list[Batch[_T]], size: int, timeout: Duration | None) -> None: ...
    def _put_back(self, found: list[Any]) -> None: ...
    def _seek(self, start: str, number: int, topic: str | None, partition: int | None) -> None: ...
    def _watches(self) -> list[tuple[Watch, int]]: ...
    def _over(self) -> bool: ...
    def _due(self) -> float | None: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

@final
class Consumed(Generic[_T]):
    """An iterator over the records that a consumer reads."""

    def __iter__(self) -> Self: ...
    def __contains__(self, item: Any, /) -> NoReturn: ...
    def __next__(self) -> Record[_T]: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

@disjoint_base
class Queue(Generic[_T]):
    """An open queue; see falaj._queue.Queue."""

    _NOT_BEFORE: Final[str]
    def __new__(cls, topic: Topic[_T], name: str, ordered: bool | None) -> Self: ...
    @property
    def name(self) -> str:
        """The queue's name."""
    def _expect_open(self) -> None: ...
    @property
    def closed(self) -> bool:
        """True once the queue or its topic was closed."""
    def _take(
        self,
        jobs: list[Job[_T]],
        worn: list[Job[_T]],
        n: int,
        lease: Duration,
        timeout: Duration | None,
        max_attempts: int,
        has_policy: bool,
    ) -> None: ...
    def ack(self, jobs: Job[_T] | Iterable[Job[_T]]) -> None:
        """Say that jobs are done: their records are never delivered again.

        Args:
            jobs: A job, or any number of them, taken from this handle.

        Raises:
            LeaseExpired: The lease of one of them is over, and another worker may have it. The others were
                acked.
            InvalidArgument: A job was taken from another handle; nothing was acked.
        """
    def _release(
        self,
        jobs: Job[_T] | Iterable[Job[_T]],
        delay: Duration | None,
        reason: str | None = None,
        *,
        failed: bool = False,
    ) -> None: ...
    def _put_back(self, jobs: Job[_T] | Iterable[Job[_T]], delay: float) -> None: ...
    def _keep(self, jobs: Job[_T] | Iterable[Job[_T]], lease: Duration) -> list[Job[_T]]: ...
    def _bury(
        self, jobs: Job[_T] | Iterable[Job[_T]], dead: AnyTopic[Any], reason: str | None = None
    ) -> bool: ...
    def skip_damage(self) -> list[SkippedOfTopic]:
        """Give up the jobs that block the queue because their records are corrupt.

        These are the jobs that returned because they cannot be read, and the next ones that were never
        delivered. They count as dead. They have no dead letters, as there is nothing to write. With
        `order="key"` the queue cannot know their keys, so the jobs behind them continue without them.

        This reads the jobs that returned.

        Returns:
            For each corrupt place `topic`, `partition`, `offsets`, `path` and `position`; empty if nothing
            is corrupt. `offsets` are the first offset that was given up, and the one after the last.

        Raises:
            TopicDeleted: The topic was deleted.

        Example:
            >>> queue = store.queue("jobs")
            >>> queue.skip_damage()
            []
        """
    def _info(self) -> QueueInfo: ...
    def _watch(self) -> Watch: ...
    def _next(self) -> tuple[int, float | None]: ...
    def close(self) -> None:
        """Close the queue, from any thread: calls that wait for jobs end. Jobs that were not begun return to the
        queue. Those that were begun stay in flight; settle them with their own `ack` and `nack`.
        """
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

@final
class Job(Generic[_T]):
    """A record, and the right to work on it until the lease is over.

    A context manager: the block begins the work. When the block ends, it acks the job. When an exception
    leaves the block, it gives the job back, and that counts an attempt. If the code in the block acks the job
    or gives it back, the end of the block does neither.

    Example:
        >>> queue = store.queue("jobs")
        >>> _ = queue.put(b"resize 1.png")
        >>> [job] = queue.take()
        >>> job.to_bytes(), job.offset, job.attempt
        (b'resize 1.png', 0, 1)
        >>> job.ack()
    """

    @property
    def record(self) -> Record[_T]:
        """The record that the job is about."""
    @property
    def value(self) -> _T:
        """The record's payload, decoded by the topic's codec."""
    @property
    def key(self) -> builtins.bytes | None:
        """The record's key, or None."""
    @property
    def offset(self) -> int:
        """The record's offset."""
    @property
    def attempt(self) -> int:
        """The number of attempts, this one included."""
    @property
    def settled(self) -> bool:
        """True once the job was acked or given back through this object."""
    def to_bytes(self) -> builtins.bytes:
        """A copy of the record's payload."""
    def begin(self) -> None:
        """Begin work on the job: from here on this counts as an attempt, however it ends. Iterating over the
        batch, indexing it and `with job:` do so, too. Once the job was begun or settled, this does nothing.

        Raises:
            LeaseExpired: Its lease is over: another worker may have it, so leave it alone.
        """
    def _reach(self) -> bool: ...
    def ack(self) -> None:
        """Say that the job is done: its record is never delivered again.

        Raises:
            LeaseExpired: Its lease is over, or it was settled before; another worker may have it.
        """
    def nack(self, delay: Duration | None = None, *, reason: str | None = None) -> None:
        """Return the job to the queue because it failed. This counts as an attempt. The queue delivers it again, to any
        worker.

        After the last attempt, by `max_attempts`, it becomes a dead letter at once, on the disk. If the dead letter
        cannot be written, the job returns to the queue, and a later `take` writes the dead letter.

        Args:
            delay: Seconds before it is delivered again; by default as the queue's `backoff` says, else at once.
            reason: Why it failed. The dead letter keeps up to 1,000 bytes of it in its header `falaj-reason`.

        Raises:
            LeaseExpired: As for `ack`.
        """
    def extend(self, lease: Duration = 30.0) -> None:
        """Keep the job for longer.

        Args:
            lease: Seconds from now until its lease is over.

        Raises:
            LeaseExpired: As for `ack`.
        """
    def __reduce__(self) -> NoReturn: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

def _text_or_bytes(given: Any, what: str) -> bytes: ...
def _queue_overview(store: Store, name: str | None = None) -> list[Any]: ...
def _expect_queue(store: Store, name: str) -> None: ...
def _topic_of_queue(store: Store, name: str) -> str | None: ...
def _backoff(first: float, longest: float, attempt: int, random: int) -> float: ...
def _reason_of(error: BaseException) -> str: ...
def _redrive(
    queue: str, topic: Topic[Any], letters: AnyTopic[Any], limit: int | None, dry_run: bool
) -> int: ...
def _queues(store: Store) -> list[tuple[str, str]]: ...
def _delete_queue(store: Store, name: str) -> None: ...

@final
class Watch:
    """Asks one log for news, on behalf of any number of followers."""

    @property
    def key(self) -> tuple[str, bool]:
        """Return a key that is the same for all that wait for the same news."""
    @property
    def store(self) -> str:
        """Return the path of its log's store: one sleep can serve several logs of a store."""
    @property
    def wakes(self) -> int:
        """Return how often waiters for the log were woken, for any reason."""
    def ask(self, seen: int) -> bool:
        """Ask for a wake on the bell when there is more than up to an address. True when there is
        already; an error when the topic is deleted.
        """
    def bell(self) -> Bell:
        """Return the bell that wakes it."""

@final
class Bell:
    """The bell for one sleep that serves several logs of a store."""

    @staticmethod
    def name_thread() -> None:
        """Name the calling thread, for people who look at a process's threads."""
    def ticket(self) -> Ticket:
        """Take a ticket, before the logs are asked."""
    def sleep(self, ticket: Ticket, idle_turns: int) -> None:
        """Sleep until a wake, a second at most. The sleep is shorter if no process can ring the bell,
        and grows with each turn without news.
        """
    def rouse(self) -> None:
        """End the sleep of all that sleep on it."""

@final
class Ticket:
    """The state of a bell before the logs were asked."""

@final
class Receipts:
    """Records that the calls of this thread append inside a `with` block.

    A signal handler that raises can discard the result of a call: the exception comes, and the
    records are in the topic all the same. This object still has the result. It costs nothing while
    no block is open.

    Example:
        >>> orders = store.topic("orders")
        >>> with falaj.Receipts() as receipts:
        ...     _ = orders.append(b"10 apples")
        >>> receipts.appended
        [Receipt(topic='orders', partition=0, offsets=range(0, 1))]
    """

    def __new__(cls) -> Self: ...
    @property
    def appended(self) -> list[Receipt]:
        """The appended records, in order: topic, partition, and the range of offsets."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Batch(Generic[_T]):
    """Consecutive records of one partition, as `Topic.batches` yields them: no object for each. It
    cannot be pickled or copied: pass on `list(batch)` or `batch.to_arrow()`.

    Example:
        >>> orders = store.topic("orders")
        >>> _ = orders.extend([b"a", b"b", b"c"])
        >>> batch = next(orders.batches())
        >>> batch.offsets, batch.to_list(), bytes(batch.values[1])
        (range(0, 3), [b'a', b'b', b'c'], b'b')
        >>> [record.offset for record in batch]
        [0, 1, 2]
    """

    @property
    def values(self) -> Sequence[_T]:
        """The values, as the topic's codec reads the payloads; None for a tombstone. A topic of "raw"
        has `raw_values`.

        Raises:
            DecodeFailed: The codec cannot read a payload; `raw_values` has the bytes.
            CorruptData: A record is corrupt.
        """
    @property
    def raw_values(self) -> Values:
        """The payloads as read-only memoryviews, made on request."""
    @property
    def keys(self) -> list[bytes | None]:
        """The keys; None for a record without one."""
    @property
    def timestamps_ns(self) -> list[int]:
        """When each record happened, or otherwise was appended, in nanoseconds since 1970."""
    @property
    def offsets(self) -> Sequence[int]:
        """Offsets of its records: a range, or a list where compaction removed some between them."""
    @property
    def partition(self) -> int:
        """Number of the partition of its records."""
    @property
    def topic(self) -> str:
        """Name of the topic."""
    def to_list(self) -> list[bytes | None]:
        """Copies of all payloads."""
    def to_arrow(
        self, *, columns: Sequence[str] | None = None, views: bool = False
    ) -> pyarrow.Table:
        """Convert the batch to a pyarrow table with the columns of `Topic.to_arrow`. Nothing is read
        again: the batch keeps its records, even after they were trimmed.

        Args:
            columns: Which of `falaj.arrow.COLUMNS`, in this order; None for partition, offset, timestamp,
                key and value.
            views: Keys and values are not copied: the columns are of the type `binary_view`, and show the
                mapped files.

        Returns:
            A table of as many rows as the batch has records; of one chunk, but for very large ones.

        Raises:
            MissingExtra: pyarrow is not installed.
            InvalidArgument: An unknown column, or one named twice.
            CorruptData: A record is corrupt.

        Example:
            >>> orders = store.topic("orders")
            >>> _ = orders.extend([b"a", b"b"])
            >>> next(orders.batches()).to_arrow(columns=["offset", "value"]).to_pylist()
            [{'offset': 0, 'value': b'a'}, {'offset': 1, 'value': b'b'}]
        """
    def __iter__(self) -> BatchRecords[_T]: ...
    def __len__(self) -> int: ...
    def __contains__(self, item: Any, /) -> NoReturn: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

@final
class Batches(Generic[_T]):
    """Iterator over batches of one partition."""

    def __iter__(self) -> Self: ...
    def __contains__(self, item: Any, /) -> NoReturn: ...
    def __next__(self) -> Batch[_T]: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

@final
class BatchRecords(Generic[_T]):
    """Iterator over the records of a batch."""

    def __iter__(self) -> Self: ...
    def __contains__(self, item: Any, /) -> NoReturn: ...
    def __next__(self) -> Record[_T]: ...
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...

@final
class Values(Sequence[memoryview | None]):
    """Payloads of a batch: a sequence of memoryviews that are made on request."""

    @overload
    def __getitem__(self, index: int, /) -> memoryview | None: ...
    @overload
    def __getitem__(self, index: slice, /) -> Sequence[memoryview | None]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[memoryview | None]: ...

@final
class ValuesIterator:
    """Iterator over payloads."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> memoryview | None: ...

@final
class Cut:
    """A store as it was at one moment, all of it on the disk; see `Store._cut`."""

    @property
    def store(self) -> str:
        """The store's id, 32 hexadecimal digits."""
    @property
    def logs(self) -> tuple[CutLog, ...]:
        """The logs."""
    @property
    def files(self) -> tuple[CutFile, ...]:
        """The files beside the logs: settings, consumer groups, queues."""
    def read(self, log: str, sequence: int, start: int, stop: int) -> bytes:
        """Return bytes of a segment's blocks, from its file.

        Args:
            log: The name of the log's directory.
            sequence: The segment.
            start: The first byte, 8192 at least.
            stop: The byte after the last, at most the segment's length.

        Raises:
            CorruptData: The segment is gone, or another one has its name.
            InvalidArgument: The cut does not have these bytes.
        """
    def gather(self, parts: Sequence[bytes | tuple[str, int, int, int]]) -> tuple[bytes, list[int]]:
        """Join bytes and ranges of segments' blocks, which are read to their place without a copy.

        Args:
            parts: Bytes, or the log, the sequence, the start and the stop of a range as in `read`.

        Returns:
            All of it, and the CRC-32 of each part.

        Raises:
            CorruptData: A segment is gone, or another one has its name.
            InvalidArgument: The cut does not have these bytes.
        """

@final
class CutLog:
    """A log of a cut."""

    @property
    def directory(self) -> str:
        """The name of its directory below `logs/`."""
    @property
    def generation(self) -> str:
        """The log's generation, 32 hexadecimal digits."""
    @property
    def segments(self) -> tuple[CutSegment, ...]:
        """Its segments, oldest first; only the last one is not sealed."""
    @property
    def ends(self) -> tuple[CutEnd, ...]:
        """Where each partition of its topics ends."""

@final
class CutSegment:
    """A segment of a cut. Bytes below its length never change while log, sequence, salt and compaction
    are the same.
    """

    @property
    def sequence(self) -> int:
        """Its sequence, as in the file's name."""
    @property
    def salt(self) -> int:
        """Its salt."""
    @property
    def compaction(self) -> int:
        """The random number of the compaction that made it; 0 for other segments."""
    @property
    def header(self) -> bytes:
        """Its header, 512 bytes."""
    @property
    def end(self) -> int:
        """Where its content ends."""
    @property
    def length(self) -> int:
        """Where its bytes end: behind the end block of a sealed segment."""
    @property
    def sealed(self) -> bool:
        """False for the last segment of a log, which may grow."""
    def extents(self, start: int) -> list[tuple[int, int]]:
        """List the ranges of its bytes from a position on, without the holes of void blocks.

        Args:
            start: The position.

        Raises:
            CorruptData: The segment is gone, or another one has its name.
        """

@final
class CutEnd:
    """Where a partition of a topic ends in a cut."""

    @property
    def topic(self) -> str:
        """The topic's generation, 32 hexadecimal digits."""
    @property
    def name(self) -> str:
        """The topic's name."""
    @property
    def partition(self) -> int:
        """The partition."""
    @property
    def next(self) -> int:
        """The offset of the next record."""
    @property
    def checksum(self) -> int:
        """The checksum of the body of the last block with records; 0 without one."""
    @property
    def time_us(self) -> int:
        """When that block was appended, microseconds since 1970; 0 if it is not there any more."""

@final
class CutFile:
    """A small file of a cut."""

    @property
    def path(self) -> str:
        """The path in the store, with slashes."""
    @property
    def length(self) -> int:
        """The length."""
    @property
    def parts(self) -> tuple[tuple[int, bytes], ...]:
        """The bytes, each with their position; all between is zero."""

@final
class Floor:
    """For benches/ only."""

    def __new__(cls, path: str | Path) -> Self: ...
    def append(self, value: bytes) -> int:
        """Do the least work of one append."""
    def extend(self, values: list[bytes]) -> int:
        """Do the least work of one extend."""

@final
class ArrowBatch:
    """One record batch."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

@final
class ArrowStream:
    """Records as Arrow record batches; see falaj.arrow."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> ArrowBatch: ...
    def __arrow_c_schema__(self) -> object: ...
    def _skipped(self) -> list[Skipped]: ...

def _arrow(
    topic: AnyTopic[Any],
    lanes: Sequence[tuple[int, int, int]],
    columns: Sequence[str],
    views: bool,
    batch_rows: int,
    batch_bytes: int,
    skip: bool,
    times: tuple[int, int] | None,
    keys: Sequence[bytes | None] | None,
    threads: int,
) -> ArrowStream: ...
def _arrow_stream(schema: object, batches: Iterator[object]) -> object: ...
def _arrow_of(
    batch: Batch[Any], columns: Sequence[str], views: bool, batch_rows: int, batch_bytes: int
) -> list[ArrowBatch]: ...
def _crc32(data: bytes, start: int = 0, stop: int | None = None, value: int = 0) -> int: ...
def _backup(store: Store, path: object, progress: Progress | None = None) -> BackupReport: ...
def _verify(
    path: object, topic: str | None = None, progress: Progress | None = None
) -> Verification: ...
def _repair(
    path: object,
    *,
    dry_run: bool = True,
    lock_timeout: Duration = 10.0,
    allow_network_fs: bool = False,
) -> RepairReport: ...
def _expect_json(value: object, whole: bool) -> None: ...
def _expect_msgpack(value: object, whole: bool) -> None: ...
def _cursor(topic: AnyTopic[Any], name: bytes) -> tuple[int, int] | None: ...
def _info(store: Store) -> StoreInfo: ...
def _count_from(store: Store, places: list[tuple[str, str, int, int]]) -> list[int | None]: ...
def _groups(store: Store, group: str | None = None) -> list[GroupInfo]: ...
def _group_names(store: Store) -> list[str]: ...
def _topic_info(store: Store, name: str) -> TopicInfo: ...
def _position_of(topic: AnyTopic[Any], partition: int, offset: int) -> tuple[int, int]: ...
def _seek_group(
    store: Store, name: str, topic: str, partition: int, start: tuple[str, int]
) -> int: ...
def _delete_group(store: Store, name: str) -> None: ...
def _forget_topic(store: Store, group: str, topic: str) -> None: ...
def _topic_in_log(store: Store, log: str) -> str | None: ...
def _configure_topic(store: Store, topic: AnyTopic[Any], changes: Changes) -> TopicRetention: ...
def _configure_store(store: Store, retention_bytes: int | None) -> None: ...
def _configure_shipping(store: Store, ship_backlog_bytes: int | None) -> None: ...
def _configure_min_sync(store: Store, ship_min_sync: int | None) -> None: ...
def _shipping(store: Store) -> Shipping: ...
def _acknowledge_ends(
    store: Store,
    ends: Sequence[tuple[str, int, int]],
    shipped: Sequence[tuple[str, int, int]] | None,
    places: int,
) -> None: ...
def _min_sync(store: Store) -> int: ...
def _compact(
    topic: AnyTopic[Any],
    tombstones_us: int,
    memory: int,
    seal: bool,
    last: Sequence[tuple[int, int, Buffer, Buffer]] | None,
    progress: Progress | None,
) -> CompactReport: ...
def _expect_record(topic: AnyTopic[Any], record: Any) -> None: ...
def _mark_compacted(store: Store, topic: AnyTopic[Any], compacted: bool) -> None: ...
def _set_properties(
    store: Store, topic: AnyTopic[Any], properties: dict[str, str | None]
) -> None: ...
def _maintain(store: Store, dry_run: bool) -> Maintenance: ...
