"""Queues as loops: iteration settles nothing, `work` acks, gives back, extends and stops."""

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from children import child
from locks import locked, write_through

import falaj
from falaj import _work
from falaj._threads import begin_thread
from falaj.errors import (
    HandleClosed,
    InvalidArgument,
    LeaseExpired,
    LockTimeout,
    NoSpace,
    SystemCallFailed,
    TopicDeleted,
)


def ready(queue: falaj.Queue[Any]) -> list[tuple[bytes, int]]:
    return [(job.to_bytes(), job.attempt) for job in queue.take(10, timeout=0)]


def test_iterating_a_queue_begins_each_job_and_settles_none(store: falaj.Store) -> None:
    queue = store.queue("jobs")
    assert queue.put_many([b"a", ("key", b"b"), b"c"]) == range(3)
    seen = []
    for job in queue.jobs(timeout=0):
        seen.append((job.to_bytes(), job.key, job.settled))
        if job.to_bytes() != b"b":
            job.ack()
    assert seen == [(b"a", None, False), (b"b", b"key", False), (b"c", None, False)]
    info = queue.info()
    assert (info["in_flight"], info["done"]) == (1, 2)


def test_a_loop_over_a_queue_ends_when_the_queue_is_closed(store: falaj.Store) -> None:
    queue = store.queue("jobs")
    queue.put(b"a")
    seen = []
    for job in queue:
        with job:
            seen.append(job.to_bytes())
        threading.Timer(0.02, queue.close).start()
    assert seen == [b"a"]

    async def later() -> list[bytes]:
        again = store.queue("jobs")
        again.put(b"b")
        found = []
        async for job in again:
            with job:
                found.append(job.to_bytes())
            asyncio.get_running_loop().call_later(0.02, again.close)
        return found

    assert asyncio.run(later()) == [b"b"]


def test_put_many_puts_all_with_one_delay_and_nothing_of_an_empty_list(store: falaj.Store) -> None:
    queue = store.queue("jobs")
    assert queue.put_many([b"a", b"b"], delay=3600, headers={"x": "1"}) == range(2)
    assert queue.take(timeout=0) == []
    assert [dict(record.headers)["x"] for record in queue.topic] == [b"1", b"1"]
    with pytest.raises(InvalidArgument, match="delay"):
        queue.put_many([b"c"], delay=-1)


def test_work_acks_what_returned_and_gives_back_what_raised_after_a_delay(
    store: falaj.Store,
) -> None:
    queue = store.queue("jobs", max_attempts=2)
    queue.put_many([b"good", b"bad"])
    told = []

    def handle(job: falaj.Job[Any]) -> None:
        if job.to_bytes() == b"bad":
            raise ValueError("poison")

    done = queue.work(
        handle,
        timeout=0,
        backoff=lambda attempt: 0.0,
        on_error=lambda job, error: told.append((job.attempt, str(error))),
    )
    assert (done, told) == (1, [(1, "poison"), (2, "poison")])
    assert queue.dead is not None
    assert [record.to_bytes() for record in queue.dead] == [b"bad"]
    queue.put(b"bad")
    assert queue.work(handle, timeout=0, backoff=(3600, 3600)) == 0
    assert ready(queue) == []


@pytest.mark.parametrize("backoff", [(-1, 1), (1, float("nan")), lambda attempt: -1.0])
def test_a_backoff_that_cannot_be_is_refused_before_a_job_is_taken(
    store: falaj.Store, backoff: Any
) -> None:
    queue = store.queue("jobs")
    queue.put(b"a")
    with pytest.raises(InvalidArgument):
        queue.work(lambda job: None, backoff=backoff, timeout=0)
    assert ready(queue) == [(b"a", 1)]


def test_a_handler_that_takes_longer_than_its_lease_keeps_its_job(store: falaj.Store) -> None:
    queue = store.queue("jobs")
    queue.put(b"slow")
    other = store.queue("jobs")
    seen: list[Any] = []

    def handle(job: falaj.Job[Any]) -> None:
        # Four leases long another worker waits for the job, and gets none.
        seen.extend(other.take(timeout=1.2))

    assert queue.work(handle, lease=0.3, timeout=0) == 1
    assert seen == []


