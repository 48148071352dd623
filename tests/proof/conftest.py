"""A directory in memory, if possible: hundreds of stores sync thousands of times."""

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
    # A user who names a directory for temporary files gets it there.
    in_memory = "TMPDIR" not in os.environ and MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    made = Path(tempfile.mkdtemp(prefix="falaj-", dir=MEMORY if in_memory else None))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def path(place: Path) -> Path:
    """Return a directory without a store."""
    return place / "store"
