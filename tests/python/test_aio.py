"""Following from asyncio: tasks wait without threads of their own, and cancelling ends them."""

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from children import child, ends_within

import falaj
from falaj._consumer import Consumer
from falaj._queue import Queue
from falaj._wait import AsyncFollower
from falaj.errors import HandleClosed, InvalidArgument, LockTimeout, TopicDeleted

SOON_S = 5.0


def watchers() -> int:
    names = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            names.append((thread / "comm").read_text())
    return names.count("falaj-watcher\n")


async def some_watchers() -> int:
    deadline = time.monotonic() + SOON_S
    while not watchers() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)  # sleep: gives a new thread the processor
    return watchers()


async def no_watchers() -> bool:
    deadline = time.monotonic() + SOON_S
    while watchers() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)  # sleep: gives an ending thread the processor
    return watchers() == 0


def test_a_task_sees_what_was_there_and_what_another_process_appends(
    path: Path, store: falaj.Store
) -> None:
    topic = store.topic("orders", codec="json")
    topic.append(0)
    program = """
topic = falaj.open(path).topic("orders")
for i in range(1, 5000):
    topic.append(i)
"""

    async def read() -> list[Any]:
        seen = []
        async for record in topic.afollow(timeout=SOON_S):
            seen.append(record.value)
            if len(seen) == 5000:
                break
        return seen

    with child(path, program):
        assert asyncio.run(read()) == list(range(5000))


def test_any_number_of_tasks_of_a_topic_wait_on_one_thread(
    topic: falaj.Topic[memoryview],
) -> None:
    async def first() -> bytes:
        async with topic.afollow("latest", timeout=SOON_S) as follower:
            async for record in follower:
                return record.to_bytes()
        return b"nothing"

    async def main() -> list[bytes]:
        tasks = [asyncio.create_task(first()) for _ in range(50)]
        await asyncio.sleep(0.1)  # sleep: all of them are to be waiting
        assert await some_watchers() == 1
        topic.append(b"x")
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [b"x"] * 50


def test_all_topics_of_a_store_are_followed_by_one_thread(store: falaj.Store) -> None:
    topics = [store.topic(f"t{i}") for i in range(30)]

    async def first(topic: falaj.Topic[memoryview]) -> bytes:
        async with topic.afollow("latest", timeout=SOON_S) as follower:
            async for record in follower:
                return record.to_bytes()
        return b"nothing"

    async def main() -> list[bytes]:
        tasks = [asyncio.create_task(first(topic)) for topic in topics]
        for i, topic in enumerate(topics):
            await asyncio.sleep(0.01)  # sleep: the tasks are to be waiting
            assert await some_watchers() == 1
            topic.append(b"%d" % i)
            assert await tasks[i] == b"%d" % i
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [b"%d" % i for i in range(30)]


def test_a_follower_killed_in_its_wait_takes_no_news_from_others(
    path: Path, store: falaj.Store
) -> None:
    topics = [store.topic(name) for name in ("orders", "bills")]
    program = """
import asyncio
async def main():
    store = falaj.open(path)
    topics = [store.topic(name) for name in ("orders", "bills")]
    tasks = [asyncio.create_task(anext(topic.afollow())) for topic in topics]
    await asyncio.sleep(0.2)  # sleep: they are to be waiting
    say("ready")
    await asyncio.gather(*tasks)
asyncio.run(main())
"""

    async def main() -> list[bytes]:
        with child(path, program) as other:
            other.hear()
            tasks = [asyncio.create_task(anext(topic.afollow(timeout=SOON_S))) for topic in topics]
            await asyncio.sleep(0.1)  # sleep: they are to be waiting
            other.kill()
            for topic in topics:
                topic.append(b"x")
            return [record.to_bytes() for record in await asyncio.gather(*tasks)]

    assert asyncio.run(main()) == [b"x"] * 2


def test_a_store_opened_for_reading_is_followed_too_and_closing_ends_it(
    path: Path, topic: falaj.Topic[memoryview]
) -> None:
    topic.append(b"0")
    reader = falaj.open(path, read_only=True).topic("orders")

    async def main() -> list[bytes]:
        follower = reader.afollow()
        threading.Timer(0.2, topic.append, (b"1",)).start()
        threading.Timer(0.6, reader.close).start()
        return [record.to_bytes() async for record in follower]

    assert asyncio.run(asyncio.wait_for(main(), SOON_S)) == [b"0", b"1"]


def test_cancelling_a_task_ends_its_follow_and_the_thread(
    topic: falaj.Topic[memoryview],
) -> None:
    async def main() -> float:
        task = asyncio.create_task(anext(topic.afollow()))
        await asyncio.sleep(0.1)  # sleep: it is to be waiting
        assert await some_watchers() == 1
        begin = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        took = time.monotonic() - begin
        del task
        assert await no_watchers()
        return took

    assert ends_within(0.05, lambda: asyncio.run(main()))


def test_closing_from_another_thread_ends_it(topic: falaj.Topic[memoryview]) -> None:
    async def main() -> list[Any]:
        follower = topic.afollow()
        timer = threading.Timer(0.1, follower.close)
        timer.start()
        return [record async for record in follower]

    assert asyncio.run(asyncio.wait_for(main(), SOON_S)) == []


def test_closing_the_topic_ends_it(topic: falaj.Topic[memoryview]) -> None:
    async def main() -> list[Any]:
        follower = topic.afollow()
        threading.Timer(0.1, topic.close).start()
        return [record async for record in follower]

    assert asyncio.run(asyncio.wait_for(main(), SOON_S)) == []


