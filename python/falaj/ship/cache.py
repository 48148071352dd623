"""Segments that readers of places share on this machine, and the directories of their views.

Owns the cache directory. Below `segments` lie whole sealed segments, which never change. Below
`views` each process has a directory of its own, whose lock it holds while it lives. Invariants: a
file below `segments` is whole, since it comes by a link from a view. It is taken only if its bytes
have the checksums that the place says. A view whose lock is free belonged to a dead process, and is
removed. Which segments a view has is left to `replica`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from falaj import _core
from falaj._paths import expect_outside_stores, holds_a_store, local_path
from falaj.errors import (
    Error,
    InvalidArgument,
    NoSpace,
    PathNotFound,
    PermissionDenied,
    SystemCallFailed,
    cache_removed,
)
from falaj.ship.handlers import ignored, pass_on, remove_tree
from falaj.ship.shapes import FIRST_BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from falaj.ship.place import Place
    from falaj.ship.shapes import Segment

__all__ = [
    "CACHE_BYTES",
    "Cache",
    "ViewDirectory",
    "default_cache",
    "expect_outside",
    "named_after",
]

_T = TypeVar("_T")

CACHE_BYTES = 4 << 30
_CHUNK = 4 << 20

_DIRECTORY = "it has to be a directory, in which directories can be made"
_SPACE, _RIGHTS = "free some space there", "give this user the rights to write there"
_KINDS: dict[int, tuple[type[Error], str]] = {
    errno.ENOSPC: (NoSpace, _SPACE),
    errno.EDQUOT: (NoSpace, _SPACE),
    errno.EFBIG: (NoSpace, "raise the limit of file sizes"),
    errno.EACCES: (PermissionDenied, _RIGHTS),
    errno.EPERM: (PermissionDenied, _RIGHTS),
    errno.EROFS: (PermissionDenied, _RIGHTS),
    errno.ENOENT: (PathNotFound, _DIRECTORY),
    errno.ENOTDIR: (InvalidArgument, _DIRECTORY),
    errno.EEXIST: (InvalidArgument, _DIRECTORY),
    errno.ENAMETOOLONG: (InvalidArgument, "its path is too long"),
}


def default_cache() -> Path:
    """Return the directory of the cache: `FALAJ_CACHE`, else below the user's cache."""
    given = os.environ.get("FALAJ_CACHE", "")
    if given.strip():
        return Path(local_path(given, "FALAJ_CACHE"))
    base = os.environ.get("XDG_CACHE_HOME", "")
    if base.startswith("/"):
        return Path(base, "falaj")
    try:
        return Path.home() / ".cache" / "falaj"
    except RuntimeError:
        raise InvalidArgument(
            "this user has no home directory for the cache: name a directory with cache= or "
            "FALAJ_CACHE"
        ) from None


@contextlib.contextmanager
def named_after(cache: Path) -> Iterator[None]:
    """Let each error of the operating system be one that names the cache, and what helps."""
    try:
        yield
    except Error as error:
        if type(error) is not NoSpace or error.path == os.fspath(cache):
            raise
        raise _named(cache, errno.ENOSPC) from error
    except OSError as error:
        pass_on(error)
        raise _named(cache, error.errno or errno.EIO) from error


def _named(cache: Path, number: int) -> Error:
    kind, helps = _KINDS.get(number, (SystemCallFailed, "look at its disk"))
    made = kind(
        f"the cache {cache} cannot be used: {os.strerror(number)}; {helps}, or name another "
        "directory with cache= or FALAJ_CACHE"
    )
    made.path = os.fspath(cache)
    return made


def expect_outside(place: Place, cache: Path) -> None:
    """Refuse a cache in the directory of its place, which belongs to shippers, or in a store.

    Raises:
        InvalidArgument: It lies there.
    """
    if holds_a_store(os.fspath(cache)):
        raise InvalidArgument(f"the cache {cache} is a store: name a directory elsewhere")
    expect_outside_stores(cache, "the cache")
    root = getattr(place, "root", None)
    if root is None:
        return
    above, below = os.path.realpath(root), os.path.realpath(cache)
    if os.path.commonpath((above, below)) == above:
        raise InvalidArgument(
            f"the cache {cache} lies in the place {root}, which belongs to the stores that are "
            "shipped there: name a directory elsewhere with cache= or FALAJ_CACHE"
        )


