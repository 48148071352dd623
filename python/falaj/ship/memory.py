"""`MemoryPlace`: a place in the memory of this process, for tests and models.

Owns the objects of each name; they end with the process. It keeps every promise of a place but
stable storage.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

from falaj.errors import CorruptData, ObjectMissing
from falaj.ship.place import Listed, check_key, check_prefix, error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MemoryPlace"]

_LOCK = Lock()
_PLACES: dict[str, dict[str, tuple[bytes, int]]] = {}


class MemoryPlace:
    """Objects in memory. Two places of one URL in one process have the same objects."""

    def __init__(self, url: str = "memory://") -> None:
        self.url = url
        with _LOCK:
            self._objects = _PLACES.setdefault(url, {})

    def __repr__(self) -> str:
        return f"<MemoryPlace {self.url}>"

    def get(self, key: str) -> bytes | None:
        """Return an object, or None."""
        found = self._objects.get(check_key(key))
        return found and found[0]

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes of an object from `start` up to `stop`."""
        body = self.get(key)
        if body is None:
            raise error(ObjectMissing, f"{self.url} has no object {key}", self.url, key)
        if len(body) < stop:
            raise CorruptData(
                f"object {key} of {self.url} has {len(body)} bytes, and {stop} were written"
            )
        return body[start:stop]

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object, unless there is one."""
        new = bytes(body), time.time_ns() // 1000
        with _LOCK:
            return self._objects.setdefault(check_key(key), new) is new

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List the objects below a folder, in order of their keys."""
        prefix = check_prefix(prefix)
        with _LOCK:
            found = [(k, *v) for k, v in self._objects.items() if k.startswith(prefix)]
        yield from (Listed(key, len(body), at) for key, body, at in sorted(found) if key > after)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        with _LOCK:
            for key in keys:
                self._objects.pop(check_key(key), None)
