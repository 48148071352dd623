"""The memory of a soak beyond what its harnesses keep: seeds, times, findings.

One JSON file, replaced as a whole: after a kill or a power cut it is the one of some seconds ago.
How much was done does not stand here but is read from the harnesses' own files (`counts`), so the
two cannot disagree.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path


def put(path: Path, text: str) -> None:
    """Give a file another text, whole or not at all, after a power cut too."""
    beside = path.with_suffix(".new")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


@dataclass
class Job:
    """A harness, or a shard of one."""

    turn: int = 0
    """How often it began with a new seed."""
    pieces: int = 0
    seconds: float = 0.0
    found: int = 0
    ended: str = ""
    """Why it gets no more pieces."""
    lacks: str = ""
    """The part of it that this machine cannot run."""


@dataclass
class State:
    """A soak."""

    seed: int
    """All other seeds are drawn from it; it also names the soak."""
    version: str
    """The version that people read."""
    source: str
    """The mark of the sources (`sources.mark`): a soak is of one version."""
    seconds: float = 0.0
    """Time at work, all calls together."""
    left: float = 0.0
    """Time that an interrupted call still had to do."""
    entered: float = 0.0
    """How much of that time the ledger knows of."""
    jobs: dict[str, Job] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    """Directories of findings."""

    def save(self, path: Path) -> None:
        """Put it into a file, whole or not at all."""
        put(path, json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> "State | None":
        """Read it; nothing when there is none."""
        try:
            told = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        jobs = {name: Job(**job) for name, job in told.pop("jobs").items()}
        return cls(**told, jobs=jobs)
