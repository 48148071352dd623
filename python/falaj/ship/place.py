"""A place: where objects lie that are created once, and never changed.

Owns what falaj asks of a place, the form of keys, and the way from a URL to a place. Each place
keeps one promise: an object is whole or absent, and its bytes are those of the first create that
succeeded. `directory`, `bucket`, `peer` and `memory` keep it; `probe` tries whether a server does.
The meaning of the objects is left to the modules that ship and restore. Prose: docs/PLACE.md,
"Places".
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from falaj._numbers import seconds
from falaj._paths import KINDS_OF_PLACES, expect_place, local_path, scheme_of
from falaj.errors import Error, InvalidArgument, PlaceError, named, shown
from falaj.ship.handlers import pass_on

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "Listed",
    "Place",
    "check_key",
    "check_options",
    "check_prefix",
    "error",
    "is_loopback",
    "is_name",
    "open_place",
    "options_for",
]

KEY_BYTES_MAX = 512
_OF_PEERS = ("token", "certificate", "allow_http", "timeout")
_OF_BUCKETS = ("endpoint", "region", "account", "credentials", *_OF_PEERS[1:])
TIMEOUT_MOST_S = 1e6
"""Longer timeouts are refused: sockets count milliseconds in 31 bits."""
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
        TypeError: No place has such an option.
        MissingExtra: The package obstore is not installed, which buckets need.
    """
    scheme = scheme_of(url) if isinstance(url, str) else None
    if scheme is not None:
        url = scheme + str(url).lstrip()[len(scheme) :]
    check_options(options)
    _check_fit(scheme, options)
    _check_timeout(options)
    if scheme in ("s3", "gs", "az"):
        from falaj.ship.bucket import BucketPlace  # few programs need it

        return BucketPlace(str(url), **options)
    if scheme in ("http", "https"):
        from falaj.ship.peer import PeerPlace

        return PeerPlace(str(url), **options)
    if scheme == "memory":
        from falaj.ship.memory import MemoryPlace

        return MemoryPlace(str(url))
    from falaj.ship.directory import DirectoryPlace

    if scheme not in (None, "file"):
        raise InvalidArgument(f"{KINDS_OF_PLACES}, not {named(url)}")
    return DirectoryPlace(expect_place(local_path(url, "the place")))


def check_options(given: Iterable[str], call: Callable[..., Any] | None = None) -> None:
    """Refuse options that no place has; they may be mistyped arguments of `call` too.

    Raises:
        TypeError: There is one.
    """
    for name in given:
        if name not in _OF_BUCKETS and name not in _OF_PEERS:
            raise TypeError(_no_option(name, open_place if call is None else call))


def _no_option(name: str, call: Callable[..., Any]) -> str:
    import difflib  # a mistake needs them alone
    import inspect

    known = {*_OF_BUCKETS, *_OF_PEERS}
    own = inspect.signature(call).parameters.values()
    names = known | {each.name for each in own if each.kind is each.KEYWORD_ONLY}
    near = difflib.get_close_matches(name, sorted(names), 1)
    rest = f": did you mean {near[0]!r}?" if near else f"; a place takes {', '.join(sorted(known))}"
    return f"{call.__name__}() has no option {name!r}{rest}"


def options_for(
    places: Sequence[str | os.PathLike[str]], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Share options out among places: each gets those that its kind takes.

    Raises:
        InvalidArgument: None of them takes one.
        TypeError: No place has such an option.

    Example:
        >>> options_for(["place", "s3://bucket"], {"region": "eu-west-1"})
        [{}, {'region': 'eu-west-1'}]
    """
    check_options(options)
    schemes = [scheme_of(each) if isinstance(each, str) else None for each in places]
    for name in options:
        if not any(name in _taken_by(scheme) for scheme in schemes):
            _check_fit(schemes[0], [name])
    return [
        {name: options[name] for name in options if name in _taken_by(scheme)} for scheme in schemes
    ]


def _taken_by(scheme: str | None) -> tuple[str, ...]:
    if scheme in ("s3", "gs", "az"):
        return _OF_BUCKETS
    return _OF_PEERS if scheme in ("http", "https") else ()


def _check_timeout(options: dict[str, Any]) -> None:
    """Refuse a timeout that no socket has; the places refuse the others."""
    given = options.get("timeout")
    found = seconds(given, "timeout")
    if found is not None and found > TIMEOUT_MOST_S:
        raise InvalidArgument(
            f"timeout is at most {TIMEOUT_MOST_S:.0f} seconds, not {shown(given)}"
        )


def _check_fit(scheme: str | None, given: Iterable[str]) -> None:
    """Refuse options of another kind of place than that of a URL."""
    taken = _taken_by(scheme)
    kinds_of = {(): "a directory takes", _OF_BUCKETS: "a bucket takes", _OF_PEERS: "a peer takes"}
    kind = kinds_of[taken]
    for name in given:
        if name not in taken:
            kinds = (("buckets", _OF_BUCKETS), ("peers", _OF_PEERS))
            of = " and ".join(each for each, options in kinds if name in options)
            raise InvalidArgument(
                f"{name!r} is an option of {of}: {kind} {', '.join(taken) or 'none'}"
            )


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
    except ValueError as failed:
        pass_on(failed)
        return host == "localhost"


def error(kind: type[Error], message: str, url: str, key: str | None = None) -> Error:
    """Make an error of a place, with its URL and the key."""
    made = kind(message)
    if isinstance(made, PlaceError):
        made.url, made.key = url, key
    return made
