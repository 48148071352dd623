"""Commands over HTTP that change topics, and those on groups and queues.

The commands on directories own the output; here is what differs in how it is found. Invariant: of
the jobs of a queue one at a time is taken, so a command that ends early holds one until its lease
ends.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from falaj.cli.appending import BATCH_RECORDS, Appending
from falaj.cli.commands import group as grouping
from falaj.cli.commands.queue import redrive as redriving
from falaj.cli.commands.queue.take import take_from
from falaj.cli.commands.topic import compact as compacting
from falaj.cli.commands.topic import config as settings_of
from falaj.cli.commands.topic import trim as trimming
from falaj.cli.confirm import confirm
from falaj.cli.lines import check_readable
from falaj.cli.paint import is_terminal
from falaj.cli.remote_parts import refuse, topics_of
from falaj.cli.stores import check_partition
from falaj.cli.units import count
from falaj.cli.values import Line, maker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from falaj_client import Job, Queue, Store

__all__ = ["COMMANDS", "INSTEAD"]

#: Longest time that a compaction may take, in seconds.
_COMPACTION_S = 3600.0


# --- Topics ---------------------------------------------------------------------------------------


def _trim(
    store: Store, topic: str, before: Any, partition: int | None, dry_run: bool, as_json: bool
) -> None:
    refuse(dry_run=dry_run)
    (found,) = topics_of(store, [topic])
    if partition is not None:
        check_partition(topic, len(found.partitions), partition)
        found = found.partition(partition)
    trimming.show(topic, trimming.trimmed(found, before), dry_run, as_json)


def _config(
    store: Store,
    topic: str,
    as_json: bool,
    properties: list[tuple[str, str]] | None,
    removed: list[str] | None,
    **settings: Any,
) -> None:
    (found,) = topics_of(store, [topic])
    limits: Any = found.configure(**settings_of.changed(properties, removed, settings))
    now = store.topics[topic]
    told = settings_of.settings_in(limits, bool(now["compacted"]))
    settings_of.show(topic, told, now["properties"], as_json)


def _compact(store: Store, topic: str, delete_retention: float, seal: bool, as_json: bool) -> None:
    from falaj_client._calls import Patience

    (found,) = topics_of(store, [topic])  # so that a server that is away is met at once
    found._core.patience = Patience(_COMPACTION_S)
    with compacting.remedy_of_the_shell(topic):
        done: Any = found.compact(delete_retention=delete_retention, seal=seal)
    compacting.show(topic, done, as_json)


# --- Groups ---------------------------------------------------------------------------------------


def _describe_groups(store: Store, groups: list[str], as_json: bool) -> None:
    found: list[Any] = [store.groups[name] for name in groups]
    grouping.show(found, as_json)


def _seek_group(store: Store, group: str, topic: str, to: Any, partition: int | None) -> None:
    grouping.show_moved(group, topic, store.seek_group(group, topic, to, partition=partition))


def _forget_topic(store: Store, group: str, topic: str) -> None:
    store.forget_topic(group, topic)


def _delete_group(store: Store, group: str, yes: bool) -> None:
    offsets = count(len(store.groups[group]["partitions"]), "committed offset")
    confirm(f"Delete group {group} with {offsets}?", f"deleting group {group}", yes)
    store.delete_group(group)


# --- Queues ---------------------------------------------------------------------------------------


def _queue(store: Store, name: str, **limits: Any) -> Queue[Any]:
    """Open a queue that is there, whose values are bytes."""
    from falaj_client.codecs import RAW

    return store.queue(name, codec=RAW, create=False, **limits)


def _create(store: Store, queue: str, topic: str | None, order: Any) -> None:
    from falaj_client._queues import create_queue

    store._run(create_queue(store._patience, queue, topic, order))


class _Putting:
    """The topic of a queue as `Appending` wants it: records become jobs."""

    def __init__(self, queue: Queue[Any], delay: float) -> None:
        self._queue, self._delay = queue, delay
        self.name, self.codec = queue._worker.core.name, queue._worker.core.codec.name

    def extend(self, records: Iterable[Any]) -> range:
        from falaj_client.records import new_records

        worker = self._queue._worker
        return self._queue._driver.run(worker.put(new_records(records), self._delay, None))


def _put(
    store: Store,
    queue: str,
    files: list[str],
    key: str | None,
    headers: list[tuple[str, bytes | None]] | None,
    delay: float,
    as_json: bool,
) -> None:
    to: Any = _Putting(_queue(store, queue), delay)
    sources = list(files) or ["-"]
    for source in sources:
        check_readable(source)
    maker = maker_of(to.codec, Line(key=key, headers=headers))
    work = Appending(to, maker, None, BATCH_RECORDS)
    work.all_of(sources)
    if as_json:
        print(json.dumps(work.figures()))
    elif is_terminal(sys.stdout):
        print(work.summary())


class _Jobs(list["Job[Any]"]):
    """Jobs that are settled one by one."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_exception: object) -> None:
        pass


class _Taking:
    """A queue as `queue take` wants it."""

    def __init__(self, store: Store, queue: Queue[Any]) -> None:
        self._queue, self.name = queue, queue.name
        (self.topic,) = topics_of(store, [queue._worker.core.name])

    def take(self, _most: int, *, lease: float, timeout: float | None) -> _Jobs:
        return _Jobs(self._queue.take(1, lease=lease, timeout=timeout))


def _take(
    store: Store,
    queue: str,
    jobs: int,
    command: str | None,
    lease: float,
    timeout: float | None,
    max_attempts: int | None,
    as_json: bool,
    form: str | None,
) -> None:
    found: Any = _Taking(store, _queue(store, queue, max_attempts=max_attempts))
    take_from(found, jobs, command, lease, timeout, as_json, form)


def _redrive(
    store: Store,
    queue: str,
    dead_letter: str | None,
    limit: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    refuse(dry_run=dry_run)
    topics_of(store, [] if dead_letter is None else [dead_letter])
    # Any number of attempts will do: the letters are there.
    found = _queue(store, queue, max_attempts=1, dead_letter=dead_letter)
    done = found.redrive(limit)
    redriving.show(queue, found._worker.core.name, done, dry_run, as_json)


def _reset(store: Store, queue: str, yes: bool) -> None:
    _queue(store, queue)
    confirm(f"Make all records of queue {queue} ready again?", f"resetting queue {queue}", yes)
    store.delete_queue(queue)


#: The advice for each command that there is not over HTTP.
_THERE = "run it on the server's machine"
INSTEAD = {
    "falaj backup": _THERE,
    "falaj config": _THERE,
    "falaj maintain": f"{_THERE}; appends enforce retention too",
    "falaj metrics": f"read /metrics of the server, or {_THERE}",
    "falaj producer forget": f"{_THERE}; producers of clients expire by themselves",
    "falaj producer list": _THERE,
    "falaj repair": _THERE,
    "falaj restore": f"{_THERE}, and serve what it makes",
    "falaj ship": f"{_THERE}, since it reads the files",
    "falaj verify": _THERE,
}

COMMANDS: dict[str, Callable[..., None]] = {
    "falaj topic trim": _trim,
    "falaj topic config": _config,
    "falaj topic compact": _compact,
    "falaj group describe": _describe_groups,
    "falaj group seek": _seek_group,
    "falaj group forget": _forget_topic,
    "falaj group delete": _delete_group,
    "falaj queue create": _create,
    "falaj queue put": _put,
    "falaj queue take": _take,
    "falaj queue redrive": _redrive,
    "falaj queue reset": _reset,
}
