"""Attempts at a job: only work that was begun counts. A poison job harms no other."""

import asyncio
import copy
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj._jobs import Jobs
from falaj._queue import Queue
from falaj.errors import LeaseExpired

TEN = 10


@pytest.fixture
def queue(store: falaj.Store) -> Queue[Any]:
    queue = store.queue("jobs", max_attempts=3)
    queue.topic.extend([b"%d" % n for n in range(TEN)])
    return queue


def attempts(queue: Queue[Any]) -> dict[int, int]:
    """Return the attempts of all jobs that can be taken now; begin none."""
    told: dict[int, int] = {}
    taken = []
    while jobs := queue.take(100, timeout=0):
        told |= {job.offset: job.attempt for job in list.__iter__(jobs)}
        taken.append(jobs)
    for batch in taken:
        batch.nack()
    return told


def test_a_poison_job_is_the_only_dead_letter_of_its_batches(queue: Queue[Any]) -> None:
    done = []
    while True:
        try:
            with queue.take(TEN, timeout=0) as jobs:
                if not jobs:
                    break
                for job in jobs:
                    if job.to_bytes() == b"0":
                        raise ValueError("poison")
                    done.append(job.offset)
                    job.ack()
        except ValueError:
            continue
    assert sorted(done) == list(range(1, TEN))
    assert queue.dead is not None
    [letter] = queue.dead
    assert (letter.to_bytes(), dict(letter.headers)["falaj-attempts"]) == (b"0", b"3")


WHOLE_BATCHES: dict[str, Callable[[Jobs[Any]], list[Any]]] = {
    "sorted": lambda jobs: sorted(jobs, key=lambda job: job.offset),
    "a list": list,
    "unpacking": lambda jobs: [*jobs],
}


@pytest.mark.parametrize("backoff", [None, lambda _: 0.0])
@pytest.mark.parametrize("how", WHOLE_BATCHES)
def test_a_poison_job_is_the_only_dead_letter_also_where_its_whole_batch_was_begun_first(
    store: falaj.Store, queue: Queue[Any], how: str, backoff: Any
) -> None:
    queue = store.queue("jobs", max_attempts=3, backoff=backoff)
    done, sizes = [], []
    while queue.info()["ready"]:
        try:
            with queue.take(TEN, timeout=0) as jobs:
                sizes.append(len(jobs))
                for job in WHOLE_BATCHES[how](jobs):
                    if job.to_bytes() == b"0":
                        raise ValueError("poison")
                    done.append(job.offset)
                    job.ack()
        except ValueError:
            continue
    assert sizes == [TEN, *[1] * (TEN + 1)]
    assert sorted(done) == list(range(1, TEN))
    assert queue.dead is not None
    [letter] = queue.dead
    assert dict(letter.headers)["falaj-reason"] == b"ValueError: poison"


def test_a_block_that_ends_well_or_gives_its_jobs_back_itself_makes_none_a_suspect(
    queue: Queue[Any],
) -> None:
    with queue.take(TEN) as jobs:
        list(jobs)
    jobs = queue.take(TEN)
    list(jobs)
    jobs.nack(reason="shutting down")
    assert len(queue.take(TEN)) == TEN


def test_what_failed_together_waits_as_the_backoff_says_and_is_delivered_singly(
    store: falaj.Store,
) -> None:
    queue = store.queue("jobs", backoff=lambda _: 0.05)
    queue.put_many([b"a", b"b", b"c"])
    with suppress(ValueError), queue.take(3) as jobs:
        list(jobs[:2])
        raise ValueError("no image")
    info = queue.info()
    assert (info["delayed"], info["ready"], info["in_flight"]) == (2, 1, 0)
    assert [job.offset for job in queue.take(3, timeout=0)] == [2]
    again = [queue.take(3, timeout=5) for _ in range(2)]
    assert sorted((job.offset, job.attempt) for jobs in again for job in jobs) == [(0, 2), (1, 2)]
    assert [len(jobs) for jobs in again] == [1, 1]


@pytest.mark.parametrize("order", [None, "key"])
@pytest.mark.parametrize(
    "error", [None, ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError]
)
def test_jobs_that_were_not_begun_go_back_uncounted_however_the_block_ends(
    store: falaj.Store, error: type[BaseException] | None, order: Any
) -> None:
    queue = store.queue("ordered", order=order)
    for n in range(5):
        queue.put(b"%d" % n, key=b"%d" % n)
    for _ in range(4):
        try:
            with queue.take(5) as jobs:
                assert [job.offset for job in list.__iter__(jobs)] == [0, 1, 2, 3, 4]
                if error is not None:
                    raise error
        except (ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError):
            pass
    with queue.take(5) as jobs:
        for job in jobs:
            if job.offset == 1:
                break
    assert attempts(queue) == {0: 2, 1: 2, 2: 1, 3: 1, 4: 1}


