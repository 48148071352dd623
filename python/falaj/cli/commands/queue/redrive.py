"""`falaj queue redrive`: dead letters put back into the queue; a letter is put back once."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from falaj import _core
from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.paint import is_terminal
from falaj.cli.queues import QUEUE, expect_queue
from falaj.cli.stores import expect_topics, one_partition, raw_topic
from falaj.cli.units import count

if TYPE_CHECKING:
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "redrive", "show"]


def redrive(
    access: Access,
    queue: str,
    dead_letter: str | None,
    limit: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Put dead letters of a queue back into its topic."""
    with access.store() as opened:
        topic = expect_queue(opened, queue)
        dead = dead_letter or f"{topic}.dead"
        if dead_letter is not None:
            expect_topics(opened, dead)
        there = dead in opened.topics
    done = 0
    if there:
        # Also for a dry run: only a store that is open for writing knows its producers.
        with (
            access.store(writes=True) as opened,
            raw_topic(opened, topic) as over,
            raw_topic(opened, dead) as letters,
        ):
            done = _core._redrive(queue, one_partition(over), letters, limit, dry_run)
    show(queue, topic, done, dry_run, as_json)


def show(queue: str, topic: str, done: int, dry_run: bool, as_json: bool) -> None:
    """Print how many dead letters were put back."""
    if as_json:
        print(json.dumps({"queue": queue, "topic": topic, "redriven": done, "dry_run": dry_run}))
    elif is_terminal(sys.stdout):
        would = "would be put" if dry_run else "put"
        print(f"{count(done, 'dead letter')} {would} back into topic {topic}")
    else:
        print(queue, done, sep="\t")


COMMAND = Command(
    redrive,
    "Put dead letters back into the queue, each once.",
    (QUEUE,),
    (
        *options.ACCESS,
        Option(
            "--dead-letter",
            "dead_letter",
            "Topic of the dead letters; by default TOPIC.dead.",
            "TOPIC",
        ),
        Option("-n --limit", "limit", "At most N.", "N", options.whole(1)),
        options.DRY_RUN,
        options.AS_JSON._replace(help="Print how many as JSON."),
    ),
    "The records stay in the topic of the dead letters. Running it again puts back only "
    "those that came since.",
)
