"""`PeerPlace`: a place on another machine, behind its server.

Owns the requests to `falaj-server --place`, and the connections. A create is sent once: only the
answer 201 says that this call created the object. Answers that rule a create out are errors. All
other outcomes are unknown, and the server sees to it that an object that it shows is on stable
storage. Other requests are repeated for some seconds. The standard library alone is needed. The
token is in no URL, message or pickle. Prose: docs/PLACE.md, "Peers".
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import ssl
import time
import weakref
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, NoReturn
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from falaj._checks import flag, text
from falaj._numbers import seconds
from falaj._paths import local_path
from falaj.errors import (
    CorruptData,
    Error,
    InvalidArgument,
    ObjectMissing,
    PlaceDenied,
    PlaceFull,
    PlaceNotFound,
    PlaceUnreachable,
    UnsupportedPlace,
    named,
)
from falaj.ship.handlers import pass_on
from falaj.ship.place import Listed, check_key, check_prefix, error, is_loopback, is_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from falaj._time import Duration

__all__ = ["PeerPlace"]

API = "/v1/place"
CONNECT_S = 5.0
REPEATS = 4
REPEATING_S = 60.0
PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
IDLE_S = 5.0
"""A connection that was idle for longer is not used: the server closes those of 10 seconds."""
PIECE = 1 << 18
PAGE = 10_000
DELETED_AT_ONCE = 1_000
DETAIL_MAX = 400
_IN_URLS = {"certificate", "token_file", "allow_http"}
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}
"""Reasons of OpenSSL where the answer to the first message of TLS is no TLS."""

_OTHERS = "what answers there is no place of falaj: correct the URL"
# Kinds of problem and statuses that are certain: nothing was created, and repeats do not help.
_KINDS: dict[str | int, tuple[type[Error], str]] = {
    "no-place": (PlaceNotFound, "start that server with --place DIRECTORY"),
    "place-denied": (PlaceDenied, "give the server's user the rights there"),
    "unsupported-place": (UnsupportedPlace, "see the log of that server"),
    "invalid-key": (UnsupportedPlace, "choose a shorter prefix"),
    "key-conflict": (UnsupportedPlace, "remove that object: no key is a folder of another"),
    401: (PlaceDenied, "put the token of that server into FALAJ_TOKEN"),
    403: (PlaceDenied, "grant this token the right, in access.principals of that server"),
    413: (UnsupportedPlace, "raise limits.body of that server"),
    421: (PlaceDenied, "use its address, or add the name to access.hosts of that server"),
    507: (PlaceFull, "free space there"),
    **dict.fromkeys(
        (301, 302, 303, 307, 308, 400, 404, 405, 410, 411, 415), (PlaceNotFound, _OTHERS)
    ),
}


class _Answer(NamedTuple):
    """An answer; `kind` is that of its problem document, or empty."""

    status: int
    body: bytes
    kind: str = ""
    detail: str = ""


class _Lost(Exception):
    """A request got no answer; the text says how."""


class PeerPlace:
    """A place behind a server of falaj on another machine.

    Args:
        url: `http://machine:4437/prefix` or `https://…`. Its query may have `certificate`,
            `token_file` and `allow_http`, as in `https://machine:4437?certificate=/etc/ca.pem`.
        token: A token, or the path of a file with one. By default `token_file` of the URL, or else
            the environment variable `FALAJ_TOKEN`.
        certificate: File with certificates in PEM to trust beside the system's.
        allow_http: Let an `http://` URL lead to another machine: all bytes and the token go
            unencrypted. On this machine it always may.
        timeout: How long one request may take, or one pause of an answer.

    Raises:
        InvalidArgument: The URL or an option cannot be right.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | os.PathLike[str] | None = None,
        certificate: str | os.PathLike[str] | None = None,
        allow_http: bool = False,
        timeout: Duration = 30.0,
    ) -> None:
        base, self._root, asked = _parsed(text(url, "url"))
        self.url = f"{base}/{self._root}".rstrip("/")
        flag(allow_http, "allow_http")
        if (allowed := asked.get("allow_http", "0")) not in ("0", "1"):
            raise InvalidArgument("allow_http in a URL is 1 or 0")
        timeout_s = seconds(timeout, "timeout")
        if not timeout_s:
            raise InvalidArgument("timeout is longer than 0 seconds: a request takes time")
        file = asked.get("token_file")
        found = _token(Path(file) if token is None and file else token)
        self._token: Callable[[], str] = lambda: found  # no attribute shows it
        trusted = asked.get("certificate") if certificate is None else certificate
        if trusted is not None:
            trusted = local_path(trusted, "certificate")
        self._connections = _Connections(base, timeout_s, trusted, allow_http or allowed == "1")

    def __repr__(self) -> str:
        return f"<PeerPlace {self.url}>"

    def __reduce__(self) -> NoReturn:
        """Refuse: it has a token."""
        raise TypeError(f"{self!r} is not pickled: open it by its URL where it is used")

    # --- Reading ---------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """Return an object, or None if there is none under this key."""
        return self._found(key, self._repeated("GET", self._target(key), key, {200, 404}))

    def get_when_there(self, key: str, wait: Duration) -> bytes | None:
        """Return an object; wait for it if there is none yet.

        Args:
            key: Its key.
            wait: How long to wait. The server waits for at most a minute.

        Returns:
            The object, or None if there is none after that time.
        """
        wait_s = min(seconds(wait, "wait") or 0.0, 60.0)
        target = f"{self._target(key)}?wait={int(wait_s * 1000)}ms"
        return self._found(key, self._repeated("GET", target, key, {200, 404}, wait_s=wait_s))

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes of an object from `start` up to `stop`.

        Raises:
            ObjectMissing: There is no object under this key.
            CorruptData: The object ends before `stop`.
        """
        target = self._target(key)
        if start >= stop:
            return b""
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        answer = self._repeated("GET", target, key, {200, 206, 404, 416}, headers=headers)
        if answer.status == 404 and self._found(key, answer) is None:
            raise error(ObjectMissing, f"{self.url} has no object {key}", self.url, key)
        found = answer.body[start:stop] if answer.status == 200 else answer.body
        if answer.status == 416 or len(found) < stop - start:
            raise CorruptData(
                f"object {key} of {self.url} ends before byte {stop}, and more was written:"
                " restore it from another place"
            )
        return found

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List the objects below a folder, in order of their keys."""
        folder = self._root + check_prefix(prefix)
        last = self._root + after if after else ""
        while True:
            query = {"prefix": folder, "after": last, "limit": PAGE}
            target = f"{API}?{urlencode(query)}"
            answer = self._repeated("GET", target, None, {200})
            page, has_more = self._page(answer.body, folder, last)
            for listed in page:
                yield listed._replace(key=listed.key.removeprefix(self._root))
            if not has_more:
                return
            last = page[-1].key

    def _found(self, key: str, answer: _Answer) -> bytes | None:
        """Return the object of an answer, or None; raise where the server has no place."""
        if answer.status != 404:
            return answer.body
        if answer.kind != "object-not-found":
            self._refuse(answer, key)
        return None

    def _page(self, body: bytes, folder: str, after: str) -> tuple[list[Listed], bool]:
        """Read a page of a listing; refuse one that no server of falaj sends."""
        page = list[Listed]()
        try:
            told = json.loads(body)
            for one in told["objects"]:
                key, size, at = one["key"], int(one["size"]), int(one["modified_us"])
                if not (
                    after < key and key.startswith(folder) and all(map(is_name, key.split("/")))
                ):
                    raise ValueError(key)
                page.append(Listed(key, size, at))
                after = key
            has_more = told["next"] is not None and bool(page)
        except (ValueError, KeyError, TypeError) as failed:
            pass_on(failed)
            text = f"{self.url}: its answer is no listing of a place; {_OTHERS}"
            raise error(PlaceUnreachable, text, self.url) from None
        return page, has_more

    # --- Writing ---------------------------------------------------------------------------------

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object, unless there is one under this key; `Place` says what False means."""
        target = self._target(key)
        try:
            answer = self._ask("PUT", target, body, {"If-None-Match": "*"})
        except _Lost:
            return False
        if answer.status == 201:
            return True
        if answer.kind == "place-failed":  # what can be read may not be on stable storage
            self._refuse(answer, key)
        if _certain(answer):
            self._refuse(answer, key)
        return False

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, many in one request; missing ones are no error."""
        paths = [self._root + check_key(key) for key in keys]
        for start in range(0, len(paths), DELETED_AT_ONCE):
            body = json.dumps({"delete": paths[start : start + DELETED_AT_ONCE]}).encode()
            self._repeated("POST", API, None, {200}, body=body)

    # --- Requests --------------------------------------------------------------------------------

    def _target(self, key: str) -> str:
        return f"{API}/{quote(check_key(self._root + check_key(key)))}"

    def _repeated(
        self,
        method: str,
        target: str,
        key: str | None,
        expected: set[int],
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        wait_s: float = 0.0,
    ) -> _Answer:
        """Send a request until there is an answer that helps, or time is over."""
        until, pause_s = time.monotonic() + REPEATING_S, PAUSE_S
        for left in range(REPEATS, -1, -1):
            try:
                answer = self._ask(method, target, body, headers or {}, wait_s)
            except _Lost as lost:
                if not left or time.monotonic() > until:
                    self._unreachable(str(lost), key)
            else:
                if answer.status in expected:
                    return answer
                if _certain(answer) or not left or time.monotonic() > until:
                    self._refuse(answer, key)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        raise AssertionError("the last round returns or raises")

    def _ask(
        self,
        method: str,
        target: str,
        body: bytes,
        headers: Mapping[str, str],
        wait_s: float = 0.0,
    ) -> _Answer:
        """Send a request once.

        Raises:
            _Lost: There is no answer.
        """
        sent = {**headers, "User-Agent": "falaj"}
        if token := self._token():
            sent["Authorization"] = f"Bearer {token}"
        if method != "GET":
            sent["Content-Length"] = str(len(body))
        try:
            status, kind, found = self._connections.ask(method, target, body, sent, wait_s)
        except (OSError, http.client.HTTPException) as failed:
            pass_on(failed)
            if isinstance(failed, ssl.SSLError) and failed.reason in _NO_TLS:
                text = "the server speaks no TLS: write http:// instead of https://"
                self._raise(PlaceNotFound, text, None)
            raise _Lost(_manner(failed)) from None
        if kind != "application/problem+json":
            return _Answer(status, found)
        try:
            told = json.loads(found)
            problem, detail = str(told["type"]).rpartition(":")[2], str(told["detail"])
        except (ValueError, KeyError, TypeError) as failed:
            pass_on(failed)
            return _Answer(status, b"")
        return _Answer(status, b"", problem, self._shown(detail))

    def _shown(self, detail: str) -> str:
        """Return a sentence of the server as a message may have it."""
        line = " ".join("".join(c if c.isprintable() else " " for c in detail).split())[:DETAIL_MAX]
        token = self._token()
        return line.replace(token, "…") if token else line

    def _refuse(self, answer: _Answer, key: str | None) -> NoReturn:
        """Raise what an answer says."""
        later = PlaceUnreachable, "try again later"
        kind, remedy = _certain(answer) or later
        said = answer.detail or "the server gives no reason"
        self._raise(kind, f"{said} ({answer.status}); {remedy}", key)

    def _unreachable(self, how: str, key: str | None) -> NoReturn:
        self._raise(PlaceUnreachable, f"the server gave no answer ({how}); try again later", key)

    def _raise(self, kind: type[Error], said: str, key: str | None) -> NoReturn:
        at = self.url if key is None else f"{self.url}/{key}"
        raise error(kind, f"{at}: {said}", self.url, key) from None


