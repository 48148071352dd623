"""The page of `profile`, which shows its figures as plots; `falaj.pages` owns its look."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import falaj
from falaj.errors import MissingExtra
from falaj.pages.page import Tile, page, section, table, wide
from falaj.pages.units import bytes_text, percent, rate, span
from falaj.pipeline.profiling.words import when

try:
    from falaj.pipeline.profiling import plots
except ModuleNotFoundError as missing:
    if (missing.name or "").split(".")[0] != "matplotlib":
        raise
    raise MissingExtra("the page needs matplotlib: pip install 'falaj[spark]'") from None

if TYPE_CHECKING:
    from falaj.pipeline.profiling.run import ProfileResult

__all__ = ["write"]


def write(found: ProfileResult) -> str:
    """Make the page.

    Args:
        found: The result of `profile`.

    Returns:
        A complete page of HTML that loads nothing from elsewhere.
    """
    parts = (_over_time, _by_hour, _quiet, _keys, _sizes, _partitions) if found.records else ()
    return page(
        title=f"Profile of {found.topic}",
        heading=f"Topic {found.topic}",
        intro=_intro(found),
        tiles=_tiles(found) if found.records else [],
        sections_markup=[part(found) for part in parts],
        footer=f"falaj {falaj.__version__}. Counted in {span(found.seconds)} on "
        f"{datetime.now(UTC):%-d %B %Y, %H:%M} UTC. All times are UTC, all bytes those of keys, "
        "values and headers, but where values are said.",
    )


def _intro(found: ProfileResult) -> str:
    if not found.records:
        return "No record is in the range that was looked at."
    places = ", ".join(
        f"{start:,} to {end:,}" + (f" of partition {partition}" if len(found.offsets) > 1 else "")
        for partition, (start, end) in sorted(found.offsets.items())[:4]
    )
    more = " and others" if len(found.offsets) > 4 else ""
    return (
        f"{found.records:,} records from {when(found.first)} to {when(found.last)} UTC: offsets "
        f"{places}{more}, ends not included."
    )


def _tiles(found: ProfileResult) -> list[Tile]:
    tiles = [
        Tile(f"{found.records:,}", "records"),
        Tile(bytes_text(found.bytes), f"{bytes_text(found.bytes / found.records)} a record"),
    ]
    if found.per_second is not None and found.first and found.last:
        covered = (found.last - found.first).total_seconds()
        tiles.append(Tile(rate(found.per_second), f"records, over {span(covered)}"))
    if found.keys.gini is not None:
        tiles.append(
            Tile(
                f"{found.keys.distinct:,}", f"keys; their Gini coefficient is {found.keys.gini:.2f}"
            )
        )
    if found.late:
        tiles.append(Tile(percent(found.late / found.records), "of records come late"))
    else:
        tiles.append(Tile("in order", "no time goes back", good=True))
    return tiles


def _over_time(found: ProfileResult) -> str:
    busiest = max(found.hours, key=lambda hour: hour.records)
    return section(
        "Records over time",
        f"Each bar is {span(found.slot_seconds)}. The busiest hour, from {when(busiest.start)}, "
        f"has {busiest.records:,} records and {bytes_text(busiest.bytes)}.",
        wide(plots.over_time(found)),
    )


def _by_hour(found: ProfileResult) -> str:
    if found.first is None or found.last is None or found.last - found.first < timedelta(days=2):
        return ""
    return section(
        "Hours of the week",
        "How many records such an hour has on the average, in UTC; hours without any count too.",
        wide(plots.by_hour(found)),
    )


def _quiet(found: ProfileResult) -> str:
    empty = sum(each.hours for each in found.missing)
    text = (
        f"{len(found.hours):,} hours have records; {empty:,} between the first and the last have "
        "none. "
        if empty
        else f"Each of the {len(found.hours):,} hours has records. "
    )
    if not found.pauses:
        text += f"No pause is as long as {span(found.pause_seconds)}."
        return section("Pauses", text)
    rows = [(when(p.start), when(p.end), span(p.seconds)) for p in found.pauses]
    text += "The longest spans without a record in any partition:"
    return section("Pauses", text, table(("last record before", "next record", "pause"), rows))


def _keys(found: ProfileResult) -> str:
    keys = found.keys
    if keys.gini is None:
        return section("Keys", "No record has a key.")
    without = (
        f"{keys.without:,} records ({percent(keys.without / found.records)}) have none. "
        if keys.without
        else ""
    )
    text = (
        f"{keys.distinct:,} keys. {without}Their Gini coefficient is {keys.gini:.3f}: it is 0 "
        "where all keys have as many records, and comes near 1 where a few have nearly all. The "
        "curve shows what share of the records the rarest keys have together; the further it "
        "hangs, the more unequal they are."
    )
    rows = [
        (key.key, f"{key.records:,}", percent(key.share), bytes_text(key.bytes)) for key in keys.top
    ]
    shown = table(("keys with most records", "records", "of all", "bytes"), rows)
    return section("Keys", text, wide(plots.keys(found)) + shown)


def _sizes(found: ProfileResult) -> str:
    tombstones = f"{found.tombstones:,} records are tombstones. " if found.tombstones else ""
    if found.sizes is None:
        return section("Values", tombstones)
    sizes = found.sizes
    text = (
        f"{tombstones}Values have {bytes_text(sizes.mean)} on the average; half of them are not "
        f"larger than {bytes_text(sizes.median)}, and the largest has {bytes_text(sizes.largest)}. "
    )
    if found.compression:
        sample = bytes_text(found.compression[0].sample_bytes)
        ratios = " and ".join(
            f"{math.floor(e.ratio * 10) / 10:g} times with {e.codec}" for e in found.compression
        )
        text += f"A sample of {sample}, by 64 KiB, gets smaller {ratios}."
    return section("Values", text, wide(plots.sizes(sizes)))


def _partitions(found: ProfileResult) -> str:
    several = len(found.partitions) > 1
    if not several and not found.late:
        return ""
    rows = [
        (
            f"{each.partition}",
            f"{each.records:,}",
            percent(each.share),
            bytes_text(each.bytes),
            when(each.first),
            when(each.last),
            f"{each.late:,}",
            span(each.latest) if each.late else "",
        )
        for each in found.partitions
    ]
    head = ("partition", "records", "of all", "bytes", "first", "last", "late", "by at most")
    text = (
        "Late is a record whose time lies before that of one with a lower offset in its "
        "partition: "
        + (
            f"{found.late:,} are, by {span(found.latest)} at most. A stream that sums windows up "
            "needs a watermark as long as that to miss none."
            if found.late
            else "none is."
        )
    )
    drawn = wide(plots.partitions(found)) if several else ""
    return section("Partitions" if several else "Late records", text, drawn + table(head, rows))
