"""The figures that must be right: every flight exactly once, Spark's sums those of plain Python.

The check is independent: it reads the log itself and the file of flights. It asks neither the
producers nor the follower nor Spark.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import falaj
from falaj.demo import flights
from falaj.demo.failed import Failed
from falaj.demo.figures import Tally, by_carrier
from falaj.demo.follower import LATE_MINUTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from falaj.demo.figures import Table

__all__ = ["differences", "exactly_once", "is_late", "same_delays", "tally"]

Name = tuple[str, int]


def is_late(flight: Mapping[str, Any]) -> bool:
    """Say whether a flight left late; a flight that did not leave is not late."""
    return flight["dep_delay"] is not None and flight["dep_delay"] >= LATE_MINUTES


def exactly_once(
    store: Path,
    name: str,
    limit: int | None,
    wanted: Callable[[Mapping[str, Any]], bool] = lambda _: True,
) -> tuple[int, int]:
    """Read the log and compare it with the file, record by record.

    Args:
        store: Directory of the store.
        name: The topic.
        limit: Only the first so many flights were appended.
        wanted: Which of them should be there.

    Returns:
        How many flights there are, and the bytes of their values.

    Raises:
        Failed: One is missing, there twice, or not what the file says.
    """
    missing: dict[Name, bytes] = {}
    numbers: Counter[str] = Counter()
    for flight in flights.flights(limit):
        origin = flight["origin"]
        if wanted(flight):
            missing[origin, numbers[origin]] = flights.encode(flight)
        numbers[origin] += 1
    expected = len(missing)
    size = sum(map(len, missing.values()))
    with falaj.open(store, read_only=True) as opened, opened.topic(name) as topic:
        for record in topic:
            _cross_off(missing, record)
    if missing:
        origin, seq = next(iter(missing))
        raise Failed(
            f"{len(missing):,} of {expected:,} flights are not in the topic {name}, "
            f"the first is number {seq} of {origin}"
        )
    return expected, size


def _cross_off(missing: dict[Name, bytes], record: falaj.Record[Any]) -> None:
    headers = dict(record.headers)
    origin = (headers["producer"] or b"").decode()
    seq = int(headers["seq"] or b"")
    value = missing.pop((origin, seq), None)
    if value is None:
        raise Failed(
            f"the record at offset {record.offset} of topic {record.topic} is number {seq} of "
            f"{origin}, which was there before or never appended"
        )
    if value != record.to_bytes():
        raise Failed(
            f"the record at offset {record.offset} of topic {record.topic} is not number {seq} of "
            f"{origin} as the file has it"
        )


def tally(rows: Iterable[dict[str, Any]], rain: Mapping[tuple[str, str], float]) -> Table:
    """Sum up delays by carrier and scheduled hour, in plain Python.

    Args:
        rows: The flights.
        rain: Inches of rain or snow by airport and hour.

    Returns:
        The sums.
    """
    table: defaultdict[Name, Tally] = defaultdict(Tally)
    for flight in rows:
        found = table[flight["carrier"], flight["hour"]]
        found.flights += 1
        delay = flight["dep_delay"]
        if delay is None:
            continue
        found.departed += 1
        found.minutes += delay
        found.late += delay >= LATE_MINUTES
        if rain.get((flight["origin"], flight["time_hour"]), 0.0) > 0:
            found.wet += 1
            found.wet_minutes += delay
    return dict(table)


def differences(expected: Mapping[Any, Tally], found: Mapping[Any, Tally]) -> list[str]:
    """Name every key whose figures differ, with both."""
    return [
        f"{key}: expected {expected.get(key)}, found {found.get(key)}"
        for key in sorted(expected.keys() | found.keys())
        if expected.get(key) != found.get(key)
    ]


def same_delays(expected: Table, parquet: Table, summary: Mapping[str, Tally]) -> None:
    """Compare what Spark wrote with plain Python.

    Args:
        expected: The sums of the file by `tally`.
        parquet: By carrier and hour, from the Parquet files.
        summary: By carrier, from the topic `delays`.

    Raises:
        Failed: A figure differs.
    """
    for place, said in (
        ("the Parquet files", differences(expected, parquet)),
        ("the topic delays", differences(by_carrier(expected), summary)),
    ):
        if said:
            raise Failed(
                f"{len(said)} figures in {place} are not those of plain Python; the first is "
                f"{said[0]}"
            )
