"""Workers over HTTP and native ones share a queue, while answers are lost and the server is killed.

Each worker notes what it got and when; in the end the notes are held against each other.
"""

import contextlib
import itertools
import json
import random
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import falaj
from server.crowd import Crowd, Unknown
from server.doors import Server
from server.lossy import Lossy

SEED = 20261127
SERVERS = 5
QUEUE = "work"
"""Lives of the server: each but the last ends by a kill."""
JOBS_OF_A_LIFE = 60
LEASE_S = 2.0
WORKERS = ("http0", "http1", "http2")


class Had(NamedTuple):
    """A job that a worker had."""

    worker: str
    asked: float
    got: float
    lease: float


class Workers(Crowd):
    """All workers, and their notes."""

    def __init__(self, store: Path, door: Lossy) -> None:
        super().__init__(store, door)
        self.lock = threading.Lock()
        self.had: dict[int, list[Had]] = defaultdict(list)
        self.acked: dict[int, list[str]] = defaultdict(list)
        self.counts = dict.fromkeys(("repeated", "session-ended", "lease-expired", "native"), 0)

    def until_answered(self, path: str, body: bytes, **headers: str) -> tuple[int, Any] | None:
        """Repeat a request until its answer comes; None where the test ended before."""
        while not self.ended.is_set():
            with contextlib.suppress(Unknown):
                status, told = self.request("POST", f"/v1/queues/{QUEUE}/{path}", body, **headers)
                if status != 503:
                    return status, told
            with self.lock:
                self.counts["repeated"] += 1
        return None

    def put(self) -> None:
        """Put each job once, however often it is sent."""
        for number in range(SERVERS * JOBS_OF_A_LIFE):
            named = {"Falaj_Producer": "putter", "Falaj_Sequence": str(number)}
            if (answer := self.until_answered("put", b"%d" % number, **named)) is None:
                return
            assert answer[0] == 201, answer
            assert int(answer[1]["first"]) == number, answer

    def work(self, worker: str, draws: random.Random) -> None:
        number = 1
        while not self.ended.is_set():
            asked = time.monotonic()
            wanted = {"limit": draws.randrange(1, 5), "lease": f"{LEASE_S:.0f}s", "wait": "100ms"}
            body = json.dumps({"worker": worker, "number": number, **wanted}).encode()
            if (answer := self.until_answered("take", body)) is None:
                return
            status, told = answer
            if status == 409 and told["type"].endswith(":session-ended"):
                self.counts["session-ended"] += 1
                number = 1
                continue
            assert status == 200, answer
            number += 1
            with self.lock:
                for job in told["jobs"]:
                    had = Had(worker, asked, time.monotonic(), LEASE_S)
                    self.had[int(job["offset"])].append(had)
            self._ack(worker, told["jobs"])

    def _ack(self, worker: str, jobs: Any) -> None:
        for job in jobs:
            body = json.dumps({"worker": worker, "jobs": [job["job"]]}).encode()
            if (answer := self.until_answered("ack", body)) is None:
                return
            status, told = answer
            with self.lock:
                if status == 200:
                    self.acked[int(job["offset"])].append(worker)
                else:
                    assert told["type"].endswith(":lease-expired"), answer
                    self.counts["lease-expired"] += 1

    def work_natively(self) -> None:
        with falaj.open(self.store) as store:
            queue = store.queue(QUEUE)
            while not self.ended.is_set():
                asked = time.monotonic()
                for job in queue.take(2, lease=60, timeout=0.1):
                    with self.lock:
                        had = Had("native", asked, time.monotonic(), 60)
                        self.had[job.offset].append(had)
                    job.ack()
                    with self.lock:
                        self.acked[job.offset].append("native")
                        self.counts["native"] += 1

    def wrong(self) -> list[str]:
        """Find what two workers had at the same time."""
        found = []
        for offset, all_had in self.had.items():
            all_had.sort(key=lambda had: had.got)
            for first, second in itertools.pairwise(all_had):
                # A clock of its own ends the lease, a tick before ours perhaps.
                if second.got < first.asked + first.lease - 0.01:
                    found.append(f"job {offset}: {first}, and then {second}")
        return found


def test_each_job_goes_to_one_worker_and_is_acked_once_through_kills_and_lost_answers(
    tmp_path: Path,
) -> None:
    path, draws = tmp_path / "events", random.Random(SEED)
    with falaj.open(path) as store:
        store.queue(QUEUE)
    with Lossy(SEED, share=0.1) as door:
        crowd = Workers(path, door)
        for life in range(SERVERS):
            with Server(path) as server:
                crowd.token, door.behind = server.token, server.port
                if life == 0:
                    crowd.start(crowd.put)
                    for worker in WORKERS:
                        crowd.start(crowd.work, worker, random.Random(draws.random()))
                    crowd.start(crowd.work_natively)
                enough = (life + 1) * JOBS_OF_A_LIFE
                while len(crowd.acked) < enough and not crowd.failed:
                    crowd.ended.wait(0.01)
                if life + 1 == SERVERS:
                    crowd.join()
                else:
                    server.process.kill()
                door.behind = 0
    assert crowd.failed == []
    assert crowd.wrong() == []
    with falaj.open(path) as store:
        info = store.queue(QUEUE).info()
        assert (info["done"], info["ready"]) == (SERVERS * JOBS_OF_A_LIFE, 0)
        assert len(store.topic("work")) == SERVERS * JOBS_OF_A_LIFE
    # A worker whose lease was over acked a job that another one had done: nothing else acks twice.
    twice = {offset for offset, workers in crowd.acked.items() if len(workers) > 1}
    assert twice <= {offset for offset, all_had in crowd.had.items() if len(all_had) > 1}
    # All that this test is about has happened.
    del crowd.counts["lease-expired"]  # on a slow machine alone
    assert all(crowd.counts.values()), crowd.counts
    assert all(door.lost.values()), door.lost


def test_a_job_that_two_workers_had_is_found() -> None:
    with Lossy(SEED, share=0) as door:
        crowd = Workers(Path(), door)
        crowd.had[3] = [Had("a", 0, 1, 2), Had("b", 2, 2.5, 2), Had("c", 3, 3.5, 2)]
        assert crowd.wrong() == [f"job 3: {crowd.had[3][1]}, and then {crowd.had[3][2]}"]