class _Connections:
    """Connections to a server, one for each request at a time; idle ones are used again.

    A forked child opens its own: a connection of two processes would mix their requests.
    """

    def __init__(
        self, base: str, timeout_s: float, certificate: str | None, allow_http: bool
    ) -> None:
        parts = urlsplit(base)
        assert parts.hostname
        self._host, self._port, self._timeout_s = parts.hostname, parts.port, timeout_s
        self._tls = _trust(certificate) if parts.scheme == "https" else None
        if self._tls is None and not (allow_http or is_loopback(self._host)):
            raise InvalidArgument(
                f"{base} takes bytes and the token unencrypted: use https, or ?allow_http=1 in a"
                " network that you trust"
            )
        self._lock, self._pid = Lock(), os.getpid()
        self._idle = list[tuple[http.client.HTTPConnection, float]]()
        weakref.finalize(self, _close, self._idle)  # a place has no end of its own

    def ask(
        self, method: str, target: str, body: bytes, headers: dict[str, str], wait_s: float
    ) -> tuple[int, str, bytes]:
        """Send a request; return status, type and body of the answer."""
        connection = self._take()
        try:
            assert connection.sock is not None
            connection.sock.settimeout(self._timeout_s + wait_s)
            is_whole = self._send(connection, method, target, body, headers)
            with connection.getresponse() as answer:
                found = answer.read()
                kind = answer.headers.get_content_type()
                is_kept = is_whole and not answer.will_close
        except BaseException:
            connection.close()
            raise
        if is_kept:
            with self._lock:
                self._idle.append((connection, time.monotonic()))
        else:
            connection.close()
        return answer.status, kind, found

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes,
        headers: dict[str, str],
    ) -> bool:
        """Send a request; False where the server stopped taking it, since it has answered."""
        whole = memoryview(body)
        pieces = (whole[at : at + PIECE] for at in range(0, len(whole), PIECE))
        try:
            connection.request(method, target, pieces if whole else None, headers)
        except (BrokenPipeError, ConnectionResetError) as failed:
            pass_on(failed)
            return False
        return True

    def _take(self) -> http.client.HTTPConnection:
        """Return an open connection."""
        now = time.monotonic()
        with self._lock:
            if self._pid != os.getpid():
                _close(self._idle)  # the parent's stay open
                self._pid = os.getpid()
            while self._idle:
                connection, since = self._idle.pop()
                if now - since < IDLE_S and not _has_ended(connection):
                    return connection
                connection.close()
        if self._tls is None:
            made = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_S)
        else:
            made = http.client.HTTPSConnection(
                self._host, self._port, timeout=CONNECT_S, context=self._tls
            )
        # As socket.create_connection, which takes a handler's exception for a failed address.
        made._create_connection = _connected  # type: ignore[attr-defined]
        made.connect()
        return made


