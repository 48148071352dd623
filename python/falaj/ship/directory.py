"""`DirectoryPlace`: a place in a directory, on another disk or a network file system.

Owns the files below its root. An object is a file; its folders are directories. A new object is
written and synced in `.new` first, then linked to its name, so it appears whole and only once. A
process that is killed leaves at most a file in `.new`. It held that file's lock, so the next
process sees that the lock is free and deletes the file. No symbolic link below the root is
followed.

The directory `.new` also tells a place from a mount point whose disk is gone. Once this process
has seen it, its absence is an error. Copies of a place may lack it; they can be read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

from falaj.errors import (
    CorruptData,
    Error,
    ObjectMissing,
    PlaceDenied,
    PlaceFull,
    PlaceNotFound,
    PlaceUnreachable,
    UnsupportedPlace,
)
from falaj.ship.handlers import ignored, is_handlers, pass_on
from falaj.ship.place import Listed, check_key, check_prefix, error, is_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["DirectoryPlace"]

NEW = ".new"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OBJECT = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TEMPORARY = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_RIGHTS = "give this user the rights to read and write there"
_RIGHTS_TO_READ = "give this user the right to read there"

# The meaning of a failed call for the place; any other number says that its disk does not answer.
_KINDS: dict[int, tuple[type[Error], str]] = {
    errno.EACCES: (PlaceDenied, _RIGHTS),
    errno.EPERM: (PlaceDenied, _RIGHTS),
    errno.EROFS: (PlaceDenied, "mount that file system for writing"),
    errno.ENOSPC: (PlaceFull, "free some space there"),
    errno.EDQUOT: (PlaceFull, "free some space there, or raise the quota"),
    errno.ENOENT: (PlaceNotFound, "create the directory above it, or mount its disk"),
    errno.EFBIG: (PlaceFull, "raise the limit of file sizes"),
    errno.ENAMETOOLONG: (UnsupportedPlace, "choose a directory with a shorter path"),
    errno.ELOOP: (UnsupportedPlace, "a place follows no symbolic links: put directories there"),
    errno.ENOTDIR: (
        UnsupportedPlace,
        "a folder of the place is a file or a symbolic link: remove it",
    ),
}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class DirectoryPlace:
    """A place in a directory.

    Args:
        root: The directory. The first `put_new` creates it, in a directory that exists. Until
            then the place is empty.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.url = Path(self.root).as_uri()
        self._lock = Lock()
        self._synced: set[str] = set()  # folders whose names are on stable storage
        self._was_here = _is_directory(os.path.join(self.root, NEW))
        self._is_swept = False

    def __repr__(self) -> str:
        return f"<DirectoryPlace {self.root}>"

    # --- Reading ---------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """Return an object, or None if there is none under this key."""
        with self._object(key) as file:
            return None if file is None else _read(file, 0, os.fstat(file).st_size)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes of an object from `start` up to `stop`.

        Raises:
            ObjectMissing: There is no object under this key.
            CorruptData: The object ends before `stop`.
        """
        with self._object(key) as file:
            if file is None:
                raise error(ObjectMissing, f"{self.root} has no object {key}", self.url, key)
            found = _read(file, start, stop)
        if len(found) < stop - start:
            made = CorruptData(
                f"{os.path.join(self.root, key)} ends at byte {start + len(found)}, and"
                f" {stop} were written: restore it from another place"
            )
            made.path, made.position = os.path.join(self.root, key), start + len(found)
            raise made
        return found

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List the objects below a folder, in order of their keys.

        Files that no key can name are left out, such as those that begin with a dot.
        """
        prefix = check_prefix(prefix)
        with ExitStack() as opened, self._told(prefix.removesuffix("/") or None):
            folder = self._folder(opened, prefix.split("/")[:-1])
            if folder is not None:
                yield from self._listed(folder, prefix, after)

    def _listed(self, folder: int, prefix: str, after: str) -> Iterator[Listed]:
        """List a folder and what is below it; a folder sorts by its name with a slash."""
        with os.scandir(folder) as entries:
            names = [
                entry.name + "/" * entry.is_dir(follow_symlinks=False)
                for entry in entries
                if is_name(entry.name)
            ]
        for name in sorted(names):
            key = prefix + name
            if key <= after and not after.startswith(key):
                continue
            if name.endswith("/"):
                with ExitStack() as opened, self._told(key[:-1]), ignored(FileNotFoundError):
                    below = _open(opened, name[:-1], _FOLDER, folder)
                    yield from self._listed(below, key, after)
            elif key > after:
                with ignored(FileNotFoundError):
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield Listed(key, status.st_size, status.st_mtime_ns // 1000)

    @contextmanager
    def _object(self, key: str) -> Iterator[int | None]:
        """Open the file of an object, or give None."""
        *folders, name = check_key(key).split("/")
        with ExitStack() as opened, self._told(key):
            folder = self._folder(opened, folders)
            try:
                file = None if folder is None else os.open(name, _OBJECT, dir_fd=folder)
            except FileNotFoundError as missing:
                pass_on(missing)
                file = None
            if file is not None:
                opened.callback(os.close, file)
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    file = None
            yield file

    def _folder(self, opened: ExitStack, parts: Sequence[str]) -> int | None:
        """Open a folder, or give None if there is none; raise where the place itself is gone."""
        try:
            at = _open(opened, self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as missing:
            pass_on(missing)
            if not self._was_here and _is_directory(os.path.dirname(self.root)):
                return None
            if self._was_here:
                raise self._gone(f"there is no directory {self.root} any more") from None
            text = f"there is no directory {self.root}: create the one above it, or mount its disk"
            raise error(PlaceNotFound, text, self.url) from None
        if self._was_here:
            try:
                os.stat(NEW, dir_fd=at, follow_symlinks=False)
            except FileNotFoundError as missing:
                pass_on(missing)
                raise self._gone(f"{self.root} has no longer a directory {NEW}") from None
        for part in parts:
            try:
                at = _open(opened, part, _FOLDER, at)
            except FileNotFoundError as missing:
                pass_on(missing)
                return None
        return at

    # --- Writing ---------------------------------------------------------------------------------

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object, unless there is one under this key.

        True and False mean what `Place` says. In both cases an object under this key, if there is
        one, is on stable storage when this returns.
        """
        *folders, name = check_key(key).split("/")
        with ExitStack() as opened, self._told(key, writes=True):
            root = self._prepared(opened)
            new = _open(opened, NEW, _FOLDER, root)
            folder = self._made(opened, root, folders)
            temporary = secrets.token_hex(16)
            file = os.open(temporary, _TEMPORARY, 0o666, dir_fd=new)
            opened.callback(os.close, file)
            opened.callback(_unlink, temporary, new)
            with ignored(OSError):  # without locks no other process deletes it
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(file, body)
            os.fsync(file)
            created = self._link(temporary, new, name, folder)
            os.fsync(folder)
            return created

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; keys without an object are no error."""
        for key in keys:
            *folders, name = check_key(key).split("/")
            with ExitStack() as opened, self._told(key, writes=True):
                folder = self._folder(opened, folders)
                if folder is not None:
                    with ignored(FileNotFoundError, IsADirectoryError):
                        os.unlink(name, dir_fd=folder)

    def _link(self, temporary: str, new: int, name: str, folder: int) -> bool:
        """Give the new file its name, if that is free."""
        try:
            os.link(temporary, name, src_dir_fd=new, dst_dir_fd=folder, follow_symlinks=False)
        except (FileExistsError, FileNotFoundError) as refused:
            pass_on(refused)
            return False  # the second: another process deleted the file, whose lock it could take
        except OSError as refused:
            if is_handlers(refused) or refused.errno not in _NO_LINKS:
                raise
            raise error(
                UnsupportedPlace,
                f"the file system of {self.root} makes no hard links: choose another, such as"
                " ext4, xfs, btrfs, zfs or NFS",
                self.url,
            ) from None
        return True

    def _prepared(self, opened: ExitStack) -> int:
        """Open the root; create the place, and delete what killed processes left, once."""
        with self._lock:
            if not self._was_here:
                with ignored(FileExistsError):
                    os.mkdir(self.root)
                root = _open(opened, self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                above = _open(opened, os.path.dirname(self.root), os.O_RDONLY | os.O_DIRECTORY)
                with ignored(FileExistsError):
                    os.mkdir(NEW, dir_fd=root)
                os.fsync(root)
                os.fsync(above)
                self._was_here = True
            else:
                found = self._folder(opened, ())
                assert found is not None
                root = found
            if not self._is_swept:
                _sweep(_open(opened, NEW, _FOLDER, root))
                self._is_swept = True
            return root

    def _made(self, opened: ExitStack, root: int, folders: Sequence[str]) -> int:
        """Open a folder, creating what is missing; its name is then on stable storage.

        A folder that is there may be one whose creator was killed before it synced.
        """
        at, path = root, ""
        for part in folders:
            path = f"{path}/{part}"
            try:
                folder = _open(opened, part, _FOLDER, at)
            except FileNotFoundError as missing:
                pass_on(missing)
                self._synced.discard(path)
                with ignored(FileExistsError):
                    os.mkdir(part, dir_fd=at)
                folder = _open(opened, part, _FOLDER, at)
            if path not in self._synced:
                os.fsync(at)
                self._synced.add(path)
            at = folder
        return at

    # --- Errors ----------------------------------------------------------------------------------

    def _gone(self, how: str) -> Error:
        """Make the error of a place that this process has seen, and that is no longer there."""
        text = f"{how}: mount its disk; if the place was removed, start this process again: "
        return error(PlaceUnreachable, text + "a shipper then sends everything", self.url)

    @contextmanager
    def _told(self, key: str | None, *, writes: bool = False) -> Iterator[None]:
        """Raise an error of the operating system as one of the place."""
        try:
            yield
        except Error:
            raise
        except OSError as refused:
            pass_on(refused)
            self._raise(refused, key, writes)

    def _raise(self, refused: OSError, key: str | None, writes: bool) -> NoReturn:
        at = os.path.join(self.root, key) if key else self.root
        remedy = "see whether that disk works and is mounted"
        kind, remedy = _KINDS.get(refused.errno or 0, (PlaceUnreachable, remedy))
        if remedy == _RIGHTS and not writes:
            remedy = _RIGHTS_TO_READ
        raise error(kind, f"{at}: {refused.strerror}; {remedy}", self.url, key) from refused


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as refused:
        pass_on(refused)
        return False


def _open(opened: ExitStack, name: str, flags: int, at: int | None = None) -> int:
    file = os.open(name, flags, dir_fd=at)
    opened.callback(os.close, file)
    return file


def _read(file: int, start: int, stop: int) -> bytes:
    parts = list[bytes]()
    while start < stop and (part := os.pread(file, stop - start, start)):
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write(file: int, body: bytes) -> None:
    rest = memoryview(body).cast("B")
    while rest:
        rest = rest[os.write(file, rest) :]


def _unlink(name: str, folder: int) -> None:
    with ignored(OSError):  # the next process to sweep deletes it
        os.unlink(name, dir_fd=folder)


def _sweep(new: int) -> None:
    """Delete the files of processes that no longer run: their locks are free.

    A file that was created a moment ago may not be locked yet. Its writer then finds it gone, and
    reports an unknown outcome.
    """
    for name in os.listdir(new):
        with ignored(OSError), ExitStack() as opened:
            file = _open(opened, name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, new)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=new)
