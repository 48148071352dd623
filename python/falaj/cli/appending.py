"""The verb `append`: lines into a topic.

Invariant: lines are appended in their order, each once, in batches of what is there; when a line is
refused, those before it are in the topic and the sentence says so.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from falaj.arguments import Sync
from falaj.cli import options
from falaj.cli.exits import Exit, Stop, code_of, interrupt_after, say
from falaj.cli.lines import Lines, check_readable, chunks_of
from falaj.cli.opened import NewTopic, check_partition, raw_topic
from falaj.cli.paint import is_terminal
from falaj.cli.progress import Advance, bar, no_bar
from falaj.cli.units import count, size, size_from
from falaj.cli.values import Maker, Pair, maker_of
from falaj.errors import Error, TooLarge
from falaj.paths import local_path
from falaj.records import NewRecord
from falaj.stores import Store
from falaj.topics import Topic

__all__ = ["append"]

_BATCH_RECORDS = 1000
_BATCH_BYTES = 1 << 20


def append(
    context: options.Context,
    store: options.StoreArgument,
    topic: options.TopicArgument,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files to read; none or -: standard input."),
    ] = None,
    ndjson: Annotated[
        bool, typer.Option("--ndjson", help="Each line is JSON; a topic that is created is too.")
    ] = False,
    key_field: Annotated[
        str | None,
        typer.Option(
            "--key-field", metavar="NAME", help="Key by this member of a JSON line, as written."
        ),
    ] = None,
    tombstones: Annotated[
        bool,
        typer.Option("--tombstone", help="Each line is a key to delete, or names it by its field."),
    ] = False,
    partition: options.PartitionOption = None,
    batch: Annotated[
        int, typer.Option("--batch", min=1, metavar="N", help="Most records of one append.")
    ] = _BATCH_RECORDS,
    sync: Annotated[
        Sync | None,
        typer.Option("--sync", help="When an append is done, see docs/GUARANTEES.md."),
    ] = None,
    codec: Annotated[
        Literal["bytes", "str", "json", "msgpack"] | None,
        typer.Option("--codec", help="Create it with values of this kind."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, metavar="N", help="Create it with partitions."),
    ] = None,
    segment_size: Annotated[
        str | None,
        typer.Option("--segment-size", metavar="SIZE", help="Create it with such files: 64M."),
    ] = None,
    sync_interval: Annotated[
        int | None,
        typer.Option("--sync-interval", min=1, metavar="MS", help="Create it with this interval."),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Append lines of files or standard input; store and topic are created on first use.

    Each line is a record, without its line end, LF or CRLF. In a pipe lines are appended as they
    come.
    """
    sources = [local_path(file, "the file") for file in files or ["-"]]
    json_lines = ndjson or key_field is not None
    wanted = NewTopic(
        codec,
        partitions,
        None if segment_size is None else size_from(segment_size),
        sync_interval,
        sync,
    )
    access = options.access_of(context)
    # All of this before anything is created.
    for source in sources:
        check_readable(source)
    wanted.check(topic)
    if codec is not None:
        maker_of(codec, json_lines, key_field, tombstones)
    if partition is not None and not access.finds(store):
        check_partition(topic, partitions or 1, partition)
    with (
        access.store(store, "w", creates=True) as opened,
        _topic(opened, topic, wanted, json_lines, partition) as to,
    ):
        work = _Work(to, maker_of(to.codec, json_lines, key_field, tombstones), partition, batch)
        try:
            with _progress(topic, sources) as advance:
                for source in sources:
                    for chunk in work.chunks_of(source):
                        work.take(chunk)
                        advance(work.read, work.records)
        except KeyboardInterrupt:
            say(work.summary())
            raise
    if as_json:
        print(json.dumps(work.figures()))
    elif is_terminal(sys.stdout):
        print(work.summary())


def _topic(
    store: Store, name: str, wanted: NewTopic, json_lines: bool, partition: int | None
) -> Topic[Any]:
    """Open it; one that is created from JSON lines holds JSON, unless it is asked otherwise.

    A partition that it has not is refused before it is created, and whatever there is to append.
    """
    if name not in store.topics():
        if partition is not None:
            check_partition(name, wanted.partitions or 1, partition)
        if json_lines and wanted.codec is None:
            wanted = replace(wanted, codec="json")
    topic = raw_topic(store, name, wanted)
    if partition is not None:
        check_partition(name, len(topic.partitions), partition)
    return topic


