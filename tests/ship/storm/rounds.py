"""A round: the processes of one store and one place, killed and replaced until it is over.

Owns the processes. They are forked, which takes milliseconds, since this program has imported all
and has opened nothing. Each lives until its point, or until its time is over. Whatever ends by
itself must end well.
"""

import gc
import os
import random
import selectors
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ship.storm import actors, readers
from ship.storm.account import read
from ship.storm.points import Points, drawn

LIVES_S = {
    "writer": 0.25,
    "other": 0.25,
    "shipper": 0.25,
    "restore": 0.15,
    "reader": 0.8,
    "follower": 0.8,
}
"""The longest life of each that has no point; a reader first opens the place."""
TO_A_POINT_S = 0.6
"""The longest life of one that waits for its point, if it has none that is longer."""
SLOWNESS_MOST = 3.0
"""Lives on a busy machine are longer by at most this factor."""
ALARM_S = 120
"""A process whose round is gone ends by itself."""
BEGUN = 0.8
"""The share of rounds whose place has something from the beginning."""
HISTORIES = (3600.0, 3600.0, 0.0)


class Found(Exception):
    """A promise was broken; the message says which, and where."""


@dataclass
class Life:
    """A process at work."""

    name: str
    process: int
    until: float
    point: str
    is_late: bool = False


@dataclass
class Round:
    """A round of the storm.

    Attributes:
        base: Its directory, which is empty.
        seed: What all chances come from; the order of events depends on the machine, too.
        points: How often a process died at each point.
    """

    base: Path
    seed: int
    kills: int = 0
    points: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.history = self.chance.choice(HISTORIES)
        self._lives: dict[int, Life] = {}
        self._selector = selectors.DefaultSelector()
        self._acknowledged: list[int] = []

    def run(self, kills: int, until: float) -> None:
        """Start the processes, and replace what dies, until there were so many kills.

        Raises:
            Found: A process ended with an error.
        """
        gc.freeze()
        if self.chance.random() < BEGUN:
            chance = random.Random(self.chance.getrandbits(32))
            apart(self.base / "begin.err", lambda: actors.begin(self.base, chance, self.history))
        try:
            for name in LIVES_S:
                self._start(name)
            while self.kills < kills and time.monotonic() < until:
                self._step()
        finally:
            for handle, life in list(self._lives.items()):
                os.kill(life.process, signal.SIGKILL)
                self._bury(handle)
            self._selector.close()

    def _step(self) -> None:
        now = time.monotonic()
        for life in self._lives.values():
            if now >= life.until and not life.is_late:
                life.is_late = True
                os.kill(life.process, signal.SIGKILL)
        next_ = min((life.until for life in self._lives.values() if not life.is_late), default=now)
        for key, _ in self._selector.select(max(0.0, min(next_ - now, 0.05))):
            life = self._lives[key.fd]
            code = self._bury(key.fd)
            if code == -signal.SIGKILL:
                self.kills += 1
                self.points[f"{life.name}: {'at any time' if life.is_late else life.point}"] += 1
            elif code != 0 or life.name != "restore":
                said = (self.base / f"{life.name}.err").read_text()
                raise Found(f"{life.name} ended with {code}: {said}")
            self._start(life.name)

    def _bury(self, handle: int) -> int:
        life = self._lives.pop(handle)
        self._selector.unregister(handle)
        os.close(handle)
        return os.waitstatus_to_exitcode(os.waitpid(life.process, 0)[1])

    def _start(self, name: str) -> None:
        points, seed = drawn(name, self.chance), self.chance.getrandbits(32)
        most = max(LIVES_S[name], TO_A_POINT_S if points.chosen else 0.0)
        lasts = self.chance.uniform(0.005, most) * _slowness()
        work = self._work(name, points, random.Random(seed))
        process = os.fork()
        if process == 0:
            _be(self.base / f"{name}.err", work)
        handle = os.pidfd_open(process)
        self._selector.register(handle, selectors.EVENT_READ)
        life = Life(name, process, time.monotonic() + lasts, points.chosen)
        self._lives[handle] = life

    def _work(self, name: str, points: Points, chance: random.Random) -> Callable[[], None]:
        if name == "shipper":
            return lambda: actors.ship(self.base, points, chance, self.history)
        if name == "writer":
            return lambda: actors.write(self.base, ("one", "two"), points, chance)
        if name == "other":
            return lambda: actors.write(self.base, ("three", "latest"), points, chance)
        if name == "reader":
            return lambda: readers.look(self.base, points, chance, self.history)
        if name == "follower":
            return lambda: readers.follow(self.base, points, chance, self.history)
        known = sorted(read(self.base / "account").acknowledged)
        number = chance.choice(known) if known and self.history and chance.random() < 0.5 else None
        return lambda: actors.restore(self.base, number, points, self.history)


def _slowness() -> float:
    """Tell how much longer a process takes here for its work, since others want the processor."""
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(max(busy, 1.0), SLOWNESS_MOST)


def _be(errors: Path, work: Callable[[], None]) -> None:
    """Be a child: do the work, and never return."""
    code = 1
    try:
        signal.alarm(ALARM_S)
        file = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, 2)
        work()
        code = 0
    except BaseException:  # noqa: BLE001  # its parent reads what it was
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def apart(errors: Path, work: Callable[[], None]) -> None:
    """Do work in a child, since this process opens no store.

    Raises:
        Found: It failed.
    """
    process = os.fork()
    if process == 0:
        _be(errors, work)
    if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
        raise Found(errors.read_text())
