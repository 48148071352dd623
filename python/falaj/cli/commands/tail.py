"""`falaj tail`: the last records, and those that come."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from falaj._consumer import open_consumer
from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.exits import Exit, Stop, say, told
from falaj.cli.following import follow
from falaj.cli.names import no_such
from falaj.cli.paint import Paint
from falaj.cli.ranges import Part, Range, in_order
from falaj.cli.reading import matching, several_of, show_of, write
from falaj.cli.show import Look, Several, matcher, printer
from falaj.cli.stores import Access, expect_topics, raw_topic
from falaj.errors import CorruptData

if TYPE_CHECKING:
    from falaj._arguments import Visibility
    from falaj._store import Store
    from falaj.cli.reading import Match

__all__ = ["COMMAND", "check", "tail"]


def tail(
    access: Access,
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
    """Print the last records, and with -f those that come."""
    shown = Look(**look).check()
    wanted = Range(start, None, since, None, partition)
    check(wanted, topics, follow_on, last, idle, group, pattern, commit, skip_corrupt)
    matches = matcher(grep)
    if access.wants_all:
        _of_all(access, topics, wanted, group, last, idle, follow_on, durable, shown, matches)
        return
    places: dict[tuple[str, int], int] | None = None
    if group is not None:
        with access.store() as store:
            expect_topics(store, *topics)
            places = _places(store, group, commit)
        if places is None:
            with access.store(writes=True) as store:
                timeout = idle if follow_on else 0.0
                reads = topics if pattern is None else pattern
                _consume(store, group, reads, durable, timeout, skip_corrupt, shown, matches)
            return
        if skip_corrupt:
            raise Stop("a group whose offsets a log keeps is not moved by tail: leave that out")
    with access.topics(topics, durable) as opened:
        parts = wanted.of(*opened)
        if places is not None:
            parts = [_from_place(part, places) for part in parts]
        elif (start, since) == (None, None):
            parts = _last(parts, 10 if last is None else last)
        show = show_of(shown, opened)
        write(matching(in_order(parts), matches), show)
        if follow_on:
            follow(opened, partition, parts, idle, show, matches)


def _of_all(
    access: Access,
    topics: list[str],
    wanted: Range,
    group: str | None,
    last: int | None,
    idle: float | None,
    follow_on: bool,
    durable: bool,
    shown: Look,
    matches: Match | None,
) -> None:
    """Print records of all origins of a place."""
    from falaj.cli.origins import EveryOrigin  # few need it

    if group is not None:
        raise Stop("--group reads one store: name one origin, or leave --group out")
    with access.origins() as everyone:
        every = EveryOrigin(everyone, topics, wanted, shown, matches, durable=durable)
        ranged = (wanted.start, wanted.since) != (None, None)
        every.tail(None if ranged else 10 if last is None else last)
        if follow_on:
            every.follow(idle)


def check(
    wanted: Range,
    topics: list[str],
    follow_on: bool,
    last: int | None,
    idle: float | None,
    group: str | None,
    pattern: str | None,
    commit: bool | None,
    skip_corrupt: bool,
) -> None:
    """Check that the options go together, on a directory and over HTTP.

    Raises:
        Stop: They do not; the sentence says what to give instead.
    """
    wanted.check()
    if last is not None and (wanted.start, wanted.since) != (None, None):
        raise Stop("-n, --from and --since say where to begin: give one of them")
    if idle is not None and not follow_on:
        raise Stop("--idle is for following: add -f")
    if skip_corrupt and (group is None or commit is False):
        raise Stop("--skip-corrupt moves a group's offsets: add --group, or use `falaj cat`")
    if commit is not None and group is None:
        raise Stop("--commit and --no-commit are about a consumer group: add --group")
    if pattern is not None and (group is None or commit is False or topics):
        raise Stop("--pattern takes the place of topics, for a group that commits: add --group")
    if pattern is None and not topics:
        raise Stop("say which topics: their names, or --group and --pattern")
    begins = (last, wanted.start, wanted.since, wanted.partition)
    if group is not None and begins != (None, None, None, None):
        raise Stop("--group says where to begin: leave out -n, --from, --since, --partition")


def _places(store: Store, name: str, commit: bool | None) -> dict[tuple[str, int], int] | None:
    """Return the committed offsets of a group to show; None means to read as a member and commit.

    If the offsets of a group are in a log, they move together with its results there. So `tail`
    does not commit them: the group would skip records whose results are not written yet.
    """
    groups = store.info()["groups"]
    found = [each for each in groups if each["name"] == name]
    home = found[0]["cursor_in"] if found else None
    if commit and home is not None:
        raise Stop(
            f"the offsets of group {name} are in the log {home}, and move with what is written "
            "there: leave out --commit to look, or set them with `falaj group seek`"
        )
    if commit or (commit is None and home is None):
        return None
    if not found:
        raise no_such("group", name, [each["name"] for each in groups], store._where)
    if code := told([(found[0]["error"], found[0]["error_class"])]):
        raise Stop.silent(code)
    return {(c["topic"], c["partition"]): c["committed"] for c in found[0]["partitions"]}


def _from_place(part: Part, places: dict[tuple[str, int], int]) -> Part:
    """Return a partition from the group's committed offset, or else from its beginning."""
    place = places.get((part.topic.name, part.topic.partitions[0]), part.start)
    if not part.topic.start_offset <= place <= part.topic.end_offset:
        raise part.topic._out_of_range(place)
    return Part(part.topic, place, max(place, part.stop))


