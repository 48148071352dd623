"""Commands on a store behind a server: `--store http://…` instead of a directory.

Each command here has the parameters of the one that it stands for, so that the grammar stays one.
Each other command needs the store's directory, and says what to do instead.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from heapq import merge
from typing import TYPE_CHECKING, Any

from falaj._records import NewRecord
from falaj._time import from_ns
from falaj.cli.appending import Appending
from falaj.cli.commands.tail import check
from falaj.cli.confirm import confirm
from falaj.cli.exits import Exit, Stop
from falaj.cli.following import follow_several
from falaj.cli.lines import check_readable
from falaj.cli.paint import Paint, is_terminal
from falaj.cli.ranges import Range
from falaj.cli.reading import matching, show_of, write
from falaj.cli.remote_admin import COMMANDS, INSTEAD
from falaj.cli.remote_parts import refuse, topics_of
from falaj.cli.show import Look, Several, matcher, printer
from falaj.cli.stores import check_partition
from falaj.cli.tables import Column, objects, table
from falaj.cli.values import Line, maker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from falaj.cli.stores import Access
    from falaj_client import AnyTopic, Slice, Store

__all__ = ["run"]


def run(title: str, access: Access, given: dict[str, Any]) -> None:
    """Run a command on the store behind a server.

    Raises:
        Stop: The command needs the store's directory.
    """
    command = _COMMANDS.get(title)
    if command is None:
        raise Stop(f"`{title}` needs the store's directory: {INSTEAD[title]}")
    from falaj._connect import connect  # only for URLs

    with connect(access.url or "", timeout=max(access.lock_timeout, 0.1)) as store:
        from falaj_client._calls import LONGER
        from falaj_client.errors import ServerUnavailable

        try:
            command(store, **given)
        except ServerUnavailable as error:
            sentence = str(error).replace(LONGER, "give a longer --lock-timeout")
            raise Stop(sentence, Exit.AGAIN) from None


# --- Reading --------------------------------------------------------------------------------------


def _cat(
    store: Store,
    topics: list[str],
    start: int | None,
    stop: int | None,
    since: int | None,
    until: int | None,
    limit: int | None,
    partition: int | None,
    durable: bool,
    grep: str | None,
    look: dict[str, Any],
    skip_corrupt: bool,
) -> None:
    refuse(skip_corrupt=skip_corrupt)
    shown, matches = Look(**look).check(), matcher(grep)
    Range(start, stop, since, until, partition).check()
    opened = topics_of(store, topics, durable=durable)
    begin = start if since is None else from_ns(since)
    end = stop if until is None else from_ns(until)
    by_offset = start is not None or stop is not None
    parts = _parts(opened, partition, begin, end, by_offset=by_offset)
    records = matching(_merged(parts), matches)
    if limit is not None:
        records = (record for record, _ in zip(records, range(limit), strict=False))
    write(records, show_of(shown, opened))  # type: ignore[arg-type]  # they have what is shown


def _parts(
    topics: Sequence[AnyTopic[Any]],
    partition: int | None,
    begin: Any,
    end: Any,
    *,
    by_offset: bool,
) -> list[Slice[Any]]:
    found = []
    for topic in topics:
        if partition is not None:
            check_partition(topic.name, len(topic.partitions), partition)
        if by_offset and (len(topics) > 1 or (partition is None and len(topic.partitions) > 1)):
            raise Stop(
                "offsets count in one partition: name one topic and a --partition, or use --since "
                "and --until"
            )
        numbers = topic.partitions if partition is None else [partition]
        for number in numbers:
            part = topic.partition(number)
            if isinstance(begin, int) and begin > part.end_offset:
                part[begin]  # raises: a beginning that is not there is no empty answer
            found.append(part.range(begin, end))
    return found


def _merged(parts: Sequence[Slice[Any]]) -> Iterable[Any]:
    streams = [iter(part) for part in parts]
    return streams[0] if len(streams) == 1 else merge(*streams, key=lambda r: r.timestamp_ns)


def _tail(
    store: Store,
    topics: list[str],
    follow_on: bool,
    last: int | None,
    start: int | None,
    since: int | None,
    idle: float | None,
    group: str | None,
    pattern: str | None,
    commit: bool | None,
    partition: int | None,
    durable: bool,
    grep: str | None,
    look: dict[str, Any],
    skip_corrupt: bool,
) -> None:
    shown, matches = Look(**look).check(), matcher(grep)
    wanted = Range(start, None, since, None, partition)
    check(wanted, topics, follow_on, last, idle, group, pattern, commit, skip_corrupt)
    refuse(skip_corrupt=skip_corrupt, no_commit=commit is False)
    if group is not None:
        refuse(durable=durable)
        _consume(store, group, topics, pattern, idle if follow_on else 0.0, shown, matches)
        return
    opened = topics_of(store, topics, durable=durable)
    begin = start if since is None else from_ns(since)
    parts = _parts(opened, partition, begin, None, by_offset=start is not None)
    records = _merged(parts)
    if (start, since) == (None, None):
        most = 10 if last is None else last
        tails = [part[max(0, len(part) - most) :] for part in parts]
        records = deque(_merged(tails), maxlen=most)
    show = show_of(shown, opened)  # type: ignore[arg-type]  # they have what is shown
    write(matching(records, matches), show)
    if follow_on:
        sources = opened if partition is None else [each.partition(partition) for each in opened]
        _follow(sources, parts, idle, show, matches)


def _follow(
    sources: Sequence[AnyTopic[Any]],
    parts: Sequence[Slice[Any]],
    idle: float | None,
    show: Any,
    matches: Any,
) -> None:
    """Print the records that come after some parts, until none came for `idle` seconds."""
    followers: list[Any] = []
    for source in sources:
        ends = {p.partition: p.offsets.stop for p in parts if p._topic.name == source.name}
        wait = idle if len(sources) == 1 else None
        followers.append(source._items(source._core.follow(None, wait, ends)))
    if len(followers) > 1:
        follow_several(followers, idle, show, matches)
        return
    for record in followers[0]:
        write(matching([record], matches), show)


def _consume(
    store: Store,
    group: str,
    topics: list[str],
    pattern: str | None,
    timeout: float | None,
    look: Look,
    matches: Any,
) -> None:
    """Print what a member of a group gets, and commit it."""
    several = Several(True, True, _Codecs(store))
    show = printer(look, Paint.of(sys.stdout), several)
    opened = topics_of(store, topics) if pattern is None else None
    with store.consumer(group, opened, pattern=pattern) as member:
        while records := member.poll(timeout=timeout):
            for record in records:
                record._codec = _as_bytes(record._codec)
            write(matching(records, matches), show)  # type: ignore[arg-type]
            member.commit()


def _as_bytes(codec: Any) -> Any:
    from falaj_client.codecs import RAW, resolve

    return resolve(RAW, codec.name)


class _Codecs(dict[str, str]):
    """The codecs of topics, asked for when a record of one comes."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def __missing__(self, name: str) -> str:
        self[name] = self._store.topics[name]["codec"] or "bytes"
        return self[name]