BEGINNINGS: dict[str, Callable[[Jobs[Any]], Any]] = {
    "for": lambda jobs: next(iter(jobs)),
    "index": lambda jobs: jobs[0],
    "negative index": lambda jobs: jobs[-TEN],
    "unpacking": lambda jobs: [*jobs[:1]],
    "enumerate": lambda jobs: next(enumerate(jobs))[1],
    "zip": lambda jobs: next(zip(jobs, "a", strict=False)),
    "list": lambda jobs: list(jobs[:1]),
    "pop": lambda jobs: jobs.pop(0),
    "a slice": lambda jobs: jobs[0:3][0],
    "a copy": lambda jobs: jobs.copy()[0],
    "a sum": lambda jobs: (jobs[:1] + jobs[1:])[0],
    "reversed": lambda jobs: list(reversed(jobs[:1])),
    "begin": lambda jobs: next(list.__iter__(jobs)).begin(),
    "a block": lambda jobs: next(list.__iter__(jobs)).__enter__(),
}
NOT_BEGINNINGS: dict[str, Callable[[Jobs[Any]], Any]] = {
    "len": len,
    "bool": bool,
    "repr": repr,
    "a slice": lambda jobs: jobs[:3],
    "copy": copy.copy,
    "comparison": lambda jobs: jobs == [],
    "extend": lambda jobs: next(list.__iter__(jobs)).extend(60),
    "membership": lambda jobs: list.__getitem__(jobs, 0) in jobs,
}


@pytest.mark.parametrize("how", BEGINNINGS)
def test_a_job_begins_when_its_batch_hands_it_over(queue: Queue[Any], how: str) -> None:
    with queue.take(TEN) as jobs:
        BEGINNINGS[how](jobs)
    assert attempts(queue) == {0: 2} | dict.fromkeys(range(1, TEN), 1)


@pytest.mark.parametrize("how", NOT_BEGINNINGS)
def test_looking_at_a_batch_begins_nothing(queue: Queue[Any], how: str) -> None:
    with queue.take(TEN) as jobs:
        NOT_BEGINNINGS[how](jobs)
    assert attempts(queue) == dict.fromkeys(range(TEN), 1)


def test_a_batch_that_is_given_back_counts_what_was_begun_and_may_wait(queue: Queue[Any]) -> None:
    jobs = queue.take(TEN)
    jobs[0].ack()
    assert jobs[1].attempt == 1
    jobs.nack(delay=0.05)
    assert queue.take(timeout=0) == []
    time.sleep(0.06)  # sleep: until the delay is over
    assert attempts(queue) == {1: 2} | dict.fromkeys(range(2, TEN), 1)


def close_queue(store: falaj.Store, queue: Queue[Any]) -> None:
    queue.close()


def close_topic(store: falaj.Store, queue: Queue[Any]) -> None:
    queue.topic.close()


def close_store(store: falaj.Store, queue: Queue[Any]) -> None:
    store.close()


@pytest.mark.parametrize("close", [close_queue, close_topic, close_store])
def test_what_was_not_begun_goes_back_when_queue_topic_or_store_is_closed(
    store: falaj.Store, queue: Queue[Any], close: Callable[[falaj.Store, Queue[Any]], None]
) -> None:
    jobs = queue.take(TEN, lease=3600)
    begun = jobs[0]
    with falaj.open(store.path) as other:
        close(store, queue)
        again = other.queue("jobs")
        assert attempts(again) == dict.fromkeys(range(1, TEN), 1)
        assert again.info()["in_flight"] == 1
        if close is close_queue:
            begun.ack()
            assert again.info()["in_flight"] == 0


def test_a_batch_that_is_forgotten_goes_back_with_the_next_call(queue: Queue[Any]) -> None:
    def interrupted() -> None:
        jobs = queue.take(TEN, lease=3600)
        assert len(jobs) == TEN
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        interrupted()
    assert attempts(queue) == dict.fromkeys(range(TEN), 1)


