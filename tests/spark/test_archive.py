"""The archive of Spark's classes: it is used where it fits, and its absence is no trouble."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from falaj.errors import InvalidArgument
from falaj.spark import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.proof
def test_a_session_has_the_archive_of_its_environment_open(spark: SparkSession) -> None:
    made = archive.path()
    assert made.exists(), "`make proof-outside` makes it"
    gateway = spark.sparkContext._gateway
    assert gateway
    assert str(made) in Path(f"/proc/{gateway.proc.pid}/maps").read_text()
    assert list(made.parent.iterdir()) == [made], "nothing half made lies beside it"


def test_only_an_archive_that_is_there_and_can_be_named_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, named in [("plain", True), ("two words", False), ('a"quote', False)]:
        monkeypatch.setattr(sys, "prefix", str(tmp_path / folder))
        assert archive.flags() == "-Xshare:auto", "there is none yet"
        there = archive.path()
        there.parent.mkdir(parents=True)
        there.touch()
        assert (f"-XX:SharedArchiveFile={there} " in archive.flags()) == named, folder


def test_none_is_made_where_it_could_not_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "two words"))
    with pytest.raises(InvalidArgument, match=r"two words.*another folder"):
        archive.make()
    assert not (tmp_path / "two words").exists()


def test_another_java_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive.path()
    other = tmp_path / "bin" / "java"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    other.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive.path().parent == before.parent
    assert archive.path() != before


def test_an_archive_that_java_cannot_use_is_passed_over_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    there = archive.path()
    there.parent.mkdir(parents=True)
    there.write_bytes(b"no archive" * 1_000)
    command = [str(archive._java()), *archive.flags().split(), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "cds" not in done.stderr


def test_where_no_archive_can_be_kept_the_error_names_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "share").write_text("a file in the way")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(OSError, match="share"):
        archive.make()