def _connected(
    address: tuple[str, int], timeout: float | None, source: tuple[str, int] | None = None
) -> socket.socket:
    """Connect to the first address of a server that answers."""
    failed: OSError | None = None
    for family, kind, protocol, _, each in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        try:
            made = socket.socket(family, kind, protocol)
            try:
                made.settimeout(timeout)
                made.connect(each)
            except BaseException:
                made.close()
                raise
        except OSError as error:
            pass_on(error)
            failed = error
        else:
            return made
    raise failed or OSError("no address")


def _close(idle: list[tuple[http.client.HTTPConnection, float]]) -> None:
    while idle:
        idle.pop()[0].close()


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """Tell whether an idle connection was closed: nothing else comes without a request."""
    if connection.sock is None:
        return True
    look = select.poll()
    look.register(connection.sock, select.POLLIN)
    return bool(look.poll(0))


def _certain(answer: _Answer) -> tuple[type[Error], str] | None:
    """Return the error that an answer stands for, if no repeat helps and nothing was created."""
    return _KINDS.get(answer.kind) or _KINDS.get(answer.status)


def _manner(failed: Exception) -> str:
    """Say how a request failed; no text of a library, which may repeat what was sent."""
    if isinstance(failed, ssl.SSLCertVerificationError):
        return "its certificate is not trusted: name its issuer's as certificate="
    if isinstance(failed, TimeoutError):
        return "timed out"
    if isinstance(failed, ConnectionRefusedError):
        return "no connection"
    if isinstance(failed, ConnectionError | http.client.HTTPException):
        return "connection lost"
    if isinstance(failed, OSError) and failed.strerror:
        return failed.strerror
    return "request failed"


