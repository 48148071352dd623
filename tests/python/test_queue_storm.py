"""Many workers of one queue, killed and stopped all the time, checked by their own accounts."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

import falaj
from notes import read_notes

WORKER = Path(__file__).parents[1] / "queue_worker.py"
JOBS = 12000
LEASE_S = 0.4
KILLS = 25
SEED = 20261122


class Worker:
    """A worker process, and the account that it wrote."""

    def __init__(self, path: Path, account: Path) -> None:
        program = [sys.executable, str(WORKER)]
        self.process = subprocess.Popen([*program, str(path), str(account), str(LEASE_S)])
        self.account = account
        self.killed_at = float("inf")

    def kill(self) -> None:
        self.killed_at = time.monotonic()
        self.process.kill()
        self.process.wait()

    def told(self) -> list[tuple[str, int, int, float, float]]:
        return [
            (what, int(offset), int(attempt), float(before), float(after))
            for what, offset, attempt, before, after in read_notes(self.account)
        ]


@pytest.mark.parametrize("order", [None, "key"])
def test_killed_and_stopped_workers_lose_no_job_and_share_none(
    store: falaj.Store, tmp_path: Path, order: str | None
) -> None:
    queue = store.queue("jobs", order="key" if order else None)
    keyed = [falaj.NewRecord(b"%d" % i, key=b"%d" % (i % 97)) for i in range(JOBS)]
    queue.topic.extend(keyed)
    dice = random.Random(SEED)
    workers = [Worker(store.path, tmp_path / f"worker{i}") for i in range(4)]
    living = list(workers)
    for i in range(KILLS):
        time.sleep(dice.uniform(0.02, 0.2))  # sleep: the storm's rhythm
        victim = dice.choice(living)
        if i % 3 == 2:
            # The worker stops past its leases: the queue refuses its acks after that.
            os.kill(victim.process.pid, signal.SIGSTOP)
            time.sleep(LEASE_S * 1.2)  # sleep: until its leases are over
            os.kill(victim.process.pid, signal.SIGCONT)
            continue
        victim.kill()
        living.remove(victim)
        living.append(Worker(store.path, tmp_path / f"worker{4 + i}"))
        workers.append(living[-1])
    for worker in living:
        assert worker.process.wait(60) == 0
    assert_all_done_and_none_shared(workers, queue.info(), is_ordered=bool(order))


def assert_all_done_and_none_shared(
    workers: list[Worker], info: object, *, is_ordered: bool
) -> None:
    assert isinstance(info, dict)
    assert (info["done"], info["ready"], info["in_flight"]) == (JOBS, 0, 0)
    acks: dict[int, int] = defaultdict(int)
    # For each job: when a worker got it, and until when at least no other may have it.
    held: dict[int, list[tuple[float, float]]] = defaultdict(list)
    # For each job: the highest attempt that its workers noted.
    attempts: dict[int, int] = defaultdict(int)
    unsure = late = again = 0
    for worker in workers:
        ends: dict[tuple[int, int], float] = {}
        told = worker.told()
        for what, offset, attempt, before, _ in told:
            if what in ("done", "left"):
                ends[offset, attempt] = before
            acks[offset] += what == "acked"
            late += what == "late"
            again += what == "had" and attempt > 1
        said = {(what, offset, attempt) for what, offset, attempt, _, _ in told}
        unsure += sum(
            what == "done" and not {("acked", *job), ("late", *job)} & said for what, *job in said
        )
        for what, offset, attempt, before, after in told:
            if what == "had":
                end = min(before + LEASE_S, worker.killed_at, ends.get((offset, attempt), 1e300))
                held[offset].append((after, end))
                attempts[offset] = max(attempts[offset], attempt)
    # An attempt counts only if it began. Workers note all begun ones, except just before a kill.
    uncounted = sum(attempts[offset] - len(held[offset]) for offset in held)
    assert 0 <= uncounted <= len(workers), "a job that was never begun was counted"
    assert late > 0, "nobody was late"
    assert again > KILLS, "hardly a job was handed out twice"
    assert max(acks.values()) == 1, "a job was acked twice"
    assert sum(acks[offset] == 0 for offset in range(JOBS)) <= unsure
    assert unsure <= len(workers), "only who was killed does not know"
    for offset, times in held.items():
        times.sort()
        for (_, end), (begin, _) in pairwise(times):
            assert end <= begin, f"two had job {offset} at a time"
    if is_ordered:
        for key in range(97):
            of_key = [held[offset] for offset in range(key, JOBS, 97)]
            for earlier, later in pairwise(of_key):
                assert max(end for _, end in earlier) <= later[0][0], "the order of a key"
