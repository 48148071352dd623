"""One piece: a harness at work for some minutes, below a keeper, with its words in a file.

Owns starting it, asking it to end, and what of it is put away. Its scratch directory is made empty
before and removed after, also when the piece before it was killed with the whole machine.
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

KEEPER = Path(__file__).with_name("keeper.py")


@dataclass
class Piece:
    """A harness at work."""

    job: str
    command: list[str]
    log: Path
    scratch: Path
    seconds: float
    """The time that it was given; it ends by itself about then."""
    begun: float
    process: "subprocess.Popen[bytes]"
    asked_to_end: bool = False

    @classmethod
    def start(
        cls, job: str, command: list[str], log: Path, scratch: Path, seconds: float, lock: int
    ) -> "Piece":
        """Start it. The lock stays held until the last process of the piece is gone."""
        wipe(scratch)
        scratch.mkdir(parents=True)
        environment = {**os.environ, "TMPDIR": str(scratch)}
        with log.open("wb") as words:
            process = subprocess.Popen(
                [sys.executable, "-I", str(KEEPER), *command],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the driver, which asks for an end
                pass_fds=[lock],
            )
        return cls(job, command, log, scratch, seconds, time.monotonic(), process)

    @property
    def lasted(self) -> float:
        """How long it has been at work, in seconds."""
        return time.monotonic() - self.begun

    def ask_to_end(self) -> None:
        """Ask it to end; the keeper sees to it that it does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.asked_to_end = True

    def code(self) -> int | None:
        """Say how it ended; nothing while it has not."""
        return self.process.poll()

    def wait(self) -> int:
        """Wait until it ended."""
        return self.process.wait()


def wipe(folder: Path) -> None:
    """Remove a directory, whatever is in it; what is not there is removed."""
    shutil.rmtree(folder, ignore_errors=True)


def bytes_in(folder: Path) -> int:
    """How much the files of a directory hold."""
    return sum(path.stat().st_size for path in folder.iterdir())


def free_bytes(folder: Path) -> int:
    """How much space there is for what this user writes there."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def keep_copy(source: Path, target: Path, bytes_max: int) -> str:
    """Copy what a finding left, holes as holes; say so when it is too much and is not copied."""
    files = [path for path in source.rglob("*") if path.is_file() and not path.is_symlink()]
    taken = sum(path.stat().st_blocks * 512 for path in files)
    if taken > bytes_max or taken > free_bytes(target.parent) // 2:
        return f"{source} took {taken >> 20} MiB and was not kept"
    if files:
        subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=False)
    return ""
