"""`Folder`: what an export keeps beside its files, so that each record is in them exactly once.

It is in the folder `_falaj` of the export; readers skip a folder with such a name:

    `folder.json`                What is exported, and how. The first run fixes it.
    `lock`                       A lock that the current run holds.
    `plan.json`                  The plan of the current run: its records and its tasks.
    `staging/<run>/…`            Files of tasks, and a `<task>.json` for each finished task.
    `commits/<number>.json`      A finished run: its files, and where its records end.

A run first writes its plan; then its tasks write files to staging. One rename makes the commit.
Only then does the run move the files to where readers look.

Invariant: a commit names each file that lies among the dates. The files of a commit are complete
and on the disk. So the next run can finish a run that died: from its plan, or, if its commit
exists, by moving the remaining files. It does so first. Each of these actions is one of `steps`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from falaj.errors import (
    CorruptData,
    InvalidArgument,
    LockTimeout,
    SettingsMismatch,
    UnsupportedVersion,
)
from falaj.pipeline.base import steps
from falaj.spark.reading.ranges import Range

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Commit", "Folder", "Piece", "Plan"]

CONTROL = "_falaj"
_LOCK = "lock"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A file that a task wrote, with records of one partition and one date.

    Attributes:
        path: Its final path, below the folder.
        staged: Its name in staging.
        partition: The partition of the topic.
        start: First offset of the task's range; the file has the records of one date in it.
        records: How many records it has.
        bytes: How large the file is.
    """

    path: str
    staged: str
    partition: int
    start: int
    records: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a run: its records and its tasks.

    Attributes:
        number: Number of its commit, from 1.
        run: Name of its folder in staging.
        began: When it was planned, ISO.
        start: The offsets at which the run begins, in the form that streams keep.
        end: The offsets at which it ends.
        whole: The range of each partition.
        tasks: The same ranges, cut into one for each task.
    """

    number: int
    run: str
    began: str
    start: dict[str, Any]
    end: dict[str, Any]
    whole: tuple[Range, ...]
    tasks: tuple[Range, ...]

    @classmethod
    def read(cls, kept: dict[str, Any]) -> Plan:
        """Make it of what a file holds."""
        ranges = {name: tuple(Range(**one) for one in kept[name]) for name in ("whole", "tasks")}
        return cls(**(kept | ranges))


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The commit of a run that is done.

    Attributes:
        number: From 1, without gaps.
        run: Name of its folder in staging, while its files are moved.
        began: When it was planned, ISO.
        end: The offsets at which it ended, in the form that streams keep.
        whole: The range of each partition.
        files: The files that it wrote.
        records: How many records they have.
        notes: What the run reported: losses, and corrupt records that it left out.
        bad: How many records were left out because their values cannot be read.
    """

    number: int
    run: str
    began: str
    end: dict[str, Any]
    whole: tuple[Range, ...]
    files: tuple[Piece, ...]
    records: int
    notes: tuple[str, ...] = ()
    bad: int = 0

    @classmethod
    def read(cls, kept: dict[str, Any]) -> Commit:
        """Make it of what a file holds."""
        made = {
            "whole": tuple(Range(**one) for one in kept["whole"]),
            "files": tuple(Piece(**one) for one in kept["files"]),
            "notes": tuple(kept["notes"]),
        }
        return cls(**(kept | made))


