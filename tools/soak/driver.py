"""The soak itself: two lanes, in each one piece after the other, until the time is over.

Owns which job is next (the one furthest behind its share), what becomes of a finding, the space on
the disks, and when it ends. A call may be interrupted at any moment: the next one needs only
`state.json` and the harnesses' own files. The keepers hold a lock too, so the next call waits for
the last process of this one.
"""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from soak import findings
from soak.counts import done_in
from soak.harnesses import Harnesses, Job, Turn
from soak.pieces import Piece, free_bytes, keep_copy, wipe
from soak.state import Job as Told
from soak.state import State

LANES = 2
LOOK_S = 0.1
SAVE_S = 5.0
PIECE_S = (8.0, 600.0)
"""Shortest and longest piece; between them a twelfth of the time asked for. See
`Job.pieces`."""
LATE_S = 600.0
"""Longer than what it was given and this much more a piece does not take."""
AT_THE_END_S = 90.0
"""And so much at the end of the soak: a round of a storm, a unit of the explorer."""
FOUND_MAX = 3
"""Findings of one job, after which it gets no more time."""
KEPT_BYTES_MAX = 1 << 30
"""So much of the stores of one finding is kept."""
SCRATCH_BYTES_MIN = 4 << 30
HOME_BYTES_MIN = 2 << 30
LOG_BYTES_MAX = 4 << 20

FINE, SKIPPED, WRONG = 0, 77, 1
"""A harness that was not run says so, too: other programs end with 77 for their own reasons."""
ENDED_BY_US = (72, 130, 128 + 9, 128 + 15)
"""Codes of those that were asked to end; 72 is the fuzzer's."""


class NoRoom(Exception):
    """The disks have too little space for what one piece may take meanwhile."""


