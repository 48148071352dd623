"""The harnesses that a soak runs: command, share of the time, and targets of each.

A *job* is a harness, or one shard of it; jobs of a *kind* keep their files in one directory. The
harness itself says what a command means, and so does docs/RELIABILITY.md.
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from soak import counts
from soak.counts import Reader
from soak.pieces import bytes_in, wipe

ROOT = Path(__file__).resolve().parents[2]
ENDLESS = "1_000_000_000_000"
TARGETS_OF_BYTES = 15
"""Thirteen decoders, the stores, and those at work; each gets its time."""
SCHEDULES_IN_A_SECOND = 100
"""For each model; alone on a core it goes through two and a half times as many."""
ROUNDS_IN_A_SECOND = 60
"""For processes that share a queue, and as many for a consumer; alone it does four times that."""
SANITIZED_S_MAX = 120.0
REMEMBERED = "64_000_000"
"""Judgements that a shard of the explorer remembers: more than it makes in one piece."""
CORPUS_BYTES_MAX = 256 << 20
"""The fuzzer may have kept so much; with more it begins again with nothing."""
VARIANTS = ("mapped-closed", "mapped-killed", "pwrite-closed", "pwrite-killed")


@dataclass(frozen=True)
class Turn:
    """The arguments of one piece."""

    seed: int
    number: int
    """Pieces of this job before it."""
    seconds: float
    kept: Path
    """Where it keeps how far it is, without an ending: one for each job and seed."""
    scratch: Path


Command = Callable[[Turn], list[str]]


@dataclass(frozen=True)
class Job:
    """A harness, or one shard of it, which gets pieces of the time."""

    name: str
    kind: str
    share: float
    """Its share of the time, in proportion to the others'."""
    command: Command
    missing: str = ""
    """Why it cannot be run here."""
    seeded: bool = True
    """A finding is left behind with a new seed; without seeds there is only one way to go."""
    seconds_min: float = 0.0
    """Less makes no sense."""
    pieces: float = 1.0
    """How many times as long as others' its pieces are: it forgets what it did between them."""
    after: str = ""
    """The job that comes first, and of whose share this one goes on."""


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

    def only(self, kinds: list[str] | None) -> "Harnesses":
        """Give the time to some kinds; what others did in earlier calls still counts."""
        if kinds is None:
            return self
        return replace(self, jobs=[job for job in self.jobs if job.kind in kinds])


def everything(programs: Path, python: str = sys.executable) -> Harnesses:
    """List what there is; `programs` holds all that is run, built or copied (`sources.copy`)."""
    jobs = [
        *_of_falaj_sim(str(programs / "falaj-sim")),
        *_of_falaj_storm(programs, python),
        *_of_falaj_hostile(str(programs / "falaj-hostile")),
        *_with_sanitizer(programs),
        _schedules(programs / "shuttle"),
        Job("combined", "combined", 4, _combined(programs, python)),
        *_of_shipping(programs, python),
        Job("outside", "outside", 4, _outside(programs, python), seconds_min=120),
    ]
    return Harnesses(jobs, counts.READERS, TARGETS)


TARGETS = [
    Target("states", "explore", 200_000_000),
    Target("kills", "kill", 20_000),
    Target("records", "kill", 500_000_000),
    Target("cuts", "power", 1_000),
    Target("cuts in guests", "guest"),
    Target("flips", "flips"),
    Target("whole variants", "flips", 1),
    Target("faults", "faults", "faults in all"),
    Target("fuzzed", "fuzz"),
    Target("sanitized", "sanitized"),
    Target("together", "together"),
    Target("combined", "combined"),
    Target("kills in shipping", "ship", 20_000),
    Target("numbers", "ship"),
    Target("faulty replies", "ship", 100_000),
    Target("schedules", "schedules"),
    Target("outside", "outside"),
]