WORKER = """
queue = falaj.open(path).queue("jobs")
def handle(job):
    say("began", job.to_bytes().decode())
    hear()
say("ready")
say("done", queue.work(handle))
"""


def test_sigterm_ends_work_after_the_running_job_and_begins_no_other(path: Path) -> None:
    with falaj.open(path) as store, child(path, WORKER) as worker:
        assert worker.hear() == "ready"
        queue = store.queue("jobs")
        queue.put_many([b"a", b"b"])
        assert worker.hear() == "began a"
        worker.process.send_signal(signal.SIGTERM)
        worker.tell()
        assert worker.hear() == "done 1"
        assert worker.end()[0] == 0
        assert ready(queue) == [(b"b", 1)]


WAITER = """
from falaj._queue import Queue
take = Queue._take
def wait(self, *given):
    say("waits")
    return take(self, *given)
Queue._take = wait
say("done", falaj.open(path).queue("jobs").work(lambda job: None))
"""


def test_sigterm_ends_a_worker_that_waits_for_jobs(path: Path) -> None:
    with child(path, WAITER) as worker:
        assert worker.hear() == "waits"
        worker.process.send_signal(signal.SIGTERM)
        assert worker.end() == (0, "done 0\n", "")


def test_redrive_puts_each_dead_letter_back_once(store: falaj.Store) -> None:
    queue = store.queue("jobs", max_attempts=1)
    queue.put_many([("ann", b"a"), b"b"], headers={"x": "1"})
    for job in queue.jobs(timeout=0):
        job.nack()
    assert queue.take(timeout=0) == []
    assert queue.redrive(dry_run=True) == 2
    assert (queue.redrive(limit=1), queue.redrive(), queue.redrive()) == (1, 1, 0)
    back = [(job.to_bytes(), job.key, job.record.headers) for job in queue.take(10, timeout=0)]
    assert back == [(b"a", b"ann", (("x", b"1"),)), (b"b", None, (("x", b"1"),))]
    with pytest.raises(InvalidArgument, match="max_attempts"):
        store.queue("other").redrive()


class Stopped(BaseException):
    pass


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, Stopped])
@pytest.mark.parametrize("backoff", [None, (3600, 3600)])
def test_a_handler_that_ends_the_program_gives_its_job_back_as_a_block_does(
    store: falaj.Store, kind: type[BaseException], backoff: Any
) -> None:
    def stop(job: falaj.Job[Any]) -> None:
        raise kind("stop")

    def in_a_block(queue: falaj.Queue[Any]) -> None:
        for job in queue.jobs(timeout=0, lease=3600):
            with job:
                stop(job)

    works: dict[str, Any] = {
        "worked": lambda queue: queue.work(stop, timeout=0, lease=3600),
        "block": in_a_block,
    }
    for name in works:
        queue = store.queue(name, backoff=backoff)
        queue.put_many([b"a", b"b"])
        with pytest.raises(kind):
            works[name](queue)
        assert queue.info()["in_flight"] == 0
        assert ready(queue) == ([(b"a", 2), (b"b", 1)] if backoff is None else [(b"b", 1)])


