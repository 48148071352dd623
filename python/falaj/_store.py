"""`open` and `Store`: a directory of topics that processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict, TypeVar, Unpack, overload

from falaj import _core
from falaj._any_topic import GIVE_THE_PATH, AnyTopic
from falaj._checks import choice, flag
from falaj._checks import name as expect_name
from falaj._store_shipping import StoreShipping
from falaj.errors import InvalidArgument, SettingsMismatch

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from falaj._admin import (
        BackupReport,
        GroupInfo,
        Progress,
        StoreInfo,
        Verification,
    )
    from falaj._arguments import QueueInfo, Start, Sync, Visibility
    from falaj._backoff import Backoff
    from falaj._consumer import Consumer, OnPartitions
    from falaj._queue import Queue
    from falaj._retention import Maintenance
    from falaj._time import Duration
    from falaj._topic import Topic
    from falaj._transaction import Transaction
    from falaj.codecs import Codec
    from falaj.metrics import Metrics

    class _OfQueue(TypedDict, total=False):
        max_attempts: int | None
        dead_letter: str | AnyTopic[Any] | None
        order: Literal["key"] | None
        backoff: Backoff | None
        create: bool

    class _OfConsumer(TypedDict, total=False):
        start: Start
        visibility: Visibility
        auto_commit: bool | float
        cursor_in: AnyTopic[Any] | str | None
        on_assign: OnPartitions | None
        on_revoke: OnPartitions | None


T = TypeVar("T")

__all__ = ["Store", "open"]

_OWNER_ONLY = 0o700


def open(  # noqa: A001  # falaj.open is how it reads
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    permissions: int | None = None,
    create: bool = True,
    sync: Sync = "interval",
    verify: bool = True,
    lock_timeout: Duration = 10.0,
    allow_network_fs: bool = False,
    io: Literal["mmap", "pread"] = "mmap",
) -> Store:
    """Open the store in a directory, and create it where there is none.

    Any number of processes may have it open. Opening it a second time in one process costs little
    and gives a handle of its own. The directory that the store lies in must exist.

    Args:
        path: Directory of the store, or its URL `file:///…`. A leading `~` is the home directory.
            With `read_only` also `s3://…`, `gs://…` or `az://…`, to which a store was shipped: then
            `verify` and `io` count, and `open_place` has more options.
        read_only: Whether to only read. Then nothing is created or changed, and no lock is taken.
        permissions: Permission bits of a store that is created: 0o750 lets the group read, 0o770
            write. By default only its owner may use it, 0o700.
        create: Whether to create a missing store. With False a missing store raises
            `StoreNotFound`.
        sync: When appends return, unless topic or append say otherwise. With "none" and "interval"
            that is once all processes can see the record, with "durable" once it is on disk. With
            "remote" it is once the process that ships the store says that it has left the machine.
            See docs/GUARANTEES.md.
        verify: Whether reading checks every block's checksum, once per map. Otherwise only the
            structure is checked.
        lock_timeout: Seconds to wait for a lock whose holder is alive, before `LockTimeout`.
        allow_network_fs: Whether to use a file system on which falaj cannot keep its promises, such
            as NFS. Only if one machine has it mounted, and at your own risk.
        io: "mmap" shows values where they lie in the mapped file. "pread" reads them into memory
            first: slower, and for stores on a failing disk or where other programs may truncate
            files, because under a map that ends the process (SIGBUS).

    Returns:
        The store: a context manager that closes it and its topics.

    Raises:
        StoreNotFound: There is no store and none was created, or the directory above it does not
            exist. It is a `FileNotFoundError`.
        NotAStore: Something else is at the path, such as a place in a directory: `open_place`
            reads one.
        InvalidArgument: The path is a URL of another scheme, or one of a place without `read_only`.
        UnsupportedFilesystem: It lies on a network file system or FUSE.
        PermissionDenied: The operating system does not allow it.
        UnsupportedVersion: A newer version of falaj wrote it.
        OutdatedFormat: It has an older version of the format.
        LockTimeout: Other processes were opening or changing it all the time.

    Example:
        >>> with falaj.open(path) as store:
        ...     store.topic("orders").append(b"first")
        0
    """
    local = _local(path, remote=True)
    if local is None:
        from falaj._place_store import open_url  # few programs need it

        return open_url(str(path), flag(read_only, "read_only"), verify=verify, io=io)
    try:
        return Store(
            local,
            read_only=flag(read_only, "read_only"),
            permissions=_OWNER_ONLY if permissions is None else permissions,
            create=flag(create, "create"),
            sync=sync,
            verify=flag(verify, "verify"),
            lock_timeout=lock_timeout,
            allow_network_fs=flag(allow_network_fs, "allow_network_fs"),
            mapped=choice(io, "io", "mmap", "pread") == "mmap",
        )
    except OSError as error:
        from falaj._paths import name_the_place  # importing `os` takes longer than opening a store

        name_the_place(error, local)
        raise


def _local(path: str | os.PathLike[str], *, remote: bool = False) -> str | os.PathLike[str] | None:
    """Return a path on this machine; with `remote`, None for the URL of a place."""
    is_path = hasattr(type(path), "__fspath__")
    text: Any = path.__fspath__() if is_path else path  # type: ignore[union-attr]
    if isinstance(text, str) and ":" not in text and text[:1] != "~":
        return path  # no URL, no home: importing `os` takes longer than opening a store
    from falaj._paths import is_place, local_path

    is_remote = remote and isinstance(text, str) and is_place(text)
    return None if is_remote else local_path(path, "a path")


#: The class of transactions once it was needed: few need it, and it imports contextvars; an import
#: takes longer than writing two records.
_TRANSACTION: list[type[Transaction]] = []


def _transaction() -> list[type[Transaction]]:
    from falaj._transaction import Transaction

    _TRANSACTION[:] = [Transaction]
    return _TRANSACTION


class Store(StoreShipping):
    """An open store; `falaj.open` makes it.

    Threads may share it. A forked child may continue to use it, and then has its own place among
    the writers.
    """

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a store cannot be pickled or copied: {GIVE_THE_PATH}")

    def transaction(
        self,
        *,
        sync: Sync | None = None,
        timeout: Duration | None = None,
        producer: str | _core.ExpiringProducer | None = None,
        sequence: int | None = None,
    ) -> Transaction:
        """Begin to write to several topics of one log at once, and to move cursors with them.

        The transaction gathers records. At the end of the `with` block all of them become visible
        together, as one append. After an exception in the block nothing was appended. It takes no
        lock before its end, so others write meanwhile.

        Args:
            sync: When the block ends: "none", "interval", "durable" or "remote", see `falaj.open`;
                by default the strongest of its topics' modes.
            timeout: As for `Topic.append`.
            producer: The name of a producer: the transaction happens once, as for `Topic.append`.
                Repeat it with the records that it had. A repeat appends nothing and moves no
                cursor, and `offsets` are those of the first time.
            sequence: The producer's number of the transaction, which rises by one. Each topic
                counts alone.

        Returns:
            The transaction: a context manager, to be used once.

        Raises:
            OffsetConflict: At the end: a record cannot get the offset that it expects. The error
                names the topic and the partition, and nothing was appended.
            OutOfOrderSequence, DuplicateSequence: At the end: as for `Topic.append`.
            AppendTooLarge: At the end: together it is more than one append may be.
            DurabilityUnknown: At the end: it is visible, and perhaps not on disk.
            NoShipper, Fenced, RemoteTimeout: At the end: as for `Topic.append`.

        Example:
            >>> paid, audit = (store.topic(name, log="shop") for name in ("paid", "audit"))
            >>> with store.transaction() as tx:
            ...     tx.append(paid, b"order 17")
            ...     tx.append("audit", b"order 17 was paid")
            >>> tx.offsets["paid"], audit[0].to_bytes()
            ({0: range(0, 1)}, b'order 17 was paid')
        """
        return (_TRANSACTION or _transaction())[0](self, sync, producer, sequence, timeout)

    if TYPE_CHECKING:

        @overload
        def consumer(
            self,
            group: str,
            topics: AnyTopic[T] | Sequence[AnyTopic[T]],
            *,
            pattern: None = None,
            **settings: Unpack[_OfConsumer],
        ) -> Consumer[T]: ...
        @overload
        def consumer(
            self,
            group: str,
            topics: str | Sequence[str | AnyTopic[Any]] | None = None,
            *,
            pattern: str | None = None,
            **settings: Unpack[_OfConsumer],
        ) -> Consumer[Any]: ...

    def consumer(
        self,
        group: str,
        topics: str | AnyTopic[Any] | Sequence[str | AnyTopic[Any]] | None = None,
        *,
        pattern: str | None = None,
        start: Start = "earliest",
        visibility: Visibility = "visible",
        auto_commit: bool | float = False,
        cursor_in: AnyTopic[Any] | str | None = None,
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
    ) -> Consumer[Any]:
        """Join a consumer group, and resume at the group's committed offsets.

        The first member creates the group: from then on it has a committed offset in each
        partition, on disk, and `Store.groups` lists it. Members that live at the same time divide
        the partitions; they name the same topics, or the same pattern.

        Args:
            group: Name of the group: 1 to 249 of `A-Z a-z 0-9 . _ -`.
            topics: The topics that the group reads: one or several, by name, or as topics that were
                opened with a codec of their own.
            pattern: Instead of topics: read all topics whose names match. `*` stands for any
                characters, `?` for one; it is no regular expression. A matching topic that is
                created later joins within about a second, and is read from its first record. A
                topic that is deleted leaves the group. The pattern may match no topic yet.
            start: Where the group begins in a partition that it never read: "earliest", "latest",
                an offset (-10: the last ten records), or a time. A topic that was deleted and
                created again is another topic, which the group never read.
            visibility: "durable" delivers only what is on disk, "remote" only what has left the
                machine too, "visible" everything.
            auto_commit: Whether a request for more commits earlier deliveries: True about once a
                second, or the seconds between two commits. It also commits when there is nothing to
                deliver, and when a `with` block ends without an exception.
            cursor_in: A topic, or the name of a log. Its log keeps the committed offsets, so that
                they move with the records that a transaction appends there. By default they are in
                a file of their own. It cannot change later. Each claim of a partition is noted in
                that log.
            on_assign: Called as `on_assign(consumer, partitions)` when this member got partitions,
                before it delivers from them: the place to `seek`, or to load what belongs to them.
                `partitions` is a list of names of topics and numbers.
            on_revoke: Called likewise before this member releases partitions, for another member or
                in `close`. A `commit` there still counts. The member delivers no more from them,
                and releases them once what it delivered is committed.

        Returns:
            The member: a context manager that closes it.

        Raises:
            UnknownTopic: There is no such topic; a consumer creates none. `wait_for_topic` waits
                for a topic that its writer creates later.
            InvalidName: No group can have this name.
            InvalidArgument: No topic was named, or one twice, or topics and a pattern. The living
                members have another subscription. Or the committed offsets are kept elsewhere than
                in `cursor_in`.
            OffsetOutOfRange: `start` is outside a partition that the group begins to read.
            NotWritable: The store was opened for reading.

        Example:
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> with store.consumer("billing", "orders", auto_commit=True) as billing:
            ...     [record.to_bytes() for record in billing]
            [b'one', b'two']
            >>> store.consumer("billing", "orders").lag
            0
            >>> with store.consumer("audit", pattern="ord*") as audit:
            ...     audit.topics
            ['orders']
        """
        from falaj import _consumer  # rarely needed

        callbacks = (on_assign, on_revoke)
        return _consumer.open_consumer(
            self, group, topics, pattern, start, visibility, auto_commit, cursor_in, callbacks
        )

    @property
    def groups(self) -> Mapping[str, GroupInfo]:
        """The consumer groups: a mapping from names, sorted, to the report of `info` about each.

        It reads the store whenever it is asked, and joins no group.

        Example:
            >>> _ = store.topic("orders").append(b"one")
            >>> store.consumer("billing", "orders").close()
            >>> list(store.groups)
            ['billing']
            >>> [(each["topic"], each["lag"]) for each in store.groups["billing"]["partitions"]]
            [('orders', 1)]
        """
        from falaj._mappings import Named  # few need it

        return Named("groups", self._group_names, self._group_info)

    @property
    def _where(self) -> str | os.PathLike[str]:
        """Where people say that the store is."""
        return self.path

    def _group_names(self) -> list[str]:
        return _core._group_names(self)

    def _group_info(self, name: str) -> GroupInfo:
        return self._counted(_core._groups(self, name), [])[0][0]

    def seek_group(
        self, group: str, topic: str, to: Start, *, partition: int | None = None
    ) -> dict[int, int]:
        """Move the committed offsets of a group that has no living member, on disk.

        It also works if the log lost records that the group had read, or if a committed offset is
        corrupt. A living member calls its own `seek` instead.

        Args:
            group: The group.
            topic: The topic.
            to: "earliest", "latest", an offset (-10: the last ten records), or a time.
            partition: Only this partition; by default all.

        Returns:
            The committed offset of each partition.

        Raises:
            UnknownGroup: There is no group of this name.
            UnknownTopic: There is no topic of this name.
            InvalidArgument: The group has a living member, or never read the partition.
            OffsetOutOfRange: No record has this offset.

        Example:
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> store.consumer("billing", "orders").close()
            >>> store.seek_group("billing", "orders", -1)
            {0: 1}
        """
        from falaj import _consumer  # few need it

        return _consumer.seek_group(self, group, topic, to, partition)

    def delete_group(self, name: str) -> None:
        """Delete a consumer group and its committed offsets.

        Raises:
            UnknownGroup: There is no group of this name.
            InvalidArgument: The group has a living member; the message names its process.

        Example:
            >>> _ = store.topic("orders")
            >>> store.consumer("billing", "orders").close()
            >>> store.delete_group("billing")
            >>> list(store.groups)
            []
        """
        _core._delete_group(self, expect_name(name, "the name of a consumer group"))

    def forget_topic(self, group: str, topic: str | AnyTopic[Any]) -> None:
        """Forget the committed offsets of a consumer group in one topic.

        Call it when the group no longer reads the topic: otherwise its lag grows, and a topic with
        `retention_waits` keeps every record for it. The other topics of the group keep their
        committed offsets. The topic may have been deleted. A member that reads it later begins
        where its `start` says. After a power failure all partitions are forgotten, or none.

        Args:
            group: The consumer group.
            topic: The topic, or its name.

        Raises:
            UnknownGroup: There is no group of this name.
            InvalidArgument: The group has no committed offset in the topic, or a living member
                reads it; the message names the process.

        Example:
            >>> for name in ("orders", "refunds"):
            ...     _ = store.topic(name)
            >>> store.consumer("billing", ["orders", "refunds"]).close()
            >>> store.forget_topic("billing", "refunds")
            >>> [cursor["topic"] for cursor in store.info()["groups"][0]["partitions"]]
            ['orders']
        """
        if isinstance(topic, AnyTopic):
            topic = topic.name
        expect_name(group, "the name of a consumer group")
        _core._forget_topic(self, group, expect_name(topic, "the name of a topic"))

    if TYPE_CHECKING:

        @overload
        def queue(self, name: str, topic: Topic[T], **settings: Unpack[_OfQueue]) -> Queue[T]: ...
        @overload
        def queue(
            self,
            name: str,
            topic: str | None = None,
            *,
            codec: Literal["raw"],
            **settings: Unpack[_OfQueue],
        ) -> Queue[memoryview]: ...
        @overload
        def queue(
            self,
            name: str,
            topic: str | None = None,
            *,
            codec: Literal["bytes"],
            **settings: Unpack[_OfQueue],
        ) -> Queue[bytes]: ...
        @overload
        def queue(
            self,
            name: str,
            topic: str | None = None,
            *,
            codec: Literal["str"],
            **settings: Unpack[_OfQueue],
        ) -> Queue[str]: ...
        @overload
        def queue(
            self,
            name: str,
            topic: str | None = None,
            *,
            codec: Codec[T] | type[T],
            **settings: Unpack[_OfQueue],
        ) -> Queue[T]: ...
        @overload
        def queue(
            self,
            name: str,
            topic: str | None = None,
            *,
            codec: str | None = None,
            **settings: Unpack[_OfQueue],
        ) -> Queue[Any]: ...

    def queue(
        self,
        name: str,
        topic: str | Topic[Any] | None = None,
        *,
        codec: str | Codec[Any] | type[Any] | None = None,
        max_attempts: int | None = None,
        dead_letter: str | AnyTopic[Any] | None = None,
        order: Literal["key"] | None = None,
        backoff: Backoff | None = None,
        create: bool = True,
    ) -> Queue[Any]:
        """Open a work queue over a topic; the first to open it creates it.

        All records that the topic has are jobs of a new queue. Several queues of different names
        may share a topic, each with its own state.

        Args:
            name: 1 to 249 of `A-Z a-z 0-9 . _ -`.
            topic: The topic, or its name; it has one partition. By default the queue's own, and for
                a new queue the topic of its name.
            codec: The codec of the topic, where that is named; as for `topic`.
            max_attempts: After how many attempts a job becomes a dead letter; None tries without
                end. Each handle has its own limit.
            dead_letter: The topic of dead letters, or its name, not the queue's own; by default the
                topic's name and `.dead`. The key of a job chooses the partition of its letter.
            order: "key" delivers a job only when the one before it of the same key is done. It
                cannot be changed later; None keeps what the queue was created with.
            backoff: How long a failed job waits, where `nack` gives no delay. It is a pair: the
                delay of the first retry and the longest, in seconds. Delays double, each shortened
                by up to a half at random. Or it is a function of the attempts so far; if it raises,
                that is logged, and (1, 300) counts. None delivers the job at once.
            create: Create the queue where there is none. False raises `UnknownQueue`, which lists
                the queues there are.

        Returns:
            The queue: a context manager that closes it.

        Raises:
            UnknownQueue: There is no queue of this name, and `create` is False.
            InvalidArgument: The topic has several partitions, or a limit makes no sense.
            SettingsMismatch: The queue exists with another topic or order.
            NotWritable: The store was opened for reading.

        Example:
            >>> queue = store.queue("jobs", max_attempts=5)
            >>> queue.put(b"resize 1.png")
            0
            >>> for job in queue.take(10):
            ...     job.ack()
        """
        from falaj._queue import Queue, check_limits, topic_of  # few need it

        expect_name(name, "the name of a queue")
        max_attempts = check_limits(max_attempts, dead_letter, order, backoff)
        if not flag(create, "create"):
            _core._expect_queue(self, name)
        try:
            over = topic_of(self, name, topic, codec, dead_letter)
        except SettingsMismatch as error:
            if error.setting == "partitions":
                raise InvalidArgument(
                    f"topic {error.topic!r} has {error.stored} partitions, and a queue needs a "
                    "topic with one: name another topic. Any number of workers may share it"
                ) from None
            raise
        return Queue(over, name, max_attempts, dead_letter, order, backoff)

    @property
    def queues(self) -> Mapping[str, QueueInfo]:
        """The work queues: a mapping from names, sorted, to what `info` says of each.

        It reads the store whenever it is asked, and opens no queue.

        Example:
            >>> _ = store.queue("thumbnails", topic="pictures").put(b"1.png")
            >>> list(store.queues)
            ['thumbnails']
            >>> store.queues["thumbnails"]["topic"], store.queues["thumbnails"]["ready"]
            ('pictures', 1)
        """
        from falaj._mappings import Named  # few need it

        return Named("queues", self._queue_names, self._queue_state)

    def _queue_names(self) -> list[str]:
        return [name for name, _ in _core._queues(self)]

    def _queue_state(self, name: str) -> QueueInfo:
        found = _core._queue_overview(self, name)
        if not found:
            _core._expect_queue(self, name)
        return self._counted([], found)[1][0]

    def delete_queue(self, name: str) -> None:
        """Delete the state of a queue; the records stay in their topic.

        Processes that have the queue open continue with a new one, where all records are ready.
        Jobs that were in flight cannot be acked any more.

        Raises:
            UnknownQueue: There is no queue of this name.
            NotWritable: The store was opened for reading.

        Example:
            >>> _ = store.queue("jobs")
            >>> store.delete_queue("jobs")
            >>> list(store.queues)
            []
        """
        _core._delete_queue(self, expect_name(name, "the name of a queue"))

    def maintain(self, *, dry_run: bool = False) -> Maintenance:
        """Delete records beyond the limits in all topics, and finish interrupted work.

        Topics with writers do not need it: a process that begins a new file applies the limits to
        that log. For the others, call it now and then, or run `falaj maintain` from cron. It also
        finishes trims and deletions whose process died. It removes parts of bulk loads that no
        process is writing, unchanged for a day. Costs a look at every log, beside the removals.

        Args:
            dry_run: Only report the deletions; then the store may be open for reading.

        Returns:
            The deletions, by log, with `problem` for work that was not done. `problems` lists
            errors in topics' settings and in files of consumer groups and queues.

        Raises:
            NotWritable: The store was opened for reading.

        Example:
            >>> orders = store.topic("orders", retention_records=2)
            >>> _ = orders.extend([b"one", b"two", b"three"], sync="durable")
            >>> store.maintain()["logs"][0]["cuts"][0]["first"], orders.start_offset
            (1, 1)
        """
        return _core._maintain(self, flag(dry_run, "dry_run"))

    def backup(
        self, path: str | os.PathLike[str], progress: Progress | None = None
    ) -> BackupReport:
        """Copy the store, as it is now, to a missing or empty directory.

        Others may write meanwhile; the copy has what was committed when this was called. It is
        built beside its destination, synced, and appears there whole; after an error nothing
        appears. It is the same store, so committed offsets and checkpoints stay valid in it. Jobs
        that were done are done in the copy, and jobs in flight are ready. A corrupt file of a
        consumer group or a queue is copied as it is, and listed in `problems`.

        Args:
            path: The destination; not inside the store or a place.
            progress: Called with the bytes done and all bytes; its exception ends the call.

        Raises:
            InvalidArgument: The destination exists, is inside the store, or is a URL such as
                `s3://…`.
            NeedsRecovery: The store was opened for reading and was not recovered since a crash.
            NoSpace: There is no space for the copy.

        Example:
            >>> store.topic("orders").append(b"first")
            0
            >>> store.backup(store.path.with_name("copy"))["topics"]
            1
        """
        from falaj._functions import callback  # few need it
        from falaj._paths import expect_outside_places, local_path

        local, progress = local_path(path, "a path"), callback(progress, "progress")
        expect_outside_places(local)
        return _core._backup(self, local, progress)

    def verify(self, topic: str | None = None, progress: Progress | None = None) -> Verification:
        """Check everything in the store, or in the log of one topic; see `falaj.verify`.

        Raises:
            UnknownTopic: There is no topic of this name.

        Example:
            >>> store.verify()["findings"]
            []
        """
        from falaj._functions import callback  # few need it

        return _core._verify(self.path, topic, callback(progress, "progress"))

    def info(self) -> StoreInfo:
        """Report topics, offsets, logs, locks, processes, consumer groups and work queues.

        Example:
            >>> _ = store.topic("orders").append(b"first", sync="durable")
            >>> store.info()["topics"][0]["partitions"]
            [{'partition': 0, 'first': 0, 'end': 1, 'durable': 1}]
        """
        info = _core._info(self)
        groups, queues = self._counted(_core._groups(self), _core._queue_overview(self))
        info["groups"], info["queues"] = groups, queues
        info["places"] = self._places()
        return info

    def _counted(
        self, groups: list[GroupInfo], queues: list[Any]
    ) -> tuple[list[GroupInfo], list[QueueInfo]]:
        from falaj._admin import counted  # few need it, and it imports typing

        return counted(self, groups, queues)

    def metrics(self) -> Metrics:
        """Return the store in numbers, for monitoring: the facts of `info`, shorter and by name.

        Nothing is counted while records are appended: all numbers come from what processes share.
        So any process may call this, even one that only reads. `falaj metrics` prints it for
        Prometheus.

        Example:
            >>> _ = store.topic("orders").append(b"first", sync="durable")
            >>> store.metrics()["topics"]["orders"]["partitions"]
            [{'partition': 0, 'first': 0, 'end': 1, 'committed': 1, 'durable': 1}]
        """
        from falaj import metrics  # few need it, and it imports typing

        return metrics.of(self.info())
