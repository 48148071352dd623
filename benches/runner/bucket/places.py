"""The places that are measured: a bucket of a server on loopback, and a directory.

`tests/ship/servers.py` starts the servers: versitygw where it is, else moto. `Counted` counts the
requests of a place, and delays its puts where it is asked to.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from falaj.ship.place import open_place
from ship.servers import VARIABLES, Moto, NotHere, Server, VersityGateway

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from falaj.ship.place import Listed, Place

__all__ = ["Counted", "Places", "places"]


@dataclass(frozen=True)
class Places:
    """Where to ship to: the URL and the options of each kind of place."""

    name: str
    folder: Path
    server: Server

    @property
    def environment(self) -> dict[str, str]:
        """Variables that a process needs beside its own environment."""
        return VARIABLES | {"AWS_ENDPOINT_URL_S3": self.server.endpoint}

    def url(self, kind: str, prefix: str) -> str:
        """Name an empty place of a kind, `server` or `directory`."""
        return f"s3://shop/{prefix}" if kind == "server" else os.fspath(self.folder / prefix)


@contextmanager
def places(folder: Path) -> Iterator[Places]:
    """Start the best server that is here."""
    before = dict(os.environ)
    found: Server | None = None
    (folder / "served").mkdir()
    (folder / "directories").mkdir()
    os.environ.update(VARIABLES)
    try:
        for kind in (VersityGateway, Moto):
            try:
                found = kind(folder / "served")
            except NotHere:
                continue
            break
        if found is None:
            raise NotHere("neither versitygw nor moto is here: `make bucket-servers`")
        made = Places(type(found).__name__, folder / "directories", found)
        os.environ.update(made.environment)
        yield made
    finally:
        if found is not None:
            found.stop()
        os.environ.clear()
        os.environ.update(before)


class Counted:
    """A place that counts its requests by kind, and may take longer for each put."""

    def __init__(self, url: str, delay_s: float = 0.0) -> None:
        self._place: Place = open_place(url)
        self.url, self._delay_s = self._place.url, delay_s
        self.requests: Counter[str] = Counter()

    def get(self, key: str) -> bytes | None:
        """Return an object."""
        self.requests["get"] += 1
        return self._place.get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return a range of an object."""
        self.requests["get"] += 1
        return self._place.get_range(key, start, stop)

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object."""
        self.requests["put"] += 1
        if self._delay_s:
            time.sleep(self._delay_s)  # sleep: the way to a bucket, which loopback has not
        return self._place.put_new(key, body)

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List objects."""
        self.requests["list"] += 1
        return self._place.list_after(prefix, after)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        self.requests["delete"] += 1
        self._place.delete(keys)
