"""The systems that are compared: each appends records of bytes and reads them in order.

Each is used as its documentation advises for an append-only log, through its Python package. A
subject has one of two durabilities. With `durable`, a record survives a power failure once the call
returned. Otherwise it survives the death of the process that appended it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import struct
import subprocess
import time
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import falaj

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 20
# Bytes of address space, not of the disk.
_LMDB_MAP = 16 << 30
_START_S_MAX = 10
# Longest that a writer of SQLite waits for the others.
_BUSY_S = 60


class Peer(Protocol):
    """One system, opened by one process."""

    def append(self, value: bytes) -> None:
        """Append one record."""

    def extend(self, values: Sequence[bytes]) -> None:
        """Append many records: all of them or none, where the system can."""

    def read(self) -> int:
        """Read every record in order, as bytes; returns how many bytes there were."""

    def close(self) -> None:
        """Close it."""


class Falaj:
    """A topic of bytes; the default is not durable, and syncs within a tenth of a second."""

    def __init__(self, folder: Path, durable: bool) -> None:
        """Open the store, creating it on first use."""
        self._store = falaj.open(folder / "store", sync="durable" if durable else "interval")
        self._topic = self._store.topic("events", codec="bytes")

    def append(self, value: bytes) -> None:
        """Append one record."""
        self._topic.append(value)

    def extend(self, values: Sequence[bytes]) -> None:
        """Append many records as one block."""
        self._topic.extend(values)

    def read(self) -> int:
        """Iterate over the topic."""
        return sum(len(bytes(record)) for record in self._topic)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


class File:
    """A file that writers lock with flock: a length and the bytes of each record."""

    def __init__(self, folder: Path, durable: bool) -> None:
        """Open the file, creating it on first use."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._fd = os.open(folder / "events", flags, 0o600)
        self._durable = durable

    def append(self, value: bytes) -> None:
        """Write one record under the lock."""
        self._write(_LENGTH.pack(len(value)) + value)

    def extend(self, values: Sequence[bytes]) -> None:
        """Write many records by one call under the lock; a crash may leave a part of them."""
        self._write(b"".join(_LENGTH.pack(len(value)) + value for value in values))

    def _write(self, data: bytes) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            os.write(self._fd, data)
            if self._durable:
                os.fdatasync(self._fd)
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def read(self) -> int:
        """Read the file in large pieces and cut it into records."""
        total, rest, offset = 0, b"", 0
        while chunk := os.pread(self._fd, _CHUNK, offset):
            offset += len(chunk)
            data, at = rest + chunk, 0
            while at + _LENGTH.size <= len(data):
                end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
                if end > len(data):
                    break
                total += len(data[at + _LENGTH.size : end])
                at = end
            rest = data[at:]
        return total

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class SQLite:
    """A table in WAL mode: `synchronous=FULL` is durable, `NORMAL` is not."""

    def __init__(self, folder: Path, durable: bool) -> None:
        """Open the database, creating it on first use."""
        self._connection = sqlite3.connect(
            folder / "events.db", isolation_level=None, timeout=_BUSY_S
        )
        run = self._connection.execute
        run("PRAGMA journal_mode=WAL")
        run(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        run("CREATE TABLE IF NOT EXISTS events(id INTEGER PRIMARY KEY, value BLOB NOT NULL)")

    def append(self, value: bytes) -> None:
        """Insert one row in a transaction of its own."""
        self._connection.execute("INSERT INTO events(value) VALUES (?)", (value,))

    def extend(self, values: Sequence[bytes]) -> None:
        """Insert many rows in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        rows = ((value,) for value in values)
        self._connection.executemany("INSERT INTO events(value) VALUES (?)", rows)
        self._connection.execute("COMMIT")

    def read(self) -> int:
        """Select every row by its number."""
        rows = self._connection.execute("SELECT value FROM events ORDER BY id")
        return sum(len(value) for (value,) in rows)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class LMDB:
    """A database of numbered keys; `sync=False` is not durable."""

    def __init__(self, folder: Path, durable: bool) -> None:
        """Open the environment, creating it on first use."""
        import lmdb

        self._environment: Any = lmdb.open(
            os.fspath(folder / "lmdb"), map_size=_LMDB_MAP, sync=durable, metasync=durable
        )

    def append(self, value: bytes) -> None:
        """Put one key after the last one, in a transaction of its own."""
        self.extend((value,))

    def extend(self, values: Sequence[bytes]) -> None:
        """Put many keys in one transaction."""
        with self._environment.begin(write=True) as transaction:
            cursor = transaction.cursor()
            following = int.from_bytes(cursor.key(), "big") + 1 if cursor.last() else 0
            for number, value in enumerate(values, following):
                transaction.put(number.to_bytes(8, "big"), value, append=True)

    def read(self) -> int:
        """Iterate over all keys."""
        with self._environment.begin() as transaction:
            return sum(len(value) for value in transaction.cursor().iternext(keys=False))

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


class Redis:
    """A stream of a server on a Unix socket, with an append-only file.

    `appendfsync always` is durable; `everysec` is not, and may lose a second if the server dies.
    """

    _PAGE: ClassVar[int] = 1_000

    def __init__(self, folder: Path, durable: bool) -> None:
        """Connect to the server that `served` started with this durability."""
        import redis

        del durable
        self._client: Any = redis.Redis(unix_socket_path=os.fspath(folder / "redis.sock"))

    def append(self, value: bytes) -> None:
        """Add one entry."""
        self._client.xadd("events", {b"v": value})

    def extend(self, values: Sequence[bytes]) -> None:
        """Add many entries in one MULTI."""
        with self._client.pipeline(transaction=True) as pipeline:
            for value in values:
                pipeline.xadd("events", {b"v": value})
            pipeline.execute()

    def read(self) -> int:
        """Read the stream, a page at a time."""
        total, start = 0, b"-"
        while page := self._client.xrange("events", start, count=self._PAGE):
            total += sum(len(fields[b"v"]) for _, fields in page)
            start = b"(" + page[-1][0]
        return total

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@contextmanager
def _redis_server(folder: Path, durable: bool) -> Iterator[None]:
    socket = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", os.fspath(socket), "--save", ""]
    command += ["--dir", os.fspath(folder), "--appendonly", "yes", "--appendfsync"]
    command += ["always" if durable else "everysec", "--loglevel", "warning"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + _START_S_MAX
            while not socket.exists():
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("redis-server did not start")
                time.sleep(0.01)  # sleep: the server does not report when it is ready
            yield
        finally:
            server.terminate()


@contextmanager
def served(name: str, folder: Path, durable: bool) -> Iterator[None]:
    """Keep the server of a system running, if it needs one."""
    if name != "Redis Streams":
        yield
        return
    with _redis_server(folder, durable=durable):
        yield


PEERS: dict[str, Callable[[Path, bool], Peer]] = {
    "falaj": Falaj,
    "file + flock": File,
    "SQLite": SQLite,
    "LMDB": LMDB,
    "Redis Streams": Redis,
}


def installed() -> list[str]:
    """Name the systems that this machine has."""
    there = {
        "LMDB": find_spec("lmdb") is not None,
        "Redis Streams": find_spec("redis") is not None and shutil.which("redis-server"),
    }
    return [name for name in PEERS if there.get(name, True)]


def versions() -> dict[str, str]:
    """Say which version of each system is measured."""
    found = {"falaj": falaj.__version__, "SQLite": sqlite3.sqlite_version}
    if "LMDB" in installed():
        import lmdb

        found["LMDB"] = ".".join(map(str, lmdb.version()))
    if "Redis Streams" in installed():
        told = subprocess.run(["redis-server", "--version"], capture_output=True, text=True)
        found["Redis Streams"] = told.stdout.partition("v=")[2].partition(" ")[0]
    return found
