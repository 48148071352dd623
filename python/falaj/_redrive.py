"""Putting dead letters back into a queue: `Queue.redrive` and `falaj queue redrive`.

Invariant: a dead letter is put back once, however often a redrive is interrupted and repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from falaj._records import NewRecord

if TYPE_CHECKING:
    from falaj._any_topic import AnyTopic
    from falaj._topic import Topic

__all__ = ["redriven"]

_OF_LETTERS = frozenset(
    (
        "falaj-queue",
        "falaj-topic",
        "falaj-offset",
        "falaj-attempts",
        "falaj-reason",
        "falaj-not-before",
    )
)


def redriven(
    queue: str, topic: Topic[Any], letters: AnyTopic[Any], limit: int | None, *, dry_run: bool
) -> int:
    """Append the dead letters of a queue to its topic, and count them.

    Each partition of the letters is a producer of the topic. Its last sequence is the offset up to
    which letters were put back, and a repeated append appends nothing.
    """
    done = 0
    for number in letters.partitions:
        part = letters.partition(number)
        producer = f"redrive.{queue}.{letters.generation}.{number}"
        start = max(part.start_offset, topic.last_sequence(producer) or 0)
        for letter in part._records(start, part.end_offset):
            if limit is not None and done >= limit:
                return done
            if dict(letter.headers).get("falaj-queue") != queue.encode():
                continue
            done += 1
            if not dry_run:
                topic.extend([_job(letter)], producer=producer, sequence=letter.offset + 1)
    return done


def _job(letter: Any) -> NewRecord:
    """Make the original job of a dead letter."""
    headers = [each for each in letter.headers if each[0] not in _OF_LETTERS]
    return NewRecord(bytes(letter.raw), letter.key, headers=headers or None)
