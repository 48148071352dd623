"""`tail -f`: print records as they come, from one topic or from several.

One topic is followed by the process's own thread. Each of several topics has a thread of its own,
since a follower waits for one topic. These threads pass records through a queue to the thread that
prints. `remote` follows topics behind a server in the same way, and `origins` those of a place.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from queue import Queue

    from falaj._any_topic import AnyTopic
    from falaj._core import Follower
    from falaj._records import Record
    from falaj.cli.ranges import Part
    from falaj.cli.reading import Match, Show

T = TypeVar("T")

__all__ = ["follow", "follow_several"]

_HELD = 1000  # so that a reader that is slow does not fill the memory


def follow(
    topics: Sequence[AnyTopic[Any]],
    partition: int | None,
    parts: Sequence[Part],
    idle: float | None,
    show: Show,
    matches: Match | None,
) -> None:
    """Print the records that come after some parts, until none came for `idle` seconds."""
    sources = topics if partition is None else [each.partition(partition) for each in topics]
    ends = [[part.stop for part in parts if part.topic.name == source.name] for source in sources]
    if len(sources) == 1:
        with sources[0]._follow(ends[0], idle) as follower:
            _one(follower, show, matches)
        return
    followers = [source._follow(end, None) for source, end in zip(sources, ends, strict=True)]
    try:
        follow_several(followers, idle, show, matches)
    finally:
        for follower in followers:
            follower.close()


def _one(follower: Follower[Any], show: Show, matches: Match | None) -> None:
    """Write what comes, and flush whenever there is nothing more at the moment."""
    out = sys.stdout.buffer
    for record in follower:
        more: Record[Any] | None = record
        while more is not None:
            if matches is None or matches(more):
                out.write(show(more))
            more = follower.poll()
        out.flush()


def follow_several(
    followers: Sequence[Iterable[T]],
    idle: float | None,
    show: Callable[[T], bytes],
    matches: Callable[[T], bool] | None,
) -> None:
    """Print the records of several followers as they come, until none came for `idle` seconds."""
    from queue import Empty, Queue
    from threading import Thread

    came: Queue[T | BaseException] = Queue(_HELD)
    for follower in followers:
        Thread(target=_pass_on, args=(follower, came), daemon=True).start()
    out = sys.stdout.buffer
    while True:
        try:
            record = came.get(timeout=idle)
        except Empty:
            return
        if isinstance(record, BaseException):
            raise record
        if matches is None or matches(record):
            out.write(show(record))
        if came.empty():
            out.flush()


def _pass_on(follower: Iterable[T], came: Queue[T | BaseException]) -> None:
    try:
        for record in follower:
            came.put(record)
    except BaseException as error:  # noqa: BLE001  # the thread that prints raises it
        came.put(error)
