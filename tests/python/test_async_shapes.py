"""Async iterators can be closed, and takes run as tasks, as asyncio requires."""

import asyncio
from contextlib import aclosing

import pytest

import falaj


def test_a_follower_ends_at_the_end_of_aclosing(store: falaj.Store) -> None:
    topic = store.topic("orders", codec="str")
    topic.extend(["one", "two"])

    async def read() -> tuple[str, bool]:
        async with aclosing(topic.afollow()) as records:
            first = (await anext(records)).value
        with pytest.raises(StopAsyncIteration):
            await anext(records)
        return first, topic.closed

    assert asyncio.run(read()) == ("one", False)


def test_an_iteration_over_a_consumer_ends_at_the_end_of_aclosing(store: falaj.Store) -> None:
    topic = store.topic("orders", codec="str")
    topic.extend(["one", "two"])

    async def read() -> None:
        with store.consumer("group", ["orders"]) as consumer:
            async with aclosing(consumer.afollow()) as records:
                assert (await anext(records)).value == "one"
            with pytest.raises(StopAsyncIteration):
                await anext(records)
            assert not consumer.closed
            assert [record.value for record in await consumer.apoll(timeout=0)] == ["two"]

    asyncio.run(read())


def test_a_take_runs_as_a_task_and_in_a_gather(store: falaj.Store) -> None:
    queue = store.queue("mails")

    async def work() -> list[bytes]:
        task = asyncio.create_task(queue.atake(1))
        await asyncio.sleep(0)  # sleep: lets the task begin
        queue.put(b"a")
        queue.put(b"b")
        (first,) = await task
        first.ack()
        ((second,),) = await asyncio.gather(queue.atake(1))
        second.ack()
        return [first.to_bytes(), second.to_bytes()]

    assert asyncio.run(work()) == [b"a", b"b"]


def test_a_take_that_is_cancelled_takes_nothing(store: falaj.Store) -> None:
    queue = store.queue("mails")

    async def work() -> None:
        task = asyncio.create_task(queue.atake(1))
        await asyncio.sleep(0)  # sleep: lets the task begin
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        queue.put(b"a")
        async with queue.atake(1) as jobs:
            assert [job.to_bytes() for job in jobs] == [b"a"]

    asyncio.run(work())
