"""The figures of `profile`, as values: for programs as JSON, for the page and the terminal.

Owns the shapes, and the sums that need no Spark: rows that were aggregated there become hours,
slots, pauses, quantiles and the inequality of keys. Times are aware, spans are seconds, bytes are
those of keys, values and headers.
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
"""About how many buckets Spark is asked for; hours are never divided into less than whole parts."""
SLOTS_MAX = 400
"""Most bars of the plot over time."""
_BARS = 48
"""About how many bars sizes get where they are alike wide."""
_STEPS_US = (1_000, 10_000, 100_000, US, 10 * US, 60 * US, 600 * US, HOUR_US)
_UNITS_S = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bucket(NamedTuple):
    """Records of one short span of time, times in microseconds since 1970."""

    at: int
    records: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Slot:
    """Records of an hour, or of another span: when it begins, how many, how many bytes."""

    start: datetime
    records: int
    bytes: int


@dataclass(frozen=True)
class Pause:
    """A span without a record, between two.

    Attributes:
        start: Time of the record before it.
        end: Time of the record behind it.
        seconds: How long.
    """

    start: datetime
    end: datetime
    seconds: float


@dataclass(frozen=True)
class Missing:
    """Hours one after the other that have no record: the first, and how many."""

    start: datetime
    hours: int


@dataclass(frozen=True)
class Key:
    """One of the keys with most records.

    Attributes:
        key: The key, for people: shortened, and escaped where it is no text.
        records: How many it has.
        share: Of all records, those without a key included.
        bytes: Bytes of its records.
    """

    key: str
    records: int
    share: float
    bytes: int


@dataclass(frozen=True)
class Keys:
    """How records are spread over keys.

    Attributes:
        distinct: How many keys there are.
        without: Records that have none.
        gini: Inequality of the number of records by key: 0 where all keys have as many, towards 1
            the more a few of them have all; None where there is no key.
        top: Those with most records.
        lorenz: Points of the Lorenz curve: share of keys, from the rarest up, and share of records
            that they have together.
    """

    distinct: int
    without: int
    gini: float | None
    top: tuple[Key, ...]
    lorenz: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Sizes:
    """How large values are, in bytes; tombstones are not counted.

    Attributes:
        mean: On the average.
        median: Half of them are not larger.
        p90: 90 % are not larger.
        p99: 99 %.
        p999: 99.9 %.
        largest: The largest.
        histogram: Ranges of sizes, from and up to, not including, and how many values are in each:
            alike wide where the largest is less than eight times the smallest, else each a fourth
            root of two wider than the one before.
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
    """One partition.

    Attributes:
        partition: Its number.
        records: How many.
        bytes: How many.
        share: Of all records.
        first: Earliest time.
        last: Latest time.
        late: Records whose time lies before that of one with a lower offset.
        latest: Most seconds by which one does.
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
    """The size of a sample of values: codec, bytes of the sample, and how many times smaller."""

    codec: str
    sample_bytes: int
    ratio: float


def moment(us: int) -> datetime:
    """Turn microseconds since 1970 into a time."""
    return _EPOCH + timedelta(microseconds=us)


def step_for(span_us: int) -> int:
    """Choose the width of buckets: a part of an hour, so that there are not too many."""
    return next((s for s in _STEPS_US if span_us <= s * BUCKETS_MAX), HOUR_US)


def _gathered(buckets: Iterable[Bucket], width_us: int) -> tuple[Slot, ...]:
    found: dict[int, list[int]] = {}
    for bucket in buckets:
        sums = found.setdefault(bucket.at // width_us, [0, 0])
        sums[0] += bucket.records
        sums[1] += bucket.bytes
    return tuple(Slot(moment(at * width_us), *sums) for at, sums in sorted(found.items()))


def hours(buckets: Iterable[Bucket]) -> tuple[Slot, ...]:
    """Sum buckets up by the hour of UTC; hours without records are left out."""
    return _gathered(buckets, HOUR_US)


def slots(buckets: Sequence[Bucket], step_us: int) -> tuple[float, tuple[Slot, ...]]:
    """Sum buckets up for a plot: seconds of a bar, and the bars that are not empty."""
    if not buckets:
        return 3_600.0, ()
    span = (max(bucket.at for bucket in buckets) - min(bucket.at for bucket in buckets)) / US
    fits = [unit for unit in _UNITS_S if unit * US >= step_us]
    unit = next((unit for unit in fits if span / unit < SLOTS_MAX), None)
    if unit is None:  # many years: as many weeks as it takes
        unit = fits[-1] * math.ceil(span / fits[-1] / SLOTS_MAX)
    return unit, _gathered(buckets, round(unit * US))


def missing(found: Sequence[Slot]) -> tuple[Missing, ...]:
    """List the hours between the first and the last that have no record."""
    told = []
    for before, after in pairwise(found):
        between = round((after.start - before.start).total_seconds() / 3_600) - 1
        if between:
            told.append(Missing(before.start + timedelta(hours=1), between))
    return tuple(told)


def pauses(buckets: Iterable[Bucket], step_us: int, top: int) -> tuple[Pause, ...]:
    """List the longest pauses, of those that are as long as a bucket.

    A pause that long reaches into another bucket, so the first and last times of buckets tell it.
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
    """Tell how unequal keys are.

    The Gini coefficient of n keys with x records each, in rising order, is
    sum((2 i - n - 1) x[i]) / (n sum(x)), i from 1 (Dixon and others, Bootstrapping the Gini
    coefficient of inequality, Ecology 68, 1987).

    Args:
        counted: Numbers of records, and how many keys have so many.
        without: Records without a key.
        top: The keys with most records.
        points: About how many points the Lorenz curve gets.
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
    """Tell how large values are; None where there are none.

    Args:
        counted: Sizes, and how many values are that large.
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
