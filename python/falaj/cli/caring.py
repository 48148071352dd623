"""The verbs `verify`, `repair` and `backup`: looking after a store.

Owns how findings and steps are told; what is damage, and what helps, the library decides. None of
the three needs a store that opens, but `backup`, which copies one.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from falaj import admin
from falaj.cli import options
from falaj.cli.exits import Exit, told
from falaj.cli.paint import Paint, is_terminal
from falaj.cli.progress import bar
from falaj.cli.tables import Column, rows_of, table
from falaj.cli.units import count, size

if TYPE_CHECKING:
    from falaj.admin import Finding, RepairReport, Step, Verification

__all__ = ["backup", "repair", "verify"]

_STYLES = {
    "damage": "red",
    "newer": "red",
    "unrecovered": "yellow",
    "rebuildable": "yellow",
    "note": "dim",
}
_ENDS = {"damage": Exit.DAMAGE, "newer": Exit.MACHINE, "unrecovered": Exit.AGAIN}
_REACH = (
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("first", "first", number=True),
    Column("end", "end", number=True),
    Column("durable", "durable", number=True),
)


def verify(
    store: options.StoreArgument,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Only the log of this topic.")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Check every byte of a store, and change nothing.

    Says what is damaged and where, consumers and queues too, and how far each topic is on the
    medium. Others may write to it.
    """
    with bar("verify") as advance:
        found = admin.verify(
            store, topic, lambda done, total: advance(done, total=max(total, done))
        )
    if as_json:
        print(json.dumps(found))
    elif is_terminal(sys.stdout):
        _tell_findings(found)
    else:
        _list_findings(found)
    if found["worst"] in _ENDS:
        raise typer.Exit(_ENDS[found["worst"]])


def _all_findings(found: "Verification") -> "list[Finding]":
    return found["findings"] + [each for log in found["logs"] for each in log["findings"]]


def _list_findings(found: "Verification") -> None:
    """One row a partition and a finding; the first column says which."""
    for log in found["logs"]:
        rows_of("topic", _REACH, list(log["topics"]))
    for each in _all_findings(found):
        offsets = each["offsets"] or (None, None)
        place = (each["path"], each["position"], each["length"])
        whose = (each["topic"], each["partition"], *offsets)
        cells = (each["severity"], *place, *whose, each["what"], each["remedy"])
        print(*("" if cell is None else cell for cell in cells), sep="\t")


def _tell_findings(found: "Verification") -> None:
    paint = Paint.of(sys.stdout)
    logs = found["logs"]
    table(_REACH, [dict(reach) for log in logs for reach in log["topics"]])
    for each in _all_findings(found):
        severity = paint(each["severity"], _STYLES[each["severity"]])
        print(f"\n{severity}  {paint.harmless(each['path'])} at byte {each['position']:,}")
        print(f"    {paint.harmless(each['what'])}{_lost(each)}")
        print(f"    {paint.harmless(each['remedy'])}")
    for log in logs:
        if log["more_findings"]:
            print(f"\n{count(log['more_findings'], 'more finding')} in {log['path']}")
        if log["latched"]:
            print(
                f"\n{paint('latched', 'red')}  {log['path']} takes no appends after a failed sync"
            )
    segments = count(sum(log["segments"] for log in logs), "segment")
    records = count(sum(log["records"] for log in logs), "record")
    worst = found["worst"]
    verdict = paint(worst, _STYLES[worst]) if worst in _ENDS else paint("sound", "green")
    print(f"\n{verdict}: {records} in {segments}, {size(sum(log['bytes'] for log in logs))}")


def _lost(finding: "Finding") -> str:
    """Which records a finding is about."""
    if finding["topic"] is None:
        return ""
    where = f"; topic {finding['topic']}"
    if finding["partition"]:
        where += f" partition {finding['partition']}"
    if finding["offsets"] is None:
        return where
    first, end = finding["offsets"]
    return (
        f"{where}, offset {first}" if end == first + 1 else f"{where}, offsets {first} to {end - 1}"
    )


def repair(
    context: options.Context,
    store: options.StoreArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Recover a store, also where opening it gives up. Nothing is thrown away.

    What is cut off stays in its file, or moves to quarantine/ in the log's directory.
    """
    access = options.access_of(context)
    done = admin.repair(store, dry_run=dry_run, timeout=access.timeout, force=access.force)
    if as_json:
        print(json.dumps(done))
    elif is_terminal(sys.stdout):
        _tell_steps(done)
    else:
        for log in done["logs"]:
            for step in log["steps"]:
                cells = (step["action"], step["path"], step["position"], step["bytes"], step["why"])
                print(*cells, sep="\t")
    of_logs = ((log["problem"], log["remedy"]) for log in done["logs"])
    if code := told((*zip(done["problems"], done["remedies"], strict=True), *of_logs)):
        raise typer.Exit(code)


def _tell_steps(done: "RepairReport") -> None:
    paint = Paint.of(sys.stdout)
    if done["in_use"]:
        print("others have the store open for writing")
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


def _step(step: "Step", paint: Paint) -> str:
    place = f"{paint.harmless(step['path'])} at byte {step['position']:,}, {size(step['bytes'])}"
    return f"{paint(step['action'], 'yellow')}  {place}\n    {paint.harmless(step['why'])}"


def backup(
    context: options.Context,
    store: options.StoreArgument,
    to: Annotated[
        Path,
        typer.Argument(metavar="TO", parser=options.path, help="A directory not there yet."),
    ],
    as_json: options.JsonOption = False,
) -> None:
    """Copy a store while others write to it.

    The copy holds what was committed when it began, and appears whole or not at all. Files of
    consumers and queues that are damaged are copied as they are, and told.
    """
    with (
        options.access_of(context).store(store) as opened,
        bar(f"backup to {to}") as advance,
    ):
        done = opened.backup(to, lambda done, total: advance(done, total=max(total, done)))
    if as_json:
        print(json.dumps(done))
    elif is_terminal(sys.stdout):
        copied = f"{count(done['topics'], 'topic')}, {count(done['segments'], 'segment')}"
        print(f"copied {copied}, {size(done['bytes'])} to {to}")
    if code := told(zip(done["problems"], done["remedies"], strict=True)):
        raise typer.Exit(code)
