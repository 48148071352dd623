"""Spark's errors in the words of falaj: one sentence, without Java and without plans.

Owns which errors of Spark become falaj's own, and how sentences name the settings of a pipeline in
place of the connector's options. Schemas of a user are read here too, because a wrong one is such
an error. All others pass as they are.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import ArrayType, StructType

from falaj import errors
from falaj.errors import Error, InvalidArgument
from falaj.spark.reading.loss import BATCH_CHOICES, STREAM_CHOICES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

__all__ = ["QUOTES", "expect_distinct", "in_our_words", "sentence", "struct_of"]


def sentence(error: Exception) -> str:
    r"""Cut the sentence out of an error of Spark's: without its name, its state and its plan.

    Example:
        >>> sentence(Exception("[UNRESOLVED] There is no `x`. SQLSTATE: 42703; line 1;\n'Project"))
        'There is no `x`'
    """
    first = str(error).strip().partition("\n")[0]
    bare = re.sub(r"^\[[\w.]+\] ", "", first)
    return re.split(r"\s*SQLSTATE: ", bare)[0].rstrip(" .;")


def struct_of(schema: str) -> StructType:
    """Read types as Spark writes them, `id BIGINT, name STRING`; needs a session.

    Raises:
        InvalidArgument: The text has another form.
    """
    try:
        found: DataType = StructType.fromDDL(schema)
    except (PySparkException, Py4JError) as error:
        raise InvalidArgument(
            f"schema is written as 'id BIGINT, name STRING', not {schema!r}: "
            f"{sentence(error)}{_position(str(error), schema)}"
        ) from None
    if not isinstance(found, StructType):
        kind = found.simpleString()
        raise InvalidArgument(
            f"schema is written as 'id BIGINT, name STRING', not {schema!r}: it is the type {kind} "
            "alone, so name it"
        )
    return found


def _position(said: str, schema: str) -> str:
    """Say where a schema is wrong; Spark may have read it with words of its own around it."""
    place = re.search(r"\(line (\d+), pos (\d+)\)", said)
    read = re.search(r"^== SQL ==\n(.*)", said, re.MULTILINE)
    if place is None or read is None or schema.splitlines()[0] not in read[1]:
        return ""
    at = int(place[2])
    if place[1] == "1":
        at -= read[1].index(schema.splitlines()[0])
    return f" (line {place[1]}, column {max(at, 0) + 1})"


def expect_distinct(spark: SparkSession, kind: DataType, where: str = "value") -> None:
    """Refuse members of JSON that Spark does not tell apart: then it reads none of them.

    Args:
        spark: The session, which says whether case matters.
        kind: The type.
        where: The owner of the type, for the message.

    Raises:
        InvalidArgument: Two members of one struct differ in case only.
    """
    alike = _alike(kind, where)
    if alike is None or spark.conf.get("spark.sql.caseSensitive") == "true":
        return
    owner, one, other = alike
    raise InvalidArgument(
        f"{owner} has the fields {one} and {other}, which Spark does not tell apart: leave one away"
    )


def _alike(kind: DataType, where: str) -> tuple[str, str, str] | None:
    """Find two members of a struct whose names differ in case only, and where it is."""
    if isinstance(kind, ArrayType):
        return _alike(kind.elementType, f"{where}[]")
    if not isinstance(kind, StructType):
        return None
    known: dict[str, str] = {}
    for part in kind.fields:
        other = known.setdefault(part.name.lower(), part.name)
        if other != part.name:
            return where, other, part.name
        if (inner := _alike(part.dataType, f"{where}.{part.name}")) is not None:
            return inner
    return None


# --- Errors while Spark works ---------------------------------------------------------------------

_OURS = re.compile(r"^(?:.*\b)?falaj\.errors\.([A-Z]\w+): (.+)$", re.MULTILINE)
_SPOKEN = {
    "read it with .option('values', 'binary'), or leave such records out": "leave such records out",
    ".option('onCorrupt', 'skip')": 'on_corrupt="skip", where the pipeline takes it',
    ".option('mode', 'DROPMALFORMED')": 'on_bad="skip", where the pipeline takes it',
    STREAM_CHOICES: (
        "begin a new job with another checkpoint, or let it go on from what is there with "
        'on_loss="continue"'
    ),
    BATCH_CHOICES: (
        "run it again, or let it go on from what is there with "
        'on_loss="continue", where the pipeline takes it'
    ),
}
"""How the connector names what to do, and how a pipeline does."""


QUOTES = (
    "write a quote in a value twice, or give options with multiLine 'true' for values of several "
    "lines, or escape '\\' for backslashes"
)
"""Advice where quotes of CSV do not match."""
_UNREAD = re.compile(
    r"\[FAILED_READ_FILE[\w.]*\] Encountered error while reading file (.+?)\.\s+SQLSTATE"
)
_CAUSE = re.compile(
    r"^Caused by: [\w.$]+: (.+?)(?=\n\s+(?:at |\.\.\.)|\Z)", re.MULTILINE | re.DOTALL
)


def _unread(said: str) -> str | None:
    r"""Make a sentence of Spark's report of a file that it cannot read; None if it is another.

    Example:
        >>> said = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a.gz.  "
        >>> _unread(said + "SQLSTATE: KD001\n\tat x\nCaused by: java.io.EOFException: Ends\n\tat x")
        '/a.gz cannot be read: Ends: mend the file, or leave it out'
    """
    file = _UNREAD.search(said)
    path = "one of the files" if file is None else re.sub("^file:/*", "/", file[1])
    if "TextParsingException: Unescaped quote character" in said:
        return f"{path} has a quote that does not match: {QUOTES}"
    if file is None:
        return None
    causes = _CAUSE.findall(said)
    why = " ".join(causes[-1].split()).rstrip(".") if causes else "Spark does not say why"
    return f"{path} cannot be read: {why}: mend the file, or leave it out"


_CLASS = re.compile(
    r"\[([A-Z][A-Z_]+(?:\.[A-Z_]+)*)\] (.+?)\s*SQLSTATE: (?:22|42|0A|P0)\w{3}", re.DOTALL
)
"""An error class of Spark's about values or SQL, as its SQLSTATE says: of a user, not a machine."""
_JAVA = re.compile(
    r"java\.(?:lang\.NumberFormat|lang\.Arithmetic|time\.DateTime)Exception: ([^\n]+)"
)
_WRAPPED = ("STREAM_FAILED", "FOREACH_", "TASK_WRITE_FAILED", "PYTHON_EXCEPTION", "FAILED_EXECUTE")
_CALLED = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers on which PySpark writes each error that SQL meets, as JSON with all of Java's stack."""


