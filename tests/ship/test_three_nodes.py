"""Three machines: each ships to the two others at once, and one of them is lost.

Each has an address of its own on loopback, a store, a server with a place, and one process that
appends with `sync="remote"` and ships. Processes and servers are killed and cut off at random. An
append that returned is in as many of the other machines as the store wants. And jobs on each read
what all of them wrote, from the machine's own store and from places.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

import falaj
from ship.conftest import Started
from ship.servers import Peer

SECONDS = 6.0
NODES = 3

WORK = """
import sys, threading
import falaj
from falaj.errors import Fenced, NoShipper, RemoteTimeout
from falaj.ship.lanes import Lanes
from falaj.ship.place import open_place

name, path, *urls = sys.argv[1:]
store = falaj.open(path)
lanes = Lanes(store, [open_place(url, timeout=1) for url in urls])
threading.Thread(target=lanes.run, daemon=True).start()
orders = store.topic("orders", codec="bytes")
while True:
    number = len(orders)
    try:
        orders.append(f"{name} {number}".encode(), sync="remote", timeout=1)
    except (NoShipper, Fenced, RemoteTimeout):
        continue
    print(number, flush=True)
"""


JOB = """
import json, random, sys, time
from pathlib import Path
import falaj
import falaj._origins

kept, cache, *places = sys.argv[1:]
falaj._origins.LOOK_S = 0.2
batches = sorted(Path(kept).glob("*.json"))
number, start = len(batches), "earliest"
if batches:
    start = json.loads(batches[-1].read_text())["offsets"]
while True:
    try:
        everyone = falaj.open_origins(*places, cache=cache)
        follower = everyone.follow("orders", codec="bytes", start=start)
        break
    except (falaj.errors.RetryableError, falaj.errors.UnknownTopic, falaj.errors.UnknownOrigin,
            falaj.errors.HistoryDeleted):
        time.sleep(0.05)  # sleep: a server is down
found = []
while True:
    pair = follower.poll()
    if pair is not None:
        found.append([pair[0], pair[1].value.decode()])
    if found and (pair is None or random.random() < 0.05):
        # What it made of the records counts together with the offsets, or not at all.
        new = Path(kept, "new.tmp")
        new.write_text(json.dumps({"found": found, "offsets": follower.offsets}))
        new.rename(Path(kept, f"{number:08}.json"))
        number, found = number + 1, []
    if pair is None:
        time.sleep(0.01)  # sleep: as the follower would wait
"""


class Job:
    """A program on a machine that reads what all wrote, and goes on where it stopped."""

    def __init__(self, node: "Node", *, by_servers: bool) -> None:
        self.node, self.kept = node, node.folder / "job"
        self.kept.mkdir()
        self._by_servers = by_servers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it: it reads the machine's own store, and the others' from its disk or a server."""
        one, other = self.node.others
        if self._by_servers:
            places = [one.place_of(other), other.place_of(one)]
        else:
            places = [str(self.node.folder / "place" / each.name) for each in (one, other)]
        cache = self.node.folder / "job-cache"
        words = [sys.executable, "-c", JOB, str(self.kept), str(cache), str(self.node.store)]
        self._process = subprocess.Popen([*words, *places])

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            assert self._process.poll() is None, "it ended by itself"
            self._process.kill()
            self._process.wait()
            self._process = None

    def found(self) -> dict[str, list[str]]:
        """Return the values of each origin, in the order in which they came."""
        found: dict[str, list[str]] = {}
        for batch in sorted(self.kept.glob("*.json")):
            for origin, value in json.loads(batch.read_text())["found"]:
                found.setdefault(origin, []).append(value)
        return found


