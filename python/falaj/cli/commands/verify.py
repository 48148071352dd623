"""`falaj verify`: every byte checked, and nothing changed.

Owns how findings are printed. The library decides what is corrupt, and what helps. It works even on
a store that does not open.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from falaj import _admin
from falaj.cli import options
from falaj.cli.arguments import Command
from falaj.cli.exits import Exit, Stop
from falaj.cli.paint import Paint, is_terminal
from falaj.cli.progress import bar
from falaj.cli.stores import Access, expect_topics
from falaj.cli.tables import Column, rows_of, table
from falaj.cli.units import count, size
from falaj.errors import Error

if TYPE_CHECKING:
    from falaj._admin import Finding, Verification

__all__ = ["COMMAND", "verify"]

_STYLES = {
    "damage": "red",
    "newer": "red",
    "unrecovered": "yellow",
    "rebuildable": "yellow",
    "note": "dim",
}
_WORDS = {"damage": "corrupt"}
_ENDS = {"damage": Exit.CORRUPTION, "newer": Exit.MACHINE, "unrecovered": Exit.AGAIN}
_REACH = (
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("first", "start", number=True),
    Column("end", "end", number=True),
    Column("durable", "durable", number=True),
)


def verify(access: Access, topic: str | None, as_json: bool) -> None:
    """Check every byte of a store, and change nothing."""
    path = access.expect_no_place()
    if topic is not None:
        _expect(access, topic)
    with bar("verify") as advance:
        found = _admin.verify(
            path, topic, lambda done, total: advance(done, total=max(total, done))
        )
    if as_json:
        print(json.dumps(found))
    elif is_terminal(sys.stdout):
        _tell_findings(found)
    else:
        _list_findings(found)
    if found["worst"] in _ENDS:
        raise Stop.silent(_ENDS[found["worst"]])


def _expect(access: Access, topic: str) -> None:
    """Name the topics that there are, where the store opens and has no such topic."""
    try:
        with access.store() as store:
            expect_topics(store, topic)
    except Error:
        return  # verification itself tells what is wrong


def _all_findings(found: Verification) -> list[Finding]:
    return found["findings"] + [each for log in found["logs"] for each in log["findings"]]


def _list_findings(found: Verification) -> None:
    """One row a partition and a finding; the first column says which."""
    for log in found["logs"]:
        rows_of("topic", _REACH, list(log["topics"]))
    for each in _all_findings(found):
        offsets = each["offsets"] or (None, None)
        place = (each["path"], each["position"], each["length"])
        whose = (each["topic"], each["partition"], *offsets)
        severity = _word(each["severity"])
        cells = (severity, *place, *whose, each["what"], each["remedy"])
        print(*("" if cell is None else cell for cell in cells), sep="\t")


def _tell_findings(found: Verification) -> None:
    paint = Paint.of(sys.stdout)
    logs = found["logs"]
    table(_REACH, [dict(reach) for log in logs for reach in log["topics"]])
    for each in _all_findings(found):
        severity = paint(_word(each["severity"]), _STYLES[each["severity"]])
        print(f"\n{severity}  {paint.harmless(each['path'])} at byte {each['position']:,}")
        print(f"    {paint.harmless(each['what'])}{_lost(each)}")
        print(f"    {paint.harmless(each['remedy'])}")
    for log in logs:
        if log["more_findings"]:
            print(f"\n{count(log['more_findings'], 'more finding')} in {log['path']}")
        if log["latched"]:
            print(
                f"\n{paint('failed sync', 'red')}  {log['path']} takes no appends until "
                "its data is synced again"
            )
    segments = count(sum(log["segments"] for log in logs), "segment")
    records = count(sum(log["records"] for log in logs), "record")
    worst = found["worst"]
    verdict = paint(_word(worst), _STYLES[worst]) if worst in _ENDS else paint("valid", "green")
    print(f"\n{verdict}: {records} in {segments}, {size(sum(log['bytes'] for log in logs))}")


def _lost(finding: Finding) -> str:
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


def _word(severity: str) -> str:
    return _WORDS.get(severity, severity)


COMMAND = Command(
    verify,
    "Check every byte of a store; nothing is changed.",
    (options.TOPIC._replace(needed=False, help="Check only the log of this topic."),),
    (*options.LOCAL, options.AS_JSON._replace(help="Print all of it as one JSON object.")),
    "It names what is corrupt and where, consumer groups and queues too, and how far each topic is "
    "on disk. Other processes may write meanwhile.",
)
