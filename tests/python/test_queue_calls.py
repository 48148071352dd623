"""Calls of a queue: how it is opened, what it is given, and when it is closed."""

import asyncio
from collections import namedtuple
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import falaj
from falaj._queue import Queue
from falaj.errors import (
    HandleClosed,
    InvalidArgument,
    InvalidName,
    NotWritable,
    SettingsMismatch,
    TopicFinished,
)

Pair = namedtuple("Pair", "key value")


def test_a_queue_that_exists_is_opened_over_its_own_topic(store: falaj.Store) -> None:
    store.queue("mail", "emails", codec="json").put({"to": "ann"})
    for given in ({}, {"create": False}, {"topic": "emails"}, {"topic": store.topic("emails")}):
        queue = store.queue("mail", **given)
        assert (queue.topic.name, queue.topic.codec, queue.info()["ready"]) == ("emails", "json", 1)
    assert list(store.topics) == ["emails"]


REFUSED: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "another topic": ("mail", {"topic": "ordres"}, SettingsMismatch, "over topic 'emails'"),
    "a name": ("a/b", {"topic": "new"}, InvalidName, "cannot name a queue"),
    "its dead letters": (
        "new",
        {"topic": "new", "dead_letter": "new", "max_attempts": 3},
        InvalidArgument,
        "the queue's own",
    ),
    "a name for all": (
        "new",
        {"dead_letter": "new", "max_attempts": 3},
        InvalidArgument,
        "the queue's own",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_queue_that_is_refused_creates_no_topic(store: falaj.Store, what: str) -> None:
    store.queue("mail", "emails")
    name, given, error, words = REFUSED[what]
    with pytest.raises(error, match=words):
        store.queue(name, **given)
    assert (list(store.topics), list(store.queues)) == (["emails"], ["mail"])


def test_a_mismatch_of_a_queues_topic_says_what_the_queue_has(store: falaj.Store) -> None:
    store.queue("mail", "emails")
    with pytest.raises(SettingsMismatch) as raised:
        store.queue("mail", "ordres")
    error = raised.value
    told = (error.topic, error.setting, error.stored, error.asked)
    assert told == ("mail", "topic", "emails", "ordres")


TIMES: dict[str, tuple[Any, Any]] = {
    "text": ("0.1s", "30s"),
    "timedeltas": (timedelta(seconds=0.1), timedelta(seconds=30)),
    "numbers": (0.1, 30),
}
TAKES: dict[str, Callable[..., list[Any]]] = {
    "take": lambda queue, **times: list(queue.take(5, **times)),
    "atake": lambda queue, **times: list(asyncio.run(queue.atake(5, **times))),
    "jobs": lambda queue, **times: list(queue.jobs(**times)),
    "ajobs": lambda queue, **times: [asyncio.run(first_of(queue.ajobs(**times)))],
    "work": lambda queue, **times: worked(queue, **times),
}


async def first_of(jobs: Any) -> Any:
    return await anext(jobs)


def worked(queue: Queue[Any], **times: Any) -> list[Any]:
    jobs: list[Any] = []
    assert queue.work(jobs.append, **times) == 1
    return jobs


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("how", TAKES)
def test_timeout_and_lease_may_be_text_also_where_a_job_was_tried_too_often(
    store: falaj.Store, how: str, times: str
) -> None:
    queue = store.queue("jobs", max_attempts=1)
    queue.put_many([b"bad", b"good"])
    store.queue("jobs").take()[0].nack()
    timeout, lease = TIMES[times]
    found = TAKES[how](queue, timeout=timeout, lease=lease)
    assert [job.to_bytes() for job in found] == [b"good"]
    assert queue.dead is not None
    assert [letter.to_bytes() for letter in queue.dead] == [b"bad"]


EXTRAS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "delay": {"delay": 3600},
    "headers": {"headers": {"by": "x"}},
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_put_many_takes_the_same_with_a_delay_or_headers_as_without(
    store: falaj.Store, extra: str
) -> None:
    source = store.topic("source", codec="json")
    source.append({"n": 1}, key="k", headers={"trace": "7"}, timestamp_ns=5)
    queue = store.queue("jobs", codec="json")
    new = falaj.NewRecord({"n": 2}, "l", headers={"trace": "8"})
    given = EXTRAS[extra]
    assert queue.put_many([source[0], new, ("m", {"n": 3}), {"n": 4}], **given) == range(4)
    assert queue.put_many(source[:], **given) == range(4, 5)
    assert queue.put_many(iter([]), **given) == range(5, 5)
    jobs = list(queue.topic)
    assert [(job.value["n"], job.key) for job in jobs] == [
        (1, b"k"),
        (2, b"l"),
        (3, b"m"),
        (4, None),
        (1, b"k"),
    ]
    added = {"nothing": set(), "delay": {"falaj-not-before"}, "headers": {"by"}}[extra]
    own: list[set[str]] = [{"trace"}, {"trace"}, set(), set(), {"trace"}]
    assert [{name for name, _ in job.headers} for job in jobs] == [each | added for each in own]
    assert jobs[0].timestamp_ns == 5


@pytest.mark.parametrize("extra", EXTRAS)
def test_put_many_refuses_the_same_with_a_delay_or_headers_as_without(
    store: falaj.Store, extra: str
) -> None:
    queue = store.queue("jobs", codec="json")
    wrong: list[Any] = [[Pair("k", {"a": 1})], [("a", 1, 2)], [(None, 1)], "text", {"a": 1}, 5]
    for values in wrong:
        with pytest.raises(TypeError, match=r"in extend\(\)|extend\(\) takes"):
            queue.put_many(values, **EXTRAS[extra])
    assert len(queue.topic) == 0


def test_the_delay_of_a_put_counts_and_not_one_that_the_record_had_before(
    store: falaj.Store,
) -> None:
    queue = store.queue("jobs")
    queue.put(b"x", delay=0.001)
    [earlier] = queue.take(timeout=5)
    queue.put_many([earlier.record], delay=3600)
    queue.put(b"y", headers=earlier.record.headers, delay=3600)
    earlier.ack()
    assert queue.take(timeout=0) == []
    assert [len(record.headers) for record in queue.topic] == [1, 1, 1]


CALLS: dict[str, Callable[[Queue[Any]], Any]] = {
    "put": lambda queue: queue.put(b"x"),
    "put_many": lambda queue: queue.put_many([b"x"]),
    "take": lambda queue: queue.take(timeout=0),
    "jobs": lambda queue: queue.jobs(),
    "for": iter,
    "ajobs": lambda queue: queue.ajobs(),
    "atake": lambda queue: asyncio.run(queue.atake(timeout=0)),
    "work": lambda queue: queue.work(print, timeout=0),
    "redrive": lambda queue: queue.redrive(),
    "info": lambda queue: queue.info(),
    "skip_damage": lambda queue: queue.skip_damage(),
}


@pytest.mark.parametrize("closes", ["queue", "topic", "store"])
@pytest.mark.parametrize("call", CALLS)
def test_every_call_of_a_closed_queue_raises(store: falaj.Store, call: str, closes: str) -> None:
    queue = store.queue("jobs", max_attempts=1)
    topic = store.topic("jobs")
    queue.put(b"bad")
    queue.take()[0].nack()
    assert queue.dead is not None
    handles: dict[str, Any] = {"queue": queue, "topic": queue.topic, "store": store}
    handles[closes].close()
    with pytest.raises(HandleClosed):
        CALLS[call](queue)
    if closes != "store":
        assert len(topic) == 1


def test_dead_letters_that_could_not_be_written_are_refused_when_the_queue_is_opened(
    store: falaj.Store,
) -> None:
    given = falaj.open(store.path.with_name("other"))
    given.topic("dead")
    reader = falaj.open(given.path, read_only=True)
    for name in ("dead", "jobs.dead"):
        store.topic(name).finish()
    with pytest.raises(NotWritable, match="dead_letter is topic 'dead' of a store"):
        store.queue("jobs", max_attempts=1, dead_letter=reader.any_topic("dead"))
    for wrong in ("dead", store.topic("dead"), None):
        with pytest.raises(TopicFinished, match="dead', which is finished"):
            store.queue("jobs", max_attempts=1, dead_letter=wrong)
    assert store.queue("jobs").max_attempts is None
    assert store.queue("jobs", max_attempts=1, dead_letter=given.topic("dead")).put(b"a") == 0