def _trust(certificate: str | None) -> ssl.SSLContext:
    """Make what decides which servers are trusted."""
    context = ssl.create_default_context()
    if certificate is not None:
        try:
            context.load_verify_locations(certificate)
        except (OSError, ValueError) as refused:
            pass_on(refused)
            why = getattr(refused, "strerror", None) or "no certificates in PEM"
            raise InvalidArgument(f"certificate: {certificate}: {why}") from None
    return context


def _token(given: str | os.PathLike[str] | None) -> str:
    """Find the token: the argument, a file that it names, or the environment's; "" for none."""
    if given is None:
        given = os.environ.get("FALAJ_TOKEN", "")
    if isinstance(given, os.PathLike):
        try:
            given = Path(given).read_text().strip()
        except (OSError, ValueError) as refused:
            pass_on(refused)
            why = getattr(refused, "strerror", None) or "no text"
            raise InvalidArgument(f"no token in {os.fspath(given)}: {why}") from None
    found = text(given, "token").strip()
    if not found.isascii() or not found.isprintable() or " " in found:
        raise InvalidArgument("a token is one word of ASCII characters")
    return found


def _parsed(url: str) -> tuple[str, str, dict[str, str]]:
    """Take a URL apart: scheme with host and port, prefix with a slash at its end, options."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as failed:
        pass_on(failed)
        raise InvalidArgument("the URL of a peer is such as http://127.0.0.1:4437/prefix") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument("the URL of a place has no credentials in it: see FALAJ_TOKEN")
    if not parts.hostname or parts.fragment or not parts.hostname.isascii():
        raise InvalidArgument("the URL of a peer is such as http://127.0.0.1:4437/prefix")
    try:
        asked = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError as failed:
        pass_on(failed)
        raise InvalidArgument("a URL's query is such as ?certificate=/etc/ca.pem") from None
    if wrong := sorted(asked.keys() - _IN_URLS):
        raise InvalidArgument(
            f"the URL of a peer takes {', '.join(sorted(_IN_URLS))}, not {named(wrong[0])};"
            " a token belongs into FALAJ_TOKEN or a file"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    base = f"{parts.scheme}://{host}" + ("" if port is None else f":{port}")
    path = parts.path.strip("/")
    if f"{path}/".startswith(f"{API[1:]}/"):  # the path of the API itself
        path = path[len(API) :]
    return base, check_prefix(path), asked
