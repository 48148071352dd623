"""Handles of consumers, queues and jobs: what pickle says of them, and names that are not there."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import falaj
import falaj.logging
from falaj.errors import UnknownGroup, UnknownQueue


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_consumers_queues_and_jobs_are_not_pickled_or_copied_and_say_what_to_do(
    store: falaj.Store, use: Callable[[Any], Any]
) -> None:
    queue = store.queue("jobs")
    queue.put_many([b"one", b"two"])
    consumer = store.consumer("billing", "jobs")
    jobs = queue.take(2)
    with pytest.raises(TypeError, match="a consumer cannot be pickled or copied: give other"):
        use(consumer)
    with pytest.raises(TypeError, match="a queue cannot be pickled or copied: give other"):
        use(queue)
    if use is not copy.copy:  # which makes a batch of the same jobs
        with pytest.raises(TypeError, match="jobs cannot be pickled or copied, because their"):
            use(jobs)
    jobs.nack()
    [first, _] = queue.take(2)
    assert first.attempt == 1, "a refused copy begins no job"
    with pytest.raises(TypeError, match="a job cannot be pickled or copied, because its lease"):
        use(first)


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_followers_and_values_of_a_batch_are_not_pickled_or_copied_and_say_what_to_do(
    topic: falaj.Topic[memoryview], use: Callable[[Any], Any]
) -> None:
    topic.append(b"one")
    with pytest.raises(TypeError, match=r"a follower cannot be pickled or copied: .*\.follow\(\)"):
        use(topic.follow(timeout=0))
    with pytest.raises(TypeError, match="the values of a batch cannot be pickled or copied"):
        use(next(topic.batches()).raw_values)


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_nothing_that_holds_a_state_gets_a_second_owner_by_a_copy(
    store: falaj.Store, use: Callable[[Any], Any]
) -> None:
    topic = store.topic("orders")
    topic.extend([b"one", b"two"])
    clicks = store.partitioned_topic("clicks", partitions=2)
    queue, consumer = store.queue("jobs"), store.consumer("billing", "orders")
    store._origin()
    origins = falaj.open_origins(store)
    held: list[Any] = [
        topic.bulk_load("nightly"),
        topic.to_reader(),
        reversed(topic),
        clicks.batches(),
        queue.ajobs(),
        queue.atake(),
        topic.afollow(),
        consumer.afollow(),
        consumer.abatches(),
        consumer.batches(),
        origins,
        origins.follow("orders"),
        falaj.logging.Handler(topic),
    ]
    for each in held:
        with pytest.raises(TypeError, match=r"^(an?|origins) ?.* cannot be pickled or copied: "):
            use(each)
    origins.close()


@pytest.mark.parametrize("use", [pickle.dumps, copy.deepcopy])
def test_a_view_of_a_store_is_copied_as_itself_and_not_pickled(
    store: falaj.Store, use: Callable[[Any], Any]
) -> None:
    topic = store.topic("orders")
    topic.append(b"one")
    views: list[Any] = [topic[:], store.topics, store.groups, store.queues]
    for each in views:
        assert list(copy.copy(each)) == list(each)
        with pytest.raises(TypeError, match="cannot be pickled or copied: give other"):
            use(each)


def test_a_queue_that_may_not_be_created_is_refused_with_those_there_are(
    store: falaj.Store,
) -> None:
    with pytest.raises(UnknownQueue, match="the store has no queues"):
        store.queue("jobs", create=False)
    assert list(store.topics) == [], "nor was a topic created"
    store.queue("mails")
    store.queue("thumbnails", topic=store.topic("pictures"))
    with pytest.raises(UnknownQueue, match='has "mails", "thumbnails"'):
        store.queue("jobs", create=False)
    with pytest.raises(UnknownQueue, match='has "mails", "thumbnails"'):
        store.delete_queue("jobs")
    assert store.queue("mails", create=False).name == "mails"


def test_a_group_that_is_not_there_is_refused_with_those_there_are(store: falaj.Store) -> None:
    store.topic("orders")
    store.consumer("billing", "orders").close()
    with pytest.raises(UnknownGroup, match='the store has "billing"'):
        store.delete_group("biling")
