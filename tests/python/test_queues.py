"""Work queues: who gets which job, and what becomes of it."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from children import child, stop_in_the_middle_of_an_append

import falaj
from falaj import _queue
from falaj._queue import Job, Queue
from falaj.errors import (
    AppendTooLarge,
    CorruptData,
    HandleClosed,
    InvalidArgument,
    LeaseExpired,
    SettingsMismatch,
    TopicDeleted,
)


@pytest.fixture
def queue(store: falaj.Store) -> Queue[Any]:
    return store.queue("jobs")


def values(jobs: list[Job[Any]]) -> list[bytes]:
    return [job.to_bytes() for job in jobs]


def test_jobs_come_in_order_each_once_and_acked_ones_never_again(
    store: falaj.Store, queue: Queue[Any]
) -> None:
    queue.topic.extend([b"%d" % i for i in range(20)])
    jobs = queue.take(15)
    assert [job.offset for job in jobs] == list(range(15))
    jobs.ack()
    assert values(queue.take(9)) == [b"15", b"16", b"17", b"18", b"19"]
    assert queue.take(timeout=0) == []


def test_a_batch_gives_back_what_is_not_settled_and_a_job_acks_or_gives_back(
    queue: Queue[Any],
) -> None:
    queue.topic.extend([b"a", b"b"])
    with queue.take(2) as jobs:
        jobs[1].ack()
    [job] = queue.take(2, timeout=0)
    assert (job.to_bytes(), job.attempt) == (b"a", 1)
    with pytest.raises(ValueError, match="poison"), job:
        raise ValueError("poison")
    with queue.take()[0] as job:
        assert (job.to_bytes(), job.attempt) == (b"a", 2)
    assert job.settled
    assert queue.info()["done"] == 2


def test_a_late_ack_is_refused_and_says_what_to_do(queue: Queue[Any]) -> None:
    queue.put(b"x")
    [late] = queue.take(lease=0.01)
    [again] = queue.take(timeout=5)
    assert again.attempt == 2
    for settle in (late.ack, late.nack, late.extend):
        with pytest.raises(LeaseExpired, match=r"job 0 of queue .*: drop this result"):
            settle()
    again.extend(60)
    again.ack()
    with pytest.raises(LeaseExpired):
        again.ack()


def test_a_job_that_was_given_back_waits_for_its_delay_and_no_longer(queue: Queue[Any]) -> None:
    queue.put(b"x")
    queue.take()[0].nack(delay=0.1)
    began = time.monotonic()
    assert queue.take(timeout=0) == []
    assert values(queue.take(timeout=5)) == [b"x"]
    assert 0.09 < time.monotonic() - began < 1


def test_a_job_that_is_put_with_a_delay_waits_for_it(queue: Queue[Any]) -> None:
    queue.put(b"later", delay=0.1)
    queue.put(b"now")
    assert values(queue.take(2)) == [b"now"]
    [job] = queue.take(timeout=5)
    assert (job.to_bytes(), job.attempt) == (b"later", 1)


def test_what_was_tried_too_often_goes_to_the_dead_letters_and_says_whence(
    store: falaj.Store,
) -> None:
    queue = store.queue("jobs", max_attempts=2)
    queue.put(b"poison", key=b"k", headers={"trace": b"1"})
    for _ in range(2):
        queue.take()[0].nack()
    assert queue.take(timeout=0) == []
    [letter] = store.topic("jobs.dead")
    assert (letter.to_bytes(), letter.key) == (b"poison", b"k")
    assert dict(letter.headers) == {
        "trace": b"1",
        "falaj-queue": b"jobs",
        "falaj-topic": b"jobs",
        "falaj-offset": b"0",
        "falaj-attempts": b"2",
    }
    assert queue.info()["dead"] == 1
    assert queue.dead is not None
    assert queue.dead.name == "jobs.dead"


def test_dead_letters_are_of_the_codec_of_the_jobs(store: falaj.Store) -> None:
    topic = store.topic("tasks", codec="json")
    queue = store.queue("work", topic, max_attempts=1, dead_letter="failed")
    queue.put({"id": 7})
    queue.take()[0].nack()
    queue.take(timeout=0)
    assert [letter.value for letter in store.topic("failed")] == [{"id": 7}]


def try_in_vain(queue: Queue[Any], n: int) -> None:
    """Fail jobs through a handle that gives none up, so that the next take of `queue` does."""
    for job in queue.topic.store.queue(queue.name, topic=queue.topic).take(n):
        job.nack()


def worn(queue: Queue[Any], value: bytes = b"worn") -> None:
    """Put a job and have it be tried as often as it may be."""
    queue.put(value)
    try_in_vain(queue, 1)


def test_a_letter_that_cannot_be_written_keeps_no_job_from_anybody(
    store: falaj.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_queue, "_AGAIN", 0.1)
    small = store.topic("small", segment_bytes=65536)
    queue = store.queue("jobs", max_attempts=1, dead_letter=small)
    worn(queue, bytes(20_000))
    queue.topic.extend([b"a", b"b", b"c"])
    with pytest.raises(AppendTooLarge) as told:
        queue.take(9, lease=3600)
    assert "none is lost" in str(told.value.__notes__)
    assert queue.info()["in_flight"] == 0
    good = queue.take(9, lease=3600)
    assert {(job.to_bytes(), job.attempt) for job in good} == {(b"a", 1), (b"b", 1), (b"c", 1)}
    with pytest.raises(AppendTooLarge):
        queue.take(timeout=5)
    good.ack()
    other = store.queue("jobs", max_attempts=1, dead_letter="large")
    time.sleep(0.1)  # sleep: until the next try is due
    assert other.take(timeout=0) == []
    [letter] = store.topic("large")
    assert (len(letter), dict(letter.headers)["falaj-attempts"]) == (20_000, b"1")
    assert (other.info()["dead"], other.info()["done"], len(small)) == (1, 4, 0)


def test_dead_letters_that_were_deleted_are_made_anew_unless_they_were_given(
    store: falaj.Store,
) -> None:
    queue = store.queue("jobs", max_attempts=1)
    for _ in range(2):
        worn(queue)
        assert queue.take(timeout=0) == []
        assert len(store.topic("jobs.dead")) == 1
        store.delete_topic("jobs.dead")
    given = store.topic("mine")
    queue = store.queue("jobs", max_attempts=1, dead_letter=given)
    store.delete_topic("mine")
    worn(queue)
    with pytest.raises(TopicDeleted):
        queue.take()
    assert queue.info()["in_flight"] == 0
    assert "mine" not in store.topics


def test_many_letters_are_written_in_as_few_appends_as_they_fit_in(store: falaj.Store) -> None:
    small = store.topic("small", segment_bytes=65536)
    queue = store.queue("jobs", max_attempts=1, dead_letter=small)
    queue.topic.extend([b"%d" % i * 5_000 for i in range(9)])
    try_in_vain(queue, 9)
    assert queue.take(9, timeout=0) == []
    assert {letter.to_bytes()[:1] for letter in small} == {b"%d" % i for i in range(9)}
    assert (queue.info()["dead"], queue.info()["in_flight"]) == (9, 0)


BUSY = """
topic = falaj.open(path).topic("dead")
say("ready")
while True: topic.append(b"x")
"""


def test_a_busy_log_of_dead_letters_is_waited_for_as_long_as_any_other_lock(path: Path) -> None:
    with falaj.open(path, lock_timeout=30) as store, child(path, BUSY) as busy:
        dead = store.topic("dead")
        queue = store.queue("jobs", max_attempts=1, dead_letter=dead)
        for i in range(3):
            queue.put(b"%d" % i)
        try_in_vain(queue, 3)
        busy.hear()
        stop_in_the_middle_of_an_append(busy.process.pid, dead)
        resume = threading.Timer(0.5, lambda: os.kill(busy.process.pid, signal.SIGCONT))
        resume.start()
        # The lease is shorter than that: another one who takes meanwhile must not get them.
        assert queue.take(3, lease=0.2, timeout=0) == []
        resume.join()
        letters = [record for record in dead if record.headers]
        assert [letter.to_bytes() for letter in letters] == [b"0", b"1", b"2"]
        assert queue.info()["dead"] == 3


def test_who_takes_beside_slow_letters_has_its_jobs_for_as_long_as_it_asked(path: Path) -> None:
    with falaj.open(path, lock_timeout=30) as store, child(path, BUSY) as busy:
        dead = store.topic("dead")
        queue = store.queue("jobs", max_attempts=1, dead_letter=dead)
        worn(queue)
        queue.put(b"good")
        busy.hear()
        stop_in_the_middle_of_an_append(busy.process.pid, dead)
        threading.Timer(0.5, lambda: os.kill(busy.process.pid, signal.SIGCONT)).start()
        # Its lease would be over before the letter is written, and it would be given up untried.
        [good] = queue.take(9, lease=0.3, timeout=0)
        assert (good.to_bytes(), good.attempt) == (b"good", 1)
        good.ack()
        queue.put(b"late")
        [late] = queue.take(lease=0.05)
        assert late.attempt == 1
        queue.put(b"early")
        [early] = queue.take(lease=30)
        time.sleep(0.06)  # sleep: until a lease is over
        assert queue._keep([late, early], 30) == [early]


def test_letters_go_to_the_partitions_that_their_keys_say(store: falaj.Store) -> None:
    dead = store.partitioned_topic("dead", partitions=4)
    plain = store.partitioned_topic("plain", partitions=4)
    queue = store.queue("jobs", max_attempts=1, dead_letter=dead)
    keys = [b"key %d" % n for n in range(20)]
    queue.topic.extend([(key, b"x") for key in keys])
    try_in_vain(queue, 99)
    assert queue.take(99, timeout=0) == []
    plain.extend([(key, b"x") for key in keys])
    assert {r.key: r.partition for r in dead} == {r.key: r.partition for r in plain}
    assert len({r.partition for r in dead}) == 4
    assert (len(dead), queue.info()["dead"]) == (20, 20)
    one = store.queue("one", "jobs", max_attempts=1, dead_letter=dead.partition(3))
    try_in_vain(one, 99)
    assert one.take(99, timeout=0) == []
    assert len(dead.partition(3)) == 20 + sum(r.partition == 3 for r in plain)


def test_of_one_key_one_job_is_out_and_an_ack_wakes_who_waits(
    store: falaj.Store,
) -> None:
    queue = store.queue("jobs", order="key")
    for i in range(4):
        queue.put(b"%d" % i, key=b"ab"[i % 2 : i % 2 + 1])
    first = queue.take(9)
    assert values(first) == [b"0", b"1"]
    timer = threading.Timer(0.05, first[0].ack)
    timer.start()
    assert values(queue.take(9, timeout=5)) == [b"2"]
    timer.join()


def test_a_take_ends_with_an_append_a_give_back_a_close_and_its_time(
    store: falaj.Store, queue: Queue[Any]
) -> None:
    def soon(what: Callable[[], Any]) -> None:
        threading.Timer(0.05, what).start()

    began = time.monotonic()
    assert queue.take(timeout=0.05) == []
    soon(lambda: queue.put(b"x"))
    [job] = queue.take(timeout=5)
    soon(job.nack)
    assert values(queue.take(timeout=5)) == [b"x"]
    soon(queue.close)
    assert queue.take() == []
    with pytest.raises(HandleClosed):
        queue.take()
    assert time.monotonic() - began < 2


def test_two_queues_over_a_topic_know_nothing_of_each_other(store: falaj.Store) -> None:
    one, other = store.queue("one", topic="jobs"), store.queue("other", topic="jobs")
    one.put(b"x")
    one.take()[0].ack()
    [job] = other.take()
    with pytest.raises(InvalidArgument, match="another handle"):
        one.ack(job)
    other.ack([job])


def test_what_cannot_be_right_is_refused_and_changes_nothing(
    store: falaj.Store, queue: Queue[Any]
) -> None:
    with pytest.raises(InvalidArgument, match="partitions"):
        store.queue("wide", store.partitioned_topic("wide", partitions=2))  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match="order"):
        store.queue("jobs", order="value")  # type: ignore[call-overload]
    with pytest.raises(SettingsMismatch, match="order"):
        store.queue("jobs", order="key")
    with pytest.raises(SettingsMismatch, match="topic"):
        store.queue("jobs", topic="other")
    wrong: dict[str, Any]
    for wrong in ({"n": 0}, {"n": -1}, {"lease": 0}, {"lease": -1.0}, {"lease": float("nan")}):
        with pytest.raises(InvalidArgument):
            queue.take(**wrong)
    for attempts in (0, 2**24):
        with pytest.raises(InvalidArgument, match="max_attempts"):
            store.queue("jobs", max_attempts=attempts)
    with pytest.raises(InvalidArgument, match="max_attempts"):
        store.queue("jobs", dead_letter="dead")
    for own in ("jobs", queue.topic, store.topic("jobs")):
        with pytest.raises(InvalidArgument, match="queue's own"):
            store.queue("other", queue.topic, max_attempts=1, dead_letter=own)
    assert store.info()["queues"][0]["name"] == "jobs"
    assert len(store.info()["queues"]) == 1
    with pytest.raises(InvalidArgument, match="delay"):
        queue.put(b"x", delay=-1)
    with pytest.raises(falaj.errors.InvalidName):
        store.queue("../jobs", topic="jobs")
    assert queue.info()["ready"] == 0


def test_a_topic_that_was_deleted_ends_the_wait_and_a_new_one_begins_anew(
    store: falaj.Store, queue: Queue[Any]
) -> None:
    queue.put(b"x")
    queue.take()[0].ack()
    threading.Timer(0.05, lambda: store.delete_topic("jobs")).start()
    with pytest.raises(TopicDeleted):
        queue.take()
    anew = store.queue("jobs")
    anew.put(b"y")
    assert values(anew.take()) == [b"y"]


def test_what_was_trimmed_counts_as_done_and_is_told(store: falaj.Store, queue: Queue[Any]) -> None:
    queue.topic.extend([b"%d" % i for i in range(5)])
    queue.topic.trim(before_offset=3)
    assert queue.info()["ready"] == 2
    assert store.info()["queues"][0]["ready"] == 2
    assert [job.offset for job in queue.take(9)] == [3, 4]
    assert queue.info()["trimmed"] == 3


def test_a_store_opened_for_reading_makes_no_queue(store: falaj.Store, queue: Queue[Any]) -> None:
    with falaj.open(store.path, read_only=True) as reader, pytest.raises(falaj.errors.NotWritable):
        reader.queue("jobs")


def test_the_jobs_of_a_parent_are_not_the_forked_childs_who_takes_others(
    store: falaj.Store, queue: Queue[Any]
) -> None:
    queue.topic.extend([b"0", b"1"])
    [mine] = queue.take()
    child = os.fork()
    if child == 0:
        try:
            mine.ack()
        except LeaseExpired:
            os._exit(0 if values(queue.take()) == [b"1"] else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    mine.ack()
    assert values(queue.take(timeout=5)) == [b"1"], "the child is dead, its job comes back"


def test_a_dead_holders_job_is_had_within_a_moment_by_one_who_waits(
    store: falaj.Store, queue: Queue[Any]
) -> None:
    queue.put(b"x")
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        [_] = queue.take()
        os.write(told, b".")
        signal.pause()
    os.read(ready, 1)
    threading.Timer(0.1, lambda: os.kill(child, signal.SIGKILL)).start()
    [job] = queue.take(timeout=10)
    assert job.attempt == 2
    os.waitpid(child, 0)


def test_asyncio_waits_for_jobs_gives_back_and_can_be_cancelled(
    store: falaj.Store, queue: Queue[Any]
) -> None:
    async def work() -> None:
        waiting = asyncio.create_task(_taken(queue))
        await asyncio.sleep(0.05)  # sleep: the task has to be waiting when the job comes
        queue.put(b"one")
        assert await asyncio.wait_for(waiting, 5) == [b"one"]
        async with queue.atake(timeout=5) as jobs:
            assert jobs[0].attempt == 2
            jobs[0].nack(delay=0.05)
        jobs = await queue.atake(timeout=5)
        jobs.ack()
        assert await queue.atake(timeout=0.05) == []
        cancelled = asyncio.create_task(_taken(queue))
        await asyncio.sleep(0.05)  # sleep: as above
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        queue.put(b"two")
        assert values(queue.take(timeout=0)) == [b"two"]

    asyncio.run(work())


async def _taken(queue: Queue[Any]) -> list[bytes]:
    async with queue.atake() as jobs:
        return values(jobs)


RESET = """
queue = falaj.open(path).queue("work", topic="jobs")
(held,) = queue.take()
say("has one")
hear()
(again,) = queue.take(timeout=30)
try:
    held.ack()
