"""Clients of a test in threads of their own, whose requests and replies may be lost.

Owns the threads and their failures. The tests own the work of the clients, and their notes.
"""

import http.client
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from server.doors import PATIENCE_S
from server.lossy import Lossy


class Unknown(Exception):
    """No answer came: the request may have done its work, or do it later."""


class Crowd:
    """All clients of a test."""

    def __init__(self, store: Path, door: Lossy) -> None:
        self.store, self.door, self.token = store, door, ""
        self.ended = threading.Event()
        self.failed: list[Exception] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[..., None], *arguments: object) -> None:
        """Start a client."""

        def run() -> None:
            try:
                work(*arguments)
            except Exception as error:  # noqa: BLE001  # the test fails by it, in its own thread
                self.failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        """Say that the test ends, and wait for all clients."""
        self.ended.set()
        for thread in self._threads:
            thread.join()

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Send one request by a connection of its own.

        Raises:
            Unknown: No whole answer came.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.door.port, timeout=PATIENCE_S)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"Authorization": f"Bearer {self.token}", "Connection": "close"}
        try:
            connection.request(method, path, body, sent)
            got = connection.getresponse()
            return got.status, json.loads(got.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unknown from error
        finally:
            connection.close()
