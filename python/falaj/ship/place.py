"""A place: where objects lie that are created once, and never changed.

Owns what falaj asks of a place, the form of keys, and the way from a URL to a place. Each place
keeps one promise: an object is whole or absent, and its bytes are those of the first create that
succeeded. `directory`, `bucket`, `peer` and `memory` keep it; `probe` tries whether a server does.
The meaning of the objects is left to the modules that ship and restore. Prose: docs/PLACE.md,
"Places".
"""

from __future__ import annotations

import ipaddress
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from falaj._paths import expect_place, local_path, scheme_of
from falaj.errors import Error, InvalidArgument, PlaceError, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "Listed",
    "Place",
    "check_key",
    "check_prefix",
    "error",
    "is_loopback",
    "is_name",
    "open_place",
]

KEY_BYTES_MAX = 512
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class Listed(NamedTuple):
    """An object in a listing.

    Attributes:
        key: Its key.
        size: Its length in bytes.
        modified_us: The place's own date of it, in microseconds since 1970. Compare it only with
            other dates of the same place.
    """

    key: str
    size: int
    modified_us: int


class Place(Protocol):
    """Where objects lie. Any thread may call each method, and several at once.

    No key is a folder of another key.

    Each method raises a `PlaceError` when the place refuses or gives no answer.
    """

    @property
    def url(self) -> str:
        """The place as people write it, without credentials."""

    def get(self, key: str) -> bytes | None:
        """Return an object, or None if there is none under this key."""

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes of an object from `start` up to `stop`, and all of them.

        Raises:
            ObjectMissing: There is no object under this key.
            CorruptData: The object ends before `stop`.
        """

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object, unless there is one under this key.

        Returns:
            True if this call created the object, which is then on stable storage. False says that
            the outcome is unknown: there is such an object, the reply was lost, or the place was
            busy. The object may even appear later. The caller reads it.

        Raises:
            PlaceUnreachable: A disk failed. The outcome is unknown, and the caller repeats the
                call: what it can read may not be on stable storage.
            PlaceError: Else, the place refused for certain, and nothing was created.
        """

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List the objects below the folder `prefix`, in order of their keys.

        Args:
            prefix: A folder such as `shop/n`, with or without a slash at its end; "" for all.
            after: List only keys greater than this key.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; keys without an object are no error."""


def open_place(url: str | os.PathLike[str], **options: Any) -> Place:
    """Open a place. It sends nothing yet: the first call does.

    Args:
        url: A path or `file://…` for a directory; `s3://bucket/prefix`, `gs://bucket/prefix` or
            `az://container/prefix` for a bucket. `http://machine:4437` or `https://…` is a server
            on another machine. `memory://name` is for tests, and ends with the process.
        **options: What `BucketPlace` or `PeerPlace` takes; only for those.

    Raises:
        InvalidArgument: The URL or an option cannot be right, or the directory is a store.
        MissingExtra: The package obstore is not installed, which buckets need.
    """
    scheme = scheme_of(url) if isinstance(url, str) else None
    if scheme is not None:
        url = scheme + str(url).lstrip()[len(scheme) :]
    if scheme in ("s3", "gs", "az"):
        from falaj.ship.bucket import BucketPlace  # few programs need it

        return BucketPlace(str(url), **options)
    if scheme in ("http", "https"):
        from falaj.ship.peer import PeerPlace

        return PeerPlace(str(url), **options)
    if options:
        raise InvalidArgument(
            f"{named(next(iter(options)))} is an option of buckets or peers; this place takes none"
        )
    if scheme == "memory":
        from falaj.ship.memory import MemoryPlace

        return MemoryPlace(str(url))
    from falaj.ship.directory import DirectoryPlace

    wanted = "a place is a directory, or a URL with s3://, gs://, az://, http:// or https://"
    return DirectoryPlace(expect_place(_possible(local_path(url, "the place", wanted))))


def _possible(path: str) -> str:
    """Return a path that a directory can have."""
    if "\0" in path:
        raise InvalidArgument(f"no path has a zero byte in it, as {named(path)} has")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidArgument(f"no path is {named(path)}: it holds half a character") from None
    return path


def check_key(key: str) -> str:
    """Return a key that is well formed: it never leads out of the place."""
    if not (type(key) is str and all(map(is_name, key.split("/")))) or len(key) > KEY_BYTES_MAX:
        raise InvalidArgument(
            f"{named(key)} is no key of a place: letters, digits, '.', '_', '-', in parts"
            f" between slashes that begin with no dot; at most {KEY_BYTES_MAX} bytes"
        )
    return key


def is_name(text: str) -> bool:
    """Return whether text can be a part of a key, between slashes."""
    return _NAME.fullmatch(text) is not None


def check_prefix(prefix: str) -> str:
    """Return a folder as what the keys in it begin with: `shop/`, or "" for all."""
    folder = prefix.removesuffix("/")
    return f"{check_key(folder)}/" if folder else ""


def is_loopback(host: str) -> bool:
    """Return whether a host of a URL is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def error(kind: type[Error], message: str, url: str, key: str | None = None) -> Error:
    """Make an error of a place, with its URL and the key."""
    made = kind(message)
    if isinstance(made, PlaceError):
        made.url, made.key = url, key
    return made
