"""What `falaj queue` does with jobs: putting lines, taking, and redriving dead letters.

Invariant: a job is acked after its output was written, or its command ended with 0, never before.
A dead letter is put back once, however often a redrive is interrupted and repeated.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from falaj.cli.appending import BATCH_RECORDS, Appending
from falaj.cli.exits import Exit, Stop
from falaj.cli.lines import check_readable
from falaj.cli.reading import show_of
from falaj.cli.show import Look
from falaj.cli.units import count
from falaj.cli.values import Line, Made, Maker, maker_of
from falaj.records import NewRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from falaj.cli.reading import Show
    from falaj.queues import Job, Queue
    from falaj.topics import Topic

__all__ = ["put_lines", "redriven", "take_jobs"]

_NOT_BEFORE = "falaj-not-before"
_OF_LETTERS = frozenset(
    ("falaj-queue", "falaj-topic", "falaj-offset", "falaj-attempts", "falaj-reason", _NOT_BEFORE)
)


def put_lines(
    topic: Topic[Any],
    files: Sequence[str],
    key: str | None,
    headers: list[tuple[str, bytes | None]] | None,
    delay: float,
) -> Appending:
    """Append lines as jobs; with a delay, each says when it may be delivered."""
    sources = list(files) or ["-"]
    for source in sources:
        check_readable(source)
    line = Line(key=key, headers=headers)
    maker = maker_of(topic.codec, line)
    if delay:
        skips_blank = maker.skips_blank

        def make(text: bytes) -> Made:
            ready_us = (time.time_ns() + int(delay * 1e9)) // 1000
            at = [*(headers or ()), (_NOT_BEFORE, str(ready_us).encode())]
            return maker_of(topic.codec, line._replace(headers=at)).make(text)

        maker = Maker(make, skips_blank)
    work = Appending(topic, maker, None, BATCH_RECORDS)
    work.all_of(sources)
    return work


def take_jobs(
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
    if ended.returncode:
        job.nack()
    else:
        job.ack()
    return ended.returncode == 0


def redriven(
    queue: str, topic: Topic[Any], letters: Topic[Any], limit: int | None, *, dry_run: bool
) -> int:
    """Append the dead letters of a queue to its topic, and count them.

    Each partition of the letters is a producer of the topic: its last sequence says up to which
    offset letters were put back, and an append that is repeated appends nothing.
    """
    done = 0
    for number in letters.partitions:
        part = letters.partition(number)
        producer = f"redrive.{queue}.{letters.generation}.{number}"
        start = max(part.first, topic.last_sequence(producer) or 0)
        for letter in part._records(start, part.end):
            if limit is not None and done >= limit:
                return done
            if dict(letter.headers).get("falaj-queue") != queue.encode():
                continue
            done += 1
            if not dry_run:
                topic.extend([_job(letter)], producer=producer, sequence=letter.offset + 1)
    return done


def _job(letter: Any) -> NewRecord:
    """What a dead letter was before it was dead."""
    headers = [each for each in letter.headers if each[0] not in _OF_LETTERS]
    return NewRecord(bytes(letter.value), letter.key, headers or None)
