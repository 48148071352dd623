"""What a soak runs: the command of each harness, its share of the time, its targets.

A *job* is a harness, or one shard of it; jobs of a *kind* keep their files in one directory. What a
command means is said by the harness itself, and in docs/RELIABILITY.md.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from soak import counts
from soak.counts import Reader

ROOT = Path(__file__).resolve().parents[2]
ENDLESS = "1_000_000_000_000"
VARIANTS = ("mapped-closed", "mapped-killed", "pwrite-closed", "pwrite-killed")


@dataclass(frozen=True)
class Turn:
    """What one piece is told."""

    seed: int
    number: int
    """Pieces of this job before it."""
    seconds: float
    kept: Path
    """Where it keeps how far it is, without an ending: one for each job and seed."""
    scratch: Path


@dataclass(frozen=True)
class Job:
    """What gets pieces of the time."""

    name: str
    kind: str
    share: float
    """Of the time, in proportion to the others'."""
    command: Callable[[Turn], list[str]]
    missing: str = ""
    """Why it cannot be run here."""
    seeded: bool = True
    """A finding is left behind with a new seed; without seeds there is only one way to go."""
    seconds_min: float = 0.0
    """Less makes no sense."""


@dataclass(frozen=True)
class Target:
    """A figure, and how much of it is enough: a number, or another figure."""

    name: str
    kind: str
    enough: int | str = 0

    def of(self, found: Counter[str]) -> int:
        """Say how much is enough; 0 where more is better."""
        return found[self.enough] if isinstance(self.enough, str) else self.enough


@dataclass(frozen=True)
class Harnesses:
    """All of it."""

    jobs: list[Job]
    readers: dict[str, Reader]
    targets: list[Target]


def everything(programs: Path, python: str = sys.executable) -> Harnesses:
    """List what there is; `programs` holds those in Rust, and the fuzzer if it was built."""
    sim, storm, hostile, fuzzer = (
        str(programs / name) for name in ("falaj-sim", "falaj-storm", "falaj-hostile", "decoders")
    )

    def explore(shard: int) -> Callable[[Turn], list[str]]:
        return lambda turn: [
            *(sim, "explore", "--states", ENDLESS, "--seed", str(turn.seed)),
            *("--shard", f"{shard}/2", "--threads", "1", "--progress"),
            *("--seconds", _whole(turn.seconds), "--resume", f"{turn.kept}.json"),
        ]

    def kill(turn: Turn) -> list[str]:
        return [
            *(storm, "kill", "--kills", ENDLESS, "--records", ENDLESS, "--seed", str(turn.seed)),
            *("--dir", str(turn.scratch), "--python", python),
            *("--hours", f"{turn.seconds / 3600:.5f}", "--state", f"{turn.kept}.json"),
        ]

    def power(turn: Turn) -> list[str]:
        return [
            *(storm, "power", "--cuts", ENDLESS, "--seed", str(turn.seed)),
            *("--dir", str(turn.scratch)),
            *("--hours", f"{turn.seconds / 3600:.5f}", "--state", f"{turn.kept}.json"),
        ]

    def campaign(*words: str) -> Callable[[Turn], list[str]]:
        return lambda turn: [
            *(hostile, *words, "--threads", "1"),
            *("--seconds", _whole(turn.seconds), "--state", f"{turn.kept}.json"),
        ]

    def fuzz(turn: Turn) -> list[str]:
        # Twelve decoders and the stores, each its time.
        each = Turn(turn.seed, turn.number, turn.seconds / 13, turn.kept, turn.scratch)
        return [*campaign("bytes")(each), "--seed", str(turn.seed)]

    def sanitized(turn: Turn) -> list[str]:
        corpus = turn.kept.with_name("corpus")
        corpus.mkdir(exist_ok=True)
        return [
            *(fuzzer, str(corpus), f"-seed={turn.seed + turn.number}", "-timeout=60"),
            *(f"-max_total_time={_whole(turn.seconds)}", f"-artifact_prefix={turn.scratch}/"),
        ]

    files = sorted((ROOT / "tests/proof").glob("test_*.py"))

    def outside(turn: Turn) -> list[str]:
        # A piece is one file; after the last, all begin again with other seeds.
        again, which = divmod(turn.number, len(files))
        first = turn.seed + again * 100_000
        return [
            *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(files[which])),
            *("--proof", "--first-seed", str(first), "--basetemp", str(turn.scratch / "pytest")),
        ]

    unbuilt = "" if (programs / "decoders").exists() else "no nightly compiler built the fuzzer"
    jobs = [
        Job("explore-0", "explore", 25, explore(0)),
        Job("explore-1", "explore", 25, explore(1)),
        Job("kill", "kill", 30, kill),
        Job("power", "power", 6, power),
        *(
            Job(f"flips-{v}", "flips", 4, campaign("flips", "--all", "--variant", v), seeded=False)
            for v in VARIANTS
        ),
        Job("faults", "faults", 4, campaign("faults", "--share", "1"), seeded=False),
        Job("fuzz", "fuzz", 3, fuzz),
        Job("sanitized", "sanitized", 4, sanitized, missing=unbuilt),
        Job("outside", "outside", 5, outside, seconds_min=120),
    ]
    targets = [
        Target("states", "explore", 200_000_000),
        Target("kills", "kill", 20_000),
        Target("records", "kill", 500_000_000),
        Target("cuts", "power", 1_000),
        Target("flips", "flips", "flips in all"),
        Target("faults", "faults", "faults in all"),
        Target("fuzzed", "fuzz"),
        Target("sanitized", "sanitized"),
        Target("outside", "outside"),
    ]
    return Harnesses(jobs, counts.READERS, targets)


def _whole(seconds: float) -> str:
    return str(max(1, int(seconds)))
