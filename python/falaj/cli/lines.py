"""Lines of files and of standard input, as many at a time as have arrived.

Owns reading without waiting for more than one line. So `… | falaj append` passes each line on as
soon as it is written. If lines arrive faster, it passes on thousands together. A line that is
longer than any record is refused before it fills the memory.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import sys
from codecs import BOM_UTF8
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from falaj.cli.exits import Stop, read_failed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LINE_BYTES_MAX", "Lines", "check_readable", "chunks_of"]

LINE_BYTES_MAX = 64 << 20  # docs/FORMAT.md: no group of blocks is larger
_READ = 1 << 20


class Lines(NamedTuple):
    """Lines that arrived together.

    Attributes:
        lines: The lines, without their ends (LF or CRLF).
        first: Number of the first one in its file, from 1.
        file: Name of the file for messages.
        read: How many bytes were read for them.
    """

    lines: list[bytes]
    first: int
    file: str
    read: int


def check_readable(path: str) -> None:
    """Check that a file, or "-", can be read; do not wait for the writer of a pipe.

    Raises:
        Stop: It cannot be read, or does not exist.
    """
    if path == "-":
        return
    try:
        kind = os.stat(path).st_mode
        if stat.S_ISDIR(kind):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if stat.S_ISREG(kind):
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        elif not os.access(path, os.R_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    except FileNotFoundError:
        raise Stop(f"there is no file {path}: check the path") from None
    except OSError as error:
        raise read_failed(path, error) from None


def chunks_of(path: str) -> Iterator[Lines]:
    """Read a file, or standard input for "-".

    Raises:
        Stop: It cannot be read, or a line is too long.
    """
    if path == "-":
        yield from _split(sys.stdin.fileno(), "standard input")
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise read_failed(path, error) from None
    try:
        yield from _split(descriptor, path)
    finally:
        os.close(descriptor)


@contextmanager
def _woken_by_signals() -> Iterator[int]:
    """Yield a descriptor that becomes readable when a signal arrives.

    Without it, Ctrl-C right before a waiting read would take effect only after that read.
    """
    seen, rung = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
    try:
        yield seen
    finally:
        signal.set_wakeup_fd(before)
        os.close(seen)
        os.close(rung)


def _split(descriptor: int, file: str) -> Iterator[Lines]:
    with _woken_by_signals() as signalled:
        yield from _split_as_it_comes(descriptor, file, signalled)


def _split_as_it_comes(descriptor: int, file: str, signalled: int) -> Iterator[Lines]:
    number, begun, begun_bytes = 1, [b""][:0], 0
    while True:
        try:
            select.select([descriptor, signalled], [], [])
            data = os.read(descriptor, _READ)
        except OSError as error:
            raise read_failed(file, error) from None
        if not data:
            break
        head, newline, rest = data.rpartition(b"\n")
        if not newline:
            begun.append(data)
            begun_bytes += len(data)
            if begun_bytes > LINE_BYTES_MAX:
                raise Stop(
                    f"line {number} of {file} is longer than the {LINE_BYTES_MAX} bytes that a "
                    "record can have"
                )
            continue
        whole = b"".join([*begun, head])
        if b"\r" in whole:
            whole = (whole + b"\n").replace(b"\r\n", b"\n")[:-1]
        if number == 1:
            whole = whole.removeprefix(BOM_UTF8)
        lines = whole.split(b"\n")
        yield Lines(lines, number, file, len(data))
        number += len(lines)
        begun, begun_bytes = ([rest], len(rest)) if rest else ([], 0)
    if begun:
        last = b"".join(begun)
        if number == 1:
            last = last.removeprefix(BOM_UTF8)
        if last or number > 1:
            yield Lines([last], number, file, 0)
