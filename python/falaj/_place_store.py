"""`open_place` and `PlaceStore`: a store that is read from a place beyond the machine.

Owns the public surface of reading a place; the package `falaj.ship` does the work. Invariant: a
place store is one that was opened for reading, on a directory that follows the place. So all that
reads a store reads it, and all that writes is refused by the engine.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from falaj import _checks, _core, _numbers
from falaj._paths import local_path
from falaj._store import Store
from falaj.errors import InvalidArgument, named

if TYPE_CHECKING:
    from falaj._admin import BackupReport, Progress, StoreInfo, Verification
    from falaj._retention import Maintenance
    from falaj.ship.place import Place
    from falaj.ship.reader import Reader

__all__ = ["PlaceState", "PlaceStore", "open_place"]


class PlaceState(NamedTuple):
    """How far a place was read.

    Attributes:
        url: The place.
        origin: The origin that is read.
        number: The number of the place that readers see.
        time_us: When that state was cut from its store, in microseconds since 1970 by its clock.
        checked_us: When the place last said that there is no later number, by this machine's clock;
            0 before that.
        error: What prevents the reader from going on now, or None. It tries again by itself.
    """

    url: str
    origin: str
    number: int
    time_us: int
    checked_us: int
    error: Exception | None


class PlaceStore(Store):
    """A store that is read from a place; `open_place` makes it.

    It has all that a store has which was opened for reading, except `backup` and `verify`. It
    follows the place by itself.
    """

    _reader: Reader
    _finalizer: weakref.finalize[Any, PlaceStore]

    @property
    def place(self) -> PlaceState:
        """Tell which state of the place is read, and whether the place answers.

        Example:
            >>> _ = store.topic("orders").append(b"first")
            >>> _ = store.ship(store.path.with_name("place"), once=True)
            >>> with falaj.open_place(store.path.with_name("place")) as shop:
            ...     shop.place.number, shop.place.error
            (2, None)
        """
        reader = self._reader
        return PlaceState(
            reader.origin.place.url,
            reader.origin.origin,
            reader.number,
            reader.time_us,
            reader.checked_us,
            reader.error,
        )

    def refresh(self, number: int | None = None) -> None:
        """Look now whether the place has more, and show it when this returns.

        Needed only with `follow=False`: otherwise the store looks by itself.

        Args:
            number: A number that the place has: readers see at least that when this returns.

        Raises:
            PlaceError: The place refuses, or gives no answer.
            HistoryDeleted: It does not have the number.
            FilesRemoved: Somebody removed the cache.
            InvalidArgument: No place has such a number.
            HandleClosed: It was closed, or belongs to the process that this one was forked from.

        Example:
            >>> _ = store.topic("orders").append(b"first")
            >>> place = store.path.with_name("place")
            >>> _ = store.ship(place, once=True)
            >>> with falaj.open_place(place, follow=False) as shop:
            ...     _ = store.topic("orders").append(b"second")
            ...     _ = store.ship(place, once=True)
            ...     shop.refresh()
            ...     len(shop.topic("orders"))
            2
        """
        if number is not None:
            number = _numbers.number(number, "number")
            if not 1 <= number < 10**20:
                raise InvalidArgument(f"number is one of the place, from 1, not {named(number)}")
        self._reader.refresh(number)

    @property
    def _where(self) -> str | os.PathLike[str]:
        return self._reader.origin.place.url

    def info(self) -> StoreInfo:
        """Report what the place has, as `Store.info` does; `path` is the URL of the place.

        Example:
            >>> place = store.path.with_name("place")
            >>> _ = store.topic("orders").append(b"first")
            >>> _ = store.ship(place, once=True)
            >>> with falaj.open_place(place) as shop:
            ...     shop.info()["path"] == shop.place.url
            True
        """
        found = super().info()
        found["path"] = os.fspath(self._where)
        return found

    def backup(
        self, path: str | os.PathLike[str], progress: Progress | None = None
    ) -> BackupReport:
        """Refuse it: `falaj.restore` makes a store of a place.

        Raises:
            InvalidArgument: Always.
        """
        raise self._is_no_store("backup")

    def verify(self, topic: str | None = None, progress: Progress | None = None) -> Verification:
        """Refuse it: `falaj place verify` checks a place.

        Raises:
            InvalidArgument: Always.
        """
        raise self._is_no_store("verify")

    def maintain(self, *, dry_run: bool = False) -> Maintenance:
        """Refuse it: only the machine that ships the store has all that limits decide by.

        Raises:
            NotWritable: Always.
        """
        return super().maintain()

    def _open_topic(self, *given: Any, **settings: Any) -> _core.Opened:
        self._reader.expect_files()  # without them it would have no topics
        return super()._open_topic(*given, **settings)

    def _queue_names(self) -> list[str]:
        self._reader.expect_files()
        return super()._queue_names()

    def _is_no_store(self, call: str) -> InvalidArgument:
        url = self._where
        return InvalidArgument(
            f"{call}() is for a store, and {url} is a place: `falaj place verify {url}` checks it, "
            f"and `falaj restore {url} --store …` makes a store of it"
        )

    def close(self) -> None:
        """Close all topics that were opened through it, and stop following; values stay valid."""
        try:
            super().close()
        finally:
            self._finalizer()

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Name the place, and the number that is read."""
        state = ", closed" if self.closed else f", number {self._reader.number}"
        return f"<falaj.PlaceStore {self._reader.origin.place.url!r}{state}>"


