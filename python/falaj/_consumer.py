"""`Consumer`: a named reader whose place survives, and whose members share the partitions.

What is called once a record (iteration, `commit`) is inherited from the compiled class. Here is
what is called once a read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from falaj import _core
from falaj._numbers import number, plain
from falaj.errors import InvalidArgument, shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence

    from falaj._arguments import Start, Visibility
    from falaj._core import Batch, Consumed, Record
    from falaj._store import Store
    from falaj._topic import Topic
    from falaj._wait import AsyncConsumer

T = TypeVar("T")

__all__ = ["Consumer", "open_consumer", "position_of", "reset", "start_of"]

_BATCH = 8192
_AUTOMATIC_S = 1.0


class Consumer(_core.Consumer[T]):
    """A member of a named consumer; `Store.consumer` makes it.

    It reads on where the name committed last, in whichever process that was. Several members of one
    name, in threads or processes, divide the partitions of its topics: each partition has one of
    them at a time. Who joins gets its share at the next poll of those who have it, once what they
    handed out is committed; who dies is replaced within 50 ms; who is slow, or stopped, loses
    nothing while it lives.

    Delivery is at least once: what was handed out and not committed is handed out again after a
    death, and after a loss of power the cursor may stand further back than it was committed. With
    `cursor_in` and a transaction, work is done exactly once: see `Transaction.commit_cursor`.

    A plain `for` ends when there is nothing more now; `follow` goes on. One thread at a time may
    use it; `close` may be called from any. Where it is closed in a loop over it, or beside it, the
    loop ends; everything else that one asks of a closed one raises `HandleClosed`. A forked child
    opens its own.

    Example:
        >>> orders = store.topic("orders")
        >>> orders.extend([b"one", b"two"])
        range(0, 2)
        >>> with store.consumer("billing", ["orders"]) as billing:
        ...     for order in billing:
        ...         print(order.bytes())
        ...         billing.commit()
        b'one'
        b'two'
        >>> with store.consumer("billing", ["orders"]) as billing:
        ...     list(billing)
        []
    """

    __slots__ = ("_automatic", "_store")
    _store: Store
    _automatic: bool

    def __new__(
        cls,
        store: Store,
        name: str,
        opened: list[_core.Opened],
        start: tuple[str, int],
        automatic: float | None,
        home: _core.Opened | None = None,
    ) -> Consumer[T]:
        """Become a member; `Store.consumer` calls this."""
        consumer = super().__new__(cls, store, name, opened, *start, automatic, home)
        consumer._store = store
        consumer._automatic = automatic is not None
        return consumer

    @property
    def store(self) -> Store:
        """The store that it is in."""
        return self._store

    def follow(self, timeout: float | None = None) -> Consumed[T]:
        """Iterate over what there is and what comes.

        Args:
            timeout: Seconds without a record after which it ends; by default it does not, until the
                consumer is closed.

        Returns:
            An iterator. Leaving it changes nothing; go on with another.

        Raises:
            CorruptData: What comes next is damaged: see `skip_damage`.
            LogTruncated: The log does not know the cursor any more: `seek` somewhere.
            OffsetOutOfRange: Retention took what it needs: `seek` somewhere.
            TopicDeleted: A topic was deleted meanwhile.

        Example:
            >>> _ = store.topic("orders").append(b"one")
            >>> billing = store.consumer("billing", ["orders"])
            >>> [record.bytes() for record in billing.follow(timeout=0)]
            [b'one']
        """
        return self._follow(timeout)

    def afollow(self, timeout: float | None = None) -> AsyncConsumer[T]:
        """Follow from asyncio: `async for`. Nothing polls but for members that died.

        What waits for the medium or for a lock would hold up the event loop: call `commit` with
        `sync="durable"`, and with `cursor_in` always, as `await asyncio.to_thread(billing.commit)`.

        Args:
            timeout: Seconds without a record after which it ends; by default it does not.

        Example:
            >>> import asyncio
            >>> _ = store.topic("orders").append(b"one")
            >>> billing = store.consumer("billing", ["orders"])
            >>> async def read():
            ...     return [record.bytes() async for record in billing.afollow(timeout=0)]
            >>> asyncio.run(read())
            [b'one']
        """
        from falaj._wait import AsyncConsumer  # asyncio takes as long to import as all of falaj

        self._expect_open()
        return AsyncConsumer(self, timeout)

    def apoll(
        self, max_records: int = 500, timeout: float | None = None
    ) -> Coroutine[Any, Any, list[Record[T]]]:
        """Return the next records, waiting for the first from asyncio; else as `poll`.

        To end the wait, give it a `timeout`, or cancel it: then it took nothing.

        Example:
            >>> import asyncio
            >>> _ = store.topic("orders").append(b"one")
            >>> billing = store.consumer("billing", ["orders"])
            >>> asyncio.run(billing.apoll(timeout=1))
            [<Record orders[0] b'one'>]
        """
        from falaj import _wait

        _expect_some("apoll", "to return", max_records)
        return _wait.poll(self, max_records, timeout)

    def abatches(self, size: int = _BATCH, timeout: float | None = None) -> AsyncIterator[Batch[T]]:
        """Iterate over batches from asyncio: `async for`; else as `batches`.

        Example:
            >>> import asyncio
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> billing = store.consumer("billing", ["orders"])
            >>> async def read():
            ...     return [batch.to_list() async for batch in billing.abatches(timeout=0)]
            >>> asyncio.run(read())
            [[b'one', b'two']]
        """
        from falaj import _wait

        _expect_some("abatches", "a batch has", size)
        self._expect_open()
        return _wait.batches(self, size, timeout)

    def poll(self, max_records: int = 500, timeout: float | None = 0.0) -> list[Record[T]]:
        """Return the next records, waiting for the first of them.

        If a signal's handler raises meanwhile, what was found is delivered again by the next call.

        Args:
            max_records: At most so many.
            timeout: Seconds to wait for the first; None waits until there is one.

        Returns:
            The records; none when the time is over, or the consumer was closed. What is wrong
            behind some of them is told by the next call.

        Raises:
            InvalidArgument: `max_records` is less than one.
            CorruptData: What comes next is damaged: see `skip_damage`.
            LogTruncated: The log does not know the cursor any more: `seek` somewhere.
            OffsetOutOfRange: Retention took what it needs: `seek` somewhere.
        """
        _expect_some("poll", "to return", max_records)
        found: list[Record[T]] = []
        try:
            self._poll(found, max_records, timeout)
        except BaseException:  # a signal's handler may raise when it has found some
            self._put_back(found)
            raise
        return found

    def batches(self, size: int = _BATCH, timeout: float | None = 0.0) -> Iterator[Batch[T]]:
        """Iterate over batches, thousands of records of one partition at a time.

        The fastest way to read. What `commit` commits is whole batches.

        Args:
            size: About how many records a batch has, at most.
            timeout: Seconds without a batch after which it ends; None goes on for ever.

        Example:
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> billing = store.consumer("billing", ["orders"])
            >>> [(batch.topic, batch.to_list()) for batch in billing.batches()]
            [('orders', [b'one', b'two'])]
        """
        _expect_some("batches", "a batch has", size)
        self._expect_open()
        return self._each(size, timeout)

    def _each(self, size: int, timeout: float | None) -> Iterator[Batch[T]]:
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
        """Read on from another place. It is committed with the next `commit`.

        Args:
            to: "earliest", "latest", an offset (-10: the last ten records), or a time: the
                first record at or after it.
            topic: In this topic alone; in all by default.
            partition: In this partition of it alone; by default in all that this member has.

        Raises:
            OffsetOutOfRange: Nothing has this offset.
            PartitionNotAssigned: Another member has the partition.

        Example:
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> billing = store.consumer("billing", ["orders"], start="latest")
            >>> billing.seek(-1)
            >>> [record.bytes() for record in billing]
            [b'two']
        """
        self._seek(*start_of(to), topic, partition)

    def __enter__(self) -> Consumer[T]:
        return self

    def __exit__(self, kind: object, *_exception: object) -> None:
        if kind is None and self._automatic and not self.closed:
            self.commit()
        self.close()


def _expect_some(verb: str, what: str, records: int) -> None:
    if type(records) is int and records >= 1:
        return  # as nearly always, and a poll may be for one record
    records = number(records, f"how many records {what}")
    if records < 1:
        raise InvalidArgument(
            f"{verb}() takes how many records {what}, at least 1, not {shown(records)}"
        )


def position_of(topic: Topic[Any], partition: int, offset: int) -> tuple[int, int]:
    """Tell what lies before an offset, to recognise the place later; it costs a lookup.

    A log that lost its end, or an older copy of it, holds something else there, also where it has
    as many records again.

    Args:
        topic: The topic.
        partition: Which of its partitions.
        offset: From the first that is kept to the end.

    Returns:
        Checksum and time of the block before it; (0, 0) where none is kept.

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


