"""A place in memory, where there is one: stores by the hundred sync by the thousand."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of the test's own that every user may enter."""
    # Who names a place for what is temporary gets it there.
    in_memory = "TMPDIR" not in os.environ and MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    made = Path(tempfile.mkdtemp(prefix="falaj-", dir=MEMORY if in_memory else None))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def path(place: Path) -> Path:
    """Name a directory in which no store is yet."""
    return place / "store"
