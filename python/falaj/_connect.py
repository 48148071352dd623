"""`connect` and `aconnect`: a store behind a server, by the package falaj-client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.errors import MissingExtra

if TYPE_CHECKING:
    import os

    from falaj._time import Duration
    from falaj_client import AsyncStore, Store

__all__ = ["aconnect", "connect"]

_MISSING = "falaj.connect() needs a package: pip install 'falaj[client]'"


def connect(
    url: str,
    *,
    token: str | os.PathLike[str] | None = None,
    timeout: Duration = 30.0,
) -> Store:
    """Connect to a server of falaj, and return its store.

    It has a documented subset of the classes that `falaj.open` returns (docs/guide/client.md). It
    sends nothing yet: the first call does. A call is repeated while its answer is lost or the
    server is busy. Appends carry a producer of their own, so a repeat appends nothing twice.

    Args:
        url: Where the server is, such as `http://127.0.0.1:4437`.
        token: A token, or the path of a file with one. On the server's machine that file is
            `server/token` in the store's directory. By default the environment variable
            `FALAJ_TOKEN`.
        timeout: How long a call may take, repeats included: seconds, a timedelta, or text such as
            "5m".

    Returns:
        The store: a context manager that closes it.

    Raises:
        InvalidArgument: The URL is none of a server.
        MissingExtra: The package falaj-client is not installed.

    Example:
        >>> falaj.connect("events")
        Traceback (most recent call last):
        falaj.errors.InvalidArgument: connect() takes the URL of a server, such as ...
    """
    try:
        import falaj_client
    except ImportError:
        raise MissingExtra(_MISSING) from None
    return falaj_client.connect(url, token=token, timeout=timeout)


def aconnect(
    url: str,
    *,
    token: str | os.PathLike[str] | None = None,
    timeout: Duration = 30.0,
) -> AsyncStore:
    """Connect to a server of falaj from asyncio; else as `connect`. It needs no await.

    Args:
        url: As for `connect`.
        token: As for `connect`.
        timeout: As for `connect`.

    Raises:
        InvalidArgument: The URL is none of a server.
        MissingExtra: The package falaj-client is not installed.

    Example:
        >>> falaj.aconnect("events")
        Traceback (most recent call last):
        falaj.errors.InvalidArgument: connect() takes the URL of a server, such as ...
    """
    try:
        import falaj_client
    except ImportError:
        raise MissingExtra(_MISSING) from None
    return falaj_client.aconnect(url, token=token, timeout=timeout)
