"""Places for the tests: in memory, in a directory, and later each server."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from falaj.ship.place import Place, open_place

_NUMBERS = count()


@pytest.fixture(params=["memory", "directory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Open an empty place of each kind that needs no server."""
    if request.param == "memory":
        yield open_place(f"memory://{next(_NUMBERS)}")
    else:
        yield open_place(tmp_path / "place")
