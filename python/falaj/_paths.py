"""`local_path`: decides whether text names a path on this machine, a URL, or neither.

Every entry point that takes a path calls it, so that a URL never becomes a folder of that name.
"""

from __future__ import annotations

import os

from falaj.errors import InvalidArgument, NotAStore, named

__all__ = [
    "KINDS_OF_PLACES",
    "expect_outside_places",
    "expect_outside_stores",
    "expect_path",
    "expect_place",
    "holds_a_place",
    "holds_a_store",
    "is_place",
    "local_path",
    "name_the_place",
    "scheme_of",
]

KINDS_OF_PLACES = "a place is a directory, or a URL with s3://, gs://, az://, http:// or https://"

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_IN_A_SCHEME = _LETTERS | frozenset("0123456789+.-")


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URL, in lower case; None for a plain path.

    A URL begins with a scheme of two letters or more, a colon and a slash. One slash suffices,
    because `pathlib` makes `s3:/bucket` of `s3://bucket`.

    Example:
        >>> [scheme_of(text) for text in ("S3://bucket/x", "s3:/bucket/x", "a:b", "x//y")]
        ['s3', 's3', None, None]
    """
    scheme, colon, rest = text.lstrip().lower().partition(":")
    is_scheme = len(scheme) > 1 and scheme[0] in _LETTERS and _IN_A_SCHEME.issuperset(scheme)
    if not colon or not is_scheme:
        return None
    return scheme if rest.startswith("/") or scheme == "file" else None


def is_place(text: str) -> bool:
    """Return whether text is the URL of a place beyond the machine.

    Example:
        >>> is_place("s3://bucket/shop"), is_place("file:///data/shop"), is_place("shop")
        (True, False, False)
    """
    return scheme_of(text) in ("s3", "gs", "az", "memory")


def holds_a_store(path: str) -> bool:
    """Tell whether a directory is a store."""
    return os.path.lexists(os.path.join(path, "falaj.json"))


def holds_a_place(path: str) -> bool:
    """Tell whether a directory is no store, and a store was shipped to it."""
    return not holds_a_store(path) and _holds_origins(path)


def _holds_origins(path: str) -> bool:
    try:
        names = os.listdir(path)
    except OSError:
        return False
    return any(len(name) == 32 and os.path.isdir(os.path.join(path, name, "o")) for name in names)


def expect_place(path: str) -> str:
    """Return the path of a directory that is no store; one with a place in it can be read."""
    if holds_a_store(path) and not _holds_origins(path):
        raise InvalidArgument(
            f"{path} is a store, and no place: open it with falaj.open(), or name the place that "
            "it is shipped to"
        )
    return path


def expect_outside_places(path: str) -> None:
    """Refuse a directory for a store that lies in a place.

    Raises:
        InvalidArgument: It does.
    """
    from pathlib import Path  # few need it

    for above in Path(os.path.realpath(path)).parents:
        if holds_a_place(os.fspath(above)):
            raise InvalidArgument(
                f"{path} lies in the place {above}, and would be lost with it: name a directory "
                "elsewhere"
            )


def expect_outside_stores(path: str | os.PathLike[str], what: str) -> None:
    """Refuse a directory that lies in a store.

    Raises:
        InvalidArgument: It does; `what` says what it is for.
    """
    from pathlib import Path  # few need it

    for above in Path(os.path.realpath(path)).parents:
        if holds_a_store(os.fspath(above)):
            raise InvalidArgument(
                f"{what} {path} lies in the store {above}, and would be lost with it: name a "
                "directory elsewhere"
            )


def name_the_place(error: OSError, path: str | os.PathLike[str]) -> None:
    """Let the error of a directory that is no store say that it is a place, if so."""
    if type(error) is NotAStore and holds_a_place(text := os.fsdecode(path)):
        error.args = (
            f"{text} is a place, to which a store was shipped: read it with falaj.open_place(), "
            f"or make a store of it with falaj.restore()",
        )


def expect_path(text: str) -> str:
    """Return text that is not empty: "" would be the directory of the process."""
    if not text:
        raise InvalidArgument(
            "an empty path names no directory; `.` is the one that this process is in"
        )
    return text


def _possible(path: str) -> str:
    """Return a path that a file can have."""
    if "\0" in path:
        raise InvalidArgument(f"no path has a zero byte in it, as {path!r} has")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidArgument(f"no path is {path!r}: it holds half a character") from None
    return path


def local_path(given: str | os.PathLike[str], what: str = "the path", instead: str = "") -> str:
    """Return the path on this machine; a URL `file:///…` names one, too.

    Args:
        given: A path, or the URL of one.
        what: The name of the argument in an error.
        instead: A sentence at the end of the error for a URL.

    Returns:
        The path: a URL decoded (`%20` and the like), anything else as given, with a leading `~` as
        the home directory.

    Raises:
        InvalidArgument: It is empty, a URL of another scheme or of another machine, or a path of
            Windows. Or no file can have such a path.

    Example:
        >>> local_path("file:///data/all%20events"), local_path("events")
        ('/data/all events', 'events')
    """
    if not isinstance(given, str | bytes | os.PathLike):
        raise TypeError(f"{what} is text, bytes or os.PathLike, not {named(given)}")
    text = _possible(expect_path(os.fsdecode(given)))
    scheme = scheme_of(text)
    if scheme == "file":
        return _path_of(text.lstrip(), what)
    if scheme in ("http", "https") and not instead:
        instead = (
            "falaj.connect() opens a store behind a server, and falaj.open_place() a place there. "
            "In a shell, read such a place by its directory, or restore it"
        )
    if scheme is not None:
        raise InvalidArgument(
            f"{what} is a path on this machine or a URL file:///…, not {text!r}: falaj locks, "
            f"syncs and renames files, which {scheme} does not offer{instead and f'. {instead}'}"
        )
    if text[:1].lower() in _LETTERS and text[1:3] in (":\\", ":/"):
        raise InvalidArgument(
            f"{what} {text!r} is a path of Windows: name it as this system does, such as "
            f"/mnt/{text[0].lower()}/… under WSL, or begin with ./ for a name with a colon"
        )
    return os.path.expanduser(text)


def _path_of(url: str, what: str) -> str:
    """Return the path that a URL `file:…` names (RFC 8089)."""
    from urllib.parse import unquote_to_bytes  # URLs are rare, and this import takes its time

    rest = url.partition(":")[2]
    host = ""
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        rest = slash + path
    if host.lower() not in ("", "localhost"):
        raise InvalidArgument(
            f"{what} {url!r} names the machine {host!r}: falaj reads and writes files of this "
            "machine only. Write file:///… with three slashes"
        )
    if not rest.startswith("/"):
        raise InvalidArgument(
            f"{what} {url!r} names no absolute path: write file:///… or the plain path"
        )
    path = os.fsdecode(unquote_to_bytes(rest.encode("utf-8", "surrogateescape")))
    if "\0" in path:
        raise InvalidArgument(f"{what} {url!r} holds %00, which no path has")
    return path