def test_iteration_passes_over_jobs_whose_leases_are_over(queue: Queue[Any]) -> None:
    jobs = queue.take(3, lease=0.05)
    reached = iter(jobs)
    first = next(reached)
    time.sleep(0.06)  # sleep: until the leases are over
    other = queue.take(TEN, timeout=0)
    assert list(reached) == []
    with pytest.raises(LeaseExpired):
        first.ack()
    third = jobs[2]
    with pytest.raises(LeaseExpired), third:
        pytest.fail("the work of another was begun")
    other.nack()
    assert attempts(queue) == {0: 2} | dict.fromkeys(range(1, TEN), 1)


def test_a_block_around_a_job_acks_gives_back_or_leaves_it_as_the_block_settled_it(
    queue: Queue[Any],
) -> None:
    for job in queue.take(3):
        try:
            with job:
                if job.offset == 1:
                    raise ValueError
                if job.offset == 2:
                    job.nack()
        except ValueError:
            pass
        assert job.settled
    assert queue.info()["done"] == 1
    assert attempts(queue) == {1: 2, 2: 2} | dict.fromkeys(range(3, TEN), 1)
    late = queue.take(lease=0.01)[0]
    with pytest.raises(LeaseExpired), late:
        time.sleep(0.02)  # sleep: until its lease is over


KILLED = """
queue = falaj.open(path).queue("jobs", max_attempts=3)
jobs = queue.take(10, lease=lease)
for job in jobs:
    if job.to_bytes() == b"3":
        say("at work", len(jobs), job.attempt)
        hear()
    job.ack()
"""


def test_a_job_that_kills_its_workers_is_the_only_dead_letter_and_comes_alone(
    store: falaj.Store, queue: Queue[Any], path: Path
) -> None:
    for attempt in (1, 2, 3):
        with child(store.path, KILLED.replace("lease=lease", "lease=3600")) as worker:
            # The job comes first in a batch of all, then as a suspect in a batch of its own.
            while (told := worker.hear()) != f"at work {10 if attempt == 1 else 1} {attempt}":
                pytest.fail(told)
            worker.process.send_signal(signal.SIGKILL)
            worker.process.wait()
        if attempt == 1:
            rest = queue.take(TEN, timeout=5)
            assert [(j.offset, j.attempt) for j in rest] == [(n, 1) for n in range(4, TEN)]
            rest.ack()
    assert queue.take(timeout=0) == []
    assert queue.dead is not None
    [letter] = queue.dead
    headers = dict(letter.headers)
    assert (letter.to_bytes(), headers["falaj-attempts"]) == (b"3", b"3")
    assert headers["falaj-reason"] == b"its worker died, or its lease was over"
    assert queue.info()["done"] == TEN


def test_a_child_that_is_forked_with_a_batch_gives_back_none_of_it(queue: Queue[Any]) -> None:
    jobs = queue.take(TEN, lease=3600)
    pid = os.fork()
    if pid == 0:
        del jobs
        queue.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert queue.info()["in_flight"] == TEN
    assert [job.offset for job in jobs] == list(range(TEN))
    jobs.ack()


def test_a_forked_child_passes_over_the_jobs_that_its_parent_began(queue: Queue[Any]) -> None:
    jobs = queue.take(3, lease=3600)
    assert (jobs[0].offset, jobs[2].offset) == (0, 2)
    inner, pid = jobs[:2], os.fork()
    if pid == 0:
        batches = (jobs, jobs[:], copy.copy(jobs), inner, inner + jobs, jobs + inner)
        reached = [job.offset for batch in batches for job in (*batch, *reversed(batch))]
        mine = queue.take(2, lease=3600)
        mixed = [[job.offset for job in batch] for batch in (jobs + mine, mine + jobs, mine[:])]
        os._exit(0 if reached == [] and mixed == [[3, 4]] * 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert [job.offset for job in jobs] == [0, 1, 2]
    jobs.ack()


def test_a_fork_in_a_loop_over_jobs_ends_it_in_the_child(queue: Queue[Any]) -> None:
    jobs, pid, seen = queue.take(3, lease=3600), None, list[int]()
    assert jobs[2].offset == 2
    for job in jobs:
        seen.append(job.offset)
        if pid is None:
            pid = os.fork()
    if pid == 0:
        os._exit(0 if seen == [0] else 1)
    assert pid is not None
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert seen == [0, 1, 2]


def test_a_cancelled_task_gives_back_what_it_did_not_begin(queue: Queue[Any]) -> None:
    async def work(begun: asyncio.Event) -> None:
        async with queue.atake(TEN) as jobs:
            for job in jobs:
                with job:
                    begun.set()
                    await asyncio.sleep(60)  # sleep: it is cancelled in this

    async def main() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(work(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert attempts(queue) == {0: 2} | dict.fromkeys(range(1, TEN), 1)
