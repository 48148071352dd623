"""Jobs that fail: the reason that their dead letter keeps, and how long they wait."""

from contextlib import suppress
from typing import Any

import pytest

import falaj
from falaj._queue import Queue
from falaj.errors import InvalidArgument


@pytest.fixture
def queue(store: falaj.Store) -> Queue[Any]:
    queue = store.queue("jobs", max_attempts=2)
    queue.put(b"bad.png", headers={"trace": "7"})
    return queue


def letters(queue: Queue[Any]) -> list[dict[str, Any]]:
    assert queue.dead is not None
    return [dict(letter.headers) for letter in queue.dead]


def test_the_reason_of_the_last_attempt_is_kept_with_the_dead_letter(queue: Queue[Any]) -> None:
    queue.take()[0].nack(reason="out of memory")
    assert letters(queue) == []
    queue.take()[0].nack(delay=3600, reason="cannot read this")
    [letter] = letters(queue)
    assert letter["falaj-reason"] == b"cannot read this"
    assert (letter["falaj-attempts"], letter["trace"]) == (b"2", b"7")
    info = queue.info()
    assert (info["dead"], info["ready"], info["delayed"], info["in_flight"]) == (1, 0, 0, 0)


def test_a_block_that_raises_gives_its_exception_as_the_reason(queue: Queue[Any]) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="no image"), queue.take()[0]:
            raise ValueError("no image")
    assert letters(queue)[0]["falaj-reason"] == b"ValueError: no image"


def test_work_gives_the_exception_of_its_handler_as_the_reason(queue: Queue[Any]) -> None:
    def resize(_job: Any) -> None:
        raise KeyError

    queue.work(resize, backoff=lambda _: 0.0, timeout=0)
    assert letters(queue)[0]["falaj-reason"] == b"KeyError"


def test_a_batch_that_is_given_back_gives_one_reason_for_all_that_failed_for_the_last_time(
    queue: Queue[Any],
) -> None:
    queue.put(b"worse.png")
    for reason in ("first", "second"):
        jobs = queue.take(2)
        assert len(list(jobs)) == 2
        jobs.nack(reason=reason)
    assert [letter["falaj-reason"] for letter in letters(queue)] == [b"second", b"second"]


def test_a_block_over_a_batch_gives_its_exception_as_the_reason(queue: Queue[Any]) -> None:
    def resize() -> None:
        with queue.take(2) as jobs:
            for job in jobs:
                raise ValueError(f"no image: {job.to_bytes().decode()}")

    for _ in range(2):
        with pytest.raises(ValueError, match="no image"):
            resize()
    assert letters(queue)[0]["falaj-reason"] == b"ValueError: no image: bad.png"


def test_a_batch_that_is_returned_waits_as_the_backoff_says_and_what_had_not_begun_does_not(
    store: falaj.Store,
) -> None:
    queue = store.queue("jobs", backoff=(3600, 7200))
    queue.put_many([b"a", b"b"])
    with queue.take(2) as jobs:
        next(iter(jobs))
    assert (queue.info()["delayed"], queue.info()["ready"]) == (1, 1)


def test_a_batch_that_is_returned_after_its_leases_ended_needs_nothing(store: falaj.Store) -> None:
    queue = store.queue("jobs", max_attempts=1)
    queue.put(b"bad.png")
    with queue.take() as jobs:
        jobs[0].extend(0.001)
        while not queue.info()["dead"]:
            queue.take(timeout=0)
    assert queue.info()["dead"] == 1


def test_where_a_dead_letter_cannot_be_written_nack_gives_the_job_back(store: falaj.Store) -> None:
    dead = store.topic("graveyard")
    queue = store.queue("jobs", max_attempts=1, dead_letter=dead)
    queue.put(b"bad.png")
    [job] = queue.take()
    dead.delete()
    job.nack(reason="cannot read this")
    assert (job.settled, queue.info()["ready"], queue.info()["dead"]) == (True, 1, 0)
    with pytest.raises(falaj.errors.TopicDeleted):
        queue.take(timeout=0)


