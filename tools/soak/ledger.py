"""The row of a soak in docs/RELIABILITY.md: one for each soak, replaced as the soak goes on.

A row is found again by the seed of its soak; new ones stand on top, and their sum below all of
them. Text in, text out.
"""

import datetime
import re
from collections import Counter

from soak.harnesses import VARIANTS
from soak.state import State

HEADS = (
    *("date", "version", "time", "states", "kills", "records", "cuts", "flips", "faults"),
    *("fuzz executions", "schedules", "from outside", "shipping", "seed", "found"),
)
SUMMED = ("states", "kills", "records", "cuts", "flips", "fuzz executions", "shipping")
"""The first figure of each row is added up; whole variants of flips are counted. Failing calls are
the same in each soak, so the most that one soak did tells more."""
ALL = "all of them"
HEAD = f"| {' | '.join(HEADS)} |"
RULE = "|" + "---|" * len(HEADS)


def row(state: State, done: Counter[str], today: datetime.date) -> str:
    """Write the row of a soak."""
    skipped = {name: job for name, job in state.jobs.items() if "NOT RUN" in job.ended}

    def share(done_: int, all_: int) -> str:
        if done_ == all_:
            return f"all {all_:,}" if all_ else "0"
        return f"{done_:,} of {all_:,}"

    minutes = round(state.seconds / 60)
    sanitizer = "not run" if "sanitized" in skipped else f"{done['sanitized']:,}"
    cuts = f"{done['cuts']:,}: {done['cuts ext4']:,} ext4, {done['cuts xfs']:,} xfs"
    guests = "not run" if "guest" in skipped else f"{done['cuts in guests']:,}"
    found = {name: job.found for name, job in state.jobs.items() if job.found}
    cells = (
        f"{today}",
        state.version,
        f"{minutes // 60} h {minutes % 60} min",
        f"{done['states']:,}",
        f"{done['kills']:,}, {done['kills at points']:,} at points",
        f"{done['records']:,}",
        f"{'0 (not run)' if 'power' in skipped else cuts}; {guests} in guests",
        f"{done['flips']:,}; {done['whole variants']} of {len(VARIANTS)} variants whole",
        share(done["faults"], done["faults in all"]),
        f"{done['fuzzed']:,}; with ASan {sanitizer}",
        f"{done['schedules']:,}; {done['together']:,} rounds of sharing",
        f"{done['outside']:,} tests; {done['combined']:,} lists of moves",
        f"{done['kills in shipping']:,} kills, {done['their points']:,} at points,"
        f" {done['numbers']:,} numbers; {done['faulty replies']:,} faulty replies",
        f"{state.seed}",
        ", ".join(f"{count} by {name}" for name, count in found.items()) or "nothing",
    )
    return f"| {' | '.join(cells)} |"


def enter(page: str, new: str, different: int) -> str:
    """Put a row into the page, in place of the one of the same soak if there is one.

    Args:
        page: Text of the whole page.
        new: The row.
        different: Crash states that all soaks together came by, each counted once (`sketch`).
    """
    lines = page.splitlines()
    if HEAD not in lines:
        raise ValueError(f"no table that begins with {HEAD}")
    top = lines.index(HEAD) + 2
    end = top
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    rows = [line for line in lines[top:end] if cells_of(line)["date"] != ALL]
    before = [i for i, line in enumerate(rows) if seed_of(line) == seed_of(new)]
    if before:
        rows[before[0]] = new
    else:
        rows.insert(0, new)
    lines[top:end] = [*rows, total(rows, different)]
    return "\n".join(lines) + "\n"


def total(rows: list[str], different: int) -> str:
    """Add rows up; states that two of them came by are told apart."""
    told = [cells_of(row) for row in rows]
    cells = dict.fromkeys(HEADS, "")
    cells["date"] = ALL
    minutes = sum(60 * figure(row["time"], 0) + figure(row["time"], 1) for row in told)
    cells["time"] = f"{minutes // 60} h {minutes % 60} min"
    for name in SUMMED:
        cells[name] = f"{sum(figure(row[name], 0) for row in told):,}"
    cells["states"] = f"{different:,} different of {cells['states']}"
    cells["shipping"] += " kills, " + ", ".join(
        f"{sum(figure(row['shipping'], at) for row in told):,} {what}"
        for at, what in ((1, "at points"), (2, "numbers"), (3, "faulty replies"))
    )
    whole = sum(figure(row["flips"], 1) for row in told)
    cells["flips"] += f"; {whole} times a whole variant"
    most = max((figure(row["faults"], 0) for row in told), default=0)
    cells["faults"] = f"at most {most:,} in one"
    return f"| {' | '.join(cells.values())} |"


def figure(text: str, which: int) -> int:
    """Read a figure of a cell; 0 where it has no such, as where a harness was not run."""
    found = re.findall(r"\d[\d,]*", text)
    return int(found[which].replace(",", "")) if which < len(found) else 0


def cells_of(line: str) -> dict[str, str]:
    """Read a row's cells by their heads; empty ones of a line that is no row."""
    cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
    return dict(zip(HEADS, cells if len(cells) == len(HEADS) else [""] * len(HEADS), strict=True))


def seed_of(line: str) -> str:
    """Read the seed of a row."""
    return cells_of(line)["seed"]
