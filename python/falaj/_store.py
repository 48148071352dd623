"""`open` and `Store`: a directory of topics that processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, Unpack, overload

from falaj import _core
from falaj._any_topic import GIVE_THE_PATH, AnyTopic
from falaj._topic import PartitionedTopic, Topic, handle_of
from falaj.codecs import RAW, resolver
from falaj.errors import InvalidArgument, SettingsMismatch, UnknownTopic

if TYPE_CHECKING:
    import os
    from collections.abc import Coroutine, Mapping, Sequence

    from falaj._admin import (
        BackupReport,
        GroupInfo,
        Progress,
        StoreInfo,
        TopicInfo,
        Verification,
    )
    from falaj._arguments import Existing, QueueInfo, Retention, Settings, Start, Sync, Visibility
    from falaj._consumer import Consumer
    from falaj._core import Opened
    from falaj._queue import Backoff, Queue
    from falaj._retention import Maintenance
    from falaj._transaction import Transaction
    from falaj.codecs import Codec
    from falaj.metrics import Metrics

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
    lock_timeout: float = 10.0,
    allow_network_fs: bool = False,
    io: Literal["mmap", "pread"] = "mmap",
) -> Store:
    """Open the store in a directory, and create it where there is none.

    Any number of processes may have it open. Opening it a second time in one process costs little
    and gives a handle of its own. The directory that the store lies in must exist.

    Args:
        path: Directory of the store, or its URL `file:///…`. A leading `~` is the home directory.
        read_only: Whether to only read. Then nothing is created or changed, and no lock is taken.
        permissions: Permission bits of a store that is created: 0o750 lets the group read, 0o770
            write. By default only its owner may use it, 0o700.
        create: Whether to create a missing store. With False a missing store raises
            `StoreNotFound`.
        sync: When appends return, unless topic or append say otherwise: "none" and "interval" once
            all processes can see the record, "durable" once it is on disk; docs/GUARANTEES.md.
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
        NotAStore: Something else is at the path.
        InvalidArgument: The path is a URL of another scheme, such as `s3://…`.
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
    return Store(
        _local(path),
        read_only=_flag("read_only", read_only),
        permissions=_OWNER_ONLY if permissions is None else permissions,
        create=_flag("create", create),
        sync=sync,
        verify=verify,
        lock_timeout=lock_timeout,
        allow_network_fs=allow_network_fs,
        mapped=_is_mapped(io),
    )


def _flag(name: str, value: object) -> bool:
    if value is not True and value is not False:
        raise InvalidArgument(f"{name} is True or False, not {value!r}")
    return value


