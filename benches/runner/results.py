"""Results in the shape of pytest-benchmark's JSON, whichever part measured them.

An entry has a name and `stats.data`, one figure for each round: seconds, or the unit in
`extra_info.unit`. `extra_info` also holds how many `records` a round had, and `floor_ns`, the lower
bound's nanoseconds per record in the same rounds. `Measured` is the same in nanoseconds per record.
"""

import json
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Measured:
    """A row's figures by round: nanoseconds per record, unless `unit` says otherwise."""

    name: str
    ours: Sequence[float]
    floor: Sequence[float] = ()
    unit: str = "ns"
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def figure(self) -> float:
        """The median of our rounds."""
        return statistics.median(self.ours)

    @property
    def floor_figure(self) -> float | None:
        """The median of the lower bound's rounds, if there is one."""
        return statistics.median(self.floor) if self.floor else None

    @property
    def ratio(self) -> float | None:
        """Our speed as a share of the lower bound's: the median over rounds that have both.

        Both of a round met the same noise, so this is steadier than the ratio of the medians.
        """
        if len(self.floor) == len(self.ours):
            pairs = zip(self.floor, self.ours, strict=True)
            return statistics.median(floor / ours for floor, ours in pairs)
        return statistics.median(self.floor) / self.figure if self.floor else None


def to_json(measured: Iterable[Measured]) -> dict[str, Any]:
    """Make the document that pytest-benchmark would have written."""
    return {"benchmarks": [_entry(one) for one in measured]}


def _entry(one: Measured) -> dict[str, Any]:
    data = [value / SECOND_NS for value in one.ours] if one.unit == "ns" else list(one.ours)
    return {
        "name": one.name,
        "stats": {
            "data": data,
            "min": min(data),
            "max": max(data),
            "mean": statistics.fmean(data),
            "median": statistics.median(data),
            "rounds": len(data),
        },
        "extra_info": {
            "records": 1,
            "unit": one.unit,
            "floor_ns": list(one.floor),
            **one.extra,
        },
    }


def from_json(document: dict[str, Any]) -> list[Measured]:
    """Read such a document."""
    return [_measured(entry) for entry in document["benchmarks"]]


def _measured(entry: dict[str, Any]) -> Measured:
    extra = dict(entry["extra_info"])
    records, unit = extra.pop("records", 1), extra.pop("unit", "ns")
    factor = SECOND_NS / records if unit == "ns" else 1
    return Measured(
        name=re.sub(r"\[(\w+)\]$", r"_\1", entry["name"]).removeprefix("test_"),
        ours=[value * factor for value in entry["stats"]["data"]],
        floor=extra.pop("floor_ns", []),
        unit=unit,
        extra=extra,
    )


def save(path: Path, measured: Iterable[Measured]) -> None:
    """Write a document."""
    path.write_text(json.dumps(to_json(measured), indent=1) + "\n")


def load(paths: Iterable[Path]) -> dict[str, Measured]:
    """Read documents into one collection, by name."""
    found = [one for path in paths for one in from_json(json.loads(path.read_text()))]
    return {one.name: one for one in found}
