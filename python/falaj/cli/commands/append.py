"""`falaj append`: lines become records; store and topic are created on first use.

Invariant: what cannot be right is refused before anything is created.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from falaj import _time
from falaj._paths import local_path
from falaj._records import NewRecord
from falaj.cli import options
from falaj.cli.appending import BATCH_RECORDS, Appending
from falaj.cli.arguments import Argument, Command, Option
from falaj.cli.arguments import text as utf8
from falaj.cli.exits import Stop
from falaj.cli.lines import check_readable
from falaj.cli.paint import is_terminal
from falaj.cli.stores import Access, NewTopic, check_partition, expect_topics, raw_topic
from falaj.cli.units import moment
from falaj.cli.values import Line, Made, maker_of
from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    from datetime import datetime

    from falaj._arguments import Sync
    from falaj._store import Store
    from falaj._topic import EitherTopic

__all__ = ["COMMAND", "CREATING", "append", "header"]


def append(
    access: Access,
    topic: str,
    files: list[str],
    ndjson: bool,
    records: bool,
    key: str | None,
    key_field: str | None,
    key_delimiter: str | None,
    headers: list[tuple[str, bytes | None]] | None,
    timestamp: datetime | None,
    tombstone: bool,
    partition: int | None,
    batch: int,
    sync: Sync | None,
    timeout: float | None,
    create: bool | None,
    codec: str | None,
    partitions: int | None,
    segment_bytes: int | None,
    sync_interval_ms: int | None,
    as_json: bool,
) -> None:
    """Append lines of files or standard input."""
    line = Line(ndjson, records, tombstone, key, key_field, key_delimiter, headers, timestamp)
    wanted = NewTopic(codec, partitions, segment_bytes, sync_interval_ms, sync)
    sources = files or ["-"]
    single = tombstone and key is not None
    # All of this before anything is created.
    line.check()
    if single and files:
        raise Stop("--tombstone with --key deletes that one key: leave out the files")
    if timeout is not None and sync != "remote":
        raise Stop("--timeout limits the wait of --sync remote: leave it out, or name that mode")
    for source in sources:
        check_readable(source)
    wanted.check(topic)
    if codec is not None:
        maker_of(codec, line)
    there = access.finds()
    if not there:
        if create is False:
            raise Stop(f"there is no store at {access.path}, and --no-create makes none")
        _check_new(topic, line, wanted, partition)
    with (
        access.store(creates=True) as opened,
        _topic(opened, topic, wanted, line, partition, create) as to,
    ):
        work = Appending(to, maker_of(to.codec, line), partition, batch, timeout)
        if single:
            assert key is not None
            record = NewRecord.tombstone(os.fsencode(key), headers=headers, timestamp=timestamp)
            work.extend([(1, Made(record, 0))], "--key")
        else:
            work.all_of(sources)
    if as_json:
        print(json.dumps(work.figures()))
    elif is_terminal(sys.stdout):
        print(work.summary())


def _topic(
    store: Store,
    name: str,
    wanted: NewTopic,
    line: Line,
    partition: int | None,
    create: bool | None,
) -> EitherTopic:
    """Open it. JSON lines make a topic without a codec one of JSON, unless the options name one.

    A topic has no codec before it is created, and until the first program that appends names one.
    A partition that it does not have is refused before it is created.
    """
    if name not in store.topics:
        if create is False:
            expect_topics(store, name)
        wanted = _check_new(name, line, wanted, partition)
    elif store.topics[name]["codec"] is None:
        wanted = _named(name, line, wanted)
    topic = raw_topic(store, name, wanted)
    if partition is not None:
        check_partition(name, len(topic.partitions), partition)
    return topic


def _check_new(name: str, line: Line, wanted: NewTopic, partition: int | None) -> NewTopic:
    """Check that a topic can be created for such lines; return its settings."""
    if partition is not None:
        check_partition(name, wanted.partitions or 1, partition)
    return _named(name, line, wanted)


def _named(name: str, line: Line, wanted: NewTopic) -> NewTopic:
    """Choose the codec of a topic that has none yet."""
    if wanted.codec is not None:
        return wanted
    if line.records:
        raise Stop(f"topic {name} has no codec yet: say its --codec, such as bytes or json")
    return wanted._replace(codec="json") if line.is_json else wanted


def header(text: str) -> tuple[str, bytes | None]:
    """Read NAME=VALUE, or NAME alone for a header without a value."""
    name, equals, value = text.partition("=")
    if not name:
        raise InvalidArgument(f"write NAME=VALUE, not {text!r}")
    return utf8(name), os.fsencode(value) if equals else None


def _delimiter(text: str) -> str:
    return text.replace("\\t", "\t")


def _source(text: str) -> str:
    return local_path(text, "the file")


_SYNC = options.choice("none", "interval", "durable", "remote")
CREATING = (
    Option(
        "--codec",
        "codec",
        "Create it with bytes, str, json or msgpack.",
        "CODEC",
        options.choice("bytes", "str", "json", "msgpack"),
    ),
    Option("--partitions", "partitions", "Create it with N partitions.", "N", options.whole(1)),
    Option(
        "--segment-size",
        "segment_bytes",
        "Create it with files of this size, such as 64M.",
        "SIZE",
        options.size_from,
    ),
    Option(
        "--sync-interval",
        "sync_interval_ms",
        "Create it with so many milliseconds between syncs.",
        "MS",
        options.whole(1),
    ),
)
COMMAND = Command(
    append,
    "Append lines of files or standard input to a topic.",
    (
        options.TOPIC,
        Argument(
            "files",
            "FILE",
            "Files to read; none, or -, is standard input.",
            many=True,
            needed=False,
            read=_source,
        ),
    ),
    (
        *options.ACCESS,
        Option("--key", "key", "Key of every record.", "KEY", str),
        Option(
            "--key-delimiter",
            "key_delimiter",
            r"The key is what stands before this text, such as ':' or '\t'.",
            "TEXT",
            _delimiter,
        ),
        Option("--key-field", "key_field", "The key is this member of a JSON line.", "NAME"),
        Option(
            "--header",
            "headers",
            "Header of every record; may be repeated.",
            "NAME=VALUE",
            header,
            many=True,
        ),
        Option(
            "--timestamp",
            "timestamp",
            "Time of every record, as for `falaj cat --since`.",
            "TIME",
            lambda text: _time.from_ns(moment(text)),
        ),
        Option(
            "--tombstone",
            "tombstone",
            "Delete keys: each line is one, or --key-field or --key names it.",
            default=False,
        ),
        Option(
            "--ndjson",
            "ndjson",
            "Each line is JSON; a topic that is created holds JSON.",
            default=False,
        ),
        Option(
            "--records",
            "records",
            "Each line is a record as `falaj cat --json` prints it.",
            default=False,
        ),
        Option("-p --partition", "partition", "Into this partition.", "P", options.whole()),
        Option(
            "--batch",
            "batch",
            "Most records of one append (1000).",
            "N",
            options.whole(1),
            BATCH_RECORDS,
        ),
        Option(
            "--sync",
            "sync",
            "When an append is done: none, interval, durable, remote.",
            "MODE",
            _SYNC,
        ),
        Option(
            "--timeout",
            "timeout",
            "Longest wait of --sync remote for the process that ships.",
            "SPAN",
            options.span_from,
        ),
        Option(
            "--create",
            "create",
            "Create store and topic where they are missing (the default), or fail.",
            off="--no-create",
        ),
        *CREATING,
        Option("--json", "as_json", "Print what was appended, as JSON.", default=False),
    ),
    "Each line is a record, without its line end, LF or CRLF. Lines of a pipe are appended as they "
    "come.",
)
