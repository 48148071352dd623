"""Writers and shippers are killed again and again: each acknowledged number restores exactly."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import falaj
from falaj.ship.place import open_place
from falaj.ship.verify import verify_place
from ship.storm import TOPICS

TESTS = Path(__file__).parents[1]
SECONDS = 12.0
RESTORED = 6


class Programs:
    """A writer and a shipper of one store, started again after each kill."""

    def __init__(self, base: Path, chance: random.Random) -> None:
        self.base, self.chance, self.kills = base, chance, 0
        self.account: dict[int, tuple[int, ...]] = {}
        self.running: dict[str, tuple[subprocess.Popen[str], float]] = {}

    def start(self, name: str) -> None:
        words = [sys.executable, "-m", "ship.storm", name, str(self.base / "store")]
        if name == "shipper":
            words += [str(self.base / "place"), str(self.chance.randrange(2**31))]
        output = (self.base / f"{name}.out").open("a")
        errors = (self.base / f"{name}.err").open("a")
        process = subprocess.Popen(
            words,
            stdout=output,
            stderr=errors,
            cwd=TESTS,
            text=True,
            env=os.environ | {"PYTHONPATH": str(TESTS)},
        )
        output.close()
        errors.close()
        self.running[name] = process, time.monotonic() + self.chance.uniform(0.8, 3.0)

    def kill_due(self) -> None:
        for name, (process, until) in list(self.running.items()):
            if process.poll() is None and time.monotonic() < until:
                continue
            process.kill()
            code = process.wait()
            assert code == -signal.SIGKILL, (self.base / f"{name}.err").read_text()
            self.kills += 1
            self.start(name)

    def stop(self) -> None:
        for process, _ in self.running.values():
            process.kill()
            process.wait()

    def read_account(self) -> None:
        for line in (self.base / "shipper.out").read_text().splitlines():
            words = line.split()
            if len(words) == 1 + len(TOPICS):
                self.account[int(words[0])] = tuple(map(int, words[1:]))


def ends_of(path: Path) -> tuple[int, ...]:
    """Return where each topic ends, after a look at each record."""
    with falaj.open(path, read_only=True) as copy:
        found = []
        for name in TOPICS:
            if name not in copy.topics:
                found.append(0)
                continue
            topic = copy.topic(name, codec="bytes")
            for record in topic:
                assert record.value.rstrip(b".") == b"%d" % record.offset
            found.append(topic.end_offset)
        return tuple(found)


def test_every_acknowledged_number_survives_kills_of_writers_and_shippers(tmp_path: Path) -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")  # noqa: T201  # to see a failure again
    chance = random.Random(seed)
    programs = Programs(tmp_path, chance)
    try:
        programs.start("writer")
        programs.start("shipper")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            programs.kill_due()
            time.sleep(0.02)  # sleep: the programs run meanwhile; they are killed by the clock
    finally:
        programs.stop()
    programs.read_account()
    account = programs.account
    assert programs.kills >= 5
    assert len(account) >= 10, (tmp_path / "shipper.err").read_text()
    with falaj.open(tmp_path / "store") as store:
        store.ship(tmp_path / "place", once=True)
    for number in {*chance.sample(sorted(account), min(RESTORED, len(account))), max(account)}:
        to = tmp_path / f"at{number}"
        falaj.restore(tmp_path / "place", to, to_number=number)
        assert ends_of(to) == account[number], number
    falaj.restore(tmp_path / "place", tmp_path / "newest")
    assert ends_of(tmp_path / "newest") == ends_of(tmp_path / "store")
    assert verify_place(open_place(tmp_path / "place"))[0].findings == []