def _uncomputed(said: str) -> str | None:
    r"""Make a sentence of an error that SQL of the user met; None if it is another error.

    Example:
        >>> said = "[STREAM_FAILED] Query terminated: [DIVIDE_BY_ZERO] Division by zero. Use"
        >>> _uncomputed(said + " `try_divide`. SQLSTATE: 22012\n\tat x")
        'Spark cannot compute it: DIVIDE_BY_ZERO: Division by zero. Use `try_divide`'
    """
    found = []
    for each in re.split(r"(?=\[[A-Z][A-Z_]+(?:\.[A-Z_]+)*\] )", said):
        match = _CLASS.match(each)
        if match is not None and not match[1].startswith(_WRAPPED):
            found.append(f"{match[1]}: {' '.join(match[2].split())}")
    found = found or [" ".join(each.split()) for each in _JAVA.findall(said)]
    return f"Spark cannot compute it: {found[-1].rstrip(' .;')}" if found else None


@contextmanager
def _without_context() -> Iterator[None]:
    """Silence the loggers on which PySpark repeats errors that are raised."""
    loggers = [logging.getLogger(name) for name in _CALLED]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


@contextmanager
def in_our_words() -> Iterator[None]:
    """Raise falaj's error in place of the one that Spark made of it.

    Raises:
        Error: It is the one that Spark had wrapped.
        InvalidArgument: Spark could not read a file, or could not compute SQL of the user.
    """
    try:
        with _without_context():
            yield
    except Error:
        raise
    except (PySparkException, Py4JError) as error:
        found = _OURS.findall(str(error))
        if not found:
            # Spark refuses a plan in a sentence of its own; other errors come at a record.
            is_plan = isinstance(error, AnalysisException)
            ours = _unread(str(error)) or (None if is_plan else _uncomputed(str(error)))
            if ours is None:
                raise
            raise InvalidArgument(ours) from error
        name, sentence = found[-1]
        kind = getattr(errors, name, Error)
        for theirs, spoken in _SPOKEN.items():
            sentence = sentence.replace(theirs, spoken)
        raise kind(sentence.strip()) from error
