"""The row of a soak in docs/RELIABILITY.md: one for each soak, replaced as the soak goes on.

A row is found again by the seed of its soak; new ones stand on top. Text in, text out.
"""

import datetime
from collections import Counter

from soak.harnesses import VARIANTS
from soak.state import State

HEADS = (
    *("date", "version", "time", "states", "kills", "records", "cuts", "flips", "faults"),
    *("fuzz executions", "schedules", "from outside", "seed", "found"),
)
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
    found = {name: job.found for name, job in state.jobs.items() if job.found}
    cells = (
        f"{today}",
        state.version,
        f"{minutes // 60} h {minutes % 60} min",
        f"{done['states']:,}",
        f"{done['kills']:,}, {done['kills at points']:,} at points",
        f"{done['records']:,}",
        "not run" if "power" in skipped else cuts,
        f"{done['flips']:,}; {done['whole variants']} of {len(VARIANTS)} variants whole",
        share(done["faults"], done["faults in all"]),
        f"{done['fuzzed']:,}; with ASan {sanitizer}",
        f"{done['schedules']:,}; {done['together']:,} rounds of sharing",
        f"{done['outside']:,} tests",
        f"{state.seed}",
        ", ".join(f"{count} by {name}" for name, count in found.items()) or "nothing",
    )
    return f"| {' | '.join(cells)} |"


def enter(page: str, new: str) -> str:
    """Put a row into the page, in place of the one of the same soak if there is one."""
    lines = page.splitlines()
    if HEAD not in lines:
        raise ValueError(f"no table that begins with {HEAD}")
    top = lines.index(HEAD) + 2
    end = top
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    before = [i for i in range(top, end) if seed_of(lines[i]) == seed_of(new)]
    if before:
        lines[before[0]] = new
    else:
        lines.insert(top, new)
    return "\n".join(lines) + "\n"


def seed_of(line: str) -> str:
    """Read the seed of a row."""
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    return cells[HEADS.index("seed")] if len(cells) == len(HEADS) else ""
