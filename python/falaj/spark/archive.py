"""An archive of Spark's Java classes, read and checked once for all sessions of an environment.

A session spends two fifths of its start on classes that are the same each time. Java can keep them
in an archive (JEP 350, dynamic archives). `falaj.spark.session.local` uses the archive if it
exists. Owns where the archive is, and how to make it.

Invariant: an archive of another Java or Spark has another name, so no session uses it. Java checks
the archive itself, too, and starts without it if it does not fit.

`python -m falaj.spark.archive` makes it.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from falaj.errors import InvalidArgument, MissingExtra
from falaj.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["flags", "make", "path"]

_QUIET = "-Xlog:cds*=off"  # or Java says on standard output which classes it leaves out


def path() -> Path:
    """Return the path of the archive for the Java and Spark of this environment.

    Returns:
        A file below `sys.prefix`, which may not exist. Its name depends on the Java, the Spark, and
        the paths of both.

    Raises:
        MissingExtra: There is no Java, or the extra `spark` is not installed.
    """
    home = _pyspark()
    executable = _java()
    parts = [executable.resolve(), executable.stat().st_mtime_ns, home]
    # Java compares names and times of all jars; so does the name, for those that were changed.
    parts += sorted((jar.name, jar.stat().st_mtime_ns) for jar in (home / "jars").iterdir())
    mark = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    return Path(sys.prefix, "share", "falaj", f"spark-{mark}.jsa")


def flags() -> str:
    """Return the flags by which a Java that runs Spark uses the archive.

    Returns:
        Flags of the JVM; none if there is no archive. They are for `spark.driver.extraJavaOptions`,
        `spark.executor.extraJavaOptions` or `SPARK_DAEMON_JAVA_OPTS`.

    Raises:
        MissingExtra: There is no Java, or the extra `spark` is not installed.
    """
    archive = path()
    usable = archive.is_file() and _can_be_named(archive)
    return f"-Xshare:auto -XX:SharedArchiveFile={archive} {_QUIET}" if usable else "-Xshare:auto"


def make() -> Path:
    """Make the archive with a session that reads and writes a topic; remove older archives.

    It takes about a minute of a processor, and 175 MB in the environment. Other sessions may run
    meanwhile; those that have an older archive open keep it.

    Returns:
        Its path.

    Raises:
        MissingExtra: There is no Java, or the extra `spark` is not installed.
        InvalidArgument: The path of the environment cannot be in an option of Java.
        OSError: The environment cannot be written.
        RuntimeError: The session failed; standard error says why.
    """
    archive = path()
    if not _can_be_named(archive):
        raise InvalidArgument(
            f"{archive} has white space, quotes or backslashes, and cannot stand among Java's "
            "options: use an environment in another folder"
        )
    archive.parent.mkdir(parents=True, exist_ok=True)
    aside = archive.with_suffix(f".{os.getpid()}")
    try:
        # A process of its own: Java writes when it ends, and this one may have a session.
        child = multiprocessing.get_context("spawn").Process(target=_fill, args=(str(aside),))
        child.start()
        child.join()
        if child.exitcode or not aside.is_file():
            raise RuntimeError(f"no archive of Spark's classes was made at {aside}")
        aside.replace(archive)
        for old in set(archive.parent.glob("spark-*.jsa")) - {archive}:
            old.unlink(missing_ok=True)
    finally:
        aside.unlink(missing_ok=True)
    return archive


def _can_be_named(archive: Path) -> bool:
    """Tell whether Spark keeps the path whole; it splits options as a shell does."""
    return not any(char.isspace() or char in "\"'\\" for char in str(archive))


def _pyspark() -> Path:
    try:
        import pyspark
    except ImportError:
        raise MissingExtra("this needs PySpark: pip install 'falaj[spark]'") from None
    return Path(pyspark.__file__).parent


def _java() -> Path:
    home = java.home() or os.environ.get("JAVA_HOME")
    found = Path(home, "bin", "java") if home else shutil.which("java")
    assert found, "java.home() refuses where there is none"
    return Path(found)


def _fill(aside: str) -> None:
    """Run a session whose Java stores its classes; return when Java has ended."""
    import tempfile

    from falaj.spark import session

    os.dup2(2, 1)  # what Java says is no answer of this program
    options = f"{session.LIGHT} -XX:ArchiveClassesAtExit={aside} {_QUIET}"
    spark = session.local("archive", cores=2, spark_driver_extraJavaOptions=options)
    gateway = spark.sparkContext._gateway
    assert gateway, "a session of this machine has one"
    try:
        with tempfile.TemporaryDirectory(prefix="falaj-archive-") as place:
            _use(spark, Path(place))
        spark.stop()
    finally:
        # Java writes at its end, which it comes to by itself, later.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def _use(spark: SparkSession, place: Path) -> None:
    """Do a bit of everything that sessions do; the archive gets the classes that this needs."""
    import falaj

    store = str(place / "store")
    with falaj.open(store) as opened:
        opened.topic("in").extend([b"1", b"2", b"3"])
    into = {"store": store, "topic": "out", "partitions": "1"}
    records = spark.read.format("falaj").options(store=store, subscribe="in").load()
    told = records.selectExpr("key", "value", "value = '2' AS even")
    told.groupBy("even").count().orderBy("count").collect()
    same = told.select("value").mapInArrow(lambda batches: batches, "value BINARY")
    same.write.format("falaj").mode("append").options(**into).save()
    stream = spark.readStream.format("falaj").options(store=store, subscribe="in")
    values = stream.option("startingOffsets", "earliest").load().select("value")
    query = values.writeStream.format("falaj").options(**into)
    query = query.option("checkpointLocation", str(place / "point")).trigger(availableNow=True)
    query.start().awaitTermination()


if __name__ == "__main__":
    sys.stdout.write(f"{make()}\n")
