"""`open_origins`, `list_origins` and `Origins`: the stores of several machines in one reader.

Owns which origins are read, and the look for new ones. Invariant: an origin that is read stays
open until `close`, and no two origins of a store are read together unless they were named. Which
origin is the head of a store is left to `ship.heads`, reading a place to `_place_store`, and
following to `_origins_follower`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from falaj import _checks
from falaj._paths import holds_a_store, local_path, scheme_of
from falaj._place_store import PlaceStore, cache_at, open_origin
from falaj._store import Store
from falaj._store import open as open_store
from falaj.errors import Error, HandleClosed, HistoryDeleted, InvalidArgument, UnknownOrigin, named
from falaj.ship.heads import Known, heads, matching, two_heads
from falaj.ship.origin import Origin, origins_of, parent_in, roots_of
from falaj.ship.place import check_options, options_for
from falaj.ship.place import open_place as place_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from falaj._arguments import Start, Visibility
    from falaj._core import Record
    from falaj._origins_follower import OriginsFollower
    from falaj._time import Duration
    from falaj.codecs import Codec
    from falaj.ship.place import Place

__all__ = ["OriginInfo", "Origins", "list_origins", "open_origins"]

LOOK_S = 30.0
"""Seconds between two looks of a follower for new origins."""


class OriginInfo(NamedTuple):
    """An origin that a place has.

    Attributes:
        store: The store's id; a restored copy has the same.
        origin: The id of the origin.
        number: Its newest number in the place.
        modified_us: When that number was stored, in microseconds since 1970 by the place's clock.
        parent: The origin that it was restored from, or None.
        head: Whether no other origin of the place was restored from it. Else that one has its
            records, up to the state that was restored.
    """

    store: str
    origin: str
    number: int
    modified_us: int
    parent: str | None
    head: bool


def list_origins(place: str | os.PathLike[str], **options: Any) -> list[OriginInfo]:
    """List the origins that a place has, the one with the latest number last.

    It costs two listings and a small request for each origin.

    Args:
        place: A directory, or `s3://…`, `gs://…`, `az://…`, `http://…`.
        **options: Options of a bucket or a peer, such as `endpoint` or `token`.

    Returns:
        The origins; none for a place that holds no store.

    Raises:
        PlaceError: The place refuses, or gives no answer.
        CorruptData: The first number of an origin is corrupt.

    Example:
        >>> _ = store.topic("orders").append(b"first")
        >>> place = store.path.with_name("place")
        >>> _ = store.ship(place, once=True)
        >>> [(origin.number, origin.parent, origin.head) for origin in falaj.list_origins(place)]
        [(2, None, True)]
    """
    check_options(options, list_origins)
    there = place_at(place, **options)
    listed = origins_of(there)
    known = [_known(there, each.store, each.origin) for each in listed]
    ahead = {each.origin for found in heads(known).values() for each in found}
    return [
        OriginInfo(
            *found,
            parent=each.parent.origin if each.parent else None,
            head=each.origin in ahead,
        )
        for found, each in zip(listed, known, strict=True)
    ]


def _known(place: Place, store: str, origin: str) -> Known:
    parent = Origin(place, store, origin).shipped_parent()
    return Known(store, origin, parent, place.url, place)


def open_origins(
    *places: str | os.PathLike[str] | Store,
    origins: Sequence[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_bytes: int | None = None,
    follow: bool = True,
    verify: bool = True,
    io: Literal["mmap", "pread"] = "mmap",
    **options: Any,
) -> Origins:
    """Open what several machines wrote, for reading together.

    Each machine ships its own store, which is an *origin* of a place. A place may hold several
    origins, and several places may have the same one: then the first that is named is read. If
    a store was restored, only the copy that goes on is read.

    Args:
        places: Places, as for `open_place`. Also the directory of a store, or a `Store` that is
            open: this machine's own. That one stays open afterwards.
        origins: Read these alone, whether they are heads or not: ids, or their first digits.
        cache: As for `open_place`.
        cache_bytes: As for `open_place`; it counts for each origin.
        follow: Whether to follow the places, by a request a second at most for each origin. If
            not, it shows what they have when opened, and what they have at each `refresh`.
        verify: As for `falaj.open`.
        io: As for `falaj.open`.
        **options: Options of buckets and peers, for those among the places that take them.

    Returns:
        The stores by origin: a context manager that closes those that it opened.

    Raises:
        UnknownOrigin: There is no store, or an own store was never shipped. A name in `origins`
            fits none or several. A store goes on as two origins, and none is named.
        HistoryDeleted: No origin has anything yet.
        PlaceError: One of the places refuses, or gives no answer. Once open, such a place holds up
            no other.
        CorruptData: A number or a checkpoint is corrupt.
        InvalidArgument: An option cannot be right.

    Example:
        >>> _ = store.topic("orders").append(b"first")
        >>> place = store.path.with_name("place")
        >>> _ = store.ship(place, once=True)
        >>> with falaj.open_origins(place) as everyone:
        ...     [record.to_bytes() for origin, record in everyone.records("orders")]
        [b'first']
    """
    _checks.flag(follow, "follow")
    _checks.flag(verify, "verify")
    _checks.choice(io, "io", "mmap", "pread")
    if not places:
        raise InvalidArgument("open_origins takes at least one place or store")
    check_options(options, open_origins)
    urls = [isinstance(each, str) and scheme_of(each) not in (None, "file") for each in places]
    if options and not any(urls):
        raise InvalidArgument(
            f"{next(iter(options))!r} is an option of buckets or peers, and none is named"
        )
    paths = [each for each in places if not isinstance(each, Store)]
    shared = iter(options_for(paths, options))
    wanted = None
    if origins is not None:
        if not isinstance(origins, list | tuple | set | frozenset):
            raise TypeError(f"origins is a list of origins, not {named(origins)}")
        wanted = [_checks.text(each, "an origin") for each in origins]
    where = cache_at(cache, cache_bytes)

    def opens(place: Place, store: str, origin: str) -> PlaceStore:
        return open_origin(place, store, origin, where, follow=follow, verify=verify, io=io)

    opened: list[Store] = []
    try:
        sources: list[Place | Store] = []
        for each, is_url in zip(places, urls, strict=True):
            if isinstance(each, Store):
                sources.append(each)
                continue
            taken = next(shared)
            if not is_url and holds_a_store(local_path(each)):
                opened.append(open_store(each, read_only=True, verify=verify, io=io))
                sources.append(opened[-1])
            else:
                sources.append(place_at(each, **taken))
        return Origins(sources, wanted, opens, opened, follows=follow)
    except BaseException:
        for store in opened:
            store.close()
        raise


class Origins(Mapping[str, Store]):
    """The stores of several machines by origin, for reading; `open_origins` makes it.

    The order of records holds within an origin. Between origins there is none: `records` and
    `follow` merge them by their timestamps, as far as they are there.

    Threads may share it; each takes a follower of its own.
    """

    def __init__(
        self,
        sources: Sequence[Place | Store],
        wanted: Sequence[str] | None,
        opens: Callable[[Place, str, str], PlaceStore],
        opened: Sequence[Store],
        *,
        follows: bool,
    ) -> None:
        self._sources, self._wanted, self._opens = sources, wanted, opens
        self._opened = list(opened)
        self._follows = follows
        self._known: dict[str, Known] = {}
        self._read: dict[str, Store] = {}
        """Replaced as a whole when it changes, so that other threads see one or the other."""
        self._errors: dict[str, Exception] = {}
        self._closed = False
        self._looking = threading.Lock()
        self._looked = time.monotonic()
        try:
            self._look(strict=True)
        except BaseException:
            self.close()
            raise

    # --- Which origins ---------------------------------------------------------------------------

    def __getitem__(self, origin: str) -> Store:
        """Return the store of an origin."""
        return self._read[origin]

    def __iter__(self) -> Iterator[str]:
        """List the origins that are read."""
        return iter(self._read)

    def __len__(self) -> int:
        """Count the origins that are read."""
        return len(self._read)

    @property
    def errors(self) -> dict[str, Exception]:
        """Errors of the last look for origins, by the URL of a place, by origin or by store.

        `origins[origin].place.error` says what prevents an origin that is read from going on.

        Example:
            >>> _ = store.topic("orders").append(b"first")
            >>> _ = store.ship(store.path.with_name("place"), once=True)
            >>> with falaj.open_origins(store.path.with_name("place")) as everyone:
            ...     everyone.errors
            {}
        """
        return dict(self._errors)

    @property
    def closed(self) -> bool:
        """True once it was closed."""
        return self._closed

    def refresh(self) -> None:
        """Look now for origins that are new in the places, such as a machine that joined.

        Followers do so by themselves every 30 seconds. With `follow=False` this also looks whether
        the origins have more.

        Raises:
            PlaceError: A place refuses, or gives no answer. The others were looked at.
            UnknownOrigin: A store goes on as two origins. It is read further as before.
            CorruptData: A new origin is corrupt.

        Example:
            >>> place = store.path.with_name("place")
            >>> with falaj.open(place.with_name("other")) as other:
            ...     for each in (store, other):
            ...         _ = each.topic("orders").append(b"first")
            ...     _ = store.ship(place, once=True)
            ...     with falaj.open_origins(place) as everyone:
            ...         _ = other.ship(place, once=True)
            ...         everyone.refresh()
            ...         len(everyone)
            2
        """
        if self._closed:
            raise HandleClosed("the origins were closed: open them again")
        with self._looking:
            self._look(strict=False)
        errors = self.errors
        if not self._follows:
            for origin, store in self._read.items():
                if isinstance(store, PlaceStore):
                    try:
                        store.refresh()
                    except Error as error:
                        errors[origin] = error
        for kept in errors.values():
            if not isinstance(kept, HistoryDeleted):
                raise kept

    def _look_if_due(self) -> None:
        """Look for new origins in another thread, unless that was done a while ago."""
        is_due = self._follows and time.monotonic() - self._looked >= LOOK_S
        if is_due and self._looking.acquire(blocking=False):
            self._looked = time.monotonic()

            def look() -> None:
                try:
                    self._look(strict=False)
                finally:
                    self._looking.release()

            try:
                threading.Thread(target=look, name="falaj-origins", daemon=True).start()
            except BaseException:
                self._looking.release()
                raise

    def _look(self, *, strict: bool) -> None:
        """Find origins and open the heads; with `strict` an error is raised, else kept."""
        errors: dict[str, Exception] = {}

        def note(where: str, error: Exception) -> None:
            if strict:
                raise error
            errors[where] = error

        for source in self._sources:
            try:
                for each in self._found(source):
                    self._known.setdefault(each.origin, each)
            except Error as error:
                note(str(getattr(source, "url", "")), error)
        if strict and self._wanted is not None:
            self._wanted = [each.origin for each in matching(self._known, self._wanted)]
        self._open_heads(errors, note)
        self._looked = time.monotonic()
        self._errors = errors
        if strict and not self._read:
            for kept in errors.values():
                raise kept
            where = ", ".join(each.url for each in self._sources if not isinstance(each, Store))
            raise UnknownOrigin(f"{where} holds no store: check the URL, or ship one to it")

    def _found(self, source: Place | Store) -> Iterator[Known]:
        """List the origins of a place, or the one of a store."""
        if not isinstance(source, Store):
            for store, origin in roots_of(source):
                if origin not in self._known:
                    yield _known(source, store, origin)
        elif any(each.source is source for each in self._known.values()):
            return
        elif isinstance(source, PlaceStore):
            of = source._reader.origin
            yield _known(of.place, of.store, of.origin)._replace(source=source)
        elif not os.path.lexists(os.path.join(source.path, "origin")):
            raise UnknownOrigin(
                f"{source.path} has no origin yet: ship it first, or read it as a store"
            )
        else:
            where = os.fspath(source.path)
            yield Known(source.id, source._origin(), parent_in(where), where, source)

    def _open_heads(
        self, errors: dict[str, Exception], note: Callable[[str, Exception], None]
    ) -> None:
        """Open the heads that are not open yet, and read these and no others."""
        empty: set[str] = set()
        while True:
            usable = [each for each in self._known.values() if each.origin not in empty]
            read: dict[str, Store] = {}
            if self._wanted is not None:
                groups = [[each] for each in usable if each.origin in self._wanted]
            else:
                groups = [*heads(usable).values()]
            before = len(empty)
            for group in groups:
                chosen = group[0]
                if len(group) > 1:
                    note(chosen.store, two_heads(group))
                    read |= self._of_store(chosen.store)
                    continue
                try:
                    read[chosen.origin] = self._store_of(chosen)
                except HistoryDeleted as error:
                    empty.add(chosen.origin)
                    errors[chosen.origin] = error
                except Error as error:
                    note(chosen.origin, error)
                    read |= self._of_store(chosen.store)
            if len(empty) == before:
                break
        if read != self._read:
            self._read = read

    def _of_store(self, store: str) -> dict[str, Store]:
        read, known = self._read, self._known
        return {origin: read[origin] for origin in read if known[origin].store == store}

    def _store_of(self, known: Known) -> Store:
        found = self._read.get(known.origin)
        if found is None and isinstance(known.source, Store):
            found = known.source
        if found is None:
            found = self._opens(known.source, known.store, known.origin)
            self._opened.append(found)
            if self._closed:
                found.close()
        return found

    # --- Reading ---------------------------------------------------------------------------------

    def records(
        self,
        topic: str,
        *,
        codec: str | Codec[Any] | type[Any] | None = None,
        start: Start | Mapping[str, Mapping[Any, Any]] = "earliest",
    ) -> Iterator[tuple[str, Record[Any]]]:
        """Read what there is now of a topic in all origins, merged by timestamp.

        Records of an origin keep their order. An origin without the topic has no part in it. An
        error of any origin is raised, so that no machine is missing from a result.

        Args:
            topic: Name of the topic.
            codec: As for `Store.topic`.
            start: As for `follow`.

        Returns:
            An iterator of pairs: the origin, and a record.

        Raises:
            UnknownTopic: No origin has it; the message lists the topics there are.
            OffsetOutOfRange: `start` is gone, or beyond the end.
            TopicDeleted: `start` counts in a topic that was deleted, and another has its name.

        Example:
            >>> _ = store.topic("orders").append(b"first")
            >>> _ = store.ship(store.path.with_name("place"), once=True)
            >>> with falaj.open_origins(store) as everyone:
            ...     for origin, record in everyone.records("orders"):
            ...         print(len(origin), record.to_bytes())
            32 b'first'
        """
        from falaj._origins_follower import records

        return records(self, topic, codec, start)

    def follow(
        self,
        topic: str,
        *,
        codec: str | Codec[Any] | type[Any] | None = None,
        start: Start | Mapping[str, Mapping[Any, Any]] = "earliest",
        timeout: Duration | None = None,
        visibility: Visibility | None = None,
    ) -> OriginsFollower[Any]:
        """Read a topic of all origins from a place on, and go on as any of them gets more.

        Records that are there come merged by timestamp. Origins that join
        later are found within 30 seconds, and read from their first record. So is a topic that an
        origin gets later.

        Args:
            topic: Name of the topic; one origin at least has it.
            codec: As for `Store.topic`.
            start: "earliest", "latest", -10 for the last ten records of each partition of each
                origin, or a time, as for `Topic.follow`. Or the `offsets` of a follower, with
                which a job goes on exactly where it stopped. JSON makes text of their partitions;
                that is taken too. `"generation"` may be missing: then it is not compared.
            timeout: How long to wait for a record before the iteration ends: seconds, a timedelta,
                or text such as "5m"; None waits without end.
            visibility: As for `Topic.follow`.

        Returns:
            An iterator of pairs, the origin and a record. It is a context manager that closes it.

        Raises:
            UnknownTopic: No origin has it; the message lists the topics there are.
            OffsetOutOfRange: `start` is gone, or beyond the end.
            TopicDeleted: `start` counts in a topic that was deleted, and another has its name.

        Example:
            >>> _ = store.topic("orders").extend([b"one", b"two"])
            >>> _ = store.ship(store.path.with_name("place"), once=True)
            >>> with falaj.open_origins(store) as everyone:
            ...     follower = everyone.follow("orders", timeout=0)
            ...     _, record = next(follower)
            ...     again = everyone.follow("orders", start=follower.offsets, timeout=0)
            ...     [record.to_bytes() for _, record in again]
            [b'two']
        """
        from falaj._origins_follower import OriginsFollower

        return OriginsFollower(self, topic, codec, start, timeout, visibility)

    def close(self) -> None:
        """End its followers, and close the stores that it opened; records stay valid."""
        self._closed = True
        with ExitStack() as closing:  # one that fails keeps no other open
            for store in self._opened:
                closing.callback(store.close)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "origins cannot be pickled or copied: let each process open their places itself"
        )

    def __enter__(self) -> Origins:
        """Return it."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Name the origins by their first digits."""
        state = "closed" if self._closed else ", ".join(each[:8] for each in self._read)
        return f"<falaj.Origins: {state}>"