def test_deleting_the_topic_ends_it_with_an_error(topic: falaj.Topic[memoryview]) -> None:
    async def main() -> list[Any]:
        threading.Timer(0.1, topic.delete).start()
        return [record async for record in topic.afollow(timeout=SOON_S)]

    with pytest.raises(TopicDeleted):
        asyncio.run(main())


def test_it_ends_quietly_after_its_timeout(topic: falaj.Topic[memoryview]) -> None:
    async def main() -> list[bytes]:
        topic.append(b"x")
        return [record.to_bytes() async for record in topic.afollow(timeout=0.1)]

    begin = time.monotonic()
    assert asyncio.run(main()) == [b"x"]
    assert 0.1 <= time.monotonic() - begin < SOON_S


async def count(turns: list[int]) -> None:
    """Count how often another task in the loop gets a turn."""
    while True:
        turns[0] += 1
        await asyncio.sleep(0)  # sleep: passes the turn on at once


def test_other_tasks_have_turns_while_there_is_plenty_to_read(
    topic: falaj.Topic[memoryview],
) -> None:
    topic.extend([b"x"] * 10_000)
    turns: list[int] = [0]

    async def main() -> None:
        counter = asyncio.create_task(count(turns))
        async for _ in topic.afollow(timeout=0):
            pass
        counter.cancel()

    asyncio.run(main())
    assert turns[0] > 10


def test_it_works_again_in_another_loop(topic: falaj.Topic[memoryview]) -> None:
    async def one() -> bytes:
        async for record in topic.afollow("latest", timeout=SOON_S):
            return record.to_bytes()
        return b"nothing"

    for i in range(3):
        threading.Timer(0.05, topic.append, (b"%d" % i,)).start()
        assert asyncio.run(one()) == b"%d" % i


def test_a_loop_with_a_waiting_task_sleeps(topic: falaj.Topic[memoryview]) -> None:
    async def main() -> float:
        task = asyncio.create_task(anext(topic.afollow()))
        await asyncio.sleep(0.1)  # sleep: it is to be waiting
        before = time.process_time()
        await asyncio.sleep(1)  # sleep: the time over which idleness is measured
        used = time.process_time() - before
        task.cancel()
        return used

    assert asyncio.run(main()) < 0.02


def test_a_poll_from_asyncio_waits_for_the_first_record_and_takes_nothing_when_cancelled(
    store: falaj.Store,
) -> None:
    orders = store.topic("orders")
    orders.extend([b"0", b"1", b"2"])
    billing = store.consumer("billing", "orders")

    async def main() -> None:
        assert [record.to_bytes() for record in await billing.apoll(2)] == [b"0", b"1"]
        assert [record.to_bytes() for record in await billing.apoll()] == [b"2"]
        assert await billing.apoll(timeout=0) == await billing.apoll(timeout=0.01) == []
        cancelled = asyncio.create_task(billing.apoll())
        await asyncio.sleep(0.05)  # sleep: it is to be waiting
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        threading.Timer(0.05, orders.append, (b"3",)).start()
        assert [record.to_bytes() for record in await billing.apoll(timeout=SOON_S)] == [b"3"]
        polled = asyncio.create_task(billing.apoll(timeout=SOON_S))
        await asyncio.sleep(0)  # sleep: none, it begins
        threading.Timer(0.05, billing.close).start()
        assert await polled == []

    asyncio.run(main())
    with pytest.raises(HandleClosed):
        asyncio.run(billing.apoll())
    with pytest.raises(InvalidArgument, match=r"apoll\(\)"):
        asyncio.run(billing.apoll(0))


def test_batches_from_asyncio_go_on_with_what_comes_and_give_others_turns(
    store: falaj.Store,
) -> None:
    orders = store.topic("orders")
    orders.extend([b"x"] * 1000)
    billing = store.consumer("billing", "orders")
    turns: list[int] = [0]

    async def main() -> int:
        counter = asyncio.create_task(count(turns))
        seen = 0
        async for batch in billing.abatches(size=10, timeout=SOON_S):
            seen += len(batch)
            billing.commit()
            if seen == 1000:
                assert turns[0] >= 100 or len(batch) > 10
                orders.append(b"x")
            if seen == 1001:
                break
        counter.cancel()
        return seen

    assert asyncio.run(main()) == 1001
    assert billing.lag == 0
    with pytest.raises(InvalidArgument, match=r"abatches\(\)"):
        billing.abatches(0)


class Locked:
    """A follower that cannot get a lock when it looks again."""

    closed = _over = False

    def __init__(self, follower: Any) -> None:
        self._watch, self._seen, self.close = follower._watch, 0, follower.close
        self.looks = 0

    def poll(self) -> None:
        self.looks += 1
        if self.looks > 1:
            raise LockTimeout("process 1 has it")


def test_a_lock_that_is_not_free_is_an_error_and_does_not_end_the_wait(
    store: falaj.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = store.topic("orders")
    topic.append(b"x")
    looks = 0

    def look(*_arguments: Any) -> None:
        nonlocal looks
        looks += 1
        if looks % 2 == 0:
            raise LockTimeout("process 1 has it")

    monkeypatch.setattr(Consumer, "_poll", look)
    monkeypatch.setattr(Queue, "take", look)
    store.queue("jobs").put(b"x")
    billing = store.consumer("billing", "orders")

    async def waits() -> None:
        locked: Any = Locked(topic.follow())
        follower = AsyncFollower[Any](locked, None)
        for wait in (anext(follower), anext(billing.afollow()), take()):
            with pytest.raises(LockTimeout):
                await wait

    async def take() -> Any:
        return await store.queue("jobs").atake()

    asyncio.run(waits())