def _of_falaj_sim(program: str) -> list[Job]:
    def explore(shard: int) -> Command:
        # Two threads: while a crew's processes change places, its thread does nothing else.
        return lambda turn: [
            *(program, "explore", "--states", ENDLESS, "--seed", str(turn.seed)),
            *("--shard", f"{shard}/2", "--threads", "2", "--progress", "--remember", REMEMBERED),
            *("--seconds", _whole(turn.seconds), "--resume", f"{turn.kept}.json"),
        ]

    def together(turn: Turn) -> list[str]:
        rounds = max(1, int(turn.seconds * ROUNDS_IN_A_SECOND))
        # A round's seed is this one and its number: no piece goes through those of another.
        first = turn.seed + turn.number * 1_000_000
        return [program, "share", "--rounds", str(rounds), "--seed", str(first)]

    return [
        *(Job(f"explore-{shard}", "explore", 30, explore(shard), pieces=3) for shard in (0, 1)),
        Job("together", "together", 2, together),
    ]


def _of_falaj_storm(programs: Path, python: str) -> list[Job]:
    program = str(programs / "falaj-storm")

    def kill(turn: Turn) -> list[str]:
        return [
            *_with(programs),
            *(program, "kill", "--kills", ENDLESS, "--records", ENDLESS, "--seed", str(turn.seed)),
            *("--dir", str(turn.scratch), "--python", python),
            *("--hours", f"{turn.seconds / 3600:.5f}", "--state", f"{turn.kept}.json"),
        ]

    def power(turn: Turn) -> list[str]:
        return [
            *(program, "power", "--cuts", ENDLESS, "--seed", str(turn.seed)),
            *("--dir", str(turn.scratch)),
            *("--hours", f"{turn.seconds / 3600:.5f}", "--state", f"{turn.kept}.json"),
        ]

    def guest(turn: Turn) -> list[str]:
        # It keeps nothing: each piece has a seed of its own.
        return [
            *(python, str(programs / "tools/guest.py"), program, "--cuts", ENDLESS),
            *("--seed", str(turn.seed + turn.number), "--dir", str(turn.scratch)),
            *("--hours", f"{turn.seconds / 3600:.5f}"),
        ]

    return [
        Job("kill", "kill", 24, kill),
        Job("power", "power", 3, power),
        Job("guest", "guest", 1, guest, seconds_min=60),
    ]


def _campaign(program: str, *words: str) -> Command:
    return lambda turn: [
        *(program, *words, "--threads", "1"),
        *("--seconds", _whole(turn.seconds), "--state", f"{turn.kept}.json"),
    ]


def _of_falaj_hostile(program: str) -> list[Job]:
    def fuzz(turn: Turn) -> list[str]:
        each = replace(turn, seconds=turn.seconds / TARGETS_OF_BYTES)
        return [*_campaign(program, "bytes")(each), "--seed", str(turn.seed)]

    # One variant whole is worth more than four begun.
    names = [f"flips-{variant}" for variant in VARIANTS]
    flips = [_campaign(program, "flips", "--all", "--variant", variant) for variant in VARIANTS]
    chain = zip(names, flips, ["", *names], strict=False)
    return [
        *(Job(name, "flips", 18, flip, seeded=False, after=after) for name, flip, after in chain),
        Job("faults", "faults", 6, _campaign(program, "faults", "--share", "1"), seeded=False),
        Job("fuzz", "fuzz", 3, fuzz),
    ]


def _with_sanitizer(programs: Path) -> list[Job]:
    """Decoders below the fuzzer; and in turn stores, flips and scenes, each time other ones."""
    fuzzer, hostile = programs / "decoders", programs / "falaj-hostile-asan"

    def decoders(turn: Turn) -> list[str]:
        corpus = turn.kept.with_name("corpus")
        # Only its own pieces touch it: others of this kind begin while the fuzzer is at work.
        if corpus.exists() and bytes_in(corpus) > CORPUS_BYTES_MAX:
            wipe(corpus)
        corpus.mkdir(exist_ok=True)
        # By itself it would end as others do that could not be run.
        return [
            *(str(fuzzer), str(corpus), f"-seed={turn.seed + turn.number}", "-timeout=60"),
            *(f"-max_total_time={_whole(turn.seconds)}", f"-artifact_prefix={turn.scratch}/"),
            "-error_exitcode=1",
        ]

    def campaigns(turn: Turn) -> list[str]:
        words = (
            ("bytes", "--only", "stores", "--seed", str(turn.seed)),
            ("flips", "--seed", str(turn.seed)),
            ("faults", "--share", "1"),
        )[turn.number % 3]
        kept = turn.kept.with_name(f"{turn.kept.name}-{words[0]}")
        # Memory that was given back is watched for a while: so much of it, and no more.
        options = ["env", "ASAN_OPTIONS=quarantine_size_mb=16"]
        # For how long is known that it stays within the memory that a campaign may take.
        seconds = min(turn.seconds, SANITIZED_S_MAX)
        told = replace(turn, kept=kept, seconds=seconds)
        return [*options, *_campaign(str(hostile), *words)(told)]

    def missing(program: Path) -> str:
        return "" if program.exists() else "no nightly compiler built it"

    return [
        Job("sanitized", "sanitized", 2, decoders, missing=missing(fuzzer)),
        Job("asan-stores", "sanitized", 2, campaigns, missing=missing(hostile)),
    ]


