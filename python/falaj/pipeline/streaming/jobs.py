"""A job that goes on where it was: its folder of progress, its name, and what it was asked for.

A streaming pipeline keeps in one folder, its `checkpoint`, what Spark keeps of the query, and
beside that `falaj.json`: a name that was drawn once, and the settings. By the name a batch that
comes again is known in the topic and in the Parquet folder. Invariant: a job's name never changes,
and settings that decide what it writes don't either: a run with others is refused.
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

__all__ = ["Job", "create"]

_FILE, _DONE = "falaj.json", "done.json"


@dataclass(frozen=True, slots=True)
class Job:
    """A job.

    Attributes:
        name: Drawn once; no other job has it.
        folder: Its checkpoint.
        start: The offset of each partition where it began.
    """

    name: str
    folder: Path
    start: dict[int, int]

    @property
    def query(self) -> Path:
        """Spark's part of the checkpoint."""
        return self.folder / "query"

    @property
    def done(self) -> bool:
        """Whether a job of one batch is done."""
        return (self.folder / _DONE).exists()

    def finish(self) -> None:
        """Keep that it is done."""
        create(self.folder / _DONE, {"job": self.name})

    @classmethod
    def begin(
        cls, folder: Path, verb: str, settings: Mapping[str, Any], start: Mapping[int, int]
    ) -> Job:
        """Find the job of a checkpoint, or make it.

        Args:
            folder: The checkpoint; it is made if it is not there.
            verb: Which pipeline it is.
            settings: What decides what is written, as JSON has it.
            start: Where it begins, if it is new.

        Raises:
            CorruptData: What it keeps cannot be read.
            InvalidArgument: The folder is that of something else, or of a job with other settings.
        """
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / _FILE
        if not file.exists():
            if others := sorted(entry.name for entry in folder.iterdir() if entry.suffix != ".tmp"):
                raise InvalidArgument(
                    f"{folder} is no checkpoint of a pipeline: it holds {others[0]}; choose an "
                    "empty folder or a new one"
                )
            name = uuid.uuid4().hex
            made = {"job": name, "pipeline": verb, "settings": dict(settings), "start": dict(start)}
            create(file, made)
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
        return cls(kept["job"], folder, {int(part): at for part, at in kept["start"].items()})


def read(file: Path, *names: str) -> dict[str, Any]:
    """Read what a job keeps.

    Args:
        file: Where.
        names: What it has beside the job's name.

    Raises:
        CorruptData: It is not what was written.
    """
    with suppress(ValueError):
        kept = json.loads(file.read_bytes())
        if isinstance(kept, dict) and {"job", *names} <= kept.keys():
            return kept
    raise CorruptData(f"{file} is not what a pipeline wrote there: use another folder")


def create(file: Path, document: Mapping[str, Any]) -> None:
    """Make a small file of JSON, whole and on the disk; one that is there stays."""
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