class ViewDirectory:
    """The directory of one view, as long as this process holds its lock."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self._lock, self._made_by = path, lock, os.getpid()
        self._temporary = 0

    @property
    def store(self) -> Path:
        """The directory that is read as a store."""
        return self.path / "store"

    def expect(self) -> None:
        """Check that it is there.

        Raises:
            FilesRemoved: Somebody removed it.
        """
        if not self.store.is_dir():
            raise cache_removed(os.fspath(self.store))

    def temporary(self) -> Path:
        """Return a new path on the same file system."""
        self._temporary += 1
        return self.path / f"{self._temporary}.tmp"

    def remove(self) -> None:
        """Remove it, unless it is a parent process's. Mapped files stay readable."""
        if self._made_by == os.getpid():
            remove_tree(self.path)
        os.close(self._lock)


class Cache:
    """A cache directory.

    Args:
        path: The directory.
        most: Bytes of segments that it keeps; the least recently used go first.

    Raises:
        NoSpace: Its disk is full.
        InvalidArgument, SystemCallFailed: It cannot be a directory of this user.
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most = path, most
        with named_after(path):
            self.path = path.absolute()
            self._segments, self._views = self.path / "segments", self.path / "views"
            self._make()

    def _make(self) -> None:
        for each in (self._segments, self._views):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _alone(self, path: Path, work: Callable[..., _T], *arguments: Any) -> _T:
        """Do work under a lock, which no other thread or process then holds.

        No generator does this: it would keep the lock with the exception of a signal's handler.
        """
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return work(*arguments)
        finally:
            os.close(lock)

    def new_view(self) -> ViewDirectory:
        """Make a directory for a view; remove what dead processes left."""
        with named_after(self.path):
            self._make()  # somebody may have removed it meanwhile
            return self._alone(self._views / "lock", self._begin_view)

    def _begin_view(self) -> ViewDirectory:
        self._sweep()
        self.shrink()  # one may have died before it did
        path = self._views / os.urandom(8).hex()
        path.mkdir(mode=0o700)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return ViewDirectory(path, lock)

    def _sweep(self) -> None:
        for view in self._views.iterdir():
            if not view.is_dir():
                continue
            try:
                lock = os.open(view / "lock", os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError as missing:  # killed before it had one
                pass_on(missing)
                remove_tree(view)
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(view)
            except BlockingIOError as held:
                pass_on(held)
            finally:
                os.close(lock)

    def _path(self, origin: str, log: str, segment: Segment) -> Path:
        numbers = (segment.sequence, segment.salt, segment.compaction, segment.end, segment.length)
        name = "-".join(f"{number:x}" for number in numbers)
        return self._segments / f"{origin}-{log.rpartition('@')[2]}-{name}"

    def take(self, origin: str, log: str, segment: Segment, to: Path) -> bool:
        """Link a segment to a path, if the cache has it and each of its bytes is right."""
        path = self._path(origin, log, segment)
        try:
            os.link(path, to)
        except FileNotFoundError as missing:
            pass_on(missing)
            return False
        if _is_right(to, segment):
            os.utime(to)
            return True
        for wrong in (path, to):
            wrong.unlink(missing_ok=True)
        return False

    def keep(self, origin: str, log: str, segment: Segment, whole: Path) -> None:
        """Let others take a whole segment, for which those make way that are used least.

        One that is larger than the bound is not kept.
        """
        size = whole.stat().st_blocks * 512
        if size > self.most:
            return
        path = self._path(origin, log, segment)
        self._make()  # somebody may have removed it meanwhile
        # Several threads and processes do this: each would count without what the others link. The
        # lock of the views is another one: who holds it may be removing many files.
        self._alone(self.path / "keeping", self._link, whole, path, size)

    def _link(self, whole: Path, path: Path, size: int) -> None:
        if not path.exists():
            self.shrink(size)
            os.link(whole, path)

    def shrink(self, more: int = 0) -> None:
        """Remove segments until so many more bytes are within the bound.

        The least recently used go first.
        """
        found = []
        for entry in os.scandir(self._segments):
            with ignored(FileNotFoundError):  # another process removed it
                stat = entry.stat()
                found.append((stat.st_mtime_ns, stat.st_blocks * 512, entry.path))
        surplus = sum(size for _, size, _ in found) + more - self.most
        for _, size, path in sorted(found):
            if surplus <= 0:
                return
            Path(path).unlink(missing_ok=True)
            surplus -= size


def _is_right(path: Path, segment: Segment) -> bool:
    """Compare a file with what the place says of it."""
    with path.open("rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size != segment.length:
            return False
        if any(os.pread(file.fileno(), 512, at) != segment.header for at in (0, FIRST_BLOCK // 2)):
            return False
        for piece in segment.pieces:
            if piece.stop > segment.length:
                continue  # a later segment cut it short, so its checksum covers more than is here
            checksum = 0
            for at in range(piece.position, piece.stop, _CHUNK):
                data = os.pread(file.fileno(), min(_CHUNK, piece.stop - at), at)
                checksum = _core._crc32(data, value=checksum)
            if checksum != piece.crc:
                return False
    return True
