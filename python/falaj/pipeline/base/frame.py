"""Common parts of all pipelines: configs that check themselves, results, and progress.

Owns the base classes `Config` and `Result`, the protocol `Progress`, and `watched`. Spark's jobs
that run under `watched` report their progress, and raise falaj's own errors. A pipeline is a
function `verb(spark, config, *, progress=None) -> result` in a module of its own. It knows neither
the program `falaj` nor how anything is shown.
"""

from __future__ import annotations

import difflib
import os
import threading
import types
import uuid
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import date, datetime
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Protocol,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pyspark.errors import PySparkException

from falaj._paths import is_place, local_path, scheme_of
from falaj.errors import InvalidArgument
from falaj.pipeline.base.spoken import in_our_words, sentence, struct_of
from falaj.spark import stores
from falaj.spark.reading.ranges import open_raw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = [
    "SILENT",
    "Config",
    "Progress",
    "Result",
    "cores",
    "sentence",
    "struct_of",
    "watched",
]


class Progress(Protocol):
    """A listener that learns how far a pipeline is; other threads may call it.

    A pipeline works in parts, and `say` begins one. `total` sets how many steps the part has; a
    pipeline calls it again when that number changes. `advance` reports that more steps are done.
    """

    def say(self, text: str) -> None:
        """Begin a part of the work, which a few words name."""

    def total(self, steps: int) -> None:
        """Set how many steps this part of the work has in all."""

    def advance(self, steps: int) -> None:
        """Report that so many more steps are done."""


class _Silent:
    def say(self, text: str) -> None:
        """Do nothing."""

    def total(self, steps: int) -> None:
        """Do nothing."""

    def advance(self, steps: int) -> None:
        """Do nothing."""


SILENT: Progress = _Silent()
"""The progress of a caller that does not ask for one."""


_READ_BY_SPARK = "source of import and table of join"


# --- Configs -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a pipeline. Each pipeline has a subclass, which checks its own fields.

    A subclass is a frozen dataclass with keywords only. Its `__post_init__` calls this one first.
    This class checks values against the annotations, so these must be importable at run time.

    Attributes:
        store: Directory of the store; the executors must see it under the same path. Pipelines that
            only read also take the URL of a place.
    """

    paths: ClassVar[tuple[str, ...]] = ("store",)
    """Fields that are paths on this machine: made absolute, because executors may run elsewhere."""
    urls: ClassVar[tuple[str, ...]] = ()
    """Fields that Spark alone reads, and that may be URLs of any scheme it knows."""
    only_reads: ClassVar[bool] = False
    """Whether `store` may be a place, which is only read."""

    store: Path | str

    def __post_init__(self) -> None:
        """Check the types, and make paths absolute.

        Raises:
            InvalidArgument: A value has another type than its field, a path is a URL that is
                refused, or `end` lies before `start`.
        """
        kinds = get_type_hints(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            if not _fits(value, kinds[field.name]):
                raise InvalidArgument(
                    f"{field.name} is {_words(kinds[field.name])}, not {_shown(value)}"
                )
            if value is not None and field.name in (*self.paths, *self.urls):
                object.__setattr__(self, field.name, self._place(field.name, value))
        start, end = getattr(self, "start", None), getattr(self, "end", None)
        if isinstance(start, int) and isinstance(end, int) and end < start:
            raise InvalidArgument(
                f"start={start} lies behind end={end}, so nothing would be read: give an end from "
                f"{start} on, or none"
            )

    @classmethod
    def _place(cls, name: str, given: Path | str) -> Path | str:
        """Make a path absolute; leave a URL as it is where Spark reads it."""
        if name in cls.urls and isinstance(given, str) and scheme_of(given) not in (None, "file"):
            return given
        if name == "store" and cls.only_reads and isinstance(given, str) and is_place(given):
            return given
        instead = f"Only {_READ_BY_SPARK} may be URLs that Spark reads"
        return Path(os.path.abspath(local_path(given, name, instead)))

    def expect(self) -> None:
        """Check the config against the store and the files, as far as that needs no Spark.

        Raises:
            Error: The store, a topic, a folder or a file does not exist, or is of another kind.
        """
        if (topic := getattr(self, "topic", None)) is not None:
            with stores.opened(self.store, getattr(self, "origin", None)) as store:
                open_raw(store, topic).close()

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """Make a config from names and values, as a TOML file has them.

        Args:
            given: Values by the names of the fields; `-` in a name stands for `_`. Lists stand for
                tuples.

        Returns:
            The config.

        Raises:
            InvalidArgument: A name is unknown or missing, or a value is not allowed.
        """
        known = {field.name: field for field in fields(cls)}
        named = {name.replace("-", "_"): value for name, value in given.items()}
        for name in named:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}? " if near else ""
                raise InvalidArgument(f"there is no {name!r}: {hint}There are {', '.join(known)}")
        for name, field in known.items():
            if field.default is MISSING and field.default_factory is MISSING and name not in named:
                raise InvalidArgument(f"{name} is missing: it has to be given")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in named.items()
        }
        return cls(**values)


def _fits(value: object, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(one, inner[0]) for one in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(_fits(one, inner[1]) for one in value.values())
    if kind in (int, float):
        numbers = (int, float) if kind is float else int
        return isinstance(value, numbers) and not isinstance(value, bool)
    if kind in (None, types.NoneType):
        return value is None
    return kind is Any or isinstance(value, kind)


_WORDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
    datetime: "a time",
    date: "a date",
}


def _words(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        given = [one for one in inner if one is not types.NoneType]
        if Path in given:
            given = [one for one in given if one is not str]
        return " or ".join(map(_words, given))
    if origin is Literal:
        return " or ".join(f'"{one}"' for one in inner)
    if origin is tuple:
        return f"a list, each {_words(inner[0])}"
    if origin in (dict, Mapping):
        return "a table of names and values"
    return _WORDS.get(kind, str(kind))


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


# --- Results -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a pipeline; each has a subclass with more.

    Attributes:
        records: How many records it is about.
        bytes: How many bytes; the subclass says which.
        seconds: How long it took, without the start of Spark.
    """

    records: int
    bytes: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON can hold them: paths as text, times in ISO format."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def rows(self) -> list[tuple[str, str]]:
        """Tell it to people, as names and values below each other."""
        return [
            ("records", f"{self.records:,}"),
            ("bytes", f"{self.bytes:,}"),
            ("seconds", f"{self.seconds:.1f}"),
        ]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Path) else value


