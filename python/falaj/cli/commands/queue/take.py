"""`falaj queue take`: jobs printed, or a command run for each.

Invariant: a job is acked after its output was written, or its command ended with 0, never before.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from falaj.cli import options
from falaj.cli.arguments import Command, Option
from falaj.cli.exits import Exit, Stop
from falaj.cli.queues import QUEUE, expect_queue
from falaj.cli.reading import show_of
from falaj.cli.show import Look
from falaj.cli.stores import one_partition, raw_topic
from falaj.cli.units import count

if TYPE_CHECKING:
    from falaj._queue import Job, Queue
    from falaj.cli.reading import Show
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "take", "take_from"]


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
        expect_queue(opened, queue)
    with access.store(writes=True) as opened:
        topic = one_partition(raw_topic(opened, expect_queue(opened, queue)))
        found = opened.queue(queue, topic, max_attempts=max_attempts)
        take_from(found, jobs, command, lease, timeout, as_json, form)


def take_from(
    queue: Queue[Any],
    jobs: int,
    command: str | None,
    lease: float,
    timeout: float | None,
    as_json: bool,
    form: str | None,
) -> None:
    """Take jobs until there were enough, or none came in time.

    Raises:
        Stop: No job came in time, or a command failed.
    """
    show = show_of(Look(as_json, form=form).check(), [queue.topic])
    left, failed = jobs, 0
    while left:
        # A command has its lease to itself; what is printed is done at once.
        waits = timeout if left == jobs else 0.0
        taken = queue.take(1 if command else left, lease=lease, timeout=waits)
        if not taken:
            break
        with taken:
            for job in taken:
                left -= 1
                if command is None:
                    _print(job, show)
                elif not _run(job, command):
                    failed += 1
    if left == jobs:
        raise Stop(f"queue {queue.name} has no job that is ready", Exit.AGAIN)
    if failed:
        raise Stop(f"the command failed for {failed} of {count(jobs - left, 'job')}", Exit.AGAIN)


def _print(job: Job[Any], show: Show) -> None:
    out = sys.stdout.buffer
    out.write(show(job.record))
    out.flush()
    job.ack()


def _run(job: Job[Any], command: str) -> bool:
    """Run a command for a job; whether it ended with 0."""
    import subprocess  # only workers need it

    told = {
        "FALAJ_KEY": "" if job.key is None else os.fsdecode(job.key.replace(b"\0", b"")),
        "FALAJ_OFFSET": str(job.offset),
        "FALAJ_ATTEMPT": str(job.attempt),
    }
    value = job.record.value
    ended = subprocess.run(
        command,
        shell=True,
        input=b"" if value is None else bytes(value),
        env={**os.environ, **told},
        check=False,
    )
    if code := ended.returncode:
        how = f"the command ended with {code}" if code > 0 else f"signal {-code} ended the command"
        job.nack(reason=how)
    else:
        job.ack()
    return ended.returncode == 0


COMMAND = Command(
    take,
    "Take jobs: print them, or run a command for each.",
    (QUEUE,),
    (
        *options.ACCESS,
        Option("-n --jobs", "jobs", "Take up to N jobs (1).", "N", options.whole(1), 1),
        Option(
            "--run",
            "command",
            "Shell command for each job; the value is its input.",
            "COMMAND",
            str,
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
        Option("--format", "form", "Print by a template, as `falaj cat`.", "TEXT", str),
    ),
    "Without --run a job is done once it is printed. With --run it is done when the "
    "command ends with 0, and is delivered again otherwise; the variables FALAJ_KEY, "
    "FALAJ_OFFSET and FALAJ_ATTEMPT describe it.\n\n"
    "If no job came in time, the exit code is 4.",
)
