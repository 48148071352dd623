"""Real servers of buckets and of a peer for the tests, each on a free port of loopback.

Owns their processes: a test starts one and stops it. Where a program cannot be had, its tests say
`NOT RUN`. moto comes with the extra `dev`. The others are looked for in the environment of Python
first, where `make bucket-servers` and `make bucket-servers-all` put them, then on `PATH`.
"""

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from falaj.ship.place import Place, open_place

PATIENCE_S = 60.0
BUCKET = "shop"
USER, SECRET = "tester", "secret-of-the-tests"
VARIABLES = {
    "AWS_ACCESS_KEY_ID": USER,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AZURE_STORAGE_ACCOUNT_NAME": USER,
    "AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(SECRET.encode()).decode(),
}
"""The environment in which all of them answer."""


class NotHere(Exception):
    """The program of a server is not installed; the message says so."""


def program(*names: str, target: str = "bucket-servers-all") -> str:
    """Find a program beside Python, or on PATH."""
    beside = Path(sys.executable).parent
    for name in names:
        for found in (beside / name, beside.parent / name, shutil.which(name)):
            if found is not None and Path(found).is_file():
                return os.fspath(found)
    raise NotHere(f"NOT RUN: no program {names[-1]}; `make {target}` installs it")


class Server(ABC):
    """A server with an empty bucket."""

    scheme = "s3"
    host = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self.said = folder / "said"
        self.start()

    def start(self) -> None:
        """Start it; after `stop`, at the same address with what it kept."""
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=os.environ | self.variables(),
                cwd=self.folder,
            )
        try:
            self._wait()
            self.make_bucket()
        except BaseException:
            self.stop()
            raise

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that starts it."""

    @abstractmethod
    def make_bucket(self) -> None:
        """Make its bucket."""

    def variables(self) -> dict[str, str]:
        """Return what its environment needs beside this one."""
        return {}

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    def open(self, prefix: str = "", **options: Any) -> Place:
        """Open its bucket, or a folder of it."""
        url = f"{self.scheme}://{BUCKET}/{prefix}"
        return open_place(url, endpoint=self.endpoint, **options)

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _wait(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{type(self).__name__} gave up: {self.said.read_text()}")
            try:
                socket.create_connection((self.host, self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)  # sleep: another program says nothing when it begins to listen

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        assert answer.status in (200, 201), (answer.status, said)


class Moto(Server):
    """moto: AWS in Python, which keeps objects in memory; it takes one request at a time."""

    def command(self) -> list[str]:
        if find_spec("moto") is None:
            raise NotHere("NOT RUN: no package moto; the extra `dev` brings it")
        return [sys.executable, str(Path(__file__).with_name("moto_in_turn.py")), str(self.port)]

    def make_bucket(self) -> None:
        signed = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request"
        self._ask("PUT", f"/{BUCKET}", {"Authorization": signed})


class VersityGateway(Server):
    """versitygw: a gateway of S3 in Go, here over a directory."""

    def command(self) -> list[str]:
        (self.folder / "buckets").mkdir()
        address = f"127.0.0.1:{self.port}"
        options = ["--port", address, "--access", USER, "--secret", SECRET, "--iam-dir"]
        (self.folder / "users").mkdir()
        gateway = [program("versitygw"), *options, os.fspath(self.folder / "users")]
        return [*gateway, "posix", os.fspath(self.folder / "buckets")]

    def make_bucket(self) -> None:
        (self.folder / "buckets" / BUCKET).mkdir()


class Azurite(Server):
    """azurite: Azure's own emulator, in JavaScript."""

    scheme = "az"

    def command(self) -> list[str]:
        azurite = program("azurite/node_modules/.bin/azurite-blob", "azurite-blob")
        address = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        return [azurite, *address, "--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]

    def variables(self) -> dict[str, str]:
        return {"AZURITE_ACCOUNTS": f"{USER}:{VARIABLES['AZURE_STORAGE_ACCOUNT_KEY']}"}

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{USER}"

    def make_bucket(self) -> None:
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": date, "x-ms-version": "2023-11-03", "Content-Length": "0"}
        stamps = f"x-ms-date:{date}\nx-ms-version:2023-11-03"
        signed = f"PUT{12 * chr(10)}{stamps}\n/{USER}/{USER}/{BUCKET}\nrestype:container"
        digest = hmac.digest(SECRET.encode(), signed.encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {USER}:{base64.b64encode(digest).decode()}"
        self._ask("PUT", f"/{USER}/{BUCKET}?restype=container", headers)


class Peer(Server):
    """falaj-server with a place, as it would run on another machine."""

    scheme = "http"

    def __init__(self, folder: Path, *flags: str, host: str = "127.0.0.1") -> None:
        self.flags, self.host = flags, host
        super().__init__(folder)

    def command(self) -> list[str]:
        server = os.path.abspath(
            os.environ.get("FALAJ_SERVER") or program("falaj-server", target="build-server")
        )
        place = ["--place", os.fspath(self.folder / "place"), *self.flags]
        address = f"{self.host}:{self.port}"
        return [server, os.fspath(self.folder / "store"), "--http", address, *place]

    def make_bucket(self) -> None:
        """Wait until it serves: it listens before it has a token."""
        until = time.monotonic() + PATIENCE_S
        while "http http" not in self.said.read_text():
            assert self.process.poll() is None, self.said.read_text()
            assert time.monotonic() < until
            time.sleep(0.02)  # sleep: another program writes a line when it serves

    @property
    def token(self) -> str:
        """Its own token."""
        return (self.folder / "store" / "server" / "token").read_text()

    @property
    def endpoint(self) -> str:
        """Its URL."""
        has_tls = "--tls-certificate" in self.flags
        return f"http{'s' * has_tls}://{self.host}:{self.port}"

    def open(self, prefix: str = "", **options: Any) -> Place:
        """Open its place, or a folder of it, with its token."""
        return open_place(f"{self.endpoint}/{prefix}", **{"token": self.token, **options})


class S3sFs(Server):
    """s3s-fs: a server of S3 in Rust over a directory, which is no place; see docs/PLACE.md."""

    def command(self) -> list[str]:
        (self.folder / "buckets" / BUCKET).mkdir(parents=True)
        options = ["--host", "127.0.0.1", "--port", f"{self.port}"]
        keys = ["--access-key", USER, "--secret-key", SECRET]
        return [program("s3s/bin/s3s-fs", "s3s-fs"), *options, *keys, f"{self.folder / 'buckets'}"]

    def make_bucket(self) -> None:
        pass  # it is a directory


BUCKETS: dict[str, type[Server]] = {
    "moto": Moto,
    "versitygw": VersityGateway,
    "azurite": Azurite,
}
"""The servers of buckets that keep the promise of a place."""
SERVERS: dict[str, type[Server]] = {**BUCKETS, "peer": Peer}
"""All servers that keep it."""
UNFIT: dict[str, type[Server]] = {"s3s-fs": S3sFs}
"""Servers that do not: the probe must refuse them."""
