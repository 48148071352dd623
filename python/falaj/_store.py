"""`open` and `Store`: a directory of topics that processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from falaj import _core
from falaj._topic import Topic
from falaj.codecs import resolver
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from falaj._admin import BackupReport, Progress, StoreInfo, Verification
    from falaj._arguments import Retention, Settings, Start, Sync, Visibility
    from falaj._consumer import Consumer
    from falaj._queue import Queue
    from falaj._retention import Maintenance
    from falaj._transaction import Transaction
    from falaj.codecs import Codec
    from falaj.metrics import Metrics

T = TypeVar("T")

__all__ = ["Store", "open"]

_OWNER_ONLY = 0o700


def open(  # noqa: A001  # falaj.open is how it reads
    path: str | os.PathLike[str],
    mode: Literal["r", "w"] | int = "w",
    *,
    sync: Sync = "interval",
    verify: bool = True,
    timeout: float = 10.0,
    force: bool = False,
    read: Literal["map", "pread"] = "map",
) -> Store:
    """Open the store in a directory; the first to open it creates it.

    Any number of processes may have it open. Opening it a second time in one process costs little
    and gives a handle of its own. The directory that the store lies in must exist.

    Args:
        path: Directory of the store, or its URL `file:///…`.
        mode: "w" to read and write; "r" to read only: then nothing is created or changed and no
            lock is taken. A number is "w", and the permission bits of a store that is created:
            0o750 lets a group read, 0o770 write. Without one it is its owner's alone, 0o700.
        sync: When appends return, unless topic or append say otherwise: "none" and "interval" once
            everybody can see the record, "durable" once it is on the medium; docs/GUARANTEES.md.
        verify: Whether reading checks every block's checksum, once per map. Without it only the
            structure is checked.
        timeout: Seconds to wait for a lock whose holder is alive, before `LockTimeout`.
        force: Use a file system that cannot keep the promises, such as NFS: only where one machine
            has it mounted, and at your own risk.
        read: "map" shows values where they lie in the mapped file. "pread" reads them into memory
            first: slower, and for stores on a dying disk or where strangers truncate files, because
            under a map that ends the process (SIGBUS).

    Returns:
        The store: a context manager that closes it and its topics.

    Raises:
        NotAStore: There is something else, or nothing to read.
        InvalidArgument: The path is a URL of another scheme, such as `s3://…`.
        UnsupportedFilesystem: It lies on a network file system or FUSE.
        PermissionDenied: The operating system does not allow it.
        UnsupportedVersion: A newer version of falaj wrote it.
        OutdatedFormat: It is of an older version of the format.
        LockTimeout: Others were opening or changing it all the time.

    Example:
        >>> with falaj.open(path) as store:
        ...     store.topic("orders").append(b"first")
        0
    """
    if isinstance(mode, bool) or not (mode in ("r", "w") or isinstance(mode, int)):
        raise InvalidArgument(f'mode is "r", "w" or permission bits such as 0o750, not {mode!r}')
    return Store(
        _local(path),
        write=mode != "r",
        permissions=mode if isinstance(mode, int) else _OWNER_ONLY,
        sync=sync,
        verify=verify,
        timeout=timeout,
        force=force,
        mapped=_is_mapped(read),
    )


def _local(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    if ":" not in getattr(path, "__fspath__", path.__str__)():
        return path  # no URL: importing `os` takes longer than opening a store
    from falaj._paths import local_path

    return local_path(path)


def _is_mapped(read: str) -> bool:
    if read not in ("map", "pread"):
        raise InvalidArgument(f'read is "map" or "pread", not {read!r}')
    return read == "map"


#: The class of transactions once it was needed: few need it, and it imports contextvars; an import
#: takes longer than writing two records.
_TRANSACTION: list[type[Transaction]] = []


def _transaction() -> type[Transaction]:
    if not _TRANSACTION:
        from falaj._transaction import Transaction

        _TRANSACTION.append(Transaction)
    return _TRANSACTION[0]


class Store(_core.Store):
    """An open store; `falaj.open` makes it.

    Threads may share it. A forked child may go on with it, and takes a place of its own among those
    that write.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @overload
        def topic(
            self, name: str, *, codec: Literal["bytes"], **settings: Unpack[Settings]
        ) -> Topic[memoryview]: ...
        @overload
        def topic(
            self, name: str, *, codec: Literal["str"], **settings: Unpack[Settings]
        ) -> Topic[str]: ...
        @overload
        def topic(
            self, name: str, *, codec: Codec[T], **settings: Unpack[Settings]
        ) -> Topic[T]: ...
        @overload
        def topic(
            self, name: str, *, codec: str | None = None, **settings: Unpack[Settings]
        ) -> Topic[Any]: ...

    def topic(
        self,
        name: str,
        *,
        codec: str | Codec[Any] | None = None,
        log: str | None = None,
        partitions: int | None = None,
        segment_bytes: int | None = None,
        sync_interval_ms: int | None = None,
        sync: Sync | None = None,
        verify: bool | None = None,
        visibility: Visibility = "visible",
        compacted: bool | None = None,
        **retention: Unpack[Retention],
    ) -> Topic[Any]:
        """Open a topic; the first to open it for writing creates it.

        What is None is taken as the topic has it, or by default when it is created. Codec,
        partitions, segment size and interval are the topic's for ever. Retention, given as
        `retention_bytes`, `retention_age` and so on, is not: see `Topic.configure`.

        Args:
            name: 1 to 249 of `A-Z a-z 0-9 . _ -`.
            codec: What values are: "bytes" (the default), "str", "json", "msgpack", "pickle", or a
                `falaj.Codec`. Pickles run code when they are read, so they are read only when
                named.
            log: The log that it lives in, by default one of its own. Topics that name the same one
                share its files, and what is appended to several of them in a transaction is there
                at once or not at all. Segment size and interval are then the log's.
            partitions: Into how many totally ordered parts keys are spread, 1 by default.
            segment_bytes: Size of a file of the log, 64 MiB by default. One append takes at most a
                quarter of it, and never more than 64 MiB.
            sync_interval_ms: Longest time that appends with `sync="interval"` stay unsynced, 100 by
                default.
            sync: When appends return unless they say otherwise, by default as the store was opened.
            verify: Whether reading verifies checksums, by default as the store was opened.
            visibility: How far this handle reads: all that is "visible", or only what is
                "durable", on the medium, which no loss of power takes back. Offsets, `len`, `end`,
                slices, lookups and followers of the handle agree.
            compacted: Whether `Topic.compact` may leave of all records with the same key only the
                last one, so that offsets have gaps; False by default. `Topic.configure` changes it.
            **retention: As `Topic.configure` takes them; for a topic that is created. By default
                all records are kept.

        Returns:
            The topic: a context manager that closes it.

        Raises:
            InvalidName: No topic can have this name.
            SettingsMismatch: It exists with another setting than the one asked for.
            InvalidArgument: A setting is beyond its limits, or the codec is not known.
            UnknownTopic: It does not exist, and the store was opened for reading.

        Example:
            >>> readings = store.topic("readings", codec="json", sync="durable")
            >>> readings.extend([{"celsius": 20.5}, {"celsius": 21}])
            range(0, 2)
        """
        codec_name, resolve = resolver(codec)
        limits = None
        if retention:
            # few need it, and datetime takes its time
            from falaj._retention import changes, check_names

            check_names(retention, "topic()")
            limits = changes({name: each for name, each in retention.items() if each is not None})
        opened = self._open_topic(
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
        )
        return Topic(opened, self)

    def transaction(self, *, sync: Sync | None = None) -> Transaction:
        """Begin to write to several topics of one log at once, and to move cursors with that.

        What is given to the transaction is gathered; at the end of the `with` block all of it
        becomes visible together, as one append. After an exception inside of the block nothing of
        it was appended. It takes no lock before, so others write meanwhile.

        Args:
            sync: When the block ends: "none", "interval" or "durable", see `falaj.open`; by default
                as the strongest of its topics.

        Returns:
            The transaction: a context manager, to be used once.

        Raises:
            AppendTooLarge: At the end: together it is more than one append may be.
            DurabilityUnknown: At the end: it is visible, and perhaps not on the medium.

        Example:
            >>> paid, audit = (store.topic(name, log="shop") for name in ("paid", "audit"))
            >>> with store.transaction() as tx:
            ...     tx.append(paid, b"order 17")
            ...     tx.append("audit", b"order 17 was paid")
            >>> tx.offsets["paid"], audit[0].bytes()
            (range(0, 1), b'order 17 was paid')
        """
        return _transaction()(self, sync)

    def consumer(
        self,
        name: str,
        topics: Sequence[str | Topic[Any]],
        *,
        start: Start = "earliest",
        visibility: Visibility = "visible",
        auto_commit: bool | float = False,
        cursor_in: Topic[Any] | str | None = None,
    ) -> Consumer[Any]:
        """Become a member of a named consumer, which reads on where it committed last.

        The first to open a name creates it: from then on it has a place in each partition, on the
        medium, and `falaj group list` shows it. Members of one name that live at the same time
        divide the partitions; they name the same topics.

        Args:
            name: 1 to 249 of `A-Z a-z 0-9 . _ -`.
            topics: What it reads: names, or topics that were opened with a codec of their own.
            start: Where it begins in a partition in which it never was: "earliest", "latest", an
                offset (-10: the last ten records), or a time. A topic that was deleted and
                created anew is another topic, in which it never was.
            visibility: "durable" hands out only what is on the medium, "visible" everything.
            auto_commit: Whether what was handed out is committed when more is asked for: True about
                once a second, or the seconds between two commits. It is also committed when there
                is nothing to hand out, and when a `with` block ends without an exception.
            cursor_in: A topic, or the name of a log, whose log keeps the cursors, so that they move
                with what a transaction appends there; by default they are in a file of their own.
                It is the consumer's for ever. Each taking of a partition is noted in that log.

        Returns:
            The member: a context manager that closes it.

        Raises:
            UnknownTopic: There is no such topic; a consumer creates none.
            InvalidName: No consumer can have this name.
            InvalidArgument: No topic was named, one twice, or other ones than living members read;
                or the cursors are kept elsewhere than in `cursor_in`.
            OffsetOutOfRange: `start` is no place in a partition that it begins to read.
            NotWritable: The store was opened for reading.

        Example:
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> with store.consumer("billing", ["orders"], auto_commit=True) as billing:
            ...     [record.bytes() for record in billing]
            [b'one', b'two']
            >>> store.consumer("billing", ["orders"]).lag
            0
        """
        from falaj import _consumer  # many never need it

        return _consumer.open_consumer(
            self, name, topics, start, visibility, auto_commit, cursor_in
        )

    def reset_consumer(
        self, name: str, topic: str, to: Start, *, partition: int | None = None
    ) -> dict[int, int]:
        """Set the cursors of a consumer that nobody has open, on the medium.

        Also where the log does not know a cursor any more, or it is damaged. Who has the consumer
        open calls its `seek` instead.

        Args:
            name: The consumer.
            topic: Which of its topics.
            to: "earliest", "latest", an offset (-10: the last ten records), or a time.
            partition: In this partition alone; by default in all.

        Returns:
            The offset of each partition.

        Raises:
            UnknownGroup: There is none of this name.
            UnknownTopic: There is none of this name.
            InvalidArgument: Somebody has it open, or it never read the partition.
            OffsetOutOfRange: Nothing has this offset.

        Example:
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> store.consumer("billing", ["orders"]).close()
            >>> store.reset_consumer("billing", "orders", -1)
            {0: 1}
        """
        from falaj import _consumer  # few need it

        return _consumer.reset(self, name, topic, to, partition)

    def delete_consumer(self, name: str) -> None:
        """Delete a consumer that nobody has open, with its cursors.

        Raises:
            UnknownGroup: There is none of this name.
            InvalidArgument: Somebody has it open.

        Example:
            >>> _ = store.topic("orders")
            >>> store.consumer("billing", ["orders"]).close()
            >>> store.delete_consumer("billing")
            >>> store.info()["consumers"]
            []
        """
        _core._delete_consumer(self, name)

    def forget_topic(self, group: str, topic: str | Topic[Any]) -> None:
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
            >>> [cursor["topic"] for cursor in store.info()["consumers"][0]["cursors"]]
            ['orders']
        """
        _core._forget_topic(self, group, topic if isinstance(topic, str) else topic.name)

    def queue(
        self,
        name: str,
        topic: str | Topic[Any] | None = None,
        *,
        max_attempts: int | None = None,
        dead_letter: str | Topic[Any] | None = None,
        order: Literal["key"] | None = None,
    ) -> Queue[Any]:
        """Open a work queue over a topic; the first to open it creates it.

        A new queue has all records to be done that its topic has. Several queues of different names
        may share a topic, each with its own state.

        Args:
            name: 1 to 249 of `A-Z a-z 0-9 . _ -`.
            topic: The topic, or its name, by default the queue's; with one partition.
            max_attempts: After how many hand-outs without an ack a job is given up, moved to
                `dead_letter`; None tries forever. Each handle goes by its own.
            dead_letter: Where to, a topic or its name, not the queue's own; by default the topic's
                name and `.dead`. Letters go to the partitions that their keys say.
            order: "key": of records with the same key one is out at a time, and in the order of
                offsets. It is the queue's for ever; None takes it as the queue has it.

        Returns:
            The queue: a context manager that closes it.

        Raises:
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

        over = name if topic is None else topic
        opened = self.topic(over) if isinstance(over, str) else over
        return Queue(opened, name, max_attempts, dead_letter, order)

    def queues(self) -> dict[str, str]:
        """Names of all work queues, sorted, each with its topic's name.

        One whose state is damaged has an empty one.

        Example:
            >>> _ = store.queue("thumbnails", topic="pictures")
            >>> store.queues()
            {'thumbnails': 'pictures'}
        """
        return dict(_core._queues(self))

    def delete_queue(self, name: str) -> None:
        """Forget what became of the records of a queue; the records stay in their topic.

        Whoever has it open, in whatever process, goes on with a new one, as whoever opens it
        afterwards: all records are to be done, and jobs that are out cannot be acked any more.

        Raises:
            InvalidArgument: There is none of this name.
            NotWritable: The store was opened for reading.

        Example:
            >>> _ = store.queue("jobs")
            >>> store.delete_queue("jobs")
            >>> store.queues()
            {}
        """
        _core._delete_queue(self, name)

    def configure(self, *, retention_bytes: int | None) -> None:
        """Limit the bytes that the logs of all topics take together, or lift the limit.

        The oldest segments go first, whichever topic they are of, by the time of their newest
        record; none of a topic with `retention_protected`, and never the one that a log is written
        to. On the medium when this returns, and kept from the next roll of any log on, by whatever
        process; `maintain` acts at once.

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
        """Let go of what is beyond the limits, in all topics, and finish what others began.

        Topics that are written to need it not: whoever begins a new file sees to the log then. For
        the others, call it now and then, or run `falaj maintain` from cron. Also finishes trims and
        deletions whose process died, and removes what jobs staged that nobody touched for a day
        and nobody is writing. Costs a look at every log, beside what it removes.

        Args:
            dry_run: Only say what would go; then the store may be open for reading.

        Returns:
            What went, by log. What could not be done stands there as `problem`; what is wrong with
            topics' settings and with the files of consumers and queues, in `problems`.

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
        """Copy the store, as it is now, to a directory that is missing or empty.

        Others may write meanwhile; the copy holds what was committed when this was called. It is
        built beside its place, synced, and appears there whole; after an error nothing does. It is
        the same store, so cursors and checkpoints go on to be valid in it; of its queues what was
        done before is done, and jobs that are out are to be done again. The file of a consumer or a
        queue that is damaged is copied as it is, and told in `problems`.

        Args:
            path: Where to; not inside of the store.
            progress: Called with bytes done and bytes in all now and then; what it raises ends it.

        Raises:
            InvalidArgument: The place is taken, inside of the store, or a URL such as `s3://…`.
            NeedsRecovery: The store was opened for reading and nobody recovered it since a crash.
            NoSpace: There is no room for the copy.

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
            UnknownTopic: There is none of this name.

        Example:
            >>> store.verify()["findings"]
            []
        """
        return _core._verify(self.path, topic, progress)

    def info(self) -> StoreInfo:
        """Tell what there is: topics, offsets, logs, locks, processes, consumers, work queues.

        Example:
            >>> _ = store.topic("orders").append(b"first", sync="durable")
            >>> store.info()["topics"][0]["partitions"]
            [{'partition': 0, 'first': 0, 'end': 1, 'durable': 1}]
        """
        info = _core._info(self)
        info["consumers"] = _core._consumers(self)
        queues = _core._queue_overview(self)
        cursors = [cursor for each in info["consumers"] for cursor in each["cursors"]]
        places = [(c["topic"], c["generation"], c["partition"], c["committed"]) for c in cursors]
        places += [(q["topic"] or "", q["generation"] or "", 0, q.pop("head")) for q in queues]
        counted = iter(_core._count_from(self, places))
        for cursor in cursors:
            cursor["lag"] = next(counted)
        for queue in queues:
            queue["waiting"] = next(counted)
        info["queues"] = queues
        return info

    def metrics(self) -> Metrics:
        """Tell the store in numbers, for what watches it: what `info` tells, but less and by name.

        Nothing is counted while records are appended: it is all taken from what processes share, so
        any process may ask, and one that only reads. `falaj metrics` prints it for Prometheus.

        Example:
            >>> _ = store.topic("orders").append(b"first", sync="durable")
            >>> store.metrics()["topics"]["orders"]["partitions"]
            [{'partition': 0, 'first': 0, 'end': 1, 'committed': 1, 'durable': 1}]
        """
        from falaj import metrics  # few need it, and it imports typing

        return metrics.of(self.info())
