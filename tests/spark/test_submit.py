"""`spark-submit` with a `python3` on PATH that has no falaj: where the source is found, and how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import falaj
from falaj.spark import java
from spark import drivers

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM = """
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def read(how):
    reader = spark.read.format("falaj").options(store=sys.argv[1], subscribe="t")
    try:
        print(how, reader.load().count())
    except Exception as error:
        print(how, "DATA_SOURCE_NOT_FOUND" in str(error))


read("found")
if sys.argv[2:]:
    from falaj.spark.source import FalajSource

    spark.dataSource.register(FalajSource)
    read("registered")
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """PATH begins with a `python3` that knows nothing of this environment."""
    bare = tmp_path / "bin" / "python3"
    bare.parent.mkdir()
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    given = {**os.environ, "PATH": f"{bare.parent}{os.pathsep}{os.environ['PATH']}"}
    if home := java.home():
        given["JAVA_HOME"] = str(home)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        given.pop(name, None)
    return given | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(drivers.ON_PATH)}


def submit(folder: Path, environment: Mapping[str, str], *words: str) -> list[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    command = [str(Path(pyspark.__file__).parent / "bin/spark-submit"), "--master", "local[1]"]
    command += ["--conf", "spark.ui.enabled=false"]
    command += ["--conf", f"spark.pyspark.python={sys.executable}"]
    done = subprocess.run(
        [*command, str(program), str(folder / "s"), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.release
@pytest.mark.timeout(400)
def test_the_setting_spark_pyspark_python_alone_does_not_let_spark_find_the_source_but_these_do(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with falaj.open(tmp_path / "s") as store:
        store.topic("t").append(b"x")
    # Where this changes, Spark asks the Python of the setting: say so in the guide.
    assert submit(tmp_path, environment, "register") == ["found True", "registered 1"]
    environment["PYSPARK_PYTHON"] = sys.executable
    assert submit(tmp_path, environment) == ["found 1"]
