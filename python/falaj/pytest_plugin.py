"""A pytest fixture: a store of its own for each test. pytest finds it by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from falaj._store import Store

__all__ = ["falaj_store"]


@pytest.fixture
def falaj_store(tmp_path: Path) -> Iterator[Store]:
    """Open a new store in the test's own directory; it is closed after the test."""
    from falaj._store import open as open_store  # here, so that other test suites don't load it

    with open_store(tmp_path / "falaj") as store:
        yield store
