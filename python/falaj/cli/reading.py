"""The verbs `cat` and `tail`: records to stdout.

Owns how records are streamed out: as fast as they can be read where nothing but values is asked
for, and flushed whenever a follower has nothing more. How a record looks is `show`'s, which ones
is `ranges`'.
"""

import sys
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from falaj.cli import options
from falaj.cli.exits import Exit, Stop, say, told
from falaj.cli.opened import raw_topic
from falaj.cli.paint import Paint, escaped
from falaj.cli.ranges import Part, Range, in_order
from falaj.cli.show import Look, matcher, printer
from falaj.errors import Corrupt, NoSuchConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from falaj._core import Follower
    from falaj.arguments import Visibility
    from falaj.records import Record
    from falaj.stores import Store

    Match = Callable[[Record[Any]], bool]
    Show = Callable[[Record[Any]], bytes]

__all__ = ["cat", "tail"]

_BATCH = 8192


def cat(
    context: options.Context,
    store: options.StoreArgument,
    topic: options.TopicArgument,
    start: options.FromOption = None,
    stop: Annotated[
        int | None, typer.Option("--to", metavar="OFFSET", help="End before this offset.")
    ] = None,
    since: options.SinceOption = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="End before this time.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", min=0, metavar="N", help="At most N records.")
    ] = None,
    partition: options.PartitionOption = None,
    durable: options.DurableOption = False,
    grep: options.GrepOption = None,
    as_json: options.JsonOption = False,
    raw: options.RawOption = False,
    offsets: options.OffsetsOption = None,
    keys: options.KeysOption = None,
    time: options.TimeOption = None,
    skip_damage: Annotated[
        bool, typer.Option("--skip-damage", help="Go on behind damage, and exit with 1.")
    ] = False,
) -> None:
    """Print records from the beginning to the end as of now.

    In a pipe: the values, one a line. On a terminal: offset, time, key and value in columns.
    """
    look = Look(as_json, raw, offsets, keys, time)
    wanted = Range(start, stop, since, until, partition)
    most = None if limit is None else min(limit, sys.maxsize)
    matches = matcher(grep)
    damage: list[Corrupt] = []

    def on_damage(error: Corrupt) -> None:
        damage.append(error)
        say(str(error))

    with options.access_of(context).topic(store, topic, durable) as opened:
        parts = wanted.of(opened)
        paint = Paint.of(sys.stdout)
        whole = matches is None and limit is None and not skip_damage and len(parts) == 1
        if whole and look.bare(paint.terminal):
            _write_values(parts[0], sys.stdout.buffer)
            return
        records = in_order(parts, on_damage if skip_damage else None)
        show = printer(look, paint, opened.codec, len(opened.partitions) > 1)
        _write(islice(_matching(records, matches), most), show)
    if damage:
        raise typer.Exit(Exit.DAMAGE)


def tail(
    context: options.Context,
    store: options.StoreArgument,
    topic: options.TopicArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as records come, until Ctrl-C.")
    ] = False,
    last: Annotated[
        int | None,
        typer.Option("-n", min=0, metavar="N", help="Begin with the last N records, 10 by itself."),
    ] = None,
    start: options.FromOption = None,
    since: options.SinceOption = None,
    idle: Annotated[
        float | None, options.seconds("--idle", "End when none came for so long.")
    ] = None,
    durable: options.DurableOption = False,
    consumer: Annotated[
        str | None,
        typer.Option("--consumer", metavar="NAME", help="As this consumer: on from its place."),
    ] = None,
    commit: Annotated[
        bool | None,
        typer.Option(
            "--commit/--no-commit",
            help="Move the consumer's place with what was printed, or only look from there.",
        ),
    ] = None,
    partition: options.PartitionOption = None,
    grep: options.GrepOption = None,
    as_json: options.JsonOption = False,
    raw: options.RawOption = False,
    offsets: options.OffsetsOption = None,
    keys: options.KeysOption = None,
    time: options.TimeOption = None,
    skip_damage: Annotated[
        bool,
        typer.Option(
            "--skip-damage",
            help="With --consumer: go on behind damage for good, and exit with 1.",
        ),
    ] = False,
) -> None:
    """Print the last records, and with -f those that come."""
    look = Look(as_json, raw, offsets, keys, time)
    wanted = Range(start, None, since, None, partition)
    if last is not None and (start, since) != (None, None):
        raise Stop("-n, --from and --since say where to begin: give one of them")
    if idle is not None and not follow:
        raise Stop("--idle is for following: add -f")
    matches = matcher(grep)
    access = options.access_of(context)
    if skip_damage and (consumer is None or commit is False):
        raise Stop("--skip-damage moves a consumer's place: add --consumer, or use `falaj cat`")
    if consumer is not None:
        if (last, start, since, partition) != (None, None, None, None):
            raise Stop("--consumer says where to begin: leave out -n, --from, --since, --partition")
        with access.store(store) as opened_store:
            places = _places(opened_store, consumer, topic, commit)
        if places is None:
            timeout = idle if follow else 0.0
            with access.store(store, "w") as opened_store:
                damaged = _consume(
                    opened_store, consumer, topic, durable, timeout, skip_damage, look, matches
                )
            if damaged:
                raise typer.Exit(Exit.DAMAGE)
            return
        if skip_damage:
            raise Stop("the place of a consumer whose cursors are in a log is not moved from here")
    elif commit is not None:
        raise Stop("--commit and --no-commit are about a consumer: add --consumer")
    else:
        places = None
    with access.topic(store, topic, durable) as opened:
        parts = wanted.of(opened)
        if places is not None:
            parts = [_from_place(part, places) for part in parts]
        elif (start, since) == (None, None):
            parts = _last(parts, 10 if last is None else last)
        show = printer(look, Paint.of(sys.stdout), opened.codec, len(opened.partitions) > 1)
        _write(_matching(in_order(parts), matches), show)
        if follow:
            source = opened if partition is None else opened.partition(partition)
            with source._follow([part.stop for part in parts], idle) as follower:
                _write_on(follower, show, matches)


