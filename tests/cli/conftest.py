"""Fixtures for the tests of the program."""

from pathlib import Path

import pytest

from cli.shell import Shell


@pytest.fixture
def falaj(tmp_path: Path) -> Shell:
    """The program, run in an empty directory."""
    return Shell(tmp_path)
