"""The figures of `profile` as values: for programs, for JSON, for the page and the terminal.

Owns their classes, and the sums that need no Spark. Spark aggregates rows; this module turns them
into hours, slots, pauses, quantiles and the inequality of keys. Times are aware, spans are in
seconds, and bytes count keys, values and headers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "Bucket",
    "Compression",
    "Key",
    "Keys",
    "Missing",
    "Partition",
    "Pause",
    "Sizes",
    "Slot",
    "hours",
    "keys",
    "missing",
    "moment",
    "pauses",
    "sizes",
    "slots",
    "step_for",
]

US = 1_000_000
HOUR_US = 3_600 * US
BUCKETS_MAX = 20_000
"""About how many buckets Spark makes at most; a bucket is always a whole part of an hour."""
SLOTS_MAX = 400
"""Most bars in the plot over time."""
_BARS = 48
"""About how many bars the plot of sizes gets if they have equal widths."""
_STEPS_US = (1_000, 10_000, 100_000, US, 10 * US, 60 * US, 600 * US, HOUR_US)
_UNITS_S = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bucket(NamedTuple):
    """The records of one short span of time; times are in microseconds since 1970."""

    at: int
    records: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Slot:
    """The records of an hour, or of another span: its beginning, their number, their bytes."""

    start: datetime
    records: int
    bytes: int


@dataclass(frozen=True)
class Pause:
    """A span without records, between two records.

    Attributes:
        start: Time of the record before it.
        end: Time of the record after it.
        seconds: Its length.
    """

    start: datetime
    end: datetime
    seconds: float


@dataclass(frozen=True)
class Missing:
    """Consecutive hours without records: the first, and their number."""

    start: datetime
    hours: int


@dataclass(frozen=True)
class Key:
    """One of the keys with most records.

    Attributes:
        key: The key in a form for people: shortened, and escaped if it is not text.
        records: How many records it has.
        share: Its share of all records, including those without a key.
        bytes: How many bytes its records have.
    """

    key: str
    records: int
    share: float
    bytes: int


@dataclass(frozen=True)
class Keys:
    """How the records are distributed over keys.

    Attributes:
        distinct: How many different keys there are.
        without: How many records have no key.
        gini: Gini coefficient of the number of records by key. It is 0 if all keys have the same
            number, and near 1 if a few keys have almost all records. None if there is no key.
        top: The keys with most records.
        lorenz: Points of the Lorenz curve: a share of the keys, rarest first, and the share of
            records that these keys have together.
    """

    distinct: int
    without: int
    gini: float | None
    top: tuple[Key, ...]
    lorenz: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Sizes:
    """The sizes of values in bytes; tombstones do not count.

    Attributes:
        mean: The average size.
        median: Half of the values are not larger.
        p90: 90 % are not larger.
        p99: 99 % are not larger.
        p999: 99.9 % are not larger.
        largest: The largest size.
        histogram: Ranges of sizes, each with its beginning, its exclusive end, and its number of
            values. They have equal widths if the largest size is less than eight times the
            smallest. Otherwise each bound is the one before, times the fourth root of two.
    """

    mean: float
    median: int
    p90: int
    p99: int
    p999: int
    largest: int
    histogram: tuple[tuple[float, float, int], ...]


@dataclass(frozen=True)
class Partition:
    """The figures of one partition.

    Attributes:
        partition: Its number.
        records: How many records it has.
        bytes: How many bytes they have.
        share: Of all records.
        first: Earliest time.
        last: Latest time.
        late: How many records have an earlier time than a record with a lower offset.
        latest: The most seconds by which such a record is late.
    """

    partition: int
    records: int
    bytes: int
    share: float
    first: datetime | None
    last: datetime | None
    late: int
    latest: float


@dataclass(frozen=True)
class Compression:
    """How a sample of values compresses: codec, bytes of the sample, and the ratio."""

    codec: str
    sample_bytes: int
    ratio: float


def moment(us: int) -> datetime:
    """Turn microseconds since 1970 into a time."""
    return _EPOCH + timedelta(microseconds=us)


def step_for(span_us: int) -> int:
    """Choose the width of buckets: a whole part of an hour that gives not too many."""
    return next((s for s in _STEPS_US if span_us <= s * BUCKETS_MAX), HOUR_US)


def _gathered(buckets: Iterable[Bucket], width_us: int) -> tuple[Slot, ...]:
    found: dict[int, list[int]] = {}
    for bucket in buckets:
        sums = found.setdefault(bucket.at // width_us, [0, 0])
        sums[0] += bucket.records
        sums[1] += bucket.bytes
    return tuple(Slot(moment(at * width_us), *sums) for at, sums in sorted(found.items()))


def hours(buckets: Iterable[Bucket]) -> tuple[Slot, ...]:
    """Sum buckets by the hour of UTC, without hours that have no records."""
    return _gathered(buckets, HOUR_US)


def slots(buckets: Sequence[Bucket], step_us: int) -> tuple[float, tuple[Slot, ...]]:
    """Sum buckets for a plot; return the seconds of a bar, and the bars that are not empty."""
    if not buckets:
        return 3_600.0, ()
    span = (max(bucket.at for bucket in buckets) - min(bucket.at for bucket in buckets)) / US
    fits = [unit for unit in _UNITS_S if unit * US >= step_us]
    unit = next((unit for unit in fits if span / unit < SLOTS_MAX), None)
    if unit is None:  # many years: as many weeks as it takes
        unit = fits[-1] * math.ceil(span / fits[-1] / SLOTS_MAX)
    return unit, _gathered(buckets, round(unit * US))


def missing(found: Sequence[Slot]) -> tuple[Missing, ...]:
    """List the hours without records between the first and the last record."""
    told = []
    for before, after in pairwise(found):
        between = round((after.start - before.start).total_seconds() / 3_600) - 1
        if between:
            told.append(Missing(before.start + timedelta(hours=1), between))
    return tuple(told)


def pauses(buckets: Iterable[Bucket], step_us: int, top: int) -> tuple[Pause, ...]:
    """List the longest pauses, of those that are at least as long as a bucket.

    Such a pause reaches into another bucket, so the first and last times of buckets show it.
    """
    newest: int | None = None
    found = []
    for bucket in sorted(buckets):
        if newest is not None and bucket.first - newest >= step_us:
            found.append((bucket.first - newest, newest, bucket.first))
        newest = bucket.last
    longest = sorted(found, key=lambda pause: (-pause[0], pause[1]))[:top]
    return tuple(Pause(moment(a), moment(b), span / US) for span, a, b in longest)


def keys(
    counted: Iterable[tuple[int, int]], without: int, top: tuple[Key, ...], points: int = 200
) -> Keys:
    """Compute the inequality of keys.

    Let x be the numbers of records of n keys, in rising order. The Gini coefficient is
    `sum((2 i - n - 1) x[i]) / (n sum(x))`, with i from 1. Source: Dixon and others, Bootstrapping
    the Gini coefficient of inequality, Ecology 68, 1987.

    Args:
        counted: Numbers of records, each with the number of keys that have so many.
        without: How many records have no key.
        top: The keys with most records.
        points: About how many points the Lorenz curve has.
    """
    levels = sorted(counted)
    distinct = sum(how_many for _, how_many in levels)
    records = sum(each * how_many for each, how_many in levels)
    if not distinct:
        return Keys(0, without, None, (), ())
    below = weighted = seen = 0
    curve = [(0.0, 0.0)]
    for each, how_many in levels:
        # Keys below+1 to below+how_many have as many records each: their terms as one.
        weighted += each * how_many * (2 * below + how_many - distinct)
        below += how_many
        seen += each * how_many
        share = below / distinct
        if share - curve[-1][0] >= 1 / points or seen / records - curve[-1][1] >= 1 / points:
            curve.append((share, seen / records))
    if curve[-1] != (1.0, 1.0):
        curve.append((1.0, 1.0))
    return Keys(distinct, without, weighted / (distinct * records), top, tuple(curve))


def sizes(counted: Iterable[tuple[int, int]]) -> Sizes | None:
    """Compute the sizes of values; None if there are none.

    Args:
        counted: Sizes, each with the number of values of that size.
    """
    levels = sorted(counted)
    values = sum(how_many for _, how_many in levels)
    if not values:
        return None

    def quantile(share: float) -> int:
        seen = 0
        for size, how_many in levels:
            seen += how_many
            if seen >= share * values:
                return size
        return levels[-1][0]

    return Sizes(
        mean=sum(size * how_many for size, how_many in levels) / values,
        median=quantile(0.5),
        p90=quantile(0.9),
        p99=quantile(0.99),
        p999=quantile(0.999),
        largest=levels[-1][0],
        histogram=_histogram(levels),
    )


def _histogram(levels: Sequence[tuple[int, int]]) -> tuple[tuple[float, float, int], ...]:
    low, high = levels[0][0], levels[-1][0]
    width = max(math.ceil((high - low + 1) / _BARS), 1)
    alike = high < 8 * low or high < _BARS
    bars: dict[tuple[float, float], int] = {}
    for size, how_many in levels:
        if alike:
            edge = float(size - (size - low) % width)
            bar = edge, edge + width
        else:
            power = math.floor(math.log2(size) * 4) if size else -4
            bar = 2 ** (power / 4) if size else 0.0, 2 ** ((power + 1) / 4)
        bars[bar] = bars.get(bar, 0) + how_many
    return tuple((*bar, how_many) for bar, how_many in sorted(bars.items()))