def open_place(
    place: str | os.PathLike[str],
    *,
    origin: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_bytes: int | None = None,
    follow: bool = True,
    verify: bool = True,
    io: Literal["mmap", "pread"] = "mmap",
    **options: Any,
) -> PlaceStore:
    """Open what was shipped to a place, for reading, and follow it.

    Segments come from the place when a reader needs them, and stay in a cache that the processes of
    this machine share. `falaj.open("s3://…", read_only=True)` does the same.

    Args:
        place: A directory, or `s3://…`, `gs://…`, `az://…`, `http://…`. Commands take all but the
            last as `-s`: a peer's place is read there by its directory on the peer, or restored.
        origin: Which origin, if several have shipped to the place; the first digits are enough.
        cache: Directory of the cache. By default `FALAJ_CACHE`, else `falaj` in the user's cache
            directory. It must be on a disk of this machine.
        cache_bytes: Bytes of sealed segments that the cache keeps, 4 GiB by default. Each process
            keeps as many that it uses, most of them the same files. The ends of logs come on top.
        follow: Whether to follow the place, by a request a second at most. If not, it shows what
            the place has when it is opened, and what it has at each call of `refresh`.
        verify: As for `falaj.open`.
        io: As for `falaj.open`.
        **options: Options of the bucket, such as `endpoint`.

    Returns:
        The store: a context manager that closes it.

    Raises:
        UnknownOrigin: The place has no store, or several and `origin` names none of them.
        HistoryDeleted: Nothing was shipped to it yet.
        PlaceUnreachable: The place gives no answer.
        PlaceDenied: The place refuses the credentials.
        CorruptData: A number or a checkpoint of the place is corrupt.
        InvalidArgument: An option cannot be right, the directory is a store, or the cache is none.
        NoSpace: The disk of the cache is full.

    Example:
        >>> _ = store.topic("orders").append(b"first")
        >>> place = store.path.with_name("place")
        >>> _ = store.ship(place, once=True)
        >>> with falaj.open_place(place) as shop:
        ...     shop.topic("orders")[0].to_bytes()
        b'first'
    """
    from falaj.ship.place import check_options
    from falaj.ship.place import open_place as open_it
    from falaj.ship.restore import choose_origin

    check_options(options, open_place)
    _checks.flag(follow, "follow")
    _checks.flag(verify, "verify")
    _checks.choice(io, "io", "mmap", "pread")
    where = cache_at(cache, cache_bytes)
    wanted = None if origin is None else _checks.text(origin, "origin")
    there = open_it(place, **options)
    chosen = choose_origin(there, wanted)
    found = chosen.store, chosen.origin
    return open_origin(there, *found, where, follow=follow, verify=verify, io=io)


def cache_at(cache: str | os.PathLike[str] | None, cache_bytes: int | None) -> tuple[Path, int]:
    """Return the directory and the bound of the cache that the arguments of `open_place` name."""
    from falaj.ship import cache as caching

    most = caching.CACHE_BYTES
    if cache_bytes is not None:
        most = _numbers.number(cache_bytes, "cache_bytes")
        if most < 1:
            raise InvalidArgument(f"cache_bytes is at least 1, not {named(most)}")
    path = caching.default_cache() if cache is None else Path(local_path(cache, "cache"))
    return path, most


def open_origin(
    place: Place,
    store: str,
    origin: str,
    cache: tuple[Path, int],
    *,
    follow: bool,
    verify: bool,
    io: Literal["mmap", "pread"],
) -> PlaceStore:
    """Open one origin of a place; for the rest see `open_place`."""
    from falaj.ship.cache import Cache, expect_outside
    from falaj.ship.origin import Origin
    from falaj.ship.reader import Reader

    expect_outside(place, cache[0])
    reader = Reader(Origin(place, store, origin), Cache(*cache), follow=follow)
    try:
        opened = PlaceStore(
            reader.directory.store,
            read_only=True,
            permissions=0o700,
            create=False,
            sync="interval",
            verify=verify,
            lock_timeout=10.0,
            allow_network_fs=False,
            mapped=io == "mmap",
            view=reader.replica.files,
        )
    except BaseException:
        reader.close()
        raise
    opened._reader = reader
    opened._finalizer = weakref.finalize(opened, reader.close)
    return opened


def open_url(url: str, read_only: bool, *, verify: bool, io: Any) -> PlaceStore:
    """Open a place for `falaj.open`.

    Raises:
        InvalidArgument: It was to be opened for writing.
    """
    if not read_only:
        raise InvalidArgument(
            f"{url!r} is a place, which is only read: give read_only=True. To write, open the "
            "store that is shipped there, or restore it with falaj.restore()"
        )
    return open_place(url, verify=verify, io=io)
