"""`connect` and what it returns, a `Store`, without asyncio. Its topics are in `topics`.

Each call does an operation of `_topics`, `_groups`, `_queues` or `_transactions` in the calling
thread. `aio` has the same for asyncio.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from falaj_client._calls import Patience, Producers
from falaj_client._drivers import Driver
from falaj_client._groups import join
from falaj_client._looks import (
    delete_named,
    forget_topic,
    group_info,
    names_of,
    queue_info,
    seek_group,
)
from falaj_client._missing import STORE, refuse
from falaj_client._queues import hire
from falaj_client._settings import given, token_of
from falaj_client._times import seconds
from falaj_client._topics import delete_topic, describe, open_topic, topic_names
from falaj_client._transactions import Gathered
from falaj_client.errors import InvalidArgument
from falaj_client.groups import Consumer
from falaj_client.queues import Queue
from falaj_client.topics import AnyTopic, PartitionedTopic, Start, Sync, Topic

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Self, Unpack

    from falaj_client._settings import Settings
    from falaj_client._times import Duration
    from falaj_client._wire import Operation
    from falaj_client.codecs import Codec

T = TypeVar("T")
R = TypeVar("R")

__all__ = ["Store", "Transaction", "connect"]


def connect(
    url: str,
    *,
    token: str | os.PathLike[str] | None = None,
    timeout: Duration = 30.0,
) -> Store:
    """Connect to a server of falaj.

    It sends nothing yet: the first call does. A call is repeated while its answer is lost or the
    server is busy, until `timeout` is over. Appends carry a producer of their own, so a repeat
    appends nothing twice.

    Args:
        url: Where the server is, such as `http://127.0.0.1:4437`.
        token: A token, or the path of a file with one. On the server's machine that file is
            `server/token` in the store's directory. By default the environment variable
            `FALAJ_TOKEN`.
        timeout: How long a call may take, repeats included.

    Returns:
        The store: a context manager that closes it.

    Raises:
        InvalidArgument: The URL is none of a server.
    """
    return Store(Driver(url, token_of(token)), Patience(seconds(timeout, "timeout")))


class Store:
    """A store behind a server; `connect` makes it. Threads may share it."""

    def __init__(self, driver: Driver, patience: Patience) -> None:
        self._driver, self._patience = driver, patience
        self._producers = Producers()

    def _run(self, operation: Operation[R]) -> R:
        return self._driver.run(operation)

    if TYPE_CHECKING:

        @overload
        def topic(
            self, name: str, *, codec: Literal["raw", "bytes"], **settings: Unpack[Settings]
        ) -> Topic[bytes]: ...
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
        self, name: str, *, codec: str | Codec[Any] | None = None, **settings: Unpack[Settings]
    ) -> Topic[Any]:
        """Open a topic of one partition, and create it where there is none.

        Args:
            name: 1 to 249 of `A-Z a-z 0-9 . _ -`.
            codec: "bytes", "str", "json", "msgpack", or a `Codec`. By default what the topic has.
            **settings: `create`: False raises `UnknownTopic` for a missing topic. For a new topic:
                `log`, `segment_bytes`, `sync_interval_ms`, `compacted`, `retention_bytes`,
                `retention_age`, `retention_records`, `retention_waits`, `retention_protected`.
                `visibility`: how far the handle reads. "visible" is all there is, "durable" what is
                on the disk, "remote" what the place has that the store is shipped to.

        Returns:
            The topic.

        Raises:
            SettingsMismatch: It exists with another setting, or with several partitions.
            UnknownTopic: There is none, and `create` is False.
            PermissionDenied: The token has no grant for it.
        """
        own, sent = given(settings)
        opening = open_topic(self._patience, name, codec, sent, single=True, **own)
        return Topic(self, self._run(opening))

    def partitioned_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        codec: str | Codec[Any] | None = None,
        **settings: Unpack[Settings],
    ) -> PartitionedTopic[Any]:
        """Open a topic of several partitions, and create it where there is none.

        Args:
            name: As for `topic`.
            partitions: How many, where it is created; a topic that exists must have as many.
            codec, **settings: As for `topic`.
        """
        own, sent = given(settings)
        sent["partitions"] = partitions
        own["create"] = own["create"] and partitions is not None
        opening = open_topic(self._patience, name, codec, sent, single=False, **own)
        return PartitionedTopic(self, self._run(opening))

    def any_topic(
        self,
        name: str,
        *,
        codec: str | Codec[Any] | None = None,
        visibility: str | None = None,
    ) -> AnyTopic[Any]:
        """Open a topic that exists, of whichever kind.

        Args:
            name: Its name.
            codec, visibility: As for `topic`.
        """
        opening = open_topic(
            self._patience, name, codec, {}, create=False, single=None, visibility=visibility
        )
        core = self._run(opening)
        return (Topic if len(core.partitions) == 1 else PartitionedTopic)(self, core)

    @property
    def topics(self) -> Mapping[str, Any]:
        """The topics that the token may read: a mapping from names to the API's descriptions."""
        return _Named(self, lambda: topic_names(self._patience), describe)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records.

        Raises:
            UnknownTopic: There is none.
        """
        self._run(delete_topic(self._patience, name))

    def transaction(
        self, *, sync: Sync | None = None, timeout: Duration | None = None
    ) -> Transaction:
        """Begin to write to several topics of one log at once.

        Records are gathered, and sent as one request at the end of the `with` block. After an
        exception in the block nothing was sent.

        Args:
            sync, timeout: When the block ends, as for `Topic.append`.
        """
        return Transaction(self, Gathered(self._patience, self._producers, sync, timeout))

    def consumer(
        self,
        group: str,
        topics: Any = None,
        *,
        pattern: str | None = None,
        start: Start = "earliest",
        session: Duration = 30.0,
        cursor_in: Any = None,
    ) -> Consumer[Any]:
        """Join a consumer group with the first poll, and resume at its committed offsets.

        Args:
            group: Name of the group.
            topics: The topics that it reads, by name, or as handles with a codec of their own.
            pattern: Instead of topics: read all topics whose names match, as `orders.*`.
            start: Where the group begins in a partition that it never read: "earliest", "latest",
                an offset, or a time.
            session: After so long without a call the server gives its partitions to others.
            cursor_in: A topic, or its name: its log keeps the committed offsets, so a transaction
                of that log can commit them. All members of a group name the same log.

        Returns:
            The member: a context manager that leaves the group.
        """
        joining = join(self._patience, group, topics, pattern, start, session, cursor_in)
        return Consumer(self._driver, self._run(joining))

    def queue(
        self,
        name: str,
        topic: str | None = None,
        *,
        codec: str | Codec[Any] | None = None,
        max_attempts: int | None = None,
        dead_letter: str | None = None,
        order: Literal["key"] | None = None,
        create: bool = True,
    ) -> Queue[Any]:
        """Open a work queue over a topic; the first to use it creates it.

        Args:
            name: Its name.
            topic: The name of its topic; by default the topic of the queue's name.
            codec: The codec of the topic, as for `topic`.
            max_attempts: After how many attempts a job becomes a dead letter; None tries on.
            dead_letter: The topic of dead letters; by default the topic's name and `.dead`.
            order: "key" delivers a job only when the one before it of the same key is done.
            create: False raises `UnknownQueue` where there is none.

        Returns:
            The queue.

        Raises:
            SettingsMismatch: The queue exists with another topic or order.
        """
        told = {"max_attempts": max_attempts, "dead_letter": dead_letter}
        limits = {name: value for name, value in told.items() if value is not None}
        hiring = hire(self._patience, name, codec, limits, create=create, topic=topic, order=order)
        return Queue(self._driver, self._run(hiring))

    @property
    def groups(self) -> Mapping[str, Any]:
        """The consumer groups that the token may read: a mapping from names to how far each is."""
        return _Named(self, lambda: names_of(self._patience, "groups"), group_info)

    def delete_group(self, name: str) -> None:
        """Delete a consumer group and its committed offsets.

        Raises:
            UnknownGroup: There is no group of this name.
            InvalidArgument: The group has a living member.
        """
        self._run(delete_named(self._patience, "group", name))

    def seek_group(
        self, group: str, topic: str, to: Start, *, partition: int | None = None
    ) -> dict[int, int]:
        """Move the committed offsets of a group that has no living member, on disk.

        Args:
            group: The group.
            topic: The topic.
            to: "earliest", "latest", an offset (-10: the last ten records), or a time.
            partition: Only this partition; by default all.

        Returns:
            The committed offset of each partition.

        Raises:
            UnknownGroup: There is no group of this name.
            InvalidArgument: The group has a living member, or never read the partition.
            OffsetOutOfRange: No record has this offset.
        """
        return self._run(seek_group(self._patience, group, topic, to, partition))

    def forget_topic(self, group: str, topic: str | AnyTopic[Any]) -> None:
        """Forget the committed offsets of a group in a topic that it no longer reads.

        Args:
            group: The consumer group.
            topic: The topic, or its name.

        Raises:
            InvalidArgument: A member of the group reads the topic.
        """
        self._run(forget_topic(self._patience, group, topic))

    @property
    def queues(self) -> Mapping[str, Any]:
        """The work queues that the token may read: a mapping from names to their numbers."""
        return _Named(self, lambda: names_of(self._patience, "queues"), queue_info)

    def delete_queue(self, name: str) -> None:
        """Delete the state of a queue; the records stay in their topic.

        Raises:
            UnknownQueue: There is no queue of this name.
        """
        self._run(delete_named(self._patience, "queue", name))

    def close(self) -> None:
        """Close all connections; what is opened through it ends."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise refuse(self, name, STORE)


class _Named(Mapping[str, Any]):
    """The topics, groups or queues of a store, asked for each time."""

    def __init__(
        self,
        store: Store,
        names: Callable[[], Operation[list[str]]],
        look: Callable[[Patience, str], Operation[dict[str, Any]]],
    ) -> None:
        self._store, self._names, self._look = store, names, look

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise KeyError(name)
        return self._store._run(self._look(self._store._patience, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._store._run(self._names()))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in list(iter(self))


class Transaction(Gathered):
    """A `Gathered` that is sent when its `with` block ends without an exception."""

    def __init__(self, store: Store, gathered: Gathered) -> None:
        self.__dict__.update(gathered.__dict__)
        self._store = store

    def __enter__(self) -> Self:
        if self._is_over:
            raise InvalidArgument("a transaction is used once: begin another one")
        return self

    def __exit__(self, kind: object, *_exception: object) -> None:
        if kind is None:
            self._store._run(self.commit())
        self._is_over = True
