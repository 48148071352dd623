"""Histories of one partition: requests and answers, held against the log in the end.

Owns the rules. Operations are appends, and looks at the end of the log, each with the times between
which it happened. A log orders its records, so a history is linearizable if each operation has a
moment between its times, and these moments are in the order of the offsets. `check` gives each
operation the earliest moment that it can have. If that is too late for one, no other choice helps,
since every constraint only pushes moments later.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NEVER = math.inf


@dataclass(frozen=True)
class Append:
    """One value that one client appended, however often it asked.

    Attributes:
        value: Unique among all appends.
        asked: When it was first asked for.
        answered: When it was acknowledged, or `NEVER`: then it may have happened, or happen later.
        offset: Where, if it was acknowledged.
        is_refused: True if it was refused: then it may not have happened.
    """

    value: bytes
    asked: float
    answered: float = NEVER
    offset: int | None = None
    is_refused: bool = False


@dataclass(frozen=True)
class Look:
    """A client learnt where the log ends: by asking, or by the refusal of a conditional append."""

    end: int
    asked: float
    answered: float


@dataclass(frozen=True)
class Reading:
    """The records that one reader got, in its order."""

    first: int
    values: Sequence[bytes]


def check(
    log: Sequence[bytes],
    appends: Iterable[Append],
    looks: Iterable[Look] = (),
    readings: Iterable[Reading] = (),
) -> list[str]:
    """List what is wrong with a history, a sentence each.

    Args:
        log: All values of the partition, in the end.
        appends: All appends that any client began.
        looks: Answers that told where the log ended.
        readings: What each reader got.
    """
    by_value = {append.value: append for append in appends}
    wrong = [*_wrong_appends(log, by_value), *_wrong_readings(log, readings)]
    # Moments mean nothing if the log has other records than were appended.
    return wrong or list(_too_late(log, by_value, sorted(looks, key=lambda look: look.asked)))


def _wrong_appends(log: Sequence[bytes], by_value: dict[bytes, Append]) -> Iterable[str]:
    for value, count in Counter(log).items():
        if count > 1:
            yield f"{value!r} is in the log {count} times"
        if value not in by_value:
            yield f"{value!r} is in the log, and no client appended it"
        elif by_value[value].is_refused:
            yield f"{value!r} is in the log, and was refused"
    for append in by_value.values():
        if append.offset is not None and log[append.offset : append.offset + 1] != [append.value]:
            yield f"{append.value!r} was acknowledged at offset {append.offset}, and is not there"


def _wrong_readings(log: Sequence[bytes], readings: Iterable[Reading]) -> Iterable[str]:
    for number, reading in enumerate(readings):
        there = log[reading.first : reading.first + len(reading.values)]
        for offset, (got, stored) in enumerate(
            zip(reading.values, there, strict=False), reading.first
        ):
            if got != stored:
                yield f"reader {number} got {got!r} at offset {offset}, where {stored!r} is"
                break
        if len(there) < len(reading.values):
            yield f"reader {number} got records behind the end of the log"


def _too_late(
    log: Sequence[bytes], by_value: dict[bytes, Append], looks: Sequence[Look]
) -> Iterable[str]:
    seen: dict[int, list[Look]] = {}
    for look in looks:
        seen.setdefault(look.end, []).append(look)
    if beyond := [end for end in seen if end > len(log)]:
        yield f"a client was told of the end {max(beyond)}, and the log ends at {len(log)}"
    now = -math.inf
    for end in range(len(log) + 1):
        # All looks that saw this end come before the append at it, and in any order.
        moments = [(max(now, look.asked), look) for look in seen.get(end, ())]
        for moment, look in moments:
            if moment > look.answered:
                yield f"a client was told of the end {end}, after a later record was acknowledged"
        now = max([now, *(moment for moment, _ in moments)])
        if end < len(log):
            append = by_value[log[end]]
            now = max(now, append.asked)
            if now > append.answered:
                yield f"{append.value!r} was acknowledged before what came first: offset {end}"
