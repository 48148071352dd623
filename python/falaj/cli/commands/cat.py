"""`falaj cat`: the records that there are, from the beginning to the end as of now."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.exits import Exit, Stop, say
from falaj.cli.paint import is_terminal
from falaj.cli.ranges import Range, in_order
from falaj.cli.reading import matching, show_of, write, write_values
from falaj.cli.show import Look, matcher

if TYPE_CHECKING:
    from falaj.cli.stores import Access
    from falaj.errors import CorruptData

__all__ = ["COMMAND", "cat"]


def cat(
    access: Access,
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
    """Print records."""
    shown = Look(**look).check()
    wanted = Range(start, stop, since, until, partition).check()
    most = None if limit is None else min(limit, sys.maxsize)
    matches = matcher(grep)
    found: list[CorruptData] = []

    def on_corrupt(error: CorruptData) -> None:
        found.append(error)
        say(str(error))

    if access.wants_all:
        from falaj.cli.origins import EveryOrigin  # few need it

        with access.origins() as everyone:
            every = EveryOrigin(everyone, topics, wanted, shown, matches, durable=durable)
            every.cat(most, on_corrupt if skip_corrupt else None)
        if found:
            raise Stop.silent(Exit.CORRUPTION)
        return
    with access.topics(topics, durable) as opened:
        parts = wanted.of(*opened)
        whole = matches is None and limit is None and not skip_corrupt and len(parts) == 1
        if whole and shown.bare(is_terminal(sys.stdout)):
            write_values(parts[0], sys.stdout.buffer)
            return
        records = in_order(parts, on_corrupt if skip_corrupt else None)
        write(islice(matching(records, matches), most), show_of(shown, opened))
    if found:
        raise Stop.silent(Exit.CORRUPTION)


COMMAND = Command(
    cat,
    "Print the records that are there now.",
    (options.TOPICS,),
    (
        *options.READS,
        options.FROM,
        Option(
            "--to",
            "stop",
            "End before this offset; -10 leaves out the last ten.",
            "OFFSET",
            options.limit,
        ),
        options.SINCE,
        Option("--until", "until", "End before this time.", "TIME", options.moment),
        Option("-n --limit", "limit", "At most N records.", "N", options.whole(far=True)),
        *options.READING,
        Option(
            "--skip-corrupt",
            "skip_corrupt",
            "Skip corrupt records, and exit with 1.",
            default=False,
        ),
    ),
    "In a pipe it prints the values, one a line. On a terminal it prints offset, time, key and "
    "value in columns. Partitions and topics are merged by time.",
)
