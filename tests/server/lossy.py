"""A proxy that loses requests and replies: it ends connections at chosen moments.

Owns its threads and sockets. A seed decides which connection loses what. The server behind it may
be replaced: connections go to the port of now.
"""

import contextlib
import random
import socket
import threading
from types import TracebackType
from typing import Self

from server.doors import PATIENCE_S

PIECE = 1 << 16


class Lossy:
    """Passes one request of each connection on to a server on loopback, and loses some."""

    def __init__(self, seed: int, share: float) -> None:
        self.behind = 0
        """The port of the server; while it is 0, each connection is ended."""
        self.lost = {"request": 0, "reply": 0, "half a reply": 0}
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
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                loses = (
                    self._draws.choice([*self.lost]) if self._draws.random() < self._share else ""
                )
            thread = threading.Thread(target=self._serve, args=(client, loses))
            thread.start()
            self._threads.append(thread)

    def _serve(self, client: socket.socket, loses: str) -> None:
        with client:
            client.settimeout(PATIENCE_S)
            with contextlib.suppress(OSError):  # one of the two ended: that is its purpose
                self._pass(client, loses)

    def _pass(self, client: socket.socket, loses: str) -> None:
        request = client.recv(PIECE)
        if loses == "request" or not self.behind:
            self._note(loses)
            return
        with socket.create_connection(("127.0.0.1", self.behind), timeout=PATIENCE_S) as server:
            client.settimeout(0.01)
            while request:
                server.sendall(request)
                try:
                    request = client.recv(PIECE)
                except TimeoutError:
                    break
            client.settimeout(PATIENCE_S)
            while reply := server.recv(PIECE):
                if loses:
                    # It came, so whatever was asked has happened.
                    client.sendall(reply[: len(reply) // 2] if loses == "half a reply" else b"")
                    self._note(loses)
                    return
                client.sendall(reply)

    def _note(self, loses: str) -> None:
        if loses:
            with self._lock:
                self.lost[loses] += 1