class Node:
    """A machine, and the last of its appends that returned."""

    def __init__(self, folder: Path, number: int) -> None:
        folder.mkdir()
        self.name, self.folder = f"node{number}", folder
        self.server = Peer(folder, host=f"127.0.0.{number}")
        self.others: list[Node] = []
        self.acknowledged = -1
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def store(self) -> Path:
        """Its store; its server has another one, of topics for others."""
        return self.folder / "events"

    def place_of(self, holder: "Node") -> str:
        """Return the URL of its place at another machine, with that one's token."""
        token = self.folder / f"token-of-{holder.name}"
        token.write_text(holder.server.token)
        return f"{holder.server.endpoint}/{self.name}?token_file={token}"

    def work(self) -> None:
        """Start its process."""
        urls = [self.place_of(other) for other in self.others]
        words = [sys.executable, "-c", WORK, self.name, str(self.store), *urls]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE)
        threading.Thread(target=self._hear, args=(self.process,), daemon=True).start()

    def _hear(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.endswith(b"\n"):
                    self.acknowledged = max(self.acknowledged, int(line))

    def kill(self) -> None:
        """Kill its process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def values(store: falaj.Store | falaj.PlaceStore) -> list[bytes]:
    """Return the records of a store's topic."""
    return [record.value for record in store.topic("orders", codec="bytes")]


@pytest.fixture
def nodes(tmp_path: Path, started: Started) -> Iterator[list[Node]]:
    """Start three machines."""
    started("peer")  # the test is skipped without the program
    with ExitStack() as running:
        found = [Node(tmp_path / f"{number}", number) for number in range(1, NODES + 1)]
        for node in found:
            node.others = [other for other in found if other is not node]
            running.callback(node.server.stop)
            running.callback(node.kill)
        yield found


def disturb(
    nodes: list[Node], chance: random.Random, seconds: float, jobs: Sequence[Job] = ()
) -> None:
    """Kill servers and processes, and cut servers off for a while."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(chance.uniform(0.2, 0.6))  # sleep: the machines work meanwhile
        node = chance.choice(nodes)
        if jobs and chance.random() < 0.5:
            job = chance.choice(jobs)
            job.kill()
            job.start()
        match chance.randrange(3):
            case 0:
                node.server.stop()
                node.server.start()
            case 1:
                node.kill()
                node.work()
            case 2:
                node.server.process.send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0.2, 1.0))  # sleep: it is cut off meanwhile
                node.server.process.send_signal(signal.SIGCONT)


def advance(nodes: list[Node], count: int) -> None:
    """Wait until each machine has so many more appends that returned."""
    wanted = {node.name: node.acknowledged + count for node in nodes}
    until = time.monotonic() + 120
    while any(node.acknowledged < wanted[node.name] for node in nodes):
        assert time.monotonic() < until, {node.name: node.acknowledged for node in nodes}
        time.sleep(0.05)  # sleep: other processes append


def restored(node: Node, holder: Node, to: Path) -> list[bytes]:
    """Restore a machine's store from another one, and return its records."""
    falaj.restore(node.place_of(holder), to)
    with falaj.open(to, read_only=True) as store:
        found = values(store)
    assert found == [f"{node.name} {number}".encode() for number in range(len(found))]
    return found


@pytest.mark.parametrize("min_sync", [1, 2])
def test_what_returned_survives_the_loss_of_a_machine_and_with_two_places_of_any_two(
    tmp_path: Path, nodes: list[Node], min_sync: int
) -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")  # noqa: T201  # to see a failure again
    chance = random.Random(seed)
    for node in nodes:
        with falaj.open(node.store) as store:
            store.configure(ship_min_sync=min_sync)
        node.work()
    advance(nodes, 1)
    disturb(nodes, chance, SECONDS)
    advance(nodes, 5)
    for node in nodes:
        node.kill()
    time.sleep(0.2)  # sleep: what the killed processes printed is still being read
    for node in nodes:
        held = sorted(
            len(restored(node, holder, tmp_path / f"{node.name}-of-{holder.name}"))
            for holder in node.others
        )
        assert held[-min_sync] > node.acknowledged
    # One is lost with its disk: its store, and what it kept of others. It goes on from a peer.
    lost = chance.choice(nodes)
    acknowledged = lost.acknowledged
    lose(lost, tmp_path)
    with falaj.open(lost.store) as store:
        assert store.info()["ship_min_sync"] == min_sync
        assert len(values(store)) > acknowledged
    for node in nodes:
        node.work()
    advance(nodes, 5)
    for node in nodes:
        node.kill()
    expect_all_readable(nodes)
    assert os.listdir(lost.folder / "place") != []


def expect_all_readable(nodes: list[Node]) -> None:
    """Check that each machine reads the records of all, from its own store and from places."""
    for node in nodes:
        with falaj.open(node.store) as store:
            whole, origin = values(store), store._origin()
        for reader in node.others:
            held = []
            for holder in node.others:
                place = node.place_of(holder)
                cache = reader.folder / "cache"
                with falaj.open_place(place, origin=origin, cache=cache) as shipped:
                    found = values(shipped)
                assert found == whole[: len(found)]
                held.append(len(found))
            assert max(held) > node.acknowledged


def test_jobs_read_what_all_machines_wrote_in_order_and_miss_and_repeat_nothing(
    tmp_path: Path, nodes: list[Node]
) -> None:
    seed = random.randrange(2**31)
    print(f"seed {seed}")  # noqa: T201  # to see a failure again
    chance = random.Random(seed)
    jobs = [Job(node, by_servers=node is nodes[0]) for node in nodes]
    with ExitStack() as running:
        for node, job in zip(nodes, jobs, strict=True):
            node.work()
            job.start()
            running.callback(job.kill)
        advance(nodes, 1)
        disturb(nodes, chance, SECONDS / 2, jobs)
        advance(nodes, 5)
        for node, job in zip(nodes, jobs, strict=True):
            node.kill()
            job.kill()
        lost = chance.choice(nodes)
        with falaj.open(lost.store) as store:
            parent = store._origin()
        kept = lose(lost, tmp_path)
        for node, job in zip(nodes, jobs, strict=True):
            node.work()
            job.start()
        advance(nodes, 1)
        disturb(nodes, chance, SECONDS / 2, jobs)
        advance(nodes, 5)
        for node in nodes:
            node.kill()
        whole = {}
        for node in nodes:
            with falaj.open(node.store) as store:
                store.ship([node.place_of(other) for other in node.others], once=True)
                whole[store._origin()] = [value.decode() for value in values(store)]
        with falaj.open(lost.store, read_only=True) as store:
            child = store._origin()
        for job in jobs:
            expect_all(job, dict(whole), parent, child, kept)


def lose(lost: Node, tmp_path: Path) -> int:
    """Lose a machine with its disk, and restore its store from a peer; return how much came."""
    lost.server.stop()
    shutil.rmtree(lost.store)
    shutil.rmtree(lost.folder / "place")
    best = max(
        lost.others,
        key=lambda holder: len(restored(lost, holder, tmp_path / f"best-of-{holder.name}")),
    )
    falaj.restore(lost.place_of(best), lost.store)
    lost.server.start()
    with falaj.open(lost.store, read_only=True) as store:
        kept = len(values(store))
    lost.acknowledged = kept - 1
    return kept


def expect_all(job: Job, whole: dict[str, list[str]], parent: str, child: str, kept: int) -> None:
    """Wait until a job has everything, and check that it has each record once, in its order."""
    until = time.monotonic() + 60
    while True:
        found = job.found()
        ahead = len(found.get(parent, []))
        if all(found.get(one, [None])[-1] == values[-1] for one, values in whole.items()):
            break
        assert time.monotonic() < until, {one: len(values) for one, values in found.items()}
        time.sleep(0.1)  # sleep: the job reads
    name = whole[child][0].split()[0]
    assert found.pop(parent, []) == [f"{name} {number}" for number in range(ahead)]
    assert found.pop(child) == whole.pop(child)[min(ahead, kept) :]
    assert found == whole
