"""`aclose` ends an iteration from asyncio: a task that waits in it ends, and takes nothing."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

import falaj

SOON_S = 5.0

ITERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "afollow": lambda consumer, _: consumer.afollow(),
    "a consumer": lambda consumer, _: aiter(consumer),
    "abatches": lambda consumer, _: consumer.abatches(),
    "ajobs": lambda _, queue: queue.ajobs(),
    "a queue": lambda _, queue: aiter(queue),
}


async def waits(task: asyncio.Task[Any]) -> None:
    for _ in range(10):
        await asyncio.sleep(0)  # sleep: gives the task its turns
    assert not task.done()


@pytest.mark.parametrize("how", ITERATIONS)
def test_a_task_that_waits_in_what_is_closed_ends_and_takes_nothing(
    store: falaj.Store, how: str
) -> None:
    orders = store.topic("orders")
    consumer, queue = store.consumer("billing", orders), store.queue("orders", max_attempts=5)

    async def main() -> None:
        iteration = ITERATIONS[how](consumer, queue)
        task = asyncio.ensure_future(anext(iteration))
        await waits(task)
        await iteration.aclose()
        orders.append(b"x")
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(task, SOON_S)
        with pytest.raises(StopAsyncIteration):
            await anext(iteration)

    asyncio.run(main())
    assert [record.to_bytes() for record in consumer] == [b"x"]
    [job] = queue.take(2, timeout=0)
    assert (job.to_bytes(), job.attempt) == (b"x", 1)


@pytest.mark.parametrize("how", ITERATIONS)
def test_what_was_closed_in_a_loop_returns_no_more_and_another_goes_on(
    store: falaj.Store, how: str
) -> None:
    orders = store.topic("orders")
    consumer, queue = store.consumer("billing", orders), store.queue("orders")

    async def main() -> None:
        for value in (b"a", b"b"):
            orders.append(value)
            async with aclosing(ITERATIONS[how](consumer, queue)) as iteration:
                found = await asyncio.wait_for(anext(iteration), SOON_S)
                assert (found.to_list() if how == "abatches" else [found.to_bytes()]) == [value]
            assert [each async for each in iteration] == []

    asyncio.run(main())


@pytest.mark.parametrize("how", ["a consumer", "a queue"])
def test_consumers_and_queues_are_iterated_from_asyncio_as_they_are(
    store: falaj.Store, how: str
) -> None:
    orders = store.topic("orders")
    orders.extend([b"a", b"b"])
    holder: Any = store.queue("orders") if how == "a queue" else store.consumer("c", orders)

    async def read() -> list[bytes]:
        found: list[bytes] = []
        async for each in holder:
            found.append(each.to_bytes())
            if len(found) == 2:
                break
        return found

    assert asyncio.run(read()) == [b"a", b"b"]