def _schedules(program: Path) -> Job:
    def schedules(turn: Turn) -> list[str]:
        many = max(1, int(turn.seconds * SCHEDULES_IN_A_SECOND))
        seed = turn.seed + turn.number
        return [
            *("env", f"FALAJ_SHUTTLE_SEED={seed}", f"FALAJ_SHUTTLE_SCHEDULES={many}"),
            *(str(program), "--nocapture", "--test-threads", "1"),
        ]

    missing = "" if program.exists() else "nobody built it"
    return Job("schedules", "schedules", 2, schedules, missing=missing, seconds_min=30)


def _combined(programs: Path, python: str) -> Command:
    """All features of a store in any order, against plain lists."""
    tests = programs / "tests"

    def combined(turn: Turn) -> list[str]:
        # A piece goes through some seeds, and no other has those.
        first = turn.seed + turn.number * 100_000
        return [
            *("env", f"PYTHONPATH={programs / 'python'}:{tests}:{tests / 'python'}"),
            *(python, "-m", "together", "--seed", str(first)),
            *("--seconds", _whole(turn.seconds)),
        ]

    return combined


def _of_shipping(programs: Path, python: str) -> list[Job]:
    """Kills of the processes around a place, and faulty replies of one in memory."""

    def job(module: str, first: int, *words: str) -> Command:
        return lambda turn: [
            *("env", f"PYTHONPATH={programs / 'python'}:{programs / 'tests'}"),
            *(f"TMPDIR={turn.scratch}", python, "-m", module, "--seed", str(turn.seed + first)),
            *("--seconds", _whole(turn.seconds), "--state", f"{turn.kept}.json"),
            *(word.format(turn.scratch) for word in words),
        ]

    # A round's seed is the first one and its number: shards go through others.
    storms = [job("ship.storm", shard * 1_000_000, "--dir", "{}") for shard in (0, 1)]
    return [
        *(Job(f"ship-kills-{shard}", "ship", 4, storm) for shard, storm in enumerate(storms)),
        Job("ship-replies", "ship", 1, job("ship.replies", 0)),
    ]


def _outside(programs: Path, python: str) -> Command:
    folder = programs / "tests"
    files = [*sorted((folder / "proof").glob("test_*.py"))]
    files += sorted((folder / "hostile").glob("test_*.py"))

    def outside(turn: Turn) -> list[str]:
        # A piece is one file; after the last, all begin again with other seeds.
        again, which = divmod(turn.number, len(files))
        first = turn.seed + again * 100_000
        return [
            *_with(programs),
            *(f"FALAJ_HOSTILE_SEED={first}", "FALAJ_HOSTILE_HARMS=1500", "FALAJ_HOSTILE_CALLS=40"),
            *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(files[which])),
            *("-c", str(programs / "pyproject.toml"), "--rootdir", str(programs)),
            *("--proof", "--first-seed", str(first), "--basetemp", str(turn.scratch / "pytest")),
            *("--timeout", "600"),  # beside another lane, on a machine that may be busy
        ]

    return outside


def _with(programs: Path) -> list[str]:
    """Have Python import the package that was copied, not the one that is being worked on."""
    return ["env", f"PYTHONPATH={programs / 'python'}"]


def _whole(seconds: float) -> str:
    return str(max(1, int(seconds)))