except falaj.errors.LeaseExpired as over:
    say(again.to_bytes().decode(), "reset" in str(over))
"""


def test_who_waits_in_another_process_goes_on_with_the_new_queue_after_a_reset(
    path: Path,
) -> None:
    with falaj.open(path) as store:
        queue = store.queue("work", topic="jobs")
        queue.topic.append(b"a")
        with child(path, RESET) as worker:
            assert worker.hear() == "has one"
            worker.tell()
            store.delete_queue("work")
            assert worker.hear() == "a True"


@pytest.mark.parametrize("order", [None, "key"])
def test_a_worker_goes_on_without_a_damaged_job_when_it_says_so(path: Path, order: Any) -> None:
    with falaj.open(path) as store:
        queue = store.queue("jobs", order=order)
        for n in range(4):
            queue.put(b"value-%d" % n, key=b"%d" % n)
    (log,) = path.glob("logs/jobs@*/*.log")
    data = log.read_bytes()
    with log.open("r+b") as file:
        file.seek(data.index(b"value-1"))
        file.write(b"w")
    with falaj.open(path) as store:
        queue = store.queue("jobs")
        had = values(queue.take(9))
        assert had == ([b"value-0"] if order else [b"value-0", b"value-2", b"value-3"])
        with pytest.raises(CorruptData):
            queue.take(timeout=0)
        (lost,) = queue.skip_damage()
        assert (lost["topic"], lost["partition"], lost["offsets"]) == ("jobs", 0, (1, 2))
        assert lost["path"] == str(log)
        rest = values(queue.take(9, timeout=0))
        assert had + rest == [b"value-0", b"value-2", b"value-3"]
        assert (queue.info()["dead"], queue.skip_damage()) == (1, [])


def test_a_job_that_could_not_be_settled_goes_back_at_the_end_of_its_block(
    queue: Queue[Any], store: falaj.Store
) -> None:
    queue.put(b"a")
    queue.put(b"b")
    with queue.take(1, lease=3600) as (job,), pytest.raises(InvalidArgument):
        job.nack(delay=1e12)
    with queue.take(2, lease=3600) as jobs:
        assert sorted(job.offset for job in jobs) == [0, 1]
        jobs[0].ack()
        assert [job.settled for job in jobs] == [True, False]
    [job] = queue.take(2, lease=3600, timeout=0)
    queue.close()
    with pytest.raises(HandleClosed):
        queue.ack(job)
    settled = job.settled
    job.ack()
    assert (settled, job.settled) == (False, True)
    assert store.queue("jobs").take(timeout=0) == []