def _progress(topic: str, sources: list[str]) -> AbstractContextManager[Advance]:
    """A bar, but where somebody types: there it would run over the words."""
    if "-" in sources and is_terminal(sys.stdin):
        say(f"each line you type is a record of {topic}; Ctrl-D ends")
        return nullcontext(no_bar)
    return bar(f"append to {topic}", _total(sources))


def _total(sources: list[str]) -> int | None:
    """Bytes of all sources, where they are files of a size."""
    paths = [Path(source) for source in sources]
    if "-" in sources or not all(path.is_file() for path in paths):
        return None
    return sum(path.stat().st_size for path in paths)


@dataclass(slots=True)
class _Work:
    """What is being appended, and how much was."""

    topic: Topic[Any]
    maker: Maker
    partition: int | None
    batch: int
    records: int = 0
    bytes: int = 0
    read: int = 0
    offsets: dict[int, range] = field(default_factory=dict)

    def chunks_of(self, source: str) -> Iterator[Lines]:
        """Read a file; where it cannot be read to its end, say what is in the topic."""
        try:
            yield from chunks_of(source)
        except Stop as stop:
            raise self._stop(str(stop), stop.code) from None

    def take(self, chunk: Lines) -> None:
        """Append the lines of a chunk."""
        self.read += chunk.read
        numbered: list[tuple[int, Pair]] = []
        held = 0
        for number, line in enumerate(chunk.lines, chunk.first):
            if self.maker.skips_blank and not line.strip():
                continue
            try:
                pair = self.maker.pair(line)
            except ValueError as error:
                self._extend(numbered, chunk.file)
                raise self._stop(f"line {number} of {chunk.file} {error}") from None
            if len(numbered) == self.batch or (numbered and held + len(line) > _BATCH_BYTES):
                self._extend(numbered, chunk.file)
                numbered, held = [], 0
            numbered.append((number, pair))
            held += len(line)
        self._extend(numbered, chunk.file)

    def _extend(self, numbered: list[tuple[int, Pair]], file: str) -> None:
        """Append them as one block; in halves, where the topic's segments are small."""
        if not numbered:
            return
        pairs = [pair for _, pair in numbered]
        records = [
            NewRecord.tombstone(key or b"")
            if value is None
            else value
            if key is None
            else (key, value)
            for key, value in pairs
        ]
        try:
            with interrupt_after():  # so that what is told to be in the topic is all that is there
                got = self.topic.extend(records, self.partition)
                self._count(pairs, got)
        except TooLarge as error:
            if len(pairs) == 1:
                line = numbered[0][0]
                raise self._stop(f"line {line} of {file} is too long: {error}") from None
            half = len(pairs) // 2
            self._extend(numbered[:half], file)
            self._extend(numbered[half:], file)
        except Error as error:
            raise self._stop(str(error), code_of(error)) from None

    def _count(self, pairs: list[Pair], got: range | dict[int, range]) -> None:
        for number, offsets in (got if isinstance(got, dict) else {0: got}).items():
            before = self.offsets.get(number, offsets)
            self.offsets[number] = range(before.start, offsets.stop)
        self.records += len(pairs)
        self.bytes += sum(len(value or b"") for _, value in pairs)

    def _stop(self, sentence: str, code: Exit = Exit.USAGE) -> Stop:
        there = f"; what came before it, {count(self.records, 'record')}, is in the topic"
        return Stop(sentence + (there if self.records else ""), code)

    def summary(self) -> str:
        """Say what was appended."""
        said = f"appended {count(self.records, 'record')} ({size(self.bytes)}) to {self.topic.name}"
        if len(self.offsets) != 1:
            return said
        (offsets,) = self.offsets.values()
        if self.records == 1:
            return f"{said}, offset {offsets[0]}"
        return f"{said}, offsets {offsets[0]} to {offsets[-1]}"

    def figures(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "topic": self.topic.name,
            "records": self.records,
            "bytes": self.bytes,
            "offsets": [
                {"partition": number, "first": offsets[0], "last": offsets[-1]}
                for number, offsets in sorted(self.offsets.items())
            ],
        }