# --- Writing --------------------------------------------------------------------------------------


def _append(
    store: Store,
    topic: str,
    files: list[str],
    ndjson: bool,
    records: bool,
    key: str | None,
    key_field: str | None,
    key_delimiter: str | None,
    headers: list[tuple[str, bytes | None]] | None,
    timestamp: Any,
    tombstone: bool,
    partition: int | None,
    batch: int,
    sync: str | None,
    timeout: float | None,
    create: bool | None,
    codec: str | None,
    partitions: int | None,
    segment_bytes: int | None,
    sync_interval_ms: int | None,
    as_json: bool,
) -> None:
    line = Line(ndjson, records, tombstone, key, key_field, key_delimiter, headers, timestamp)
    line.check()
    if timeout is not None and sync != "remote":
        raise Stop("--timeout limits the wait of --sync remote: leave it out, or name that mode")
    sources = files or ["-"]
    for source in sources:
        check_readable(source)
    if topic not in store.topics and create is not False:
        if codec is None and records:
            raise Stop(f"topic {topic} is to be created: say its --codec, such as bytes or json")
        settings = {"segment_bytes": segment_bytes, "sync_interval_ms": sync_interval_ms}
        _made(store, topic, codec or ("json" if line.is_json else None), partitions, settings)
    (to,) = topics_of(store, [topic])
    if partition is not None:
        check_partition(topic, len(to.partitions), partition)
    making = maker_of(to.codec, line)
    work = Appending(to, making, partition, batch, timeout, sync)  # type: ignore[arg-type]
    if tombstone and key is not None:
        made = NewRecord.tombstone(os.fsencode(key), headers=headers, timestamp=timestamp)
        to.extend([made], sync=sync, timeout=timeout)  # type: ignore[attr-defined]
        work.records = 1
    else:
        work.all_of(sources)
    if as_json:
        print(json.dumps(work.figures()))
    elif is_terminal(sys.stdout):
        print(work.summary())