def test_a_handler_that_ends_the_program_in_its_last_attempt_leaves_a_dead_letter(
    store: falaj.Store,
) -> None:
    def stop(job: falaj.Job[Any]) -> None:
        raise KeyboardInterrupt("stop")

    queue = store.queue("jobs", max_attempts=1)
    queue.put(b"a")
    with pytest.raises(KeyboardInterrupt):
        queue.work(stop, timeout=0)
    assert queue.dead is not None
    assert [dict(letter.headers)["falaj-reason"] for letter in queue.dead] == [
        b"KeyboardInterrupt: stop"
    ]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_while_the_heartbeat_starts_leaves_none_and_gives_the_job_back(
    store: falaj.Store, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    start, beat, beats = begin_thread, _work._beat, list[str]()

    def interrupted(*given: Any, begun: list[int]) -> None:
        if when == "after":
            start(*given, begun=begun)
        signal.raise_signal(signal.SIGINT)

    def noted(*given: Any) -> None:
        beats.append("begun")
        beat(*given)
        beats.append("over")

    queue = store.queue("jobs")
    queue.put(b"a")
    monkeypatch.setattr(_work, "begin_thread", interrupted)
    monkeypatch.setattr(_work, "_beat", noted)
    with pytest.raises(KeyboardInterrupt):
        queue.work(lambda job: None, timeout=0, lease=3600)
    assert beats == (["begun", "over"] if when == "after" else [])
    assert ready(queue) == [(b"a", 2)]


def test_an_interrupt_behind_the_take_gives_the_job_back_uncounted(
    store: falaj.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Ctrl-C comes as `take` returns, no handler has seen the job."""
    take = falaj.Queue.take

    def interrupted(self: falaj.Queue[Any], *given: Any) -> Any:
        jobs = take(self, *given)
        monkeypatch.setattr(_work, "_attend", interrupt)
        return jobs

    def interrupt(*_given: Any) -> int:
        raise KeyboardInterrupt

    queue = store.queue("jobs")
    queue.put(b"a")
    monkeypatch.setattr(falaj.Queue, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.work(lambda job: None, timeout=0, lease=3600)
    monkeypatch.undo()
    assert ready(queue) == [(b"a", 1)]


@pytest.mark.parametrize("when", ["begin", "end"])
def test_an_interrupt_at_the_ends_of_work_leaves_the_handler_of_sigterm(
    store: falaj.Store, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    install, calls = signal.signal, iter(range(100))

    def interrupted(number: Any, handler: Any) -> Any:
        at = next(calls)
        if when == "end" and at == 1:
            raise KeyboardInterrupt
        before = install(number, handler)
        if when == "begin" and at == 0:
            raise KeyboardInterrupt
        return before

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(signal, "signal", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.queue("jobs").work(lambda job: None, timeout=0)
    assert signal.getsignal(signal.SIGTERM) == before


class Leased:
    """A job whose lease a heartbeat extends; its calls raise what a test lists."""

    def __init__(self, *raised: BaseException | None) -> None:
        self.left = iter(raised)
        self.calls = 0
        self.over = threading.Lock()

    def extend(self, _lease: float) -> None:
        self.calls += 1
        error = next(self.left, None)
        if self.calls == 5:
            self.over.release()
        if error is not None:
            raise error


def beaten(job: Any) -> int:
    job.over.acquire()
    _work._beat(job, 0.03, job.over)
    return int(job.calls)


def test_a_heartbeat_goes_on_after_an_error_that_passes(store: falaj.Store) -> None:
    for error in (LockTimeout("busy"), NoSpace("full"), SystemCallFailed("too many files")):
        assert beaten(Leased(error, error, None, error)) == 5
    for lost in (LeaseExpired("late"), HandleClosed("closed"), TopicDeleted("gone")):
        assert beaten(Leased(None, LockTimeout("busy"), lost)) == 3


def test_a_job_is_kept_through_a_lock_that_was_not_free_in_time(path: Path) -> None:
    write_through(path)
    with falaj.open(path, lock_timeout=0.02) as store:
        queue, other = store.queue("jobs"), store.queue("jobs")
        queue.put(b"slow")

        def handle(job: falaj.Job[Any]) -> None:
            with locked(path / "queues" / "jobs"):
                threading.Event().wait(0.4)  # meanwhile heartbeats fail
            assert other.take(timeout=1.5) == []

        assert queue.work(handle, lease=0.9, timeout=0) == 1


@pytest.mark.parametrize("wrong", [True, None, "soon", -1, float("nan"), b"5", [30]])
def test_a_lease_that_cannot_be_is_refused_before_a_job_is_taken(
    store: falaj.Store, wrong: Any
) -> None:
    queue, seen = store.queue("jobs", max_attempts=1), list[Any]()
    queue.put(b"a")
    with pytest.raises((TypeError, InvalidArgument), match="lease"):
        queue.work(seen.append, lease=wrong, timeout=0)
    assert (seen, list(queue.dead or ())) == ([], [])
    assert ready(queue) == [(b"a", 1)]
