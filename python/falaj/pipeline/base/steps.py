"""The single steps in which a folder changes: a crash leaves each one done or not done.

Everything that outlives a run goes through here, so that a test can end a run before and after each
step. A file appears whole under its name, or not at all. When a step has returned, its change is on
the disk.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from falaj.errors import Error, InvalidArgument, NoSpace, PermissionDenied, SystemCallFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["expect_file", "expect_folder", "make_folder", "move", "remove", "sync", "told", "write"]

_FULL = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of this user's quota, or have it raised,",
    errno.EFBIG: "raise the limit on the size of files, `ulimit -f`,",
}


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """Raise errors of the operating system in the body as falaj's errors.

    Raises:
        NoSpace: There is no space.
        PermissionDenied: The operating system does not allow it.
        SystemCallFailed: Anything else.
    """
    try:
        yield
    except Error:
        raise
    except OSError as error:
        path = error.filename or folder
        said = f"{path}: {error.strerror or error}"
        if error.errno in _FULL:
            raise NoSpace(f"{said}; {_FULL[error.errno]} and run it again") from error
        kind = PermissionDenied if isinstance(error, PermissionError) else SystemCallFailed
        refused = kind(f"{said}; mend it and run it again")
        refused.errno, refused.filename = error.errno, path
        raise refused from error


def expect_folder(path: Path, name: str) -> None:
    """Refuse a path that is no folder, and where none can be made.

    Args:
        path: An absolute path.
        name: The setting that gave it.

    Raises:
        InvalidArgument: It is such a path.
        PermissionDenied: This user may not write there.
    """
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise InvalidArgument(
            f"{name} is {path}, but {there} is no folder: give a folder that is empty or not there "
            "yet"
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionDenied(f"{name} is {path}: this user may not write to {there}")


def expect_file(path: Path, name: str) -> None:
    """Refuse a path at which no file can be written; its folder must be there.

    Args:
        path: An absolute path.
        name: The setting that gave it.

    Raises:
        InvalidArgument: It is a folder, or there is no folder for it.
        PermissionDenied: This user may not write there.
    """
    if path.is_dir():
        raise InvalidArgument(f"{name} is {path}, which is a folder: name a file in it")
    if not path.parent.is_dir():
        raise InvalidArgument(
            f"{name} is {path}, and there is no folder {path.parent}: make it, or name a file in "
            "another one"
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionDenied(f"{name} is {path}: this user may not write to {path.parent}")


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing."""
    missing = [path, *path.parents]
    missing = missing[: next(n for n, folder in enumerate(missing) if folder.is_dir())]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync(folder.parent)


def write(path: Path, data: bytes) -> None:
    """Write a whole file, and replace one that exists."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    sync(path.parent)


def move(source: Path, target: Path) -> None:
    """Move a file to its place, unless it is there already; the caller syncs the folders.

    Raises:
        InvalidArgument: Another file is there.
        FileNotFoundError: It is in neither place.
    """
    if not source.exists() and target.exists():
        return
    if target.exists():
        raise InvalidArgument(
            f"{target} is in the way: it is no file of this export, which has one of that name; "
            "move it away and run the export again"
        )
    source.rename(target)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Sync the names in a folder, or the content of a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
