"""Options that several commands have, worded once, and what reads their values."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from falaj._paths import KINDS_OF_PLACES, is_place, local_path, scheme_of
from falaj.cli.arguments import Argument, Option
from falaj.cli.units import SECONDS_MAX, moment, place, real, size_from, span_from
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 2**63 - 1
_PLACES = ("s3", "gs", "az", "http", "https")
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)

__all__ = [
    "ACCESS",
    "AS_JSON",
    "DRY_RUN",
    "FROM",
    "LOCAL",
    "LOCAL_READS",
    "PARTITION",
    "READING",
    "READS",
    "SINCE",
    "SOME_TOPICS",
    "STORE",
    "TOPIC",
    "TOPICS",
    "YES",
    "choice",
    "limit",
    "location",
    "moment",
    "offset",
    "path",
    "place",
    "seconds",
    "size_from",
    "span_from",
    "whole",
]


def path(text: str) -> str:
    """Read a path or the URL of one; `~` is the home directory."""
    return local_path(os.path.expanduser(text))


def location(text: str) -> str:
    """Read a path, or the URL of a place such as `s3://bucket/prefix`."""
    scheme = scheme_of(text)
    if scheme in _PLACES:
        return text
    if scheme not in (None, "file"):
        raise InvalidArgument(f"{KINDS_OF_PLACES}, not {text!r}")
    return path(text)


def store(text: str) -> str:
    """Read a path as `path` does, or the URL of a server or of a place."""
    return (
        text if text.lower().startswith(("http://", "https://")) or is_place(text) else path(text)
    )


def whole(least: int = 0, *, far: bool = False) -> Callable[[str], int]:
    """Make what reads a whole number; with `far` one that is too large means the largest."""

    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise InvalidArgument(f"write a whole number, not {text!r}")
        number = int(text[:30])  # Python itself reads no thousands of digits
        if far:
            number = max(-_MOST, min(number, _MOST))
        if number < least:
            raise InvalidArgument(f"the number is {least} or more, not {text}")
        if number > _MOST:
            raise InvalidArgument(f"the number is at most {_MOST}, not {text}")
        return number

    return read


def offset(text: str) -> int:
    """Read an offset, or a number of records from the end."""
    return whole(-_MOST)(text)


def limit(text: str) -> int:
    """Read where to end: beyond the end is the end."""
    return whole(-_MOST, far=True)(text)


def seconds(text: str) -> float:
    """Read a wait in seconds."""
    try:
        wait = real(text)
    except ValueError:
        raise InvalidArgument(f"write a number of seconds, not {text!r}") from None
    if not 0.0 <= wait <= SECONDS_MAX:
        raise InvalidArgument(f"a wait is from 0 to {SECONDS_MAX:.0f} seconds, not {text}")
    return wait


def choice(*words: str) -> Callable[[str], str]:
    """Make what reads one of some words."""

    def read(text: str) -> str:
        if text not in words:
            raise InvalidArgument(f"write one of {', '.join(words)}, not {text!r}")
        return text

    return read


def _mark(name: str, *, needed: bool = True, many: bool = False, text: str = "") -> Argument:
    told = text or f"Name of the {name}."
    return Argument(name + "s" * many, name.upper(), told, many=many, needed=needed)


STORE = Option(
    "-s --store", "store", "Directory of the store; without it FALAJ_STORE.", "PATH", path
)
#: Every command that opens a store takes these; `Access` is made of it.
ACCESS = (
    STORE._replace(
        to="access.given",
        help="Directory of the store, or a server's URL; without it FALAJ_STORE.",
        read=store,
    ),
    Option(
        "--lock-timeout",
        "access.lock_timeout",
        "Seconds to wait for a lock whose holder is alive (default 10).",
        "SECONDS",
        seconds,
        10.0,
    ),
    Option(
        "--allow-network-fs",
        "access.allow_network_fs",
        "Allow a network file system. Unsafe unless only this machine mounts it.",
        default=False,
    ),
)
#: The same, of commands that need the directory: they refuse a URL, and say what to do instead.
LOCAL = (ACCESS[0]._replace(help=STORE.help), *ACCESS[1:])
#: Commands that only read, and so read a place too.
_ORIGIN = Option(
    "--origin",
    "access.origin",
    "Which origin of a place, by its first digits; cat and tail take all.",
    "ORIGIN",
)
READS = (*ACCESS, _ORIGIN)
LOCAL_READS = (*LOCAL, _ORIGIN)
TOPIC = _mark("topic")
TOPICS = _mark("topic", many=True, text="Names of topics.")
SOME_TOPICS = TOPICS._replace(needed=False)
AS_JSON = Option("--json", "as_json", "Print JSON, one object a line.", default=False)
YES = Option("-y --yes", "yes", "Do not ask.", default=False)
DRY_RUN = Option("--dry-run", "dry_run", "Change nothing; say what would be done.", default=False)
PARTITION = Option("-p --partition", "partition", "Only this partition.", "P", whole())
FROM = Option("--from", "start", "First offset; -10 means the last ten.", "OFFSET", offset)
SINCE = Option(
    "--since",
    "since",
    "Start at a time: 5m (ago), 2026-11-20T08:00Z, or epoch seconds.",
    "TIME",
    moment,
)
#: How `cat` and `tail` show records.
READING: tuple[Option, ...] = (
    PARTITION,
    Option(
        "--durable",
        "durable",
        "Only records that survive a power failure.",
        default=False,
    ),
    Option("-g --grep", "grep", "Only records whose value matches.", "REGEX", str),
    Option("--json", "look.as_json", "Print JSON, one object a line.", default=False),
    Option("--raw", "look.raw", "Print values byte for byte, nothing between.", default=False),
    Option("--format", "look.form", r"Print by a template, such as '%k %o %v\n'.", "TEXT", str),
    Option(
        "--offsets", "look.offsets", "Show, or hide, the column of offsets.", off="--no-offsets"
    ),
    Option("--keys", "look.keys", "Show, or hide, the column of keys.", off="--no-keys"),
    Option(
        "--time-format",
        "look.time",
        "Times as iso, local, unix (seconds), ns or none.",
        "FORM",
        choice("iso", "local", "unix", "ns", "none"),
    ),
)
