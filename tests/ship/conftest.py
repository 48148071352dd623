"""Places for the tests: in memory, in a directory, and in a bucket of each server."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from falaj.ship.place import Place, open_place
from ship.servers import BUCKETS, SERVERS, UNFIT, VARIABLES, NotHere, Server

_NUMBERS = count()

Started = Callable[[str], Server]


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Start a server by its name, once for all tests; the test is skipped where it is not here."""
    running = dict[str, Server | NotHere]()

    def start(name: str) -> Server:
        if name not in running:
            try:
                running[name] = (SERVERS | UNFIT)[name](tmp_path_factory.mktemp(name))
            except NotHere as missing:
                running[name] = missing
        found = running[name]
        if isinstance(found, NotHere):
            pytest.skip(str(found))
        return found

    with pytest.MonkeyPatch.context() as patched:
        for name in os.environ.keys() & {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"}:
            patched.delenv(name)
        for name, value in VARIABLES.items():
            patched.setenv(name, value)
        yield start
    for server in running.values():
        if isinstance(server, Server):
            server.stop()


@pytest.fixture(params=BUCKETS)
def server(request: pytest.FixtureRequest, started: Started) -> Server:
    """Give each server of buckets that keeps the promise of a place."""
    return started(request.param)


@pytest.fixture(params=["memory", "directory", *SERVERS])
def place(request: pytest.FixtureRequest, tmp_path: Path, started: Started) -> Place:
    """Open an empty place of each kind."""
    number = next(_NUMBERS)
    if request.param == "memory":
        return open_place(f"memory://{number}")
    if request.param == "directory":
        return open_place(tmp_path / "place")
    return started(request.param).open(f"tests/{number}")