# --- Spark's jobs --------------------------------------------------------------------------------

_LOOK_S = 0.2
_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@contextmanager
def watched(spark: SparkSession, progress: Progress | None, text: str) -> Iterator[None]:
    """Run Spark's jobs, report their tasks as steps, and raise their failures as falaj's errors.

    It counts the jobs that this thread starts in the body. A streaming query has a thread of its
    own, so its jobs do not count. In a session of Spark Connect the steps stay unknown.

    Args:
        spark: The session.
        progress: Learns how far it is; or None.
        text: A few words about the work; Spark's own page shows them, too.

    Raises:
        Error: A job failed with one of falaj's errors, which Spark had wrapped in its own.
        InvalidArgument: Spark could not compute SQL of the user, as a division by zero.
    """
    if progress is not None:
        progress.say(text)
    context = _context(spark)
    with in_our_words():
        if context is None:
            yield
            return
        group, stop = f"falaj-{uuid.uuid4().hex}", threading.Event()
        before = {name: context.getLocalProperty(name) for name in _PROPERTIES}
        context.setJobGroup(group, text)
        watcher = _Watcher(context, group, progress, stop)
        watcher.start()
        try:
            yield
            watcher.complete = True
        finally:
            stop.set()
            watcher.join()
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None: away


def _context(spark: SparkSession) -> SparkContext | None:
    try:
        return spark.sparkContext
    except PySparkException:  # Spark Connect has none
        return None


def cores(spark: SparkSession) -> int:
    """Return how many tasks run at a time."""
    context = _context(spark)
    return len(os.sched_getaffinity(0)) if context is None else context.defaultParallelism


class _Watcher(threading.Thread):
    """Tells of tasks until it is enough, and then once more."""

    def __init__(
        self,
        context: SparkContext,
        group: str,
        progress: Progress | None,
        stop: threading.Event,
    ) -> None:
        super().__init__(daemon=True)
        self.complete = False
        self._context = context
        self._group = group
        self._progress = progress
        self._enough = stop
        self._total = self._done = 0

    def run(self) -> None:
        """Look at Spark's own count from time to time."""
        while self._progress is not None and not self._enough.wait(_LOOK_S):
            self._tell(*_tasks(self._context, self._group))
        if self._progress is not None:
            done, total = _tasks(self._context, self._group)
            # Spark counts a moment after the work is done.
            self._tell(total if self.complete else done, total)

    def _tell(self, done: int, total: int) -> None:
        assert self._progress is not None
        if total != self._total:
            self._progress.total(total)
        if done > self._done:
            self._progress.advance(done - self._done)
        self._total, self._done = total, max(done, self._done)


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    """Count the finished tasks, and all tasks that are known so far, of a job group."""
    tracker = context.statusTracker()
    done = total = 0
    for number in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(number)
        stages = [tracker.getStageInfo(stage) for stage in (job.stageIds if job else ())]
        completed = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        tasks = sum(stage.numTasks for stage in stages if stage is not None)
        done += completed
        # A stage is never run if its result was there.
        total += completed if job is not None and job.status == "SUCCEEDED" else tasks
    return done, total
