"""The store of a command, and its topics, whose values are bytes, whatever the codec.

Invariant: a command that only reads opens the store for reading, so it changes and creates nothing.
Only `append`, `topic create` and `queue create` create anything, so a mistyped path makes no store.
A store may also be a place to which one was shipped: then it is only read.
The codec of a topic never runs here, so commands can show pickles and custom codecs, too.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from falaj._paths import holds_a_place, is_place, local_path
from falaj._store import Store
from falaj._store import open as open_store
from falaj._topic import Topic, handle_of
from falaj.cli.exits import Stop
from falaj.cli.names import no_such
from falaj.errors import InvalidArgument, InvalidName, NotAStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from falaj._any_topic import AnyTopic
    from falaj._arguments import Sync, Visibility
    from falaj._origins import Origins
    from falaj._topic import EitherTopic

__all__ = [
    "Access",
    "NewTopic",
    "check_partition",
    "expect_topics",
    "one_partition",
    "partitions_of",
    "raw_topic",
]

VARIABLE = "FALAJ_STORE"
ALL = "all"
"""The word that stands for all origins of a place."""


class Access(NamedTuple):
    """How a command opens its store: the options that all commands of a store have."""

    given: str | None = None
    allow_network_fs: bool = False
    lock_timeout: float = 10.0
    origin: str | None = None

    @property
    def wants_all(self) -> bool:
        """Whether all origins of a place are wanted."""
        return self.origin == ALL

    @contextmanager
    def origins(self) -> Iterator[Origins]:
        """Open all origins of a place; close them after the command."""
        path = self.expect()
        if not _is_place(path):
            raise self._is_no_place(path)
        from falaj._origins import open_origins  # few commands need it

        with open_origins(path) as everyone:
            yield everyone

    def _is_no_place(self, where: str) -> Stop:
        return Stop(
            f"--origin {self.origin!r} chooses in a place, and {where} is none: leave it out"
        )

    def expect_no_origin(self) -> None:
        """Check that no origin is named, where the store is none of a place.

        Raises:
            Stop: One is named.
        """
        if self.origin is not None:
            raise self._is_no_place(self.path)

    @property
    def url(self) -> str | None:
        """The URL of a server, if that is what `--store` or `FALAJ_STORE` names."""
        found = os.environ.get(VARIABLE, "") if self.given is None else self.given
        return found if found.lower().startswith(("http://", "https://")) else None

    @property
    def path(self) -> str:
        """The store's directory: `--store`, else the variable `FALAJ_STORE`.

        Raises:
            Stop: Neither names one.
        """
        if self.given is not None:
            return self.given
        found = os.environ.get(VARIABLE)
        if not found or not found.strip():
            raise Stop(f"name the store: --store PATH, or the variable {VARIABLE}")
        if is_place(found):
            return found
        try:
            return local_path(os.path.expanduser(found), VARIABLE)
        except InvalidArgument as error:
            raise Stop(str(error)) from None

    @contextmanager
    def store(self, *, writes: bool = False, creates: bool = False) -> Iterator[Store]:
        """Open a store that is there, or with `creates` any; close it after the command."""
        if not creates:
            self.expect()
        with self._open(writes=writes or creates, creates=creates) as store:
            yield store

    def expect(self) -> str:
        """Return the path, where there is something.

        Raises:
            Stop: There is nothing.
        """
        path = self.path
        if not is_place(path) and not os.path.lexists(path):
            raise Stop(
                f"there is no store at {path}: check --store or {VARIABLE}; `falaj append` and "
                "`falaj topic create` make one"
            )
        return path

    def expect_no_place(self) -> str:
        """Return the path, where there is something that is no place.

        Raises:
            Stop: There is nothing, or a place.
        """
        path = self.expect()
        if _is_place(path):
            raise Stop(
                f"{path} is a place, and this command is for a store: `falaj place verify {path}` "
                f"checks it, and `falaj restore {path} --store …` makes a store of it"
            )
        return path

    def _open(self, *, writes: bool, creates: bool = False) -> Store:
        path = self.path
        if _is_place(path):
            if writes:
                raise Stop(
                    f"nothing is written to {path}: it is a place that is read. Name the store "
                    "that is shipped there, or a copy that `falaj restore` makes"
                )
            from falaj._place_store import open_place  # few commands need it

            if self.wants_all:
                raise Stop("--origin all is for `falaj cat` and `falaj tail`: name one origin here")
            return open_place(path, origin=self.origin)
        self.expect_no_origin()
        return open_store(
            path,
            read_only=not writes,
            create=creates,
            lock_timeout=self.lock_timeout,
            allow_network_fs=self.allow_network_fs,
        )

    def finds(self) -> bool:
        """Tell whether there is a store; a place counts as one."""
        if is_place(self.path):
            return True
        try:
            self._open(writes=False).close()
        except NotAStore:
            return False
        return True

    @contextmanager
    def topics(self, names: Sequence[str], durable: bool = False) -> Iterator[list[EitherTopic]]:
        """Open topics for reading; with `durable` only what is on disk."""
        visibility: Visibility = "durable" if durable else "visible"
        with self.store() as store:
            expect_topics(store, *names)
            yield [raw_topic(store, name, visibility=visibility) for name in names]

    @contextmanager
    def topic(self, name: str, *, writes: bool = False) -> Iterator[EitherTopic]:
        """Open one topic that is there."""
        with self.store() as store:
            expect_topics(store, name)  # before anything is opened for writing
        with self.store(writes=writes) as store, raw_topic(store, name) as topic:
            yield topic


def _is_place(path: str) -> bool:
    return is_place(path) or holds_a_place(path)


class NewTopic(NamedTuple):
    """The settings that a topic is created with, or has to have."""

    codec: str | None = None
    partitions: int | None = None
    segment_bytes: int | None = None
    sync_interval_ms: int | None = None
    sync: Sync | None = None
    log: str | None = None

    def check(self, name: str) -> None:
        """Check what can be checked before there is a store.

        Raises:
            InvalidName: No topic can have this name, or no log the name of its log.
            InvalidArgument: A setting is beyond its limits.
        """
        Store._check_topic(
            name,
            codec=self.codec,
            partitions=self.partitions,
            segment_bytes=self.segment_bytes,
            sync_interval_ms=self.sync_interval_ms,
        )
        if self.log is not None:
            try:
                NewTopic().check(self.log)
            except InvalidName as error:
                error.args = (str(error).replace("name a topic", "name a log"),)
                raise


def expect_topics(store: Store, *names: str) -> None:
    """Check that a store has these topics.

    Raises:
        Stop: It lacks one; the sentence lists those that it has, the nearest first.
        InvalidName: No topic can have such a name.
    """
    there = list(store.topics)
    for name in names:
        if name not in there:
            NewTopic().check(name)
            raise no_such("topic", name, there, store._where)


def raw_topic(
    store: Store,
    name: str,
    wanted: NewTopic | None = None,
    visibility: Visibility = "visible",
) -> EitherTopic:
    """Open a topic whose values are bytes in and views out; `topic.codec` names its codec."""
    wanted = wanted or NewTopic()
    opened = store._open_topic(
        name,
        codec=wanted.codec,
        resolve=lambda _: (None, None),
        log=wanted.log,
        partitions=wanted.partitions,
        segment_bytes=wanted.segment_bytes,
        sync_interval_ms=wanted.sync_interval_ms,
        sync=wanted.sync,
        verify=None,
        visibility=visibility,
    )
    return handle_of(opened, store)


def one_partition(topic: EitherTopic) -> Topic[Any]:
    """The topic of a queue.

    Raises:
        Stop: It has several partitions.
    """
    if isinstance(topic, Topic):
        return topic
    raise Stop(
        f"topic {topic.name} has {len(topic.partitions)} partitions, and a queue needs a topic "
        "with one: many workers share it as it is"
    )


def partitions_of(topic: AnyTopic[Any], only: int | None) -> list[Topic[Any]]:
    """The partitions that a command is about.

    Raises:
        Stop: There is no such partition.
    """
    numbers = list(topic.partitions)
    if only is None:
        return [topic.partition(number) for number in numbers]
    check_partition(topic.name, len(numbers), only)
    return [topic.partition(only)]


def check_partition(topic: str, partitions: int, only: int) -> None:
    """Check that a topic of so many partitions has this one.

    Raises:
        Stop: There is no such partition.
    """
    if only not in range(partitions):
        last = partitions - 1
        raise Stop(f"topic {topic} has no partition {only}: choose one from 0 to {last}")