@dataclass
class Soak:
    """A call of the soak."""

    home: Path
    """Where everything is kept that outlives a call."""
    scratch: Path
    """Where stores lie meanwhile; in memory, if possible."""
    harnesses: Harnesses
    state: State
    say: Callable[[str], None]
    lock: int
    """See `hold`."""
    scratch_bytes_min: int = SCRATCH_BYTES_MIN
    home_bytes_min: int = HOME_BYTES_MIN
    lanes: list[Piece | None] = field(default_factory=lambda: [None] * LANES)
    stopping: bool = False

    def __post_init__(self) -> None:
        for job in self.harnesses.jobs:
            told = self.state.jobs.setdefault(job.name, Told())
            (self.home / job.kind).mkdir(exist_ok=True)
            # A harness that could not be run may have been built since, or may be allowed now.
            told.ended = "" if told.ended.startswith("NOT RUN") else told.ended
            if job.missing:
                told.ended = f"NOT RUN: {job.missing}"
                self.say(f"{job.name}: {told.ended}")
        wipe(self.scratch)
        self.look_for_room()

    # --- The time ------------------------------------------------------------------------------

    def run(self, hours: float, show: Callable[["Soak"], None]) -> bool:
        """Work for so long, or for what an interrupted call left; true if nothing was found."""
        state = self.state
        state.left = state.left or hours * 3600
        seconds = min(PIECE_S[1], max(PIECE_S[0], hours * 3600 / 12))
        last = saved = time.monotonic()
        try:
            while True:
                now = time.monotonic()
                state.seconds, state.left = state.seconds + now - last, state.left - (now - last)
                last = now
                working = self.look_after(seconds)
                if not working:
                    break
                if now - saved > SAVE_S:
                    saved = now
                    self.save()
                    self.look_for_room()
                show(self)
                time.sleep(LOOK_S)
            state.left = 0.0
        except NoRoom as why:
            self.say(f"NO SPACE: {why}")
            state.left = max(state.left, 1.0)
            return False
        finally:
            self.end()
        return not state.found

    def look_after(self, seconds: float) -> bool:
        """Settle what ended, begin what is next; false when all is over."""
        left = self.state.left
        for lane, piece in enumerate(self.lanes):
            if piece is not None:
                self.settle(lane, piece, left)
            if self.lanes[lane] is None and left > 0 and not self.stopping:
                job = self.next_job(left)
                if job is not None:
                    self.look_for_room()
                    self.lanes[lane] = self.begin(job, min(job.pieces * seconds, left))
        return any(self.lanes)

    def next_job(self, left: float) -> Job | None:
        """Choose the job that is furthest behind its share."""
        running = {piece.job for piece in self.lanes if piece}
        may = [
            job
            for job in self.harnesses.jobs
            if job.name not in running
            and not self.state.jobs[job.name].ended
            and (not job.after or self.state.jobs[job.after].ended)
            and left >= job.seconds_min
        ]
        met = self.kinds_that_are_met() if may else set()

        def behind(job: Job) -> float:
            return self.seconds_of(job) / (job.share / (5 if job.kind in met else 1))

        return min(may, key=behind, default=None)

    def seconds_of(self, job: Job) -> float:
        """How much time a job had, with those of whose share it goes on."""
        before = next((other for other in self.harnesses.jobs if other.name == job.after), None)
        return self.state.jobs[job.name].seconds + (self.seconds_of(before) if before else 0.0)

    # --- A piece -------------------------------------------------------------------------------

    def begin(self, job: Job, seconds: float) -> Piece:
        """Start the next piece of a job."""
        told = self.state.jobs[job.name]
        seed = drawn(self.state.seed, job.kind, told.turn)
        folder = self.home / job.kind
        kept = folder / (f"{job.name}-{seed}" if job.seeded else job.name)
        scratch = self.scratch / job.name
        turn = Turn(seed, told.pieces, seconds, kept, scratch)
        log = folder / f"{job.name}-{told.turn}-{told.pieces:04}.log"
        told.pieces += 1
        return Piece.start(job.name, job.command(turn), log, scratch, seconds, self.lock)

    def settle(self, lane: int, piece: Piece, left: float) -> None:
        """See whether a piece ended, and how; ask one to end that takes too long."""
        code = piece.code()
        if code is None:
            late = piece.lasted > piece.seconds + LATE_S
            if (late or left < -AT_THE_END_S) and not piece.asked_to_end:
                piece.ask_to_end()
                if late:
                    self.keep(piece, f"it did not end {LATE_S:.0f} s after its time")
            return
        self.lanes[lane] = None
        told = self.state.jobs[piece.job]
        job = next(job for job in self.harnesses.jobs if job.name == piece.job)
        told.seconds += piece.lasted
        not_run = last_line(piece.log, "NOT RUN")
        if code == SKIPPED and not_run:
            told.ended = f"NOT RUN: {not_run}"
            self.say(f"{piece.job}: {told.ended}")
        elif what := self.found_by(piece, code):
            self.keep(piece, what)
            told.turn += 1
            if not job.seeded and code != WRONG:
                told.ended = "it would die at the same place again"
            elif told.found >= FOUND_MAX:
                told.ended = f"{told.found} findings are enough"
            if told.ended:
                self.say(f"{piece.job} gets no more time: {told.ended}")
        elif not job.seeded and is_done(self.home / job.kind / f"{job.name}.json"):
            told.ended = "done"
        if not_run and not told.ended and not told.lacks:
            told.lacks = not_run
            self.say(f"{piece.job}: {not_run}")
        shorten(piece.log)
        wipe(piece.scratch)

    def found_by(self, piece: Piece, code: int) -> str:
        """Say what is wrong with how a piece ended, or with what it kept; empty if nothing is.

        A harness that is asked to end reports nothing of what it had found until then. That stands
        in its files only, and another call may never go on from them.
        """
        if piece.asked_to_end and code in ENDED_BY_US:
            kept = findings.files_of(piece.log.parent, piece.job)
            return "\n".join(what for path in kept for what in findings.told(path))
        return "" if code == FINE else f"it ended with {code}"

    def keep(self, piece: Piece, what: str) -> None:
        """Keep what is needed to see a finding again, and say where."""
        state, told = self.state, self.state.jobs[piece.job]
        told.found += 1
        where = self.home / "found" / f"{state.seed}-{len(state.found)}-{piece.job}"
        where.mkdir(parents=True)
        shutil.copy(piece.log, where / "said.txt")
        for path in findings.files_of(piece.log.parent, piece.job):
            shutil.copy(path, where)
            findings.forget(path)
        lost = keep_copy(piece.scratch, where / "scratch", KEPT_BYTES_MAX)
        (where / "README.txt").write_text(
            f"{what}\nsources: {state.version}\ncommand: {shlex.join(piece.command)}\n"
            "said.txt says what was found and how to see it again; the files beside it are those\n"
            f"that the command was going on from, scratch/ is what it worked in.\n{lost}\n"
        )
        state.found.append(str(where))
        self.save()
        self.say(f"FOUND by {piece.job}: {what}; see {where}")
        for line in tail(piece.log):
            self.say(f"  {line}")

    # --- What is there -------------------------------------------------------------------------

    def done(self) -> Counter[str]:
        """Count what was done."""
        return done_in(self.home, self.harnesses.readers)

    def kinds_that_are_met(self) -> set[str]:
        """List the kinds that were done often enough."""
        done, targets = self.done(), self.harnesses.targets
        numbers = [t for t in targets if t.enough and isinstance(t.enough, int)]
        missed = {t.kind for t in numbers if done[t.name] < t.of(done)}
        return {t.kind for t in numbers} - missed

    def look_for_room(self) -> None:
        """Raise when there is too little of it."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        busy = any(self.lanes)
        for folder, least in (
            (self.scratch, self.scratch_bytes_min),
            (self.home, self.home_bytes_min),
        ):
            free = free_bytes(folder)
            # Pieces that are at work have taken some of it, and give it back.
            if free < least // (4 if busy else 1):
                raise NoRoom(
                    f"{folder} has {free / 2**30:.1f} GiB, a soak needs {least / 2**30:.1f} there"
                )

    def save(self) -> None:
        """Write the state down, with the time of what is under way."""
        self.state.save(self.home / "state.json")

    def end(self) -> None:
        """End what is under way, and leave nothing running, nor stores."""
        self.stopping = True
        for piece in self.lanes:
            if piece is not None and not piece.asked_to_end:
                piece.ask_to_end()
        for lane, piece in enumerate(self.lanes):
            if piece is not None:
                piece.wait()
                self.settle(lane, piece, 0)
        wipe(self.scratch)
        self.save()


def hold(path: Path, say: Callable[[str], None]) -> int:
    """Take the lock of a soak's directory; waits for the processes of a driver that was killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another soak is at work in {path.parent}, or its processes are ending: waiting")
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def drawn(seed: int, *what: object) -> int:
    """Draw a seed of nine digits at most from another and what it is for."""
    text = json.dumps([seed, *what]).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") % 1_000_000_000


def is_done(path: Path) -> bool:
    """Say whether a campaign of `falaj-hostile` came to its end."""
    told = json.loads(path.read_text()) if path.exists() else {}
    return bool(told) and told["next"] >= told["to"]


def tail(log: Path, lines: int = 12) -> list[str]:
    """Read the last lines of a log."""
    return log.read_text(errors="replace").splitlines()[-lines:]


def last_line(log: Path, word: str) -> str:
    """Find the last line with a word in it; empty if there is none."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line for line in reversed(lines) if word in line), "").strip()


def shorten(log: Path) -> None:
    """Keep the end of a log that has become long."""
    if log.stat().st_size > LOG_BYTES_MAX:
        log.write_bytes(log.read_bytes()[-LOG_BYTES_MAX:])
