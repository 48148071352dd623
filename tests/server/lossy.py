"""A proxy that loses requests and replies: it ends connections at chosen moments.

Owns its threads and sockets. A seed decides which request is lost, and how. The server behind it
may be replaced: connections go to the port of now.
"""

import contextlib
import random
import select
import socket
import threading
from types import TracebackType
from typing import Self

from server.doors import PATIENCE_S

PIECE = 1 << 16


class Lossy:
    """Passes requests on to a server on loopback, and loses some with their connections."""

    def __init__(self, seed: int, share: float) -> None:
        self.behind = 0
        """The port of the server; while it is 0, each connection is ended."""
        self.lost = {"request": 0, "reply": 0, "half a reply": 0}
        self.always = ""
        """If this is not empty, each request loses it from now on."""
        self.only = b""
        """`always` is about requests that begin with bytes that hold this."""
        self._open = set[socket.socket]()
        self._draws, self._share = random.Random(seed), share
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._lock, self._threads = threading.Lock(), list[threading.Thread]()
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A blocked accept ends when the socket is shut down, not when it is closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            thread.start()
            self._threads.append(thread)

    def _serve(self, client: socket.socket) -> None:
        with client:
            client.settimeout(PATIENCE_S)
            self._open.add(client)
            with contextlib.suppress(OSError):  # one of the two ended: that is its purpose
                self._pass(client)
            self._open.discard(client)

    def _pass(self, client: socket.socket) -> None:
        if not self.behind:
            return
        with socket.create_connection(("127.0.0.1", self.behind), timeout=PATIENCE_S) as server:
            loses, is_asking = "", False
            while True:
                ready, _, _ = select.select([client, server], [], [], PATIENCE_S)
                if client in ready:
                    request = client.recv(PIECE)
                    if not is_asking:
                        loses = self._draw(request)
                    if not request or loses == "request":
                        break
                    is_asking = True
                    server.sendall(request)
                elif server in ready:
                    reply = server.recv(PIECE)
                    is_asking = False
                    if not reply or loses:
                        # It came, so whatever was asked has happened.
                        client.sendall(reply[: len(reply) // 2] if loses[:4] == "half" else b"")
                        break
                    client.sendall(reply)
                else:
                    return
            self._note(loses)

    def cut(self) -> None:
        """End all connections."""
        for client in [*self._open]:
            with contextlib.suppress(OSError):  # it ended by itself
                client.shutdown(socket.SHUT_RDWR)

    def _draw(self, request: bytes) -> str:
        """Choose what a request loses, if anything."""
        with self._lock:
            if self.always and self.only in request:
                return self.always
            is_lost = self._draws.random() < self._share
            return self._draws.choice([*self.lost]) if is_lost else ""

    def _note(self, loses: str) -> None:
        if loses:
            with self._lock:
                self.lost[loses] += 1
