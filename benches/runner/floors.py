"""Lower bounds that need no compiled code: memcpy, and F, a mapped store made durable."""

import mmap
import os
from pathlib import Path

from runner.beside import clocked
from runner.results import Measured
from runner.sizes import Sizes

# Bytes of a record of 100 bytes in the log, and of the file in which F stores it.
BLOCK = 136
FILE_BYTES = 64 << 20
FIRST = 4096


class MappedFile:
    """F: stores into a mapped file, allocated as a segment is, each made durable.

    Every store goes into new space, as in a log. The first store into a page that was only
    allocated costs the file system more than one into a page that was written before.
    """

    def __init__(self, path: Path) -> None:
        """Allocate the file, and map it."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.posix_fallocate(self._fd, 0, FILE_BYTES)
        os.fsync(self._fd)
        self._map = mmap.mmap(self._fd, FILE_BYTES)
        self._at = FIRST

    def append(self, block: bytes) -> None:
        """Store a block, and wait until it is on the disk."""
        if self._at + len(block) > FILE_BYTES:
            self._at = FIRST
        self._map[self._at : self._at + len(block)] = block
        self._at += len(block)
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Unmap it."""
        self._map.close()
        os.close(self._fd)

    def run(self, blocks: int) -> float:
        """Store so many blocks; return nanoseconds per block."""
        block = b"f" * BLOCK

        def work() -> None:
            for _ in range(blocks):
                self.append(block)

        return clocked(work) / blocks


def measure_memcpy(_place: Path, sizes: Sizes) -> list[Measured]:
    """Copy warm memory; return the nanoseconds for as many bytes as a value has."""
    size = sizes.memcpy_bytes
    with mmap.mmap(-1, size) as target, mmap.mmap(-1, size) as source:
        source[:] = b"s" * size
        views = memoryview(target), memoryview(source)

        def work() -> None:
            views[0][:] = views[1]

        work()
        rounds = [clocked(work) * sizes.value_bytes / size for _ in range(sizes.rounds)]
        for view in views:
            view.release()
    return [Measured("memcpy", rounds)]
