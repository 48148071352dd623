"""Locks that make other processes wait: stores written by pwrite, files that are locked."""

import fcntl
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import falaj


def write_through(path: Path) -> None:
    """Make an empty store one that is written by pwrite, as on btrfs or overlay."""
    falaj.open(path).close()
    settings = path / "falaj.json"
    text = settings.read_text().rpartition(',"checksum"')[0].replace('"mapped"', '"pwrite"')
    settings.write_text(f'{text},"checksum":"{zlib.crc32(text.encode()):08x}"}}\n')


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the flock of a file, as another process would."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
