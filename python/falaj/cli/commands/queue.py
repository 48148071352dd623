"""`falaj queue`: work queues: jobs listed, put, taken, redriven; queues created and reset.

Owns the words for what a job can be: ready, in flight, done, dead. A job whose delay is not over
counts as ready: what the engine counts does not tell them apart.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Argument, Command, Group, Option
from falaj.cli.commands.append import header
from falaj.cli.confirm import confirm
from falaj.cli.exits import Stop, say, told
from falaj.cli.names import no_such
from falaj.cli.paint import is_terminal
from falaj.cli.queues import put_lines, redriven, take_jobs
from falaj.cli.stores import expect_topics, raw_topic
from falaj.cli.tables import Column, objects, table
from falaj.cli.units import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from falaj.admin import QueueState
    from falaj.cli.stores import Access
    from falaj.queues import Queue
    from falaj.stores import Store

__all__ = ["COLUMNS", "GROUP", "rows"]

COLUMNS = (
    Column("queue", "queue"),
    Column("topic", "topic"),
    Column("ready", "ready", number=True),
    Column("in_flight", "in flight", number=True),
    Column("done", "done", number=True),
    Column("dead", "dead", number=True),
    Column("trimmed", "trimmed", number=True),
    Column("holders", "holders"),
)


def rows(found: Iterable[QueueState]) -> list[dict[str, Any]]:
    """Make a row for each queue."""
    return [
        {
            "queue": queue["name"],
            "topic": queue["topic"],
            "ready": None if queue["waiting"] is None else queue["waiting"] + queue["returned"],
            "in_flight": queue["leased"],
            "done": queue["done"],
            "dead": queue["dead"],
            "trimmed": queue["trimmed"],
            "holders": ", ".join(f"{who}: {jobs}" for who, jobs in queue["holders"].items()),
        }
        for queue in found
    ]


def list_(access: Access, as_json: bool) -> None:
    """Print a row for each queue; one that is corrupt does not hide the others."""
    with access.store() as opened:
        found = opened.info()["queues"]
    whole = [queue for queue in found if not queue["error"]]
    if as_json:
        objects(
            [
                {**row, "order": queue["order"], "holders": queue["holders"]}
                for row, queue in zip(rows(whole), whole, strict=True)
            ]
        )
    else:
        table(COLUMNS, rows(whole))
        if not found and is_terminal(sys.stdout):
            print(f"{access.path} has no queues yet")
    for queue in whole:
        if queue["waiting"] is None:
            gone = f"its topic {queue['topic']!r} is not there"
            say(f"queue {queue['name']}: {gone}; `falaj queue reset {queue['name']}` forgets it")
    problems = [
        (queue["error"] and f"queue {queue['name']}: {queue['error']}", queue["remedy"])
        for queue in found
    ]
    if code := told(problems):
        raise Stop.silent(code)


def create(access: Access, queue: str, topic: str | None, order: Any) -> None:
    """Create a queue over a topic that is there, or over a new one of its name."""
    with access.store("w", creates=topic is None) as opened:
        if topic is not None:
            expect_topics(opened, topic)
        with raw_topic(opened, topic or queue) as over:
            opened.queue(queue, over, order=order).close()


def put(
    access: Access,
    queue: str,
    files: list[str],
    key: str | None,
    headers: list[tuple[str, bytes | None]] | None,
    delay: float,
    as_json: bool,
) -> None:
    """Put jobs into a queue."""
    with access.store() as opened:
        _expect(opened, queue)
    with access.store("w") as opened, raw_topic(opened, _expect(opened, queue)) as topic:
        work = put_lines(topic, files, key, headers, delay)
    if as_json:
        print(json.dumps(work.figures()))
    elif is_terminal(sys.stdout):
        print(work.summary())


def take(
    access: Access,
    queue: str,
    jobs: int,
    command: str | None,
    lease: float,
    timeout: float | None,
    max_attempts: int | None,
    as_json: bool,
    form: str | None,
) -> None:
    """Take jobs, and print them or run a command for each."""
    with access.store() as opened:
        _expect(opened, queue)
    with access.store("w") as opened, _open(opened, queue, max_attempts) as found:
        take_jobs(found, jobs, command, lease, timeout, as_json, form)


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
        topic = _expect(opened, queue)
        dead = dead_letter or f"{topic}.dead"
        if dead_letter is not None:
            expect_topics(opened, dead)
        there = dead in opened.topics()
    done = 0
    if there:
        # Also for a dry run: only a store that is open for writing knows its producers.
        with (
            access.store("w") as opened,
            raw_topic(opened, topic) as over,
            raw_topic(opened, dead) as letters,
        ):
            done = redriven(queue, over, letters, limit, dry_run=dry_run)
    if as_json:
        print(json.dumps({"queue": queue, "topic": topic, "redriven": done, "dry_run": dry_run}))
    elif is_terminal(sys.stdout):
        would = "would be put" if dry_run else "put"
        print(f"{count(done, 'dead letter')} {would} back into topic {topic}")
    else:
        print(queue, done, sep="\t")


def reset(access: Access, queue: str, yes: bool) -> None:
    """Forget the state of a queue."""
    with access.store() as opened:
        _expect(opened, queue)
    confirm(f"Make all records of queue {queue} ready again?", f"resetting queue {queue}", yes)
    with access.store("w") as opened:
        opened.delete_queue(queue)


def _expect(store: Store, name: str) -> str:
    """Find the topic of a queue.

    Raises:
        Stop: There is no such queue; the sentence lists those that there are.
    """
    there = store.queues()
    if name not in there:
        raise no_such("queue", name, list(there), store.path)
    return there[name]


def _open(store: Store, name: str, max_attempts: int | None) -> Queue[Any]:
    return store.queue(name, raw_topic(store, _expect(store, name)), max_attempts=max_attempts)


_NAME = Argument("queue", "QUEUE", "Name of the queue.")
_FILES = Argument(
    "files",
    "FILE",
    "Files to read; none, or -, is standard input.",
    many=True,
    needed=False,
    read=options.path,
)
GROUP = Group(
    "List work queues; put, take and redrive jobs.",
    {
        "list": Command(
            list_,
            "List queues: jobs that are ready, in flight, done, dead.",
            (),
            (*options.ACCESS, options.AS_JSON),
            "Jobs that dead processes held count as ready. The column dead counts all jobs that "
            "were ever dead-lettered, trimmed those that retention deleted before they were done.",
        ),
        "create": Command(
            create,
            "Create a queue over a topic.",
            (_NAME,),
            (
                *options.ACCESS,
                Option("--topic", "topic", "Its topic; by default a new one of its name.", "TOPIC"),
                Option(
                    "--order",
                    "order",
                    "key: deliver one job of a key at a time, in order.",
                    "ORDER",
                    options.choice("key"),
                ),
            ),
        ),
        "put": Command(
            put,
            "Put jobs into a queue: each line is one.",
            (_NAME, _FILES),
            (
                *options.ACCESS,
                Option("--key", "key", "Key of every job.", "KEY"),
                Option(
                    "--header",
                    "headers",
                    "Header of every job; may be repeated.",
                    "NAME=VALUE",
                    header,
                    many=True,
                ),
                Option(
                    "--delay",
                    "delay",
                    "Do not deliver a job before so long: 10m.",
                    "SPAN",
                    options.span_from,
                    0.0,
                ),
                options.AS_JSON._replace(help="Print what was put, as JSON."),
            ),
        ),
        "take": Command(
            take,
            "Take jobs: print them, or run a command for each.",
            (_NAME,),
            (
                *options.ACCESS,
                Option("-n --jobs", "jobs", "Take up to N jobs (1).", "N", options.whole(1), 1),
                Option(
                    "--run",
                    "command",
                    "Shell command for each job; the value is its input.",
                    "COMMAND",
                ),
                Option(
                    "--lease",
                    "lease",
                    "How long the work on a job may take: 30s.",
                    "SPAN",
                    options.span_from,
                    30.0,
                ),
                Option(
                    "--timeout",
                    "timeout",
                    "Wait so long for a job; by default until one comes.",
                    "SECONDS",
                    options.seconds,
                ),
                Option(
                    "--max-attempts",
                    "max_attempts",
                    "Dead-letter a job after N attempts.",
                    "N",
                    options.whole(1),
                ),
                options.AS_JSON,
                Option("--format", "form", "Print by a template, as `falaj cat`.", "TEXT"),
            ),
            "Without --run a job is done once it is printed. With --run it is done when the "
            "command ends with 0, and is delivered again otherwise; the variables FALAJ_KEY, "
            "FALAJ_OFFSET and FALAJ_ATTEMPT describe it.\n\n"
            "If no job came in time, the exit code is 4.",
        ),
        "redrive": Command(
            redrive,
            "Put dead letters back into the queue, each once.",
            (_NAME,),
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
        ),
        "reset": Command(
            reset,
            "Forget the state of a queue: all its records are ready.",
            (_NAME,),
            (*options.ACCESS, options.YES),
        ),
    },
)