class Folder:
    """The folder of an export. Methods that change it need `locked`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.control = path / CONTROL

    # --- The lock --------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out, and create the folder if it does not exist.

        A run that fails before it fixes its settings leaves nothing behind.

        Raises:
            InvalidArgument: It holds something else.
            LockTimeout: Another run has the lock.
        """
        made = [each for each in (self.control, self.path) if not each.exists()]
        with steps.told(self.path):
            descriptor = self._lock()
        try:
            with steps.told(self.path):
                yield
        except BaseException:
            with suppress(OSError):
                if os.listdir(self.control) == [_LOCK]:
                    (self.control / _LOCK).unlink()
                    for each in made:
                        each.rmdir()
            raise
        finally:
            os.close(descriptor)

    def expect(self) -> None:
        """Refuse a folder that holds anything but an export.

        Raises:
            InvalidArgument: It does, or it cannot be a folder.
        """
        if self.control.is_dir():
            return
        steps.expect_folder(self.path, "into")
        if self.path.exists() and any(self.path.iterdir()):
            raise InvalidArgument(
                f"{self.path} holds something that is no export: choose a folder that is empty or "
                "not there yet"
            )

    def _make(self) -> None:
        self.expect()
        if not self.control.is_dir():
            steps.make_folder(self.control)

    def _lock(self) -> int:
        path = self.control / _LOCK
        while True:
            self._make()
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                if self.control.is_dir():
                    raise
                continue  # a run that failed took the folder away again
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.read(descriptor, 200).decode("utf-8", "replace")
                os.close(descriptor)
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                busy = LockTimeout(
                    f"another run exports to {self.path}{holder and f', {holder}'}: let it end, "
                    "and try again"
                )
                busy.path = str(path)
                raise busy from None
            if _same(descriptor, path):
                os.truncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return descriptor
            os.close(descriptor)  # somebody removed it: what is locked is no file any more

    # --- What is exported ------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Read the settings that the first run fixed.

        Raises:
            InvalidArgument: This is no export.
        """
        kept = self._read(self.control / "folder.json")
        if kept is None:
            raise InvalidArgument(
                f"{self.path} is no folder that falaj exported to: check the path"
            )
        return kept

    def agree(self, wanted: dict[str, Any]) -> None:
        """Store the settings of a new export, or compare them with the stored ones.

        Raises:
            SettingsMismatch: The stored settings differ.
        """
        kept = self._read(self.control / "folder.json")
        if kept is None:
            self._write(self.control / "folder.json", {"id": secrets.token_hex(8), **wanted})
            return
        for name, value in wanted.items():
            if kept.get(name) != value:
                raise SettingsMismatch(
                    f"{self.path} was exported with {name} = {kept.get(name)!r}, not {value!r}: "
                    "export to another folder, or as before"
                )

    # --- Runs ------------------------------------------------------------------------------------

    def plan(self) -> Plan | None:
        """The run that is under way, or that died."""
        kept = self._read(self.control / "plan.json")
        return None if kept is None else self._made(Plan, kept, "plan.json")

    def begin(self, plan: Plan) -> None:
        """Write the plan of a run."""
        self._write(self.control / "plan.json", asdict(plan))

    def staging(self, run: str) -> Path:
        """The folder that the tasks of a run write to."""
        return self.control / "staging" / run

    def keep(self, run: str, task: int, files: list[Piece], notes: list[str], bad: int = 0) -> None:
        """Record that a task is done; of several attempts the last one counts."""
        kept = {"files": [asdict(piece) for piece in files], "notes": notes, "bad": bad}
        self._write(self.staging(run) / f"{task}.json", kept)

    def kept(self, run: str, task: int) -> tuple[list[Piece], list[str], int] | None:
        """Read what a task wrote, reported and left out; None if it is not done or lacks a file."""
        staging = self.staging(run)
        found = self._read(staging / f"{task}.json")
        if found is None:
            return None
        files = [Piece(**one) for one in found["files"]]
        whole = all(_size(staging / piece.staged) == piece.bytes for piece in files)
        return (files, found["notes"], found["bad"]) if whole else None

    def written(self, plan: Plan) -> tuple[list[Piece], set[str], int]:
        """Combine what all tasks of a finished run wrote, reported and left out."""
        files: list[Piece] = []
        said, bad = set[str](), 0
        for task in range(len(plan.tasks)):
            done = self.kept(plan.run, task)
            if done is None:
                raise self._damage(self.staging(plan.run), "lost what a task wrote")
            files += done[0]
            said.update(done[1])
            bad += done[2]
        return files, said, bad

    def commit(self, plan: Plan, files: list[Piece], notes: set[str], bad: int) -> Commit:
        """Make the files of a run part of the export, all at once.

        Args:
            plan: The run.
            files: All its files, which are in staging.
            notes: What the run reported.
            bad: How many records were left out because their values cannot be read.
        """
        commit = Commit(
            number=plan.number,
            run=plan.run,
            began=plan.began,
            end=plan.end,
            whole=plan.whole,
            files=tuple(files),
            records=sum(piece.records for piece in files),
            notes=tuple(sorted(notes)),
            bad=bad,
        )
        steps.make_folder(self._place(plan.number).parent)
        self._write(self._place(plan.number), asdict(commit))
        return commit

    def publish(self, commit: Commit) -> None:
        """Move the files of a commit to where readers look; those that are there already stay."""
        staging = self.staging(commit.run)
        folders = sorted({(self.path / piece.path).parent for piece in commit.files})
        for folder in folders:
            steps.make_folder(folder)
        for piece in commit.files:
            steps.move(staging / piece.staged, self.path / piece.path)
        for folder in folders:
            steps.sync(folder)

    def clear(self) -> None:
        """Remove the plan of a run that is done or given up, and all files that dead runs left."""
        steps.remove(self.control / "plan.json")
        for left in (self.control / "staging", *self.control.glob("**/.*")):
            if left.exists():
                steps.remove(left)

    # --- Commits ---------------------------------------------------------------------------------

    def last(self) -> Commit | None:
        """The newest commit."""
        numbers = self._numbers()
        return self._commit(numbers[-1]) if numbers else None

    def commits(self, behind: int = 0) -> list[Commit]:
        """All commits after a number, oldest first."""
        return [self._commit(number) for number in self._numbers() if number > behind]

    def _numbers(self) -> list[int]:
        folder = self.control / "commits"
        names = os.listdir(folder) if folder.is_dir() else []
        numbers = sorted(int(name[:-5]) for name in names if name[:-5].isdecimal())
        for expected, number in enumerate(numbers, 1):
            if number != expected:
                raise self._damage(self._place(expected), "is missing")
        return numbers

    def _place(self, number: int) -> Path:
        return self.control / "commits" / f"{number:020}.json"

    def _commit(self, number: int) -> Commit:
        kept = self._read(self._place(number))
        if kept is None:
            raise self._damage(self._place(number), "is missing")
        commit: Commit = self._made(Commit, kept, self._place(number).name)
        return commit

    # --- Files -----------------------------------------------------------------------------------

    def _write(self, path: Path, document: dict[str, Any]) -> None:
        text = json.dumps({"version": _VERSION, **document}, indent=1)
        steps.write(path, text.encode() + b"\n")

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            document = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise self._damage(path, f"is no JSON ({error})") from None
        if not isinstance(document, dict) or "version" not in document:
            raise self._damage(path, "is not what an export writes")
        if document.pop("version") != _VERSION:
            raise UnsupportedVersion(
                f"{path} was written by another version of falaj: upgrade this one"
            )
        return document

    def _made(self, kind: Any, kept: dict[str, Any], name: str) -> Any:
        try:
            return kind.read(kept)
        except (KeyError, TypeError, ValueError) as error:
            raise self._damage(
                self.control / name, f"is not what an export writes ({error})"
            ) from None

    def _damage(self, path: Path, what: str) -> CorruptData:
        error = CorruptData(
            f"{path} {what}: restore {CONTROL} from a backup, or export to another folder"
        )
        error.path = str(path)
        return error


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _same(descriptor: int, path: Path) -> bool:
    held = os.fstat(descriptor)
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)
