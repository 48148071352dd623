"""The figures of `profile` as text: rows for the terminal, and times for its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.pages.units import NONE, bytes_text, percent, rate, span

if TYPE_CHECKING:
    from datetime import datetime

    from falaj.pipeline.profiling.figures import Pause
    from falaj.pipeline.profiling.run import ProfileResult

__all__ = ["between", "rows", "when"]


def when(time: datetime | None) -> str:
    """Write a time in UTC, as short as possible without losing seconds.

    Example:
        >>> from datetime import UTC, datetime
        >>> when(datetime(2013, 1, 1, 5, tzinfo=UTC)), when(None) == NONE
        ('2013-01-01 05:00', True)
    """
    if time is None:
        return NONE
    return f"{time:%Y-%m-%d %H:%M:%S}" if time.second else f"{time:%Y-%m-%d %H:%M}"


def between(pause: Pause) -> str:
    """Write the beginning and the end of a pause."""
    same = pause.start.date() == pause.end.date()
    end = when(pause.end).split(" ")[1] if same else when(pause.end)
    return f"{when(pause.start)} to {end}"


def rows(found: ProfileResult) -> list[tuple[str, str]]:
    """Return the figures as rows of a name and a value."""
    told = [
        ("topic", found.topic),
        ("records", f"{found.records:,}"),
        ("bytes", f"{found.bytes:,} ({bytes_text(found.bytes)})"),
    ]
    if found.records:
        told += _times(found) + _keys(found) + _values(found) + _partitions(found)
    if found.html is not None:
        told.append(("page", str(found.html)))
    return told


def _times(found: ProfileResult) -> list[tuple[str, str]]:
    told = [("first", f"{when(found.first)} UTC"), ("last", f"{when(found.last)} UTC")]
    if found.per_second is not None:
        told.append(("rate", rate(found.per_second)))
    busiest = max(found.hours, key=lambda hour: hour.records)
    told.append(("busiest hour", f"{busiest.records:,} records from {when(busiest.start)}"))
    empty = sum(each.hours for each in found.missing)
    told.append(("hours", f"{len(found.hours):,} with records, {empty:,} without between them"))
    told += [
        (f"pause {n}", f"{span(pause.seconds)}, {between(pause)}")
        for n, pause in enumerate(found.pauses[:3], 1)
    ]
    late = f"{found.late:,} records, by {span(found.latest)} at most" if found.late else "none"
    return [*told, ("times that go back", late)]


def _keys(found: ProfileResult) -> list[tuple[str, str]]:
    keys = found.keys
    if keys.gini is None:
        return [("keys", "none")]
    without = f", {keys.without:,} records without" if keys.without else ""
    told = [("keys", f"{keys.distinct:,}{without}"), ("Gini of keys", f"{keys.gini:.3f}")]
    return told + [
        (f"key {n}", f"{key.key}: {key.records:,} records, {percent(key.share)}")
        for n, key in enumerate(keys.top, 1)
    ]


def _values(found: ProfileResult) -> list[tuple[str, str]]:
    told = []
    if sizes := found.sizes:
        marks = ("median", sizes.median), ("99 %", sizes.p99), ("largest", sizes.largest)
        text = ", ".join(f"{name} {bytes_text(size)}" for name, size in marks)
        told.append(("values", f"mean {bytes_text(sizes.mean)}, {text}"))
    if found.tombstones:
        told.append(("tombstones", f"{found.tombstones:,}"))
    if found.compression:
        text = ", ".join(f"{each.codec} {each.ratio:.1f}x" for each in found.compression)
        told.append(("compression of a sample", text))
    return told


def _partitions(found: ProfileResult) -> list[tuple[str, str]]:
    if len(found.partitions) < 2:
        return []
    return [
        (f"partition {each.partition}", f"{each.records:,} records, {percent(each.share)}")
        for each in found.partitions
    ]
