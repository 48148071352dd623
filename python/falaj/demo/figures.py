"""The figures of the demo's steps, as values that screen and report show."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "Copied",
    "Figures",
    "Interruption",
    "Live",
    "Streamed",
    "Table",
    "Tally",
    "Timed",
    "by_carrier",
]

Key = tuple[str, int]


@dataclass(slots=True)
class Live:
    """Progress of the first step, as the follower reports it; the screen draws this.

    Attributes:
        totals: Flights that each producer has to append.
        seen: Flights of each producer that the follower has seen.
        states: What each producer is doing, in a word.
        carriers: Flights, departed, minutes of delay and late ones per carrier.
        median_us: Median latency of the last records, in microseconds.
        history: Seconds since the start, and `seen` then.
    """

    totals: dict[str, int]
    seen: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    carriers: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    median_us: float = 0.0
    history: list[tuple[float, dict[str, int]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Interruption:
    """A producer that was killed and started again.

    Attributes:
        producer: Its airport.
        killed_at: Seconds since the start.
        resumed_at: Seconds since the start when its successor resumed.
        found: Number of its flights that the successor found in the log.
    """

    producer: str
    killed_at: float
    resumed_at: float
    found: int


@dataclass(frozen=True, slots=True)
class Streamed:
    """The first pass: paced, followed, interrupted.

    Attributes:
        live: Its progress at the end.
        seconds: From the first append to the last record seen.
        interruption: The producer that was killed; None where there were too few flights for it.
        histogram: Lower edge in microseconds and count of each bar of the follower's latencies.
        percentiles: Of the latencies, in microseconds: p50, p99, p999, max.
        follower_cpu: Seconds of processor time that the follower took.
    """

    live: Live
    seconds: float
    interruption: Interruption | None
    histogram: list[tuple[float, int]]
    percentiles: dict[str, float]
    follower_cpu: float


@dataclass(frozen=True, slots=True)
class Timed:
    """Records and seconds of something that was timed."""

    what: str
    records: int
    payload_bytes: int
    seconds: float

    @property
    def records_per_second(self) -> float:
        """Records a second."""
        return self.records / self.seconds

    @property
    def bytes_per_second(self) -> float:
        """Bytes of payload a second."""
        return self.payload_bytes / self.seconds


@dataclass(frozen=True, slots=True)
class Copied:
    """Late flights that the streaming query copied.

    Attributes:
        found: Late flights that it had copied when it was killed; None where it was done before.
        flights: All of them.
    """

    found: int | None
    flights: int


@dataclass(slots=True)
class Tally:
    """Figures of one carrier and scheduled hour, whole numbers so that they can be compared.

    Attributes:
        flights: Flights in the schedule.
        departed: Those that left.
        minutes: Sum of their departure delays; early ones count below zero.
        late: Those that left 15 minutes late or more.
        wet: Those that left in an hour with rain or snow at their airport.
        wet_minutes: Sum of the departure delays of these.
    """

    flights: int = 0
    departed: int = 0
    minutes: int = 0
    late: int = 0
    wet: int = 0
    wet_minutes: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.flights + other.flights,
            self.departed + other.departed,
            self.minutes + other.minutes,
            self.late + other.late,
            self.wet + other.wet,
            self.wet_minutes + other.wet_minutes,
        )

    @property
    def mean(self) -> float | None:
        """Mean departure delay in minutes."""
        return self.minutes / self.departed if self.departed else None

    @property
    def late_share(self) -> float | None:
        """Share of late flights among those that left."""
        return self.late / self.departed if self.departed else None

    @property
    def wet_mean(self) -> float | None:
        """Mean departure delay in rain or snow."""
        return self.wet_minutes / self.wet if self.wet else None

    @property
    def dry_mean(self) -> float | None:
        """Mean departure delay otherwise."""
        dry = self.departed - self.wet
        return (self.minutes - self.wet_minutes) / dry if dry else None


Table = dict[Key, Tally]


def by_carrier(delays: Table) -> dict[str, Tally]:
    """Sum up the hours of each carrier; the one with most flights comes first."""
    carriers: dict[str, Tally] = {}
    for (carrier, _), tally in delays.items():
        carriers[carrier] = carriers.get(carrier, Tally()) + tally
    return dict(sorted(carriers.items(), key=lambda item: -item[1].flights))


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that the report shows."""

    flights: int
    payload_bytes: int
    streamed: Streamed
    rates: list[Timed]
    spark_seconds: float
    copied: Copied
    delays: Table
    airlines: dict[str, str]
    airports: dict[str, str]
    seconds: float
