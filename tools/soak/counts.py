"""How much was done: read from what the harnesses keep to go on from, and from their words.

A reader takes the directory of one kind of harness and adds up what lies there, of all shards and
seeds. So nothing is counted twice, and nothing is lost that the harness itself did not lose.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soak import sketch

BATCH = 64
"""Inputs of a case of one decoder: `BATCH` of rust/hostile/src/bytes/decoders.rs."""

Kept = dict[str, Any]
Reader = Callable[[Path], Counter[str]]
EXECUTED = re.compile(rb"^#(\d+)\t", re.MULTILINE)
SCHEDULES = re.compile(rb"^test \w+::(?!broken_)\w+ \.\.\. (\d+) schedules, ", re.MULTILINE)
TOGETHER = re.compile(rb"^share: (\d+) rounds ", re.MULTILINE)
COMBINED = re.compile(rb"^combined: (\d+) lists ", re.MULTILINE)
PASSED = re.compile(rb"\b(\d+) passed")
CUT = re.compile(rb'"cuts":(\d+)')


def kept_in(folder: Path) -> list[Kept]:
    """Read all that harnesses keep there."""
    found = []
    for path in sorted(folder.glob("*.json")):
        told = json.loads(path.read_text())
        found.append(told)
    return found


def last_number(pattern: re.Pattern[bytes], log: Path) -> int:
    """Find the last number that a log tells."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - (1 << 16)))
        numbers = pattern.findall(file.read())
    return int(numbers[-1]) if numbers else 0


def sketches(kept: list[Kept]) -> list[bytes]:
    """Take out the sketches of what the explorer saw, one for each shard and seed."""
    return [bytes.fromhex(k["sketch"]) for k in kept]


def explore(folder: Path) -> Counter[str]:
    """Read different states, and how many were judged."""
    kept = kept_in(folder)
    judged = sum(k["counts"][name] for k in kept for name in ("first", "second", "deaths"))
    return Counter(states=sketch.count(sketch.union(sketches(kept))), judged=judged)


def kill(folder: Path) -> Counter[str]:
    """Read kills, and records that were acknowledged meanwhile."""
    found: Counter[str] = Counter()
    for kept in kept_in(folder):
        found["kills"] += kept.get("kills", 0)
        found["kills at points"] += kept.get("kills_at_points", 0)
        found["records"] += kept.get("acknowledged", 0)
    return found


def power(folder: Path) -> Counter[str]:
    """Read power cuts, of each file system too."""
    found: Counter[str] = Counter()
    for kept in kept_in(folder):
        for name in ("cuts", "cuts_ext4", "cuts_xfs"):
            found[name.replace("_", " ")] += kept.get(name, 0)
    return found


def guest(folder: Path) -> Counter[str]:
    """Read power cuts of guests, which tell them when they end."""
    return Counter({"cuts in guests": sum(last_number(CUT, log) for log in folder.glob("*.log"))})


def flips(folder: Path) -> Counter[str]:
    """Read flipped bits, and of how many variants all were."""
    kept = kept_in(folder)
    whole = sum(k["next"] >= k["to"] for k in kept)
    return Counter({"flips": _sum(kept, "cases"), "whole variants": whole})


def faults(folder: Path) -> Counter[str]:
    """Read failed calls, and how many there are to fail."""
    kept = kept_in(folder)
    return Counter({"faults": _sum(kept, "cases"), "faults in all": _sum(kept, "to")})


def _sum(kept: list[Kept], name: str) -> int:
    return sum(k[name] for k in kept)


def fuzz(folder: Path) -> Counter[str]:
    """Read inputs that decoders were fed with, and harmed stores."""
    found: Counter[str] = Counter()
    for kept in kept_in(folder):
        fed = kept["outcomes"].get("fed", 0)
        found["fuzzed"] += kept["cases"] + fed * (BATCH - 1)
    return found


def sanitized(folder: Path) -> Counter[str]:
    """Read executions of the fuzzer below AddressSanitizer, and cases of campaigns."""
    executed = sum(last_number(EXECUTED, log) for log in folder.glob("*.log"))
    return Counter(sanitized=executed + _sum(kept_in(folder), "cases"))


def schedules(folder: Path) -> Counter[str]:
    """Read schedules of models that went well, tried one by one.

    Schedules that were interrupted, and models that are broken on purpose, are not counted.
    """
    found = 0
    for log in folder.glob("*.log"):
        words = log.read_bytes()
        if b"test result: ok" in words:
            found += sum(map(int, SCHEDULES.findall(words)))
    return Counter(schedules=found)


def together(folder: Path) -> Counter[str]:
    """Read rounds of processes that share a queue or a consumer."""
    found = 0
    for log in folder.glob("*.log"):
        found += sum(map(int, TOGETHER.findall(log.read_bytes())))
    return Counter(together=found)


def combined(folder: Path) -> Counter[str]:
    """Read lists of moves of all features that a store was held against the model after."""
    return Counter(combined=sum(last_number(COMBINED, log) for log in folder.glob("*.log")))


def outside(folder: Path) -> Counter[str]:
    """Read large tests from outside that passed."""
    return Counter(outside=sum(last_number(PASSED, log) for log in folder.glob("*.log")))


def ship(folder: Path) -> Counter[str]:
    """Read kills of the storm of shipping, numbers that were restored, and faulty replies."""
    found: Counter[str] = Counter()
    for kept in kept_in(folder):
        found["kills in shipping"] += kept.get("kills", 0) if "rounds" in kept else 0
        found["their points"] += kept.get("kills_at_points", 0)
        found["numbers"] += kept.get("numbers", 0) + kept.get("restored", 0)
        found["faulty replies"] += kept.get("faults", 0)
    return found


READERS: dict[str, Reader] = {
    "explore": explore,
    "kill": kill,
    "power": power,
    "guest": guest,
    "flips": flips,
    "faults": faults,
    "fuzz": fuzz,
    "sanitized": sanitized,
    "together": together,
    "combined": combined,
    "ship": ship,
    "schedules": schedules,
    "outside": outside,
}


def done_in(home: Path, readers: dict[str, Reader] = READERS) -> Counter[str]:
    """Count what a soak did, from all that its harnesses left, whatever is going on."""
    done: Counter[str] = Counter()
    for kind, read in readers.items():
        done.update(read(home / kind))
    return done
