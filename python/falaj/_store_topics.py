"""`StoreTopics`: the calls of a store that open its topics.

Owns the check that a topic is opened as the kind that it is. `Store` is the whole class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast, overload

from falaj import _core
from falaj._checks import flag, optional_flag
from falaj._topic import PartitionedTopic, Topic, handle_of
from falaj.codecs import RAW, resolver
from falaj.errors import SettingsMismatch, UnknownTopic, named

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from falaj._admin import TopicInfo
    from falaj._arguments import Existing, Retention, Settings, Sync, Visibility
    from falaj._core import Opened
    from falaj._store import Store
    from falaj._time import Duration
    from falaj.codecs import Codec

T = TypeVar("T")

__all__ = ["StoreTopics"]


def _name_the_call(error: SettingsMismatch) -> None:
    """Name the call that opens a topic of the other kind, if that is what an error is about."""
    if error.setting == "partitions" and "1" in (error.stored, error.asked):
        has, call = f"{error.stored} partitions", "partitioned_topic"
        if error.stored == "1":
            has, call = "one partition", "topic"
        error.args = (
            f"topic {error.topic!r} has {has}: open it with store.{call}({error.topic!r})",
        )


class StoreTopics(_core.Store):
    """The base of `Store` that opens topics."""

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
            codec: What values are. "raw" (the default) reads them as memoryviews, "bytes" as bytes.
                Both keep the same bytes in the store, so each reader chooses. Others are "str",
                "json", "msgpack", "pickle", a `falaj.Codec`, or a class of your own. A class is a
                dataclass, a model of pydantic or a Struct of msgspec, kept as JSON. A topic that
                was created without a codec takes the one that is named first, as long as it is
                empty. The first append names "bytes" if none was named. Pickles run
                code when they are read, so they are read only when named. `falaj.RAW` reads any
                topic that exists without its codec.
            **settings: `log`: the log that it lives in, by default one of its own. Topics that name
                the same one share its files. Records that a transaction appends to several of them
                become visible together, or not at all. Segment size and interval are
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
            return Topic(self._opened("topic()", name, codec, 1, **settings), cast("Store", self))
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
        creates = flag(settings.get("create", True), "create") and self.writable
        if partitions is None:
            settings["create"] = False
        try:
            opened = self._opened("partitioned_topic()", name, codec, partitions, **settings)
        except SettingsMismatch as error:
            _name_the_call(error)
            raise
        except UnknownTopic as error:
            if partitions is None and creates:
                error.args = (
                    f"{error}. To create it, give partitions=, such as "
                    f"store.partitioned_topic({name!r}, partitions=4)",
                )
            raise
        if opened.single and partitions is None:
            mismatch = SettingsMismatch()
            mismatch.topic, mismatch.setting, mismatch.stored = name, "partitions", "1"
            _name_the_call(mismatch)
            raise mismatch
        return PartitionedTopic(opened, cast("Store", self))

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
        return handle_of(opened, cast("Store", self))

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
        # Without its codec a topic cannot be created.
        create = flag(create, "create") and codec is not RAW
        codec_name, resolve = resolver(codec)
        limits = None
        if "partitions" in retention:
            asked = cast("Any", retention)["partitions"]
            raise TypeError(
                f"{call} takes no partitions=: call store.partitioned_topic({name!r}, "
                f"partitions={named(asked)})"
            )
        if retention:
            # few need it, and datetime takes its time
            from falaj._retention import changes, check_names

            check_names(retention, call)
            limits = changes({name: each for name, each in retention.items() if each is not None})
        try:
            return self._open_topic(
                name,
                codec=codec_name,
                resolve=resolve,
                log=log,
                partitions=partitions,
                segment_bytes=segment_bytes,
                sync_interval_ms=sync_interval_ms,
                sync=sync,
                verify=optional_flag(verify, "verify"),
                visibility=visibility,
                retention=limits,
                compacted=optional_flag(compacted, "compacted"),
                create=create,
            )
        except SettingsMismatch as error:
            if error.setting == "codec" and codec == "raw":  # the engine knows "bytes" alone
                error.asked = "raw"
                error.args = (str(error).replace("not bytes;", "not raw;", 1),)
            raise

    def _topic_of(self, opened: Opened) -> Topic[Any]:
        return Topic(opened, cast("Store", self))

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

    def wait_for_topic(self, name: str, timeout: Duration | None = None) -> None:
        """Wait until there is a topic of this name, which another process creates.

        A consumer that starts before its writers calls this first. It looks 50 times a second.

        Args:
            name: Name of the topic.
            timeout: How long to wait: seconds, a timedelta or text such as "5m". None waits without
                a limit.

        Raises:
            UnknownTopic: The time is over; the message lists the existing topics.
            HandleClosed: The store was closed meanwhile.

        Example:
            >>> _ = store.topic("orders")
            >>> store.wait_for_topic("orders", timeout=1)
        """
        from falaj import _awaiting  # few need it

        _awaiting.wait_for_topic(cast("Store", self), name, timeout)

    def await_for_topic(
        self, name: str, timeout: Duration | None = None
    ) -> Coroutine[Any, Any, None]:
        """Wait for a topic from asyncio; else as `wait_for_topic`.

        Example:
            >>> import asyncio
            >>> _ = store.topic("orders")
            >>> asyncio.run(store.await_for_topic("orders", timeout=1))
        """
        from falaj import _awaiting  # few need it

        return _awaiting.await_for_topic(cast("Store", self), name, timeout)
