"""`Consumer`: a member of a consumer group, which keeps committed offsets and shares partitions.

The compiled class has the calls that run once a record (iteration, `commit`). This module has those
that run once a read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from falaj import _core
from falaj._any_topic import GIVE_THE_PATH
from falaj._checks import choice, text
from falaj._checks import name as expect_name
from falaj._numbers import number, plain, seconds
from falaj._slice import OneByOne
from falaj._topic import handle_of
from falaj.codecs import resolver
from falaj.errors import InvalidArgument, MissingExtra, shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

    from falaj._any_topic import AnyTopic
    from falaj._arguments import Start, Visibility
    from falaj._core import Batch, Consumed, Record
    from falaj._store import Store
    from falaj._time import Duration
    from falaj._wait import AsyncConsumer
    from falaj.codecs import Pair

    OnPartitions = Callable[["Consumer[Any]", list[tuple[str, int]]], object]

T = TypeVar("T")

__all__ = ["Consumer", "open_consumer", "position_of", "seek_group", "start_of"]

_BATCH = 8192
_AUTOMATIC_S = 1.0


class Consumer(_core.Consumer[T]):
    """A member of a consumer group; `Store.consumer` makes it.

    It resumes at the group's committed offsets, whichever process committed them. The members of a
    group, in threads or processes, divide the partitions of its topics: each partition has one
    owner at a time. A new member gets its share when the others next poll and have committed what
    was delivered to them. A member that dies is replaced within 50 ms; one that is slow, or
    stopped, loses nothing while it lives.

    Delivery is at least once. Records that were delivered but not committed are delivered again
    after a death. After a power failure a committed offset may be lower than it was. With
    `cursor_in` and a transaction, work is done exactly once: see `Transaction.commit_cursor`.

    The calls that deliver records call `on_assign` and `on_revoke` before they deliver any, in the
    same thread. From asyncio that is the thread of the event loop. They may use the
    consumer. If one raises, that call raises it, and the next call delivers. `close` calls
    `on_revoke` too; a consumer that is dropped calls nothing.

    A plain `for` ends when there is nothing more now; `follow` waits for more, and so do `poll` and
    `batches` unless they get a `timeout`. One thread at a time may use a consumer; `close` may be
    called from any. Closing it ends loops over it; other calls raise `HandleClosed` afterwards. A
    forked child opens its own.

    Example:
        >>> orders = store.topic("orders")
        >>> orders.extend([b"one", b"two"])
        range(0, 2)
        >>> with store.consumer("billing", "orders") as billing:
        ...     for order in billing:
        ...         print(order.to_bytes())
        ...         billing.commit()
        b'one'
        b'two'
        >>> with store.consumer("billing", "orders") as billing:
        ...     list(billing)
        []
    """

    __slots__ = ("_automatic", "_on_assign", "_on_revoke", "_store")
    _store: Store
    _automatic: bool
    _on_assign: OnPartitions | None
    _on_revoke: OnPartitions | None

    def __new__(
        cls,
        store: Store,
        group: str,
        opened: list[_core.Opened],
        pattern: tuple[str, Callable[[str], _core.Opened], Visibility] | None,
        start: tuple[str, int],
        automatic: float | None,
        home: _core.Opened | None,
        callbacks: tuple[OnPartitions | None, OnPartitions | None],
    ) -> Consumer[T]:
        """Become a member; `Store.consumer` calls this."""
        consumer = super().__new__(cls, store, group, opened, pattern, *start, automatic, home)
        consumer._store = store
        consumer._automatic = automatic is not None
        consumer._on_assign, consumer._on_revoke = callbacks
        if callbacks != (None, None):
            consumer._announce()
        return consumer

    @property
    def store(self) -> Store:
        """The store that it reads from."""
        return self._store

    def follow(self, timeout: Duration | None = None) -> Consumed[T]:
        """Iterate over the records that are there and later ones.

        Args:
            timeout: Seconds without a record after which the iteration ends. None waits until the
                consumer is closed; 0 ends when there is nothing more now.

        Returns:
            An iterator. A loop may leave it at any time, and continue with another.

        Raises:
            CorruptData: The next record is corrupt: see `skip_damage`.
            LogTruncated: The log lost records that the group had read: `seek` somewhere.
            OffsetOutOfRange: Retention deleted the next records: `seek` somewhere.
            TopicDeleted: A topic was deleted meanwhile.

        Example:
            >>> _ = store.topic("orders").append(b"one")
            >>> billing = store.consumer("billing", "orders")
            >>> [record.to_bytes() for record in billing.follow(timeout=0)]
            [b'one']
        """
        return self._follow(timeout)

    def afollow(self, timeout: Duration | None = None) -> AsyncConsumer[T]:
        """Follow from asyncio: `async for`; else as `follow`.

        A commit that waits for the disk or for a lock holds up the event loop. So call `commit`
        with `sync="durable"`, and with `cursor_in` always, as
        `await asyncio.to_thread(billing.commit)`.

        Args:
            timeout: As for `follow`.

        Example:
            >>> import asyncio
            >>> _ = store.topic("orders").append(b"one")
            >>> billing = store.consumer("billing", "orders")
            >>> async def read():
            ...     return [record.to_bytes() async for record in billing.afollow(timeout=0)]
            >>> asyncio.run(read())
            [b'one']
        """
        from falaj._wait import AsyncConsumer  # asyncio takes as long to import as all of falaj

        self._expect_open()
        return AsyncConsumer(self, timeout)

    def __aiter__(self) -> AsyncConsumer[T]:
        return self.afollow().__aiter__()

    def apoll(
        self, max_records: int = 500, timeout: Duration | None = None
    ) -> Coroutine[Any, Any, list[Record[T]]]:
        """Return the next records, waiting for the first from asyncio; else as `poll`.

        Cancelling the wait delivers nothing.

        Example:
            >>> import asyncio
            >>> _ = store.topic("orders").append(b"one")
            >>> billing = store.consumer("billing", "orders")
            >>> asyncio.run(billing.apoll(timeout=1))
            [<Record orders[0] b'one'>]
        """
        from falaj import _wait

        _expect_some("apoll", "to return", max_records)
        return _wait.poll(self, max_records, timeout)

    def abatches(
        self, size: int = _BATCH, timeout: Duration | None = None
    ) -> AsyncIterator[Batch[T]]:
        """Iterate over batches from asyncio: `async for`; else as `batches`.

        Example:
            >>> import asyncio
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> billing = store.consumer("billing", "orders")
            >>> async def read():
            ...     return [batch.to_list() async for batch in billing.abatches(timeout=0)]
            >>> asyncio.run(read())
            [[b'one', b'two']]
        """
        from falaj import _wait

        _expect_some("abatches", "a batch has", size)
        self._expect_open()
        return _wait.AsyncBatches(self, size, timeout)

    def poll(self, max_records: int = 500, timeout: Duration | None = None) -> list[Record[T]]:
        """Return the next records, waiting for the first of them.

        If a signal handler raises meanwhile, the next call delivers what was found.

        Args:
            max_records: Most records to return.
            timeout: Seconds to wait for the first record. None waits as long as it takes; 0 returns
                at once.

        Returns:
            The records; none when the time is over or the consumer was closed. An error behind some
            of them is raised by the next call.

        Raises:
            InvalidArgument: `max_records` is less than one.
            CorruptData: The next record is corrupt: see `skip_damage`.
            LogTruncated: The log lost records that the group had read: `seek` somewhere.
            OffsetOutOfRange: Retention deleted the next records: `seek` somewhere.

        Example:
            >>> _ = store.topic("orders").append(b"one")
            >>> billing = store.consumer("billing", "orders")
            >>> [record.to_bytes() for record in billing.poll()], billing.poll(timeout=0)
            ([b'one'], [])
        """
        _expect_some("poll", "to return", max_records)
        found: list[Record[T]] = []
        try:
            self._poll(found, max_records, timeout)
        except BaseException:  # a signal's handler may raise when it has found some
            self._put_back(found)
            raise
        return found

    def batches(self, size: int = _BATCH, timeout: Duration | None = None) -> Iterator[Batch[T]]:
        """Iterate over batches, thousands of records of one partition at a time.

        This is the fastest way to read. `commit` commits whole batches.

        Args:
            size: About how many records a batch has, at most.
            timeout: Seconds without a batch after which the iteration ends. None waits until the
                consumer is closed; 0 ends when there is nothing more now.

        Example:
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> billing = store.consumer("billing", "orders")
            >>> [(batch.topic, batch.to_list()) for batch in billing.batches(timeout=0)]
            [('orders', [b'one', b'two'])]
        """
        _expect_some("batches", "a batch has", size)
        self._expect_open()
        return OneByOne(self, self._each(size, timeout))

    def _each(self, size: int, timeout: Duration | None) -> Iterator[Batch[T]]:
        while True:
            found: list[Batch[T]] = []
            try:
                self._batch(found, size, timeout)
            except BaseException:
                self._put_back(found)
                raise
            if not found:
                return
            yield found[0]

    def seek(self, to: Start, *, topic: str | None = None, partition: int | None = None) -> None:
        """Move the position; the next `commit` commits it.

        Args:
            to: "earliest", "latest", an offset (-10: the last ten records), or a time: the
                first record at or after it.
            topic: Only this topic; all topics by default.
            partition: Only this partition of it; by default all partitions of this member.

        Raises:
            OffsetOutOfRange: No record has this offset.
            PartitionNotAssigned: Another member has the partition.

        Example:
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> billing = store.consumer("billing", "orders", start="latest")
            >>> billing.seek(-1)
            >>> [record.to_bytes() for record in billing]
            [b'two']
        """
        self._seek(*start_of(to, "to"), topic, partition)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a consumer cannot be pickled or copied: {GIVE_THE_PATH}")

    def __enter__(self) -> Consumer[T]:
        return self

    def __exit__(self, kind: object, *_exception: object) -> None:
        try:
            if kind is None and self._automatic and not self.closed:
                self.commit()
        finally:
            self.close()


def _expect_some(verb: str, what: str, records: int) -> None:
    if type(records) is int and records >= 1:
        return  # as nearly always, and a poll may be for one record
    records = number(records, f"how many records {what}")
    if records < 1:
        raise InvalidArgument(
            f"{verb}() takes how many records {what}, at least 1, not {shown(records)}"
        )


def position_of(topic: AnyTopic[Any], partition: int, offset: int) -> tuple[int, int]:
    """Return what identifies the place of an offset, to recognise it later; costs a lookup.

    A log that lost its end, or an older copy of it, has another block there, even if it has as many
    records again.

    Args:
        topic: The topic.
        partition: Its partition.
        offset: From the first that is kept to the end.

    Returns:
        Checksum and time of the block before it; (0, 0) if none is kept.

    Raises:
        OffsetOutOfRange: It lies before what is kept, or beyond the end.

    Example:
        >>> orders = store.topic("orders")
        >>> _ = orders.extend([b"one", b"two"])
        >>> position_of(orders, 0, 0)
        (0, 0)
        >>> position_of(orders, 0, 2) == position_of(orders, 0, 2)
        True
    """
    return _core._position_of(topic, partition, offset)


def start_of(start: Start, what: str = "start") -> tuple[str, int]:
    """Convert a start for the engine: a word and a number; `what` names the argument."""
    start = plain(start)
    if isinstance(start, str) and start in ("earliest", "latest"):
        return str(start), 0
    if isinstance(start, int) and not isinstance(start, bool):
        if not -(1 << 63) <= start < 1 << 63:
            raise InvalidArgument(f"no record of any topic has the offset {shown(start)}")
        return "offset", start
    from falaj import _time  # few need it, and datetime takes its time to import

    return "time", _time.start_ns(start, what)


def open_consumer(
    store: Store,
    group: str,
    topics: str | AnyTopic[Any] | Sequence[str | AnyTopic[Any]] | None,
    pattern: str | None,
    start: Start,
    visibility: Visibility,
    auto_commit: bool | float,
    cursor_in: AnyTopic[Any] | str | None,
    callbacks: tuple[OnPartitions | None, OnPartitions | None] = (None, None),
    opener: Callable[[str], AnyTopic[Any]] | None = None,
) -> Consumer[Any]:
    """Open the topics of a consumer, without creating any, and become a member.

    `opener` opens the topics that a pattern finds, by default with their own codecs. Where that
    cannot be, all but the values of their records can be read.
    """
    if auto_commit is None:
        raise TypeError("auto_commit is True, False or a number of seconds, not None")
    automatic = _AUTOMATIC_S if auto_commit is True else auto_commit
    if not isinstance(automatic, bool):
        automatic = seconds(automatic, "auto_commit") or 0.0
    if cursor_in is not None and automatic is not False:
        raise InvalidArgument(
            "auto_commit would commit what no transaction wrote the results of; with cursor_in, "
            "call tx.commit_cursor(consumer) or commit()"
        )
    expect_name(group, "the name of a consumer group")
    choice(visibility, "visibility", "visible", "durable", "remote")
    if any(each is not None for each in callbacks):
        from falaj._functions import callback  # few have callbacks

        callbacks = (callback(callbacks[0], "on_assign"), callback(callbacks[1], "on_revoke"))
    if (topics is None) == (pattern is None):
        raise InvalidArgument(
            "a consumer reads either topics or those of a pattern: give topics= or pattern="
        )
    if pattern is not None:
        text(pattern, "pattern")
    named: Any = [topics] if isinstance(topics, (str, _core.AnyTopic)) else topics
    if not isinstance(named, Iterable | None):
        raise TypeError(f"topics is a topic or several, or their names, not {type(named).__name__}")
    found: tuple[str, Callable[[str], _core.Opened], Visibility] | None = None
    if pattern is not None:
        open_topic = opener or (lambda name: _open(store, name, _unread))
        found = (pattern, lambda name: open_topic(name)._whole_as(visibility), visibility)
    opened = []
    for handle in () if named is None else named:
        if isinstance(handle, str):
            handle = _open(store, handle, _refused)
        if not isinstance(handle, _core.AnyTopic):
            kind = type(handle).__name__
            raise TypeError(f"a consumer reads topics, or names of topics, not {kind}")
        opened.append(handle._whole_as(visibility))
    return Consumer(
        store,
        group,
        opened,
        found,
        start_of(start),
        None if automatic is False else automatic,
        None if cursor_in is None else _home(store, cursor_in),
        callbacks,
    )


def _open(
    store: Store, name: str, otherwise: Callable[[str, str, Exception], Pair]
) -> AnyTopic[Any]:
    """Open a topic that exists; `otherwise` decides where its codec cannot be had by its name."""
    _, find = resolver(None)

    def resolve(stored: str) -> Pair:
        try:
            return find(stored)
        except (InvalidArgument, MissingExtra) as error:
            return otherwise(name, stored, error)

    opened = store._open_topic(
        expect_name(name, "the name of a topic"),
        codec=None,
        resolve=resolve,
        log=None,
        partitions=None,
        segment_bytes=None,
        sync_interval_ms=None,
        sync=None,
        verify=None,
        visibility="visible",
        create=False,
    )
    return handle_of(opened, store)


def _refused(name: str, _stored: str, error: Exception) -> NoReturn:
    """Raise the error of a codec with the name of the topic."""
    error.args = (str(error).replace("the topic ", f"topic {name!r} ", 1),)
    raise error


def _unread(name: str, stored: str, error: Exception) -> Pair:
    """Return a codec that refuses each value; a topic that a pattern found stops no others."""
    if isinstance(error, MissingExtra):
        why = str(error)
    elif stored == "pickle":
        why = (
            "pickles run code when they are read, so no pattern reads them; if you trust the "
            f'writers, give consumer() the topic, as store.any_topic({name!r}, codec="pickle")'
        )
    else:
        why = (
            "it is not one of falaj's own, and a pattern cannot give it; give consumer() the "
            f"topic, as store.any_topic({name!r}, codec=falaj.Codec({stored!r}, encode, decode))"
        )

    def refuse(_value: object) -> NoReturn:
        raise type(error)(why)

    return refuse, refuse


def _home(store: Store, cursor_in: AnyTopic[Any] | str) -> _core.Opened:
    if isinstance(cursor_in, _core.AnyTopic):
        return cursor_in._whole_as("visible")
    if not isinstance(cursor_in, str):
        raise TypeError(
            f"cursor_in is a topic, or the name of a log, not {type(cursor_in).__name__}"
        )
    name = _core._topic_in_log(store, cursor_in)
    if name is None:
        raise InvalidArgument(
            f"no topic lives in a log {cursor_in!r}; cursor_in is the name of a log, or a topic "
            "of it"
        )
    return store.any_topic(name)._whole_as("visible")


def seek_group(
    store: Store, group: str, topic: str, to: Start, partition: int | None
) -> dict[int, int]:
    """Move the committed offsets of a group that has no living member."""
    expect_name(group, "the name of a consumer group")
    expect_name(topic, "the name of a topic")
    start = start_of(to, "to")
    partitions = [partition] if partition is not None else list(store.any_topic(topic).partitions)
    if start[0] == "offset" and len(partitions) > 1:
        raise InvalidArgument(
            f"topic {topic!r} has {len(partitions)} partitions, each with offsets of its own: say "
            "which, with partition="
        )
    return {p: _core._seek_group(store, group, topic, p, start) for p in partitions}
