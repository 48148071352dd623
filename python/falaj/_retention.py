"""Retention: the arguments of `configure`, and the result of `Store.maintain`.

Owns how a limit is given in Python and passed to the engine: an age is seconds or a timedelta, and
is passed as milliseconds. A missing limit stays as it is, and None lifts it.
docs/guide/retention.md explains the limits.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from falaj._checks import mapping, text
from falaj._numbers import plain
from falaj._time import Duration, seconds
from falaj.errors import InvalidArgument, named, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "Changes",
    "Cut",
    "LogMaintenance",
    "Maintenance",
    "TopicRetention",
    "changes",
    "refuse_others",
    "texts",
]

Changes = dict[str, int | bool | None]

_LIMITS = {"retention_bytes": "bytes", "retention_records": "records"}
_FLAGS = {"retention_waits": "waits", "retention_protected": "protected"}
_MILLISECOND = timedelta(milliseconds=1)
_MOST = 2**63 - 1


class TopicRetention(TypedDict):
    """The stored limits of a topic; None means no limit, the age is in milliseconds."""

    bytes: int | None
    age_ms: int | None
    records: int | None
    waits: bool
    protected: bool


class Cut(TypedDict):
    """A partition with a new start `first`; `wanted` is the start if no group needed more.

    `needed` counts the records that stay for that reason.
    """

    topic: str
    partition: int
    first_before: int
    first: int
    limit: Literal["bytes", "age", "records", "store"]
    wanted: int
    needed: int


class LogMaintenance(TypedDict):
    """The deletions in a log: files and their bytes; `problem` says why some work was not done.

    `error_class` is the name of its class in `falaj.errors`.
    """

    name: str
    path: str
    topics: list[str]
    cuts: list[Cut]
    segments: int
    bytes: int
    problem: str | None
    error_class: str | None


class Maintenance(TypedDict):
    """The maintenance of a store, planned or done; `bytes` is the size of all its logs.

    `problems` lists errors in topics' settings and in files of consumer groups and queues.
    `error_classes` names the class of each in `falaj.errors`.
    """

    dry_run: bool
    retention_bytes: int | None
    bytes: int
    logs: list[LogMaintenance]
    problems: list[str]
    error_classes: list[str]


def check_names(given: Iterable[str], verb: str) -> None:
    """Refuse keyword arguments that are no settings.

    Raises:
        TypeError: There is no such setting.
    """
    for name in given:
        if name not in _LIMITS and name not in _FLAGS and name != "retention_age":
            raise TypeError(f"{verb} has no setting {name!r}{_meant(name, verb)}")


def _meant(name: str, verb: str) -> str:
    """Name the setting that a mistyped one is most like, for the end of a sentence."""
    settings = [*_LIMITS, *_FLAGS, "retention_age"]
    if verb == "topic()":
        settings += ["codec", "log", "partitions", "segment_bytes", "sync", "sync_interval_ms"]
        settings += ["verify", "visibility", "create"]
    return _nearest(name, settings)


def _nearest(name: str, settings: Sequence[str]) -> str:
    import difflib  # a mistake needs it alone

    near = difflib.get_close_matches(name, settings, 1)
    return f": did you mean {near[0]!r}?" if near else f"; it has {', '.join(sorted(settings))}"


def refuse_others(given: Iterable[str], call: str, settings: Sequence[str]) -> None:
    """Refuse keyword arguments of a call that has these settings alone.

    Raises:
        TypeError: There is one.
    """
    for name in given:
        raise TypeError(f"{call} has no setting {name!r}{_nearest(name, settings)}")


def changes(given: Mapping[str, Any]) -> Changes:
    """Convert the keyword arguments of `Topic.configure` for the engine.

    Raises:
        InvalidArgument: A limit is not at least 1, or larger than 2**63 - 1.
        TypeError: There is no such setting, or it is of another type.

    Example:
        >>> from datetime import timedelta
        >>> changes({"retention_age": timedelta(days=7), "retention_bytes": None})
        {'age_ms': 604800000, 'bytes': None}
    """
    check_names(given, "configure()")
    told: Changes = {}
    for name, value in given.items():
        if name in _LIMITS:
            told[_LIMITS[name]] = limit(name, value)
        elif name == "retention_age":
            told["age_ms"] = _age_ms(value)
        elif isinstance(value, bool):
            told[_FLAGS[name]] = value
        else:
            raise TypeError(f"{name} is True or False, not {named(value)}")
    return told


def limit(name: str, value: object, none: str = "no limit") -> int | None:
    """Check a limit: a whole number from 1 on, or None, which stands for `none`.

    Raises:
        InvalidArgument: It is less than 1, or too large.
        TypeError: It is no whole number.
    """
    if value is None:
        return None
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, or None for {none}, not {named(value)}")
    if 1 <= value <= _MOST:
        return value
    raise InvalidArgument(f"{name} is 1 to 2**63 - 1, or None for {none}, not {shown(value)}")


def _age_ms(age: Duration | None) -> int | None:
    if age is None:
        return None
    long = age.total_seconds() if isinstance(age, timedelta) else seconds(age, "retention_age")
    try:
        span = age if isinstance(age, timedelta) else timedelta(seconds=long)
    except (OverflowError, ValueError):
        raise InvalidArgument(
            f"retention_age is at most {timedelta.max}, not {shown(age)} seconds"
        ) from None
    ms = span // _MILLISECOND
    if ms < 1:
        raise InvalidArgument(
            f"retention_age is at least a millisecond, or None for no limit, not {shown(age)}"
        )
    return ms


def texts(properties: Mapping[Any, Any]) -> dict[str, str | None]:
    """Check properties of a topic.

    Raises:
        TypeError: A name is not text, or a value is neither text nor None.
        InvalidArgument: A text holds half a character.
    """
    given = mapping(properties, "properties", "texts by name").items()
    named_texts = ((text(name, "the name of a property"), value) for name, value in given)
    return {
        name: None if value is None else text(value, f"the value of property {named(name)}")
        for name, value in named_texts
    }
