"""`OriginsFollower`: one topic of several origins, merged, present and future.

Owns the merge, and where a job goes on. Invariant: records of an origin come in their order, each
once, also where a restored copy goes on after its parent. An origin that cannot be read is left
aside for a while, and the others go on. It polls, since no wait covers several stores: 100 times a
second at first, then 20 times. `_origins` says which origins are read.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from heapq import merge
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from falaj._any_topic import GIVE_THE_PATH
from falaj._checks import name as expect_name
from falaj._checks import text
from falaj._numbers import number, plain, seconds
from falaj._store import Store
from falaj.errors import (
    CorruptionError,
    Error,
    HandleClosed,
    InvalidArgument,
    PlaceError,
    RetryableError,
    UnknownTopic,
    named,
    shown,
)
from falaj.ship.heads import Left, resumed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from falaj._arguments import Start, Visibility
    from falaj._core import Follower, Record
    from falaj._origins import Origins
    from falaj._time import Duration
    from falaj._topic import EitherTopic
    from falaj.codecs import Codec

    Offsets = Mapping[str, Mapping[Any, Any]]
    AnyCodec = str | Codec[Any] | type[Any] | None

T = TypeVar("T")

__all__ = ["OriginsFollower", "records"]

PAUSE_FIRST_S, PAUSE_MOST_S = 0.01, 0.05
ASIDE_S = 5.0
"""How long an origin is left aside that could not be read."""
_RECORDS_A_TURN = 256
_GENERATION = "generation"
"""The key beside partitions, for the topic that offsets count in."""
_WRITTEN = re.compile("[0-9]{1,10}")


class _Starts:
    """Where to begin in each origin: what the caller said, or where the reader left its parent."""

    def __init__(self, origins: Origins, start: Start | Offsets) -> None:
        self._origins = origins
        self.left: dict[str, Left] = {}
        self._start: Any = "earliest"
        if isinstance(start, Mapping):
            for origin, offsets in start.items():
                self.left[expect_name(origin, "an origin")] = _left(offsets)
            return
        place = plain(start)
        if isinstance(place, int) and not isinstance(place, bool) and place >= 0:
            raise InvalidArgument(
                f"an offset counts in one origin, and {shown(place)} names none: start takes a "
                "number below 0, or a dict from origins to offsets by partition"
            )
        self._start = place

    def of(self, origin: str, topic: EitherTopic, generation: str, *, late: bool) -> list[int]:
        """Return the first offset of each partition; `late` for what was not there at first."""
        start = self._start
        if late and (isinstance(start, int) or (isinstance(start, str) and start == "latest")):
            start = "earliest"
        found: list[int] = []
        for part in topic._parts():
            known, at = self._origins._known, part.partitions[0]
            after = resumed(known, self.left, origin, generation, at)
            found.append(part._start(start if after is None else after))
        return found


def _left(given: Any) -> Left:
    """Read where a job stands in an origin. JSON makes text of partitions, so that is right too."""
    if not isinstance(given, Mapping):
        raise TypeError(f"start maps each origin to a dict of offsets, not to {named(given)}")
    found: dict[int, int] = {}
    generation = ""
    for partition, offset in given.items():
        if partition == _GENERATION:
            generation = text(offset, "the generation in start")
            continue
        is_written = isinstance(partition, str) and _WRITTEN.fullmatch(partition)
        at = int(partition) if is_written else number(partition, "a partition")
        after = number(offset, "an offset")
        if at < 0 or after < 0:
            raise InvalidArgument("partitions and offsets in start are numbers from 0 on")
        found[at] = after
    return Left(found, generation)


def _generation_of(topic: EitherTopic) -> str:
    return topic.store._topic_info(topic.name)["generation"] or ""


def _expect_topic(origins: Origins, topic: str) -> None:
    """Check that an origin has a topic.

    Raises:
        UnknownTopic: None has it.
    """
    Store._check_topic(
        topic, codec=None, partitions=None, segment_bytes=None, sync_interval_ms=None
    )
    if origins.closed:
        raise HandleClosed("the origins were closed: open them again")
    stores = [*origins.values()]
    if any(store._has_topic(topic) for store in stores):
        return
    there = sorted({each for store in stores for each in store.topics})
    raise UnknownTopic(
        f"no origin has a topic {topic!r}; they have {', '.join(there) or 'no topics'}"
    )


def records(
    origins: Origins, topic: str, codec: AnyCodec, start: Start | Offsets
) -> Iterator[tuple[str, Record[Any]]]:
    """Read what there is; see `Origins.records`."""
    _expect_topic(origins, topic)
    starts = _Starts(origins, start)
    opened: list[Iterator[tuple[str, Record[Any]]]] = []
    for origin, store in origins.items():
        if store._has_topic(topic):
            try:
                opened.append(_of_origin(origin, store.any_topic(topic, codec=codec), starts))
            except Error as error:
                error.add_note(f"in origin {origin}")
                raise
    return merge(*opened, key=lambda pair: pair[1].timestamp_ns)


def _of_origin(
    origin: str, topic: EitherTopic, starts: _Starts
) -> Iterator[tuple[str, Record[Any]]]:
    begin = starts.of(origin, topic, _generation_of(topic), late=False)
    parts = [
        part._records(first, part.end_offset)
        for first, part in zip(begin, topic._parts(), strict=True)
    ]
    in_order = parts[0] if len(parts) == 1 else merge(*parts, key=lambda each: each.timestamp_ns)
    return ((origin, record) for record in in_order)


class _Source:
    """A topic of one origin, and its next record once that is known."""

    def __init__(self, origin: str, topic: EitherTopic, generation: str, starts: list[int]) -> None:
        self.origin, self._topic, self._generation = origin, topic, generation
        self.follower: Follower[Any] = topic._follow(starts, None)
        self.offsets = dict(zip(topic.partitions, starts, strict=True))
        self.ready: Record[Any] | None = None
        self.aside = 0.0

    @property
    def left(self) -> Left:
        return Left(dict(self.offsets), self._generation)

    def close(self) -> None:
        self.follower.close()
        self._topic.close()


class OriginsFollower(Generic[T]):
    """Pairs of an origin and a record, present and future; `Origins.follow` makes it.

    One thread at a time may read from it; `close` ends it from any thread. `async for` reads it
    too, and polls as `for` does. An origin that cannot be read holds up the others while its place
    is waited for, and is then left aside for five seconds. `errors` says why.

    Example:
        >>> _ = store.topic("orders").append(b"first")
        >>> _ = store.ship(store.path.with_name("place"), once=True)
        >>> with falaj.open_origins(store.path.with_name("place")) as everyone:
        ...     for origin, record in everyone.follow("orders", timeout=0):
        ...         print(len(origin), record.to_bytes())
        32 b'first'
    """

    def __init__(
        self,
        origins: Origins,
        topic: str,
        codec: AnyCodec,
        start: Start | Offsets,
        timeout: Duration | None,
        visibility: Visibility | None,
    ) -> None:
        _expect_topic(origins, topic)
        self._origins, self._name, self._codec = origins, topic, codec
        self._timeout = seconds(timeout)
        self._visibility: Any = {} if visibility is None else {"visibility": visibility}
        self._ended = threading.Event()
        self._starts = _Starts(origins, start)
        self._read: Mapping[str, Store] = {}
        self._sources: dict[str, _Source] = {}
        self._absent: dict[str, Store] = {}
        self._errors: dict[str, Exception] = {}
        self._look_at = 0.0
        self._count = 0
        self._sync(late=False)

    # --- What is read ----------------------------------------------------------------------------

    @property
    def offsets(self) -> dict[str, dict[Any, Any]]:
        """The next offset of each partition, by origin: what `start` takes to go on from here.

        It moves as records are returned, and keeps what `start` said of other origins. Beside the
        partitions of an origin, the text at `"generation"` says which topic they count in. So a
        job does not go on in another topic that got its name later. All of it can be JSON.
        """
        left = self._starts.left | {each.origin: each.left for each in self._sources.values()}
        return {
            origin: {**each.offsets, **({_GENERATION: each.generation} if each.generation else {})}
            for origin, each in left.items()
        }

    @property
    def errors(self) -> dict[str, Exception]:
        """The errors of origins that cannot be read now, by origin."""
        return dict(self._errors)

    @property
    def closed(self) -> bool:
        """True once it, or its origins, were closed."""
        return self._ended.is_set() or self._origins.closed

    def _sync(self, *, late: bool) -> None:
        """Read the origins that are read now: new ones, and those that go on after a parent."""
        self._read = read = self._origins._read
        for origin in self._sources.keys() - read.keys():
            source = self._sources.pop(origin)
            self._starts.left[origin] = source.left
            source.close()
        for origin in self._errors.keys() - read.keys():
            del self._errors[origin]
        self._absent = {
            origin: store for origin, store in read.items() if origin not in self._sources
        }
        self._open(late=late)

    def _open(self, *, late: bool) -> None:
        """Open the topic in origins that did not have it."""
        for origin, store in [*self._absent.items()]:
            try:
                if not store._has_topic(self._name):
                    continue
                topic = store.any_topic(self._name, codec=self._codec, **self._visibility)
                generation = _generation_of(topic)
                starts = self._starts.of(origin, topic, generation, late=late)
                self._sources[origin] = _Source(origin, topic, generation, starts)
            except UnknownTopic:
                continue
            except Error as error:
                self._aside(origin, error)
                continue
            del self._absent[origin]
            self._errors.pop(origin, None)
        self._look_at = time.monotonic() + (ASIDE_S if self._errors else PAUSE_MOST_S)

    def _aside(self, origin: str, error: Error) -> None:
        """Leave an origin aside that cannot be read; raise what no waiting removes."""
        if not isinstance(error, PlaceError | CorruptionError | RetryableError):
            error.add_note(f"in origin {origin}")
            raise error
        self._errors[origin] = error

    def _next(self, source: _Source) -> Record[Any] | None:
        if source.aside and time.monotonic() < source.aside:
            return None
        try:
            found = source.follower.poll()
        except Error as error:
            self._aside(source.origin, error)
            source.aside = time.monotonic() + ASIDE_S
            return None
        if source.aside:
            source.aside = 0.0
            self._errors.pop(source.origin, None)
        if found is None and source.follower.closed and not self.closed:
            raise HandleClosed(f"the store of origin {source.origin} was closed: open it again")
        return found

    # --- Reading ---------------------------------------------------------------------------------

    def poll(self) -> tuple[str, Record[T]] | None:
        """Return the next record if there is one now, with its origin, else None."""
        if self.closed:
            return None
        self._count += 1
        if self._read is not self._origins._read:
            self._sync(late=True)
        elif self._count % _RECORDS_A_TURN == 0:
            self._look()
        if (found := self._oldest()) is None:
            self._look()
        return found

    def _look(self) -> None:
        """Look for new origins, and for the topic in those that lack it, if that is due."""
        self._origins._look_if_due()
        if self._absent and time.monotonic() >= self._look_at:
            self._open(late=True)

    def _oldest(self) -> tuple[str, Record[T]] | None:
        """Return the oldest of the next records of all origins."""
        best: _Source | None = None
        found: Record[T] | None = None
        first = 0
        for source in self._sources.values():
            record = source.ready
            if record is None:
                record = source.ready = self._next(source)
                if record is None:
                    continue
            at = record.timestamp_ns
            if best is None or at < first:
                best, found, first = source, record, at
        if best is None or found is None:
            return None
        best.ready = None
        best.offsets[found.partition] = found.offset + 1
        return best.origin, found

    @property
    def _over(self) -> bool:
        """Whether the topic is finished in all origins."""
        sources = self._sources.values()
        return not self._absent and all(each.follower._over for each in sources)

    def _turn(self, wait: _Wait) -> tuple[str, Record[T]] | None:
        """Look once; close it where the wait is over."""
        over = self._over
        found = self.poll()
        if found is None and (over or self.closed or wait.is_over):
            self.close()
        return found

    def __iter__(self) -> Self:
        """Return itself."""
        return self

    def __next__(self) -> tuple[str, Record[T]]:
        """Return the next pair; wait for it."""
        if (ready := self.poll()) is not None:
            return ready
        wait = _Wait(self._timeout)
        while (found := self._turn(wait)) is None:
            if self._ended.wait(wait.pause()):
                raise StopIteration
        return found

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> tuple[str, Record[T]]:
        """Return the next pair; other tasks get a turn meanwhile."""
        import asyncio  # few need it

        if self._count % _RECORDS_A_TURN == 0:
            await asyncio.sleep(0)
        if (ready := self.poll()) is not None:
            return ready
        wait = _Wait(self._timeout)
        while (found := self._turn(wait)) is None:
            if self._ended.is_set():
                raise StopAsyncIteration
            await asyncio.sleep(wait.pause())
        return found

    def close(self) -> None:
        """End the iteration, from any thread. The origins stay open."""
        self._ended.set()
        for source in [*self._sources.values()]:
            source.follower.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a follower cannot be pickled or copied: {GIVE_THE_PATH}")

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Name the topic, and count the origins that have it."""
        return f"<falaj.OriginsFollower of {self._name!r} in {len(self._sources)} origins>"


class _Wait:
    """One wait for a record: its end, and the next pause."""

    __slots__ = ("_next", "_until")

    def __init__(self, timeout: float | None) -> None:
        self._next = PAUSE_FIRST_S
        self._until = None if timeout is None else time.monotonic() + timeout

    @property
    def is_over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def pause(self) -> float:
        pause, self._next = self._next, min(self._next * 2, PAUSE_MOST_S)
        if self._until is None:
            return pause
        return min(pause, max(0.0, self._until - time.monotonic()))