def _places(store: "Store", name: str, topic: str, commit: bool | None) -> "dict[int, int] | None":
    """Where a consumer that is only looked at stands, by partition; None: be it, and commit.

    One whose cursors are in a log is only looked at: they move with what is written there, and
    would pass over records whose results nobody wrote.
    """
    found = [each for each in store.info()["consumers"] if each["name"] == name]
    home = found[0]["cursor_in"] if found else None
    if commit and home is not None:
        raise Stop(
            f"the cursors of consumer {name} are in the log {home}, and move with what is written "
            "there: leave out --commit to look, or set its place with `falaj seek`"
        )
    if commit or (commit is None and home is None):
        return None
    if not found:
        raise NoSuchConsumer(
            f"there is no consumer {name!r} in {store.path}; `falaj consumers` lists what there is"
        )
    if code := told([(found[0]["error"], found[0]["remedy"])]):
        raise typer.Exit(code)
    own = [each for each in found[0]["cursors"] if each["topic"] == topic]
    return {each["partition"]: each["committed"] for each in own}


def _from_place(part: Part, places: dict[int, int]) -> Part:
    """A partition from the consumer's place on: the beginning, where it has none."""
    place = places.get(part.topic.partitions[0], part.start)
    if not part.topic.first <= place <= part.topic.end:
        raise part.topic._out_of_range(place)
    return Part(part.topic, place, max(place, part.stop))


def _consume(
    store: "Store",
    name: str,
    topic: str,
    durable: bool,
    timeout: float | None,
    skip_damage: bool,
    look: Look,
    matches: "Match | None",
) -> bool:
    """Write what a consumer comes to, and commit it; whether damage was stepped over."""
    out = sys.stdout.buffer
    damaged = False
    visibility: Visibility = "durable" if durable else "committed"
    store._expect_topic(topic)
    with (
        raw_topic(store, topic) as opened,
        store.consumer(name, [opened], visibility=visibility) as reader,
    ):
        show = printer(look, Paint.of(sys.stdout), opened.codec, len(opened.partitions) > 1)
        while True:
            try:
                records = reader.poll(timeout=timeout)
            except Corrupt as damage:
                if not skip_damage:
                    raise
                damaged = True
                say(str(damage))
                reader.skip_damage()
                reader.commit()
                continue
            if not records:
                return damaged
            for record in _matching(records, matches):
                out.write(show(record))
            out.flush()
            reader.commit()


def _matching(records: "Iterable[Record[Any]]", matches: "Match | None") -> "Iterable[Record[Any]]":
    return filter(matches, records) if matches else records


def _write(records: "Iterable[Record[Any]]", show: "Show") -> None:
    """Write records, those before an error too, and let go of them."""
    write = sys.stdout.buffer.write
    try:
        for record in records:
            write(show(record))
    finally:
        sys.stdout.buffer.flush()


def _write_on(follower: "Follower[Any]", show: "Show", matches: "Match | None") -> None:
    """Write what comes; where nothing more is there right now, let the reader have it."""
    out = sys.stdout.buffer
    for record in follower:
        more: Record[Any] | None = record
        while more is not None:
            if matches is None or matches(more):
                out.write(show(more))
            more = follower.poll()
        out.flush()


def _write_values(part: Part, out: BinaryIO) -> None:
    """Write the bare values of one partition, thousands at a time, those before an error too."""
    try:
        for batch in part.topic._batches(part.start, part.stop, _BATCH):
            values = [value or b"" for value in batch.to_list()]
            lines = b"\n".join([*values, b""])
            try:
                lines.decode()
            except UnicodeDecodeError:
                lines = b"".join(map(_line, values))
            out.write(lines)
    finally:
        out.flush()


def _line(value: bytes) -> bytes:
    return escaped(value).encode() + b"\n"


def _back(part: Part, n: int) -> int:
    """Offset of the nth record from the end."""
    try:
        return max(part.start, part.topic._start_of_last(n, part.stop))
    except Corrupt:  # told of where it is read, behind what comes before it
        return max(part.start, part.stop - n)


def _last(parts: list[Part], n: int) -> list[Part]:
    """Cut the parts to the last n records of all of them, by time; what compaction took is none."""
    n = min(n, sum(part.stop - part.start for part in parts))
    tails = [Part(part.topic, _back(part, n), part.stop) for part in parts]
    if len(tails) == 1:
        return tails
    begins = {p.topic.partitions[0]: p.stop for p in tails}
    for record in reversed(deque(in_order(tails), maxlen=n)):
        begins[record.partition] = record.offset
    return [Part(p.topic, begins[p.topic.partitions[0]], p.stop) for p in tails]
