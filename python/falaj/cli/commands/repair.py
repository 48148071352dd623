"""`falaj repair`: a store recovered, also one that cannot be opened."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from falaj import _admin
from falaj.cli import options
from falaj.cli.arguments import Command
from falaj.cli.exits import Stop, told
from falaj.cli.paint import Paint, is_terminal
from falaj.cli.units import count, size

if TYPE_CHECKING:
    from falaj._admin import RepairReport, Step
    from falaj.cli.stores import Access

__all__ = ["COMMAND", "repair"]


def repair(access: Access, dry_run: bool, as_json: bool) -> None:
    """Repair a store, even one that cannot be opened."""
    path = access.expect_no_place()
    done = _admin.repair(
        path,
        dry_run=dry_run,
        lock_timeout=access.lock_timeout,
        allow_network_fs=access.allow_network_fs,
    )
    if as_json:
        print(json.dumps(done))
    elif is_terminal(sys.stdout):
        _tell_steps(done)
    else:
        for log in done["logs"]:
            for step in log["steps"]:
                cells = (step["action"], step["path"], step["position"], step["bytes"], step["why"])
                print(*cells, sep="\t")
    of_logs = ((log["problem"], log["error_class"]) for log in done["logs"])
    if code := told((*zip(done["problems"], done["error_classes"], strict=True), *of_logs)):
        raise Stop.silent(code)


def _tell_steps(done: RepairReport) -> None:
    paint = Paint.of(sys.stdout)
    if done["in_use"]:
        print("other processes have the store open for writing")
    for log in done["logs"]:
        for step in log["steps"]:
            print(_step(step, paint))
        for topic, partition, end in log["ends"] if log["steps"] else ():
            print(f"    topic {topic} partition {partition} ends before offset {end:,}")
    steps = sum(len(log["steps"]) for log in done["logs"])
    if not steps and done["complete"]:
        print("there is nothing to repair")
    elif steps:
        print(f"{count(steps, 'step')} {'would be' if done['dry_run'] else 'were'} taken")


def _step(step: Step, paint: Paint) -> str:
    place = f"{paint.harmless(step['path'])} at byte {step['position']:,}, {size(step['bytes'])}"
    return f"{paint(step['action'], 'yellow')}  {place}\n    {paint.harmless(step['why'])}"


COMMAND = Command(
    repair,
    "Repair a store, even one that cannot be opened.",
    (),
    (
        *options.LOCAL,
        options.DRY_RUN,
        options.AS_JSON._replace(help="Print all of it as one JSON object."),
    ),
    "No data is deleted: unusable bytes stay in their file, or move to quarantine/ in the log's "
    "directory.",
)
