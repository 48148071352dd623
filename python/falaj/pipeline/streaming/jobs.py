"""A streaming job that continues where it was: its folder, its name, and its settings.

A streaming pipeline keeps its state in one folder, its `checkpoint`: what Spark keeps of the query,
and `falaj.json`. That file has a name, which was drawn at random once, and the settings. The topic
and the Parquet folder recognize a repeated batch by the name of the job.

Invariant: the name of a job never changes, nor do the settings that decide what it writes. A run
with other settings is refused.
"""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from falaj.errors import CorruptData, InvalidArgument
from falaj.pipeline.base import steps

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Job", "create", "exists", "expect", "read"]

_FILE, _DONE = "falaj.json", "done.json"


@dataclass(frozen=True, slots=True)
class Job:
    """A streaming job.

    Attributes:
        name: Its random name; no other job has it.
        folder: Its checkpoint.
        start: The offset in each partition at which it began.
        shift: By how many microseconds its query moves times; 0 for older jobs.
    """

    name: str
    folder: Path
    start: dict[int, int]
    shift: int = 0

    @property
    def query(self) -> Path:
        """Spark's part of the checkpoint."""
        return self.folder / "query"

    @property
    def done(self) -> bool:
        """Whether a job with one batch is done."""
        return (self.folder / _DONE).exists()

    def finish(self) -> None:
        """Store that the job is done."""
        create(self.folder / _DONE, {"job": self.name})

    @classmethod
    def begin(
        cls,
        folder: Path,
        verb: str,
        settings: Mapping[str, Any],
        start: Mapping[int, int],
        shift: int = 0,
    ) -> Job:
        """Find the job of a checkpoint, or create it.

        Args:
            folder: The checkpoint; created if it does not exist.
            verb: The name of the pipeline.
            settings: The settings that decide what it writes, as JSON has them.
            start: Where a new job begins.
            shift: By how many microseconds the query of a new job moves times.

        Raises:
            CorruptData: The state of the job cannot be read.
            InvalidArgument: The folder belongs to something else, or to a job with other settings.
        """
        expect(folder)
        with steps.told(folder):
            folder.mkdir(parents=True, exist_ok=True)
        file = folder / _FILE
        if not file.exists():
            name = uuid.uuid4().hex
            made = {"job": name, "pipeline": verb, "settings": dict(settings), "start": dict(start)}
            create(file, made | ({"shift": shift} if shift else {}))
        kept = read(file, "pipeline", "settings", "start")
        asked = {"pipeline": verb, **settings}
        known = {"pipeline": kept["pipeline"], **kept["settings"]}
        for name in sorted(asked.keys() | known.keys()):
            if asked.get(name) != known.get(name):
                raise InvalidArgument(
                    f"the checkpoint {folder} is that of a job whose {name} is "
                    f"{json.dumps(known.get(name))}, not {json.dumps(asked.get(name))}: go on with "
                    "the former setting, or begin a new job with another checkpoint"
                )
        begun = {int(part): at for part, at in kept["start"].items()}
        return cls(kept["job"], folder, begun, kept.get("shift", 0))


def expect(folder: Path) -> None:
    """Refuse a folder that can be no checkpoint; nothing is created.

    Raises:
        InvalidArgument: It holds something else, or cannot be a folder.
    """
    steps.expect_folder(folder, "checkpoint")
    if not folder.exists() or exists(folder):
        return
    if others := sorted(entry.name for entry in folder.iterdir() if entry.suffix != ".tmp"):
        raise InvalidArgument(
            f"{folder} is no checkpoint of a pipeline: it holds {others[0]}; choose an empty "
            "folder or a new one"
        )


def exists(folder: Path) -> bool:
    """Tell whether a folder is the checkpoint of a job."""
    return (folder / _FILE).exists()


def read(file: Path, *names: str) -> dict[str, Any]:
    """Read the state of a job.

    Args:
        file: The file with the state.
        names: What it has besides the name of the job.

    Raises:
        CorruptData: The file has another form.
    """
    with suppress(ValueError):
        kept = json.loads(file.read_bytes())
        if isinstance(kept, dict) and {"job", *names} <= kept.keys():
            return kept
    raise CorruptData(f"{file} is not what a pipeline wrote there: use another folder")


def create(file: Path, document: Mapping[str, Any]) -> None:
    """Create a small file of JSON, whole and on the disk; an existing one stays."""
    temporary = file.with_name(f"{file.name}.{uuid.uuid4().hex}.tmp")
    with temporary.open("x", encoding="utf-8") as opened:
        json.dump(document, opened)
        opened.flush()
        os.fsync(opened.fileno())
    try:
        with suppress(FileExistsError):
            os.link(temporary, file)
    finally:
        temporary.unlink()
    steps.sync(file.parent)