def _made(
    store: Store, name: str, codec: str | None, partitions: int | None, settings: dict[str, Any]
) -> None:
    if (partitions or 1) > 1:
        store.partitioned_topic(name, partitions=partitions, codec=codec, **settings)
    else:
        store.topic(name, codec=codec, **settings)


def _create(
    store: Store,
    topics: list[str],
    codec: str | None,
    partitions: int | None,
    **settings: Any,
) -> None:
    refuse(**{name: settings.pop(name) for name in list(settings) if name not in _SETTINGS})
    for name in topics:
        _made(store, name, codec, partitions, settings)


_SETTINGS = {
    "compacted",
    "log",
    "retention_age",
    "retention_bytes",
    "retention_protected",
    "retention_records",
    "retention_waits",
    "segment_bytes",
    "sync_interval_ms",
}


def _delete(store: Store, topics: list[str], yes: bool) -> None:
    for name in topics:
        topics_of(store, [name])
        confirm(f"Delete topic {name}?", f"deleting topic {name}", yes)
        store.delete_topic(name)


def _finish(store: Store, topics: list[str], yes: bool) -> None:
    for found in topics_of(store, topics):
        confirm(f"Finish topic {found.name}?", f"finishing topic {found.name}", yes)
        found.finish()


# --- Looking --------------------------------------------------------------------------------------

_TOPICS = (
    Column("topic", "topic"),
    Column("codec", "codec"),
    Column("partitions", "partitions", number=True),
    Column("offsets", "offsets", number=True),
    Column("log", "log"),
    Column("created", "created"),
    Column("state", "state"),
)


def _list(store: Store, as_json: bool) -> None:
    _print_topics(list(store.topics.values()), as_json)


def _describe(store: Store, topics: list[str], as_json: bool) -> None:
    _print_topics([store.topics[name] for name in topics], as_json)


def _print_topics(found: list[Any], as_json: bool) -> None:
    if as_json:
        objects(found)
        return
    rows = [
        {
            "topic": each["topic"],
            "codec": each["codec"],
            "partitions": len(each["partitions"]),
            "offsets": sum(
                int(part["end_offset"]) - int(part["start_offset"]) for part in each["partitions"]
            ),
            "log": each["log"],
            "created": each["created"],
            "state": "finished" if each["finished"] else "open",
        }
        for each in found
    ]
    table(_TOPICS, rows)


_GROUPS = (
    Column("group", "group"),
    Column("members", "members", number=True),
    Column("lag", "lag", number=True),
)
_QUEUES = (
    Column("queue", "queue"),
    Column("topic", "topic"),
    *(
        Column(state, state.replace("_", " "), number=True)
        for state in ("ready", "delayed", "in_flight", "done", "dead", "trimmed")
    ),
)


def _asked(store: Store, kind: str) -> list[dict[str, Any]]:
    """Ask the server for its groups or queues."""
    from falaj_client._calls import call
    from falaj_client._wire import Call, path_of

    found: list[dict[str, Any]] = store._run(
        call(store._patience, Call("GET", path_of(kind)))
    ).json[kind]
    return found


def _list_groups(store: Store, as_json: bool) -> None:
    found = [{"group": each.get("name"), **each} for each in _asked(store, "groups")]
    objects(found) if as_json else table(_GROUPS, found)


def _list_queues(store: Store, as_json: bool) -> None:
    found = _asked(store, "queues")
    objects(found) if as_json else table(_QUEUES, found)


_COMMANDS: dict[str, Callable[..., None]] = {
    "falaj cat": _cat,
    "falaj tail": _tail,
    "falaj append": _append,
    "falaj info": _list,
    "falaj group list": _list_groups,
    "falaj queue list": _list_queues,
    "falaj topic list": _list,
    "falaj topic describe": _describe,
    "falaj topic create": _create,
    "falaj topic delete": _delete,
    "falaj topic finish": _finish,
    **COMMANDS,
}
