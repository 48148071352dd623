"""A server of S3 on loopback for the demo: started, given an empty bucket, and stopped.

Owns its process and the credentials, which such a server does not check.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from falaj.demo.failed import Failed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Bucket", "bucket"]

NAME = "flights"
_PATIENCE_S, _LOOK_S = 60.0, 0.05
_ID, _SECRET, _REGION = "demo", "not-a-secret", "us-east-1"


class Bucket(NamedTuple):
    """Where the bucket is."""

    endpoint: str

    @property
    def url(self) -> str:
        """The place."""
        return f"s3://{NAME}/demo"

    def options(self) -> dict[str, Any]:
        """Return what `falaj.restore` needs beside the URL."""
        credentials = {"access_key_id": _ID, "secret_access_key": _SECRET, "expires_at": None}
        return {
            "endpoint": self.endpoint,
            "region": _REGION,
            "credentials": lambda: dict(credentials),
        }

    def environment(self) -> dict[str, str]:
        """Return what a process needs in its environment."""
        return {
            "AWS_ACCESS_KEY_ID": _ID,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": _REGION,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
        }


@contextmanager
def bucket(server: Path) -> Iterator[Bucket]:
    """Start a server, and make the bucket.

    Args:
        server: A program in Python that serves S3 on the port of its argument.

    Raises:
        Failed: It did not start.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with tempfile.TemporaryFile() as words:
        command = [sys.executable, str(server), str(port)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT
        )
        try:
            if not _begun(process, port):
                words.seek(0)
                lines = words.read().decode(errors="replace").splitlines()
                said = lines[-1] if lines else "it said nothing"
                raise Failed(f"the server {server} of the bucket did not start: {said}")
            yield Bucket(f"http://127.0.0.1:{port}")
        finally:
            process.kill()
            process.wait()


def _begun(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server answers, and has made the bucket."""
    until = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
        try:
            # The form says for which service the request is; nothing checks the signature.
            scope = f"Credential={_ID}/20260101/{_REGION}/s3/aws4_request"
            headers = {"Authorization": f"AWS4-HMAC-SHA256 {scope}"}
            connection.request("PUT", f"/{NAME}", headers=headers)
            return connection.getresponse().status == 200
        except ConnectionError:
            time.sleep(_LOOK_S)
        finally:
            connection.close()
    return False
