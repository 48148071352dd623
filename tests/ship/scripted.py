"""`Scripted`: a server that answers as a test says, and keeps what it was asked.

Owns a thread for each connection on loopback; it stops with its block.
"""

import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    """A reply; status 0 resets the connection, and -1 says nothing until the server stops."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Scripted:
    """A server on a free port, whose answers are those of a function."""

    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        self.asked = list[Asked]()
        self.stopped = threading.Event()
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, body)
                scripted.asked.append(asked)
                said = answer(asked)
                if said.status < 0:
                    scripted.stopped.wait()
                if said.status <= 0:
                    self.close_connection = True
                    linger = struct.pack("ii", 1, 0)
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    return
                self.send_response(said.status)
                for name, value in said.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(said.body)))
                self.end_headers()
                self.wfile.write(said.body)

            do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