def test_a_queues_backoff_delays_what_gives_no_delay_itself(store: falaj.Store) -> None:
    queue = store.queue("jobs", backoff=(3600, 7200))
    queue.put_many([b"a", b"b", b"c"])
    a, b, c = queue.take(3)
    a.nack()
    with pytest.raises(ValueError, match="no image"), b:
        raise ValueError("no image")
    c.nack(delay=0)
    assert (queue.info()["delayed"], queue.info()["ready"]) == (2, 1)
    asked: list[int] = []

    def backoff(attempts: int) -> float:
        asked.append(attempts)
        return 0.0

    own = store.queue("jobs", backoff=backoff)
    [job] = own.take()
    job.nack()
    assert asked == [1, 2]  # when it was opened, and now
    with pytest.raises(InvalidArgument, match="number of seconds from 0 on, not -1"):
        store.queue("jobs", backoff=(-1, 5))
    with pytest.raises(InvalidArgument, match=r"as in \(10, 1\): give .* such as \(1, 10\)"):
        store.queue("jobs", backoff=(10, 1))


NONSENSE: dict[str, Any] = {
    "raises": lambda attempts: [0.0][attempts - 1],
    "nothing": lambda attempts: 0.0 if attempts == 1 else None,
    "text": lambda attempts: 0.0 if attempts == 1 else "soon",
    "less than nothing": lambda attempts: 0.0 if attempts == 1 else -1,
}


@pytest.mark.parametrize("how", NONSENSE)
def test_a_backoff_that_fails_hides_no_exception_and_keeps_no_job(
    store: falaj.Store, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    queue = store.queue("jobs", backoff=NONSENSE[how])
    queue.put_many([b"a", b"b", b"c"])
    queue.take(3).nack()  # none has begun
    for job in queue.take(3):
        job.nack()
    with pytest.raises(ValueError, match="no image") as raised, queue.take()[0]:
        raise ValueError("no image")
    assert "backoff= of queue 'jobs' failed" in raised.value.__notes__[0]
    with suppress(ValueError), queue.take() as jobs:
        list(jobs)
        raise ValueError("no image")
    queue.take()[0].nack()
    info = queue.info()
    assert (info["delayed"], info["in_flight"], info["ready"]) == (3, 0, 0)
    assert [line.name for line in caplog.records] == ["falaj.queue"] * 3


def test_work_loses_no_job_where_its_backoff_or_the_report_of_an_error_fails(
    store: falaj.Store, caplog: pytest.LogCaptureFixture
) -> None:
    queue = store.queue("jobs")
    queue.put_many([b"bad", b"good"])
    queue.take()[0].nack()

    def handle(job: Any) -> None:
        if job.to_bytes() == b"bad":
            raise ValueError("no image")

    assert queue.work(handle, backoff=NONSENSE["raises"], timeout=0) == 1
    assert "backoff= of queue 'jobs' failed" in caplog.text
    assert (queue.info()["delayed"], queue.info()["in_flight"]) == (1, 0)
    queue.put(b"bad")

    def report(_job: Any, error: Exception) -> None:
        raise RuntimeError("the log is full") from error

    with pytest.raises(RuntimeError, match="the log is full"):
        queue.work(handle, on_error=report, timeout=0)
    assert (queue.info()["delayed"], queue.info()["in_flight"]) == (2, 0)


def test_a_backoff_that_is_wrong_from_the_start_is_refused_by_name(store: falaj.Store) -> None:
    wrong: list[Any] = [lambda _: None, (1, "x"), (-1, 5), lambda _: -1]
    for backoff in wrong:
        with pytest.raises((InvalidArgument, TypeError), match="backoff"):
            store.queue("jobs", backoff=backoff)
    assert list(store.topics) == []


def test_letters_of_other_queues_in_the_same_topic_do_not_stop_a_redrive(
    store: falaj.Store,
) -> None:
    first = store.queue("first", topic="jobs", max_attempts=1)
    second = store.queue("second", topic="jobs", max_attempts=1)
    for name in (b"a", b"b"):
        first.put(name)
        for queue in (first, second):
            queue.take()[0].nack()
    assert [letter["falaj-queue"] for letter in letters(first)] == [b"first", b"second"] * 2
    assert (first.redrive(), first.redrive(), second.redrive()) == (2, 0, 2)
