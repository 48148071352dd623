"""The table: rows, figures and targets, as text, Markdown and JSON.

Owns the verdicts, and the format of figures. Pure: documents in, text out.
"""

from dataclasses import asdict, dataclass
from typing import Literal

from runner.results import SECOND_NS, Measured
from runner.rows import ROWS, Bar, Row

Verdict = Literal["met", "missed", "not measured"]
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
HEADINGS = ("", "ours", "lower bound", "ratio", "target", "")


@dataclass(frozen=True)
class Line:
    """A row with its figures. Rates are nanoseconds per record here."""

    key: str
    title: str
    ours: float | None
    floor: float | None
    ratio: float | None
    verdict: Verdict


def judge(bar: Bar, ours: float, ratio: float | None) -> Verdict:
    """Compare figures with a target; the rate decides only where nothing else does."""
    held = []
    if bar.ratio_min is not None:
        held.append(ratio is not None and ratio >= bar.ratio_min)
    if bar.most is not None:
        held.append(ours <= bar.most)
    if bar.least is not None:
        held.append(ours >= bar.least)
    if not held and bar.about_per_s is not None:
        held.append(SECOND_NS / ours >= bar.about_per_s)
    return "met" if all(held) else "missed"


def line(row: Row, measured: Measured | None) -> Line:
    """Put a row and its figures together."""
    if measured is None:
        return Line(row.key, row.title, None, None, None, "not measured")
    ours, floor = measured.figure, measured.floor_figure
    ratio = None if row.kind == "number" else measured.ratio
    return Line(row.key, row.title, ours, floor, ratio, judge(row.bar, ours, ratio))


def lines(measured: dict[str, Measured], rows: tuple[Row, ...] = ROWS) -> list[Line]:
    """Make every line of the table."""
    return [line(row, measured.get(row.key)) for row in rows]


# --- The format of figures ------------------------------------------------------------------------


def rate(ns_per_record: float) -> str:
    """Write records a second."""
    per_s = SECOND_NS / ns_per_record
    for factor, unit in ((1e6, "M/s"), (1e3, "k/s")):
        if per_s >= factor:
            return f"{_short(per_s / factor)} {unit}"
    return f"{_short(per_s)}/s"


def time(ns: float) -> str:
    """Write a time, in the unit that keeps it short."""
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= factor:
            return f"{_short(ns / factor)} {unit}"
    return f"{_short(ns)} ns"


def percent(share: float) -> str:
    """Write a share or a ratio."""
    digits = 1 if share < 0.095 else 0
    return f"{100 * share:.{digits}f} %"


def _short(number: float) -> str:
    if abs(number) >= 100:
        return f"{number:.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


def _figure(row: Row, value: float | None) -> str:
    if value is None:
        return "–"
    if row.kind == "number":
        return f"{value:.3f}" if value >= 1 else percent(value)
    return rate(value) if row.kind == "rate" else time(value)


def _bar(row: Row) -> str:
    bar = row.bar
    if bar.ratio_min is not None:
        many = bar.ratio_min >= 1
        return f"≥ {bar.ratio_min:g} ×" if many else f"≥ {percent(bar.ratio_min)}"
    if bar.most is not None:
        return f"≤ {_limit(row, bar.most)}"
    if bar.least is not None:
        return f"≥ {_limit(row, bar.least)}"
    return f"about {rate(SECOND_NS / bar.about_per_s)}" if bar.about_per_s is not None else "–"


def _limit(row: Row, value: float) -> str:
    text = _figure(row, value)
    number, space, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number}{space}{unit}"


def _ratio(row: Row, ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"{_short(ratio)} ×" if (row.bar.ratio_min or 0) >= 1 else percent(ratio)


def cells(row: Row, of: Line) -> tuple[str, ...]:
    """Write one line, column by column."""
    floor = _figure(row, of.floor)
    named = f"{floor} ({row.floor})" if of.floor is not None and row.floor else floor
    return (
        row.title,
        _figure(row, of.ours),
        named,
        _ratio(row, of.ratio),
        _bar(row),
        of.verdict,
    )


def aside(row: Row, measured: Measured) -> str:
    """Write a figure without a target, on a line of its own."""
    share = "" if measured.ratio is None else f", {percent(measured.ratio)} of {row.floor}"
    return f"{row.title}: {_figure(row, measured.figure)}{share}"


def text(found: list[Line], rows: tuple[Row, ...] = ROWS) -> str:
    """Lay the table out for a terminal."""
    table = [HEADINGS, *(cells(row, of) for row, of in zip(rows, found, strict=True))]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADINGS))]
    laid = [
        "  ".join(
            cell.rjust(width) if 0 < i < 5 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    met = sum(of.verdict == "met" for of in found)
    return "\n".join([*laid, "", f"{met} of {len(found)} targets met"])


def markdown(found: list[Line], rows: tuple[Row, ...] = ROWS) -> str:
    """Lay the table out for a page."""
    head = ["| " + " | ".join(HEADINGS).strip() + " |", "|---|---:|---:|---:|---:|---|"]
    body = []
    for row, of in zip(rows, found, strict=True):
        *rest, verdict = cells(row, of)
        marked = verdict if verdict == "met" else f"**{verdict}**"
        body.append("| " + " | ".join([*rest, marked]) + " |")
    return "\n".join(head + body)


def between_markers(page: str, table: str, markers: tuple[str, str] = (BEGIN, END)) -> str:
    """Put the table into a page, between its markers."""
    first, last = markers
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no {first} … {last}")
    return f"{before}{first}\n{table}\n{last}{after}"


def figures(machine: str, found: list[Line], curves: dict[str, list[float]]) -> dict[str, object]:
    """Summarise a run for the committed file, from which plots are made."""
    rounded = [
        {key: _rounded(value) for key, value in asdict(of).items() if key != "title"}
        for of in found
    ]
    short = {name: [_rounded(value) for value in curve] for name, curve in curves.items()}
    return {"machine": machine, "rows": rounded, "curves": short}


def _rounded(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value
