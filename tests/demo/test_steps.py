"""The commands that the demo prints at its end: a shell finds them, however the demo was called."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import falaj
from falaj.demo import steps, submit
from falaj.demo.stream import TOPIC

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a store with the topics of the commands."""
    path = tmp_path / "a store"
    with falaj.open(path) as made:
        for topic in (TOPIC, submit.SUMMARY):
            made.topic(topic).append(b"N14228")
    return path


def _environment(path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None) -> None:
    """Make an environment with its own Python, and perhaps the program."""
    path.mkdir(parents=True)
    (path / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(path / "python"))
    if program is not None:
        (path / "falaj").write_text(f'#!/bin/sh\nexec {program} -m falaj "$@"\n')
        (path / "falaj").chmod(0o755)


def _run(commands: list[str], path: str) -> None:
    for command in commands:
        ran = subprocess.run(
            ["/bin/sh", "-c", command],
            env={"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, (command, ran.stderr)
        assert ran.stdout


@pytest.mark.parametrize(("looks", "called"), [("{}:/bin", "falaj"), ("/bin", ".venv/bin/falaj")])
def test_by_its_name_where_the_shell_finds_it_and_else_with_its_path(
    looks: str, called: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An activated environment, and the one of `make demo`, which is not activated."""
    path = looks.format(tmp_path / ".venv/bin")
    _environment(tmp_path / ".venv/bin", monkeypatch, sys.executable)
    monkeypatch.setenv("PATH", path)
    monkeypatch.chdir(tmp_path)
    commands = steps.explore(store)
    assert commands[0] == f"{called} topic list -s '{store}'"
    _run(commands, path)


def test_with_its_path_where_another_would_be_found(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that has the program of another environment."""
    python = sys.executable
    _environment(tmp_path / "other", monkeypatch, "false")
    _environment(tmp_path / "this one", monkeypatch, python)
    monkeypatch.setenv("PATH", f"{tmp_path / 'other'}:/usr/bin:/bin")
    _run(steps.explore(store), f"{tmp_path / 'other'}:/usr/bin:/bin")


def test_as_a_module_where_there_is_no_program(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter that has the package, but not its script."""
    python = sys.executable
    _environment(tmp_path / "bare", monkeypatch, None)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    commands = steps.explore(store)
    assert commands[0].startswith(f"{tmp_path / 'bare/python'} -m falaj topic list ")
    _run([command.replace(str(tmp_path / "bare/python"), python) for command in commands], "/bin")