def _consume(
    store: Store,
    name: str,
    reads: list[str] | str,
    durable: bool,
    timeout: float | None,
    skip_corrupt: bool,
    look: Look,
    matches: Match | None,
) -> None:
    """Print what a member of a group gets, of some topics or of a pattern, and commit it."""
    out = sys.stdout.buffer
    skipped = False
    visibility: Visibility = "durable" if durable else "visible"
    named: list[Any] | None = None
    several = Several(True, True, {})  # a pattern may find more
    if isinstance(reads, list):
        named = [raw_topic(store, topic) for topic in reads]
        several = several_of(named)

    def found(topic: str) -> Any:
        opened = raw_topic(store, topic)
        several.codecs[topic] = opened.codec
        return opened

    pattern = reads if isinstance(reads, str) else None
    joined = open_consumer(
        store, name, named, pattern, "earliest", visibility, False, None, opener=found
    )
    show = printer(look, Paint.of(sys.stdout), several)
    with joined as reader:
        while True:
            try:
                records = reader.poll(timeout=timeout)
            except CorruptData as corruption:
                if not skip_corrupt:
                    raise
                skipped = True
                say(str(corruption))
                reader.skip_damage()
                reader.commit()
                continue
            if not records:
                break
            for record in matching(records, matches):
                out.write(show(record))
            out.flush()
            reader.commit()
    if skipped:
        raise Stop.silent(Exit.CORRUPTION)


def _back(part: Part, n: int) -> int:
    """Return the offset of the nth record from the end."""
    try:
        return max(part.start, part.topic._start_of_last(n, part.stop))
    except CorruptData:  # told of where it is read, behind what comes before it
        return max(part.start, part.stop - n)


def _last(parts: list[Part], n: int) -> list[Part]:
    """Cut the parts to the last n records of all of them, by time; gaps do not count."""
    n = min(n, sum(part.stop - part.start for part in parts))
    tails = [Part(part.topic, _back(part, n), part.stop) for part in parts]
    if len(tails) == 1:
        return tails
    begins = {_place(part): part.stop for part in tails}
    for record in reversed(deque(in_order(tails), maxlen=n)):
        begins[record.topic, record.partition] = record.offset
    return [Part(part.topic, begins[_place(part)], part.stop) for part in tails]


def _place(part: Part) -> tuple[str, int]:
    topic: Any = part.topic
    return topic.name, topic.partitions[0]


COMMAND = Command(
    tail,
    "Print the last records, and with -f those that come.",
    (options.SOME_TOPICS,),
    (
        *options.READS,
        Option("-f --follow", "follow_on", "Go on as records come.", default=False),
        Option(
            "-n --last", "last", "Start with the last N records (10).", "N", options.whole(far=True)
        ),
        options.FROM,
        options.SINCE,
        Option(
            "--idle",
            "idle",
            "With -f, end when no record came for so long.",
            "SECONDS",
            options.seconds,
        ),
        Option("--group", "group", "Read as a member of this consumer group.", "GROUP"),
        Option(
            "--pattern",
            "pattern",
            "With --group, read all topics whose names match, also later ones: 'orders.*'.",
            "PATTERN",
        ),
        Option(
            "--commit",
            "commit",
            "With --group, commit what was printed (the default), or only look.",
            off="--no-commit",
        ),
        *options.READING,
        Option(
            "--skip-corrupt",
            "skip_corrupt",
            "With --group, skip corrupt records for good, and exit with 1.",
            default=False,
        ),
    ),
    "Several partitions and topics are merged by time. --grep looks at these records; it does not "
    "search for ten that match.",
)
