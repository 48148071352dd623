"""A server for a test, and requests to it by the standard library alone.

Owns the process: it is stopped when the test ends, and its words on standard error are kept.
"""

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

PROGRAM = Path(os.environ.get("FALAJ_SERVER", ".venv/bin/falaj-server")).absolute()
PATIENCE_S = 60.0


class Reply(NamedTuple):
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        """The kind of a refusal, as its document says."""
        assert self.headers["content-type"] == "application/problem+json", self
        kind = re.fullmatch(r"urn:falaj:problem:(.+)", self.json["type"])
        assert kind, self
        assert self.json["detail"], self
        assert self.json["status"] == self.status, self
        return kind[1]


class Server:
    """A server on a free port of loopback."""

    def __init__(
        self,
        store: Path,
        *flags: str,
        env: dict[str, str] | None = None,
        before: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
        user: int | None = None,
        program: Path | None = PROGRAM,
    ) -> None:
        self.store = store
        self.flags = flags
        command = [
            *before,
            *(() if program is None else (os.fspath(program),)),
            os.fspath(store),
            *(() if "--http" in flags else ("--http", "127.0.0.1:0")),
            *flags,
        ]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            pass_fds=pass_fds,
            user=user,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        ready = re.fullmatch(r"http https?://[\d.]+:(\d+)\n", line)
        if ready is None:
            raise AssertionError(f"{line!r} {self.process.communicate()}")
        self.port = int(ready[1])
        token = store / "server" / "token"
        self.token = token.read_text() if token.exists() else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self, how: signal.Signals = signal.SIGKILL) -> tuple[int, str]:
        """End it with a signal; return how it ended and what it wrote on standard error."""
        if self.process.returncode is None:
            self.process.send_signal(how)
        _, said = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said

    def until_said(self, part: str) -> str:
        """Read lines of standard error until one has this; return that one."""
        assert self.process.stderr is not None
        while part not in (line := self.process.stderr.readline()):
            assert line, f"it ended without a word of {part!r}"
        return line

    def connect(self, tls: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        """Open a connection."""
        if tls is not None:
            return http.client.HTTPSConnection(
                "127.0.0.1", self.port, context=tls, timeout=PATIENCE_S
            )
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def socket(self) -> socket.socket:
        """Open a connection for bytes that no HTTP library would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        **headers: str,
    ) -> Reply:
        """Send a request, with the store's token unless another is given."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        token = self.token if token is None else token
        if token:
            sent["Authorization"] = f"Bearer {token}"
        connection = self.connect(tls)
        try:
            connection.request(method, path, body, sent)
            got = connection.getresponse()
            headers = {name.lower(): value for name, value in got.getheaders()}
            return Reply(got.status, headers, got.read())
        finally:
            connection.close()

    def get(self, path: str, *, token: str | None = None, **headers: str) -> Reply:
        """Send a GET."""
        return self.request("GET", path, None, token=token, tls=None, **headers)

    def post(self, path: str, body: bytes, *, token: str | None = None, **headers: str) -> Reply:
        """Send a POST."""
        return self.request("POST", path, body, token=token, tls=None, **headers)

    def head(self, path: str) -> str:
        """Begin a request by hand: its first lines, with the token, without the empty line."""
        authorization = f"Authorization: Bearer {self.token}"
        return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n"

    def peak_rss(self) -> int:
        """Most memory that the process has had, bytes."""
        return self._status("VmHWM")

    def anonymous(self) -> int:
        """Memory of the process that no file backs, bytes."""
        return self._status("RssAnon")

    def _status(self, line: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{line}:\s+(\d+) kB", status)
        assert found
        return int(found[1]) << 10