def _local(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    text = getattr(path, "__fspath__", path.__str__)()
    if ":" not in text and text[:1] not in ("~", b"~"):
        return path  # no URL, no home: importing `os` takes longer than opening a store
    from falaj._paths import local_path

    return local_path(path)


def _is_mapped(io: str) -> bool:
    if io not in ("mmap", "pread"):
        raise InvalidArgument(f'io is "mmap" or "pread", not {io!r}')
    return io == "mmap"


#: The class of transactions once it was needed: few need it, and it imports contextvars; an import
#: takes longer than writing two records.
_TRANSACTION: list[type[Transaction]] = []


def _transaction() -> type[Transaction]:
    if not _TRANSACTION:
        from falaj._transaction import Transaction

        _TRANSACTION.append(Transaction)
    return _TRANSACTION[0]


def _name_the_call(error: SettingsMismatch) -> None:
    """Name the call that opens a topic of the other kind, if that is what an error is about."""
    if error.setting == "partitions" and "1" in (error.stored, error.asked):
        has, call = f"{error.stored} partitions", "partitioned_topic"
        if error.stored == "1":
            has, call = "one partition", "topic"
        error.args = (
            f"topic {error.topic!r} has {has}: open it with store.{call}({error.topic!r})",
        )


class Store(_core.Store):
    """An open store; `falaj.open` makes it.

    Threads may share it. A forked child may continue to use it, and then has its own place among
    the writers.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @overload
        def topic(
            self,
            name: str,
            *,
            codec: Literal["raw"],
            **settings: Unpack[Settings],
        ) -> Topic[memoryview]: ...
        @overload
        def topic(
            self,
            name: str,
            *,
            codec: Literal["bytes"],
            **settings: Unpack[Settings],
        ) -> Topic[bytes]: ...
        @overload
        def topic(
            self,
            name: str,
            *,
            codec: Literal["str"],
            **settings: Unpack[Settings],
        ) -> Topic[str]: ...
        @overload
        def topic(
            self,
            name: str,
            *,
            codec: Codec[T] | type[T],
            **settings: Unpack[Settings],
        ) -> Topic[T]: ...
        @overload
        def topic(
            self,
            name: str,
            *,
            codec: str | None = None,
            **settings: Unpack[Settings],
        ) -> Topic[Any]: ...

    def topic(
        self,
        name: str,
        *,
        codec: str | Codec[Any] | type[Any] | None = None,
        **settings: Unpack[Settings],
    ) -> Topic[Any]:
        """Open a topic of one partition, and create it where there is none.

        A setting of None is taken as the topic has it, or by default when it is created. The log,
        the segment size and the sync interval are the topic's for as long as it exists. Retention,
        given as `retention_bytes`, `retention_age` and so on, is not: see `Topic.configure`.

        Args:
            name: 1 to 249 of `A-Z a-z 0-9 . _ -`.
            codec: What values are. "raw" (the default) reads them as memoryviews, "bytes" as
                bytes; both keep the same bytes in the store, so each reader chooses. Others are
                "str", "json", "msgpack", "pickle", a `falaj.Codec`, or a class of your own: a
                dataclass, a model of pydantic or a Struct of msgspec, kept as JSON. Pickles run
                code when they are read, so they are read only when named. `falaj.RAW` reads any
                topic that exists without its codec.
            **settings: `log`: the log that it lives in, by default one of its own. Topics that name
                the same one share its files, and what is appended to several of them in a
                transaction becomes visible at once or not at all. Segment size and interval are
                then the log's.
                `segment_bytes`: size of a file of the log, 64 MiB by default. One append takes at
                most a quarter of it, and never more than 64 MiB.
                `sync_interval_ms`: longest time that appends with `sync="interval"` stay unsynced,
                100 by default.
                `sync`: when appends return unless they say otherwise, by default as the store was
                opened.
                `verify`: whether reading verifies checksums, by default as the store was opened.
                `visibility`: how far this handle reads: all that is "visible" (the default), or
                only what is "durable", on disk, which no power failure takes back. Offsets, `len`,
                slices, lookups and followers of the handle agree.
                `compacted`: whether `Topic.compact` may leave of all records with the same key only
                the last one, so that offsets have gaps; False by default. `Topic.configure` changes
                it.
                `create`: whether to create the topic where there is none, True by default. With
                False a missing topic raises `UnknownTopic`, which lists the topics there are. To
                wait for a topic that another process creates: `wait_for_topic`.
                `retention_bytes` and so on: as `Topic.configure` takes them; for a topic that is
                created. By default all records are kept.

        Returns:
            The topic: a context manager that closes it.

        Raises:
            InvalidName: No topic can have this name.
            SettingsMismatch: It exists with another setting than the one asked for, or with several
                partitions: `partitioned_topic` opens it then, and `any_topic` opens either kind.
            InvalidArgument: A setting is beyond its limits, or the codec is not known.
            UnknownTopic: There is no such topic, and `create` is False or the store was opened for
                reading.

        Example:
            >>> readings = store.topic("readings", codec="json", sync="durable")
            >>> readings.extend([{"celsius": 20.5}, {"celsius": 21}])
            range(0, 2)
        """
        try:
            return Topic(self._opened("topic()", name, codec, 1, **settings), self)
        except SettingsMismatch as error:
            _name_the_call(error)
            raise

    if TYPE_CHECKING:

        @overload
        def partitioned_topic(
            self,
            name: str,
            *,
            partitions: int | None = None,
            codec: Literal["raw"],
            **settings: Unpack[Settings],
        ) -> PartitionedTopic[memoryview]: ...
        @overload
        def partitioned_topic(
            self,
            name: str,
            *,
            partitions: int | None = None,
            codec: Literal["bytes"],
            **settings: Unpack[Settings],
        ) -> PartitionedTopic[bytes]: ...
        @overload
        def partitioned_topic(
            self,
            name: str,
            *,
            partitions: int | None = None,
            codec: Literal["str"],
            **settings: Unpack[Settings],
        ) -> PartitionedTopic[str]: ...
        @overload
        def partitioned_topic(
            self,
            name: str,
            *,
            partitions: int | None = None,
            codec: Codec[T] | type[T],
            **settings: Unpack[Settings],
        ) -> PartitionedTopic[T]: ...
        @overload
        def partitioned_topic(
            self,
            name: str,
            *,
            partitions: int | None = None,
            codec: str | None = None,
            **settings: Unpack[Settings],
        ) -> PartitionedTopic[Any]: ...

    def partitioned_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        codec: str | Codec[Any] | type[Any] | None = None,
        **settings: Unpack[Settings],
    ) -> PartitionedTopic[Any]:
        """Open a topic of several partitions, and create it where there is none.

        Keys choose the partitions, so that members of a consumer group divide the work and records
        with the same key stay in order. A topic keeps its number of partitions.

        Args:
            name: 1 to 249 of `A-Z a-z 0-9 . _ -`.
            partitions: How many the topic has. None opens a topic that exists, with several. A
                number from a configuration may be 1: appends return a `Position` all the same.
            codec: As for `topic`.
            **settings: As for `topic`.

        Returns:
            The topic: a context manager that closes it.

        Raises:
            SettingsMismatch: It exists with another setting than the one asked for, or with one
                partition: `topic` opens it then, and `any_topic` opens either kind.
            InvalidArgument: A setting is beyond its limits, or the codec is not known.
            UnknownTopic: There is no such topic, and it cannot be created: `partitions` is missing,
                `create` is False, or the store was opened for reading.

        Example:
            >>> clicks = store.partitioned_topic("clicks", partitions=4)
            >>> clicks.append(b"home", partition=3)
            Position(partition=3, offset=0)
        """
        if partitions is None:
            settings["create"] = False
        try:
            opened = self._opened("partitioned_topic()", name, codec, partitions, **settings)
        except SettingsMismatch as error:
            _name_the_call(error)
            raise
        except UnknownTopic as error:
            if partitions is None:
                error.add_note(
                    f"to create it, say how many partitions: store.partitioned_topic({name!r}, "
                    "partitions=4)"
                )
            raise
        if opened.single and partitions is None:
            mismatch = SettingsMismatch()
            mismatch.topic, mismatch.setting, mismatch.stored = name, "partitions", "1"
            _name_the_call(mismatch)
            raise mismatch
        return PartitionedTopic(opened, self)

    if TYPE_CHECKING:

        @overload
        def any_topic(
            self,
            name: str,
            *,
            codec: Literal["raw"],
            **settings: Unpack[Existing],
        ) -> Topic[memoryview] | PartitionedTopic[memoryview]: ...
        @overload
        def any_topic(
            self,
            name: str,
            *,
            codec: Literal["bytes"],
            **settings: Unpack[Existing],
        ) -> Topic[bytes] | PartitionedTopic[bytes]: ...
        @overload
        def any_topic(
            self,
            name: str,
            *,
            codec: Literal["str"],
            **settings: Unpack[Existing],
        ) -> Topic[str] | PartitionedTopic[str]: ...
        @overload
        def any_topic(
            self,
            name: str,
            *,
            codec: Codec[T] | type[T],
            **settings: Unpack[Existing],
        ) -> Topic[T] | PartitionedTopic[T]: ...
        @overload
        def any_topic(
            self,
            name: str,
            *,
            codec: str | None = None,
            **settings: Unpack[Existing],
        ) -> Topic[Any] | PartitionedTopic[Any]: ...

    def any_topic(
        self,
        name: str,
        *,
        codec: str | Codec[Any] | type[Any] | None = None,
        **settings: Unpack[Existing],
    ) -> Topic[Any] | PartitionedTopic[Any]:
        """Open a topic that exists, whatever its number of partitions.

        For programs that read topics of both kinds; `isinstance(topic, falaj.Topic)` tells them
        apart. It creates none.

        Args:
            name: Name of the topic.
            codec: As for `topic`.
            **settings: `sync`, `verify` and `visibility`, as for `topic`.

        Returns:
            A `Topic`, or a `PartitionedTopic`: a context manager that closes it.

        Raises:
            UnknownTopic: There is no such topic; the message lists the topics there are.
            SettingsMismatch: It has another codec than the one asked for.

        Example:
            >>> _ = store.partitioned_topic("clicks", partitions=4)
            >>> clicks = store.any_topic("clicks")
            >>> len(clicks.partitions), isinstance(clicks, falaj.Topic)
            (4, False)
        """
        opened = self._opened("any_topic()", name, codec, None, **settings, create=False)
        return handle_of(opened, self)

    def _opened(
        self,
        call: str,
        name: str,
        codec: str | Codec[Any] | type[Any] | None,
        partitions: int | None,
        /,
        *,
        log: str | None = None,
        segment_bytes: int | None = None,
        sync_interval_ms: int | None = None,
        sync: Sync | None = None,
        verify: bool | None = None,
        visibility: Visibility = "visible",
        compacted: bool | None = None,
        create: bool = True,
        **retention: Unpack[Retention],
    ) -> Opened:
        create = create and codec is not RAW  # a topic without a codec cannot be created
        codec_name, resolve = resolver(codec)
        limits = None
        if "partitions" in retention:
            raise TypeError(
                f"{call} takes no partitions=: call store.partitioned_topic({name!r}, partitions=4)"
            )
        if retention:
            # few need it, and datetime takes its time
            from falaj._retention import changes, check_names

            check_names(retention, call)
            limits = changes({name: each for name, each in retention.items() if each is not None})
        return self._open_topic(
            name,
            codec=codec_name,
            resolve=resolve,
            log=log,
            partitions=partitions,
            segment_bytes=segment_bytes,
            sync_interval_ms=sync_interval_ms,
            sync=sync,
            verify=verify,
            visibility=visibility,
            retention=limits,
            compacted=compacted,
            create=create,
        )

    def _topic_of(self, opened: Opened) -> Topic[Any]:
        return Topic(opened, self)

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """The topics: a mapping from names, sorted, to the report of `info` about each.

        It reads the store whenever it is asked. `in` and iteration open no topic.

        Example:
            >>> _ = store.topic("orders", codec="json"), store.topic("audit")
            >>> list(store.topics), "orders" in store.topics
            (['audit', 'orders'], True)
            >>> store.topics["orders"]["codec"]
            'json'
        """
        from falaj._mappings import Named  # few need it

        return Named("topics", self._topic_names, self._topic_info)

    def _topic_info(self, name: str) -> TopicInfo:
        return _core._topic_info(self, name)

    def wait_for_topic(self, name: str, timeout: float | None = None) -> None:
        """Wait until there is a topic of this name, which another process creates.

        A consumer that starts before its writers calls this first. It looks 50 times a second.

        Args:
            name: Name of the topic.
            timeout: Seconds to wait; None waits without a limit.

        Raises:
            UnknownTopic: The time is over; the message lists the existing topics.
            HandleClosed: The store was closed meanwhile.

        Example:
            >>> _ = store.topic("orders")
            >>> store.wait_for_topic("orders", timeout=1)
        """
        from falaj import _awaiting  # few need it

        _awaiting.wait_for_topic(self, name, timeout)

    def await_for_topic(self, name: str, timeout: float | None = None) -> Coroutine[Any, Any, None]:
        """Wait for a topic from asyncio; else as `wait_for_topic`.

        Example:
            >>> import asyncio
            >>> _ = store.topic("orders")
            >>> asyncio.run(store.await_for_topic("orders", timeout=1))
        """
        from falaj import _awaiting  # few need it

        return _awaiting.await_for_topic(self, name, timeout)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a store cannot be pickled or copied: {GIVE_THE_PATH}")

    def transaction(self, *, sync: Sync | None = None) -> Transaction:
        """Begin to write to several topics of one log at once, and to move cursors with them.

        The transaction gathers records. At the end of the `with` block all of them become visible
        together, as one append. After an exception in the block nothing was appended. It takes no
        lock before its end, so others write meanwhile.

        Args:
            sync: When the block ends: "none", "interval" or "durable", see `falaj.open`; by default
                the strongest of its topics' modes.

        Returns:
            The transaction: a context manager, to be used once.

        Raises:
            AppendTooLarge: At the end: together it is more than one append may be.
            DurabilityUnknown: At the end: it is visible, and perhaps not on disk.

        Example:
            >>> paid, audit = (store.topic(name, log="shop") for name in ("paid", "audit"))
            >>> with store.transaction() as tx:
            ...     tx.append(paid, b"order 17")
            ...     tx.append("audit", b"order 17 was paid")
            >>> tx.offsets["paid"], audit[0].to_bytes()
            (range(0, 1), b'order 17 was paid')
        """
        return _transaction()(self, sync)

    def consumer(
        self,
        group: str,
        topics: str | AnyTopic[Any] | Sequence[str | AnyTopic[Any]],
        *,
        start: Start = "earliest",
        visibility: Visibility = "visible",
        auto_commit: bool | float = False,
        cursor_in: AnyTopic[Any] | str | None = None,
    ) -> Consumer[Any]:
        """Join a consumer group, and resume at the group's committed offsets.

        The first member creates the group: from then on it has a committed offset in each
        partition, on disk, and `Store.groups` lists it. Members that live at the same time divide
        the partitions; they name the same topics.

        Args:
            group: Name of the group: 1 to 249 of `A-Z a-z 0-9 . _ -`.
            topics: The topics that the group reads: one or several, by name, or as topics that were
                opened with a codec of their own.
            start: Where the group begins in a partition that it never read: "earliest", "latest",
                an offset (-10: the last ten records), or a time. A topic that was deleted and
                created again is another topic, which the group never read.
            visibility: "durable" delivers only what is on disk, "visible" everything.
            auto_commit: Whether a request for more commits earlier deliveries: True about once a
                second, or the seconds between two commits. It also commits when there is nothing to
                deliver, and when a `with` block ends without an exception.
            cursor_in: A topic, or the name of a log. Its log keeps the committed offsets, so that
                they move with the records that a transaction appends there. By default they are in
                a file of their own. It cannot change later. Each claim of a partition is noted in
                that log.

        Returns:
            The member: a context manager that closes it.

        Raises:
            UnknownTopic: There is no such topic; a consumer creates none. `wait_for_topic` waits
                for a topic that its writer creates later.
            InvalidName: No group can have this name.
            InvalidArgument: No topic was named, one twice, or other topics than living members
                read; or the committed offsets are kept elsewhere than in `cursor_in`.
            OffsetOutOfRange: `start` is outside a partition that the group begins to read.
            NotWritable: The store was opened for reading.

        Example:
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> with store.consumer("billing", "orders", auto_commit=True) as billing:
            ...     [record.to_bytes() for record in billing]
            [b'one', b'two']
            >>> store.consumer("billing", "orders").lag
            0
        """
        from falaj import _consumer  # rarely needed

        return _consumer.open_consumer(
            self, group, topics, start, visibility, auto_commit, cursor_in
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
        _core._delete_group(self, name)

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
        _core._forget_topic(self, group, topic if isinstance(topic, str) else topic.name)

    def queue(
        self,
        name: str,
        topic: str | Topic[Any] | None = None,
        *,
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
            topic: The topic, or its name; by default the topic of the queue's name. It has one
                partition.
            max_attempts: After how many attempts a job becomes a dead letter; None tries without
                end. Each handle has its own limit.
            dead_letter: The topic of dead letters, or its name, not the queue's own; by default the
                topic's name and `.dead`. The key of a job chooses the partition of its letter.
            order: "key" delivers a job only when the one before it of the same key is done. It
                cannot be changed later; None keeps what the queue was created with.
            backoff: How long a failed job waits, where `nack` gives no delay: the delay of the
                first retry and the longest in seconds, doubled each time and shortened by up to a
                half at random; or a function of the attempts so far. None delivers it at once.
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
        from falaj._queue import Queue  # few need it

        if not isinstance(name, str):
            raise TypeError(f"the name of a queue is text, not {type(name).__name__}")
        if not create:
            _core._expect_queue(self, name)
        over = name if topic is None else topic
        opened = self.topic(over) if isinstance(over, str) else over
        return Queue(opened, name, max_attempts, dead_letter, order, backoff)

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

        Processes that have the queue open continue with a new one: all records are ready, and jobs
        that were in flight cannot be acked any more.

        Raises:
            UnknownQueue: There is no queue of this name.
            NotWritable: The store was opened for reading.

        Example:
            >>> _ = store.queue("jobs")
            >>> store.delete_queue("jobs")
            >>> list(store.queues)
            []
        """
        _core._delete_queue(self, name)

    def configure(self, *, retention_bytes: int | None) -> None:
        """Limit the bytes of the logs of all topics together, or lift the limit.

        The oldest segments are deleted first, by the time of their newest record, whichever topic
        they belong to. Topics with `retention_protected` and the file that a log is written to are
        exempt. It is on disk when this returns, and applies from the next roll of any log on, in
        every process; `maintain` applies it at once.

        Args:
            retention_bytes: The limit; None lifts it.

        Raises:
            NotWritable: The store was opened for reading.

        Example:
            >>> store.configure(retention_bytes=10 << 30)
            >>> store.info()["retention_bytes"]
            10737418240
        """
        from falaj._retention import limit  # as above

        _core._configure_store(self, limit("retention_bytes", retention_bytes))

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
        return _core._maintain(self, dry_run)

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
            path: The destination; not inside the store.
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
        return _core._backup(self, _local(path), progress)

    def verify(self, topic: str | None = None, progress: Progress | None = None) -> Verification:
        """Check everything in the store, or in the log of one topic; see `falaj.verify`.

        Raises:
            UnknownTopic: There is no topic of this name.

        Example:
            >>> store.verify()["findings"]
            []
        """
        return _core._verify(self.path, topic, progress)

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
        return info

    def _counted(
        self, groups: list[GroupInfo], queues: list[Any]
    ) -> tuple[list[GroupInfo], list[QueueInfo]]:
        """Count what lies ahead of groups and queues: each log is looked at once."""
        cursors = [cursor for each in groups for cursor in each["partitions"]]
        places = [(c["topic"], c["generation"], c["partition"], c["committed"]) for c in cursors]
        places += [(q["topic"] or "", q["generation"] or "", 0, q.pop("head")) for q in queues]
        counted = iter(_core._count_from(self, places))
        for cursor in cursors:
            cursor["lag"] = next(counted)
        for queue in queues:
            new = next(counted)
            queue["ready"] = None if new is None else queue["ready"] + new
        return groups, queues

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