def start_of(start: Start) -> tuple[str, int]:
    """Tell the engine where to begin: a word and a number."""
    start = plain(start)
    if start in ("earliest", "latest"):
        return str(start), 0
    if isinstance(start, int) and not isinstance(start, bool):
        if not -(1 << 63) <= start < 1 << 63:
            raise InvalidArgument(f"no record of any topic has the offset {shown(start)}")
        return "offset", start
    from falaj import _time  # few need it, and datetime takes its time to import

    try:
        return "time", _time.to_ns(start)  # type: ignore[arg-type] # a bool is refused there
    except (InvalidArgument, TypeError) as error:
        error.add_note('a consumer begins at "earliest", "latest", an offset or a time')
        raise


def open_consumer(
    store: Store,
    name: str,
    topics: Sequence[str | Topic[Any]],
    start: Start,
    visibility: Visibility,
    auto_commit: bool | float,
    cursor_in: Topic[Any] | str | None,
) -> Consumer[Any]:
    """Open the topics of a consumer, none of which is created, and become a member."""
    if isinstance(topics, str):
        raise InvalidArgument(f"topics is a list of names, such as [{topics!r}]")
    automatic = _AUTOMATIC_S if auto_commit is True else auto_commit
    if cursor_in is not None and automatic is not False:
        raise InvalidArgument(
            "auto_commit would commit what no transaction wrote the results of; with cursor_in, "
            "call tx.commit_cursor(consumer) or commit()"
        )
    opened = []
    for topic in topics:
        handle: Any = topic
        if isinstance(handle, str):
            store._expect_topic(handle)
            handle = store.topic(handle)
        if not isinstance(handle, _core.Topic):
            kind = type(handle).__name__
            raise TypeError(f"a consumer reads topics, or names of topics, not {kind}")
        opened.append(handle._whole_as(visibility))
    return Consumer(
        store,
        name,
        opened,
        start_of(start),
        None if automatic is False else automatic,
        None if cursor_in is None else _home(store, cursor_in),
    )


def _home(store: Store, cursor_in: Topic[Any] | str) -> _core.Opened:
    if not isinstance(cursor_in, str):
        return cursor_in._whole_as("visible")
    name = _core._topic_in_log(store, cursor_in)
    if name is None:
        raise InvalidArgument(
            f"no topic lives in a log {cursor_in!r}; cursor_in is the name of a log, or a topic "
            "of it"
        )
    return store.topic(name)._whole_as("visible")


def reset(store: Store, name: str, topic: str, to: Start, partition: int | None) -> dict[int, int]:
    """Set the cursors of a consumer from outside."""
    start = start_of(to)
    if partition is None:
        store._expect_topic(topic)
        partitions = list(store.topic(topic).partitions)
    else:
        partitions = [partition]
    if start[0] == "offset" and len(partitions) > 1:
        raise InvalidArgument(
            f"topic {topic!r} has {len(partitions)} partitions, each with offsets of its own: say "
            "which, with partition="
        )
    return {p: _core._reset_cursor(store, name, topic, p, start) for p in partitions}
