"""Waiting in event loops other than asyncio's: gevent's, uvloop's, trio's."""

from pathlib import Path

import pytest
from children import run

# Each waits for a record that another system thread appends meanwhile.
WAITS = """
import asyncio

store = falaj.open(path)
topic, queue = store.topic("orders"), store.queue("jobs")
consumer = store.consumer("billing", [topic])

async def followed():
    async for record in topic.afollow("latest"):
        return record.to_bytes()

async def batched():
    async for batch in store.consumer("batches", [topic]).abatches(timeout=None):
        return batch.to_list()[0]

async def main():
    loop = asyncio.get_running_loop()
    loop.call_later(0.2, topic.append, b"news")
    loop.call_later(0.2, queue.put, b"job")
    waits = followed(), batched(), consumer.apoll(timeout=None), queue.atake()
    found, batch, [record], [job] = await asyncio.gather(*waits)
    return found, batch, record.to_bytes(), job.to_bytes()
"""


@pytest.mark.parametrize(
    ("before", "call"),
    [
        ("from gevent import monkey; monkey.patch_all()", "asyncio.run(main())"),
        (
            "from gevent import monkey; monkey.patch_all(); import gevent",
            "gevent.spawn(asyncio.run, main()).get()",
        ),
        ("import uvloop", "uvloop.run(main())"),
    ],
    ids=["gevent", "in a greenlet", "uvloop"],
)
def test_asyncio_waits_for_news_in_other_event_loops(path: Path, before: str, call: str) -> None:
    told = run(path, f"{before}\n{WAITS}\nsay(*{call})")
    assert told.split() == ["b'news'", "b'news'", "b'news'", "b'job'"]


def test_a_call_that_blocks_lets_other_greenlets_run_from_gevents_pool(path: Path) -> None:
    program = """
from gevent import monkey; monkey.patch_all()
import gevent
store = falaj.open(path)
topic, queue = store.topic("orders"), store.queue("jobs")
pool = gevent.get_hub().threadpool
# Another greenlet appends the record.
gevent.spawn_later(0.1, topic.append, b"news")
say(pool.apply(next, (topic.follow("latest"),)).to_bytes())
gevent.spawn_later(0.1, queue.put, b"job")
with pool.apply(queue.take) as [job]:
    say(job.to_bytes())
"""
    assert run(path, program).split() == ["b'news'", "b'job'"]


def test_a_handler_that_keeps_its_thread_keeps_its_job_under_gevent(path: Path) -> None:
    program = """
from gevent import monkey; monkey.patch_all()
store = falaj.open(path)
queue, other = store.queue("jobs"), store.queue("jobs")
queue.put(b"slow")
# Four leases long another worker waits for the job in the same thread, and gets none.
say(queue.work(lambda job: say(other.take(timeout=1.2)), lease=0.3, timeout=0))
"""
    assert run(path, program).split() == ["[]", "1"]


def test_trio_waits_in_threads_and_is_told_so_where_it_does_not(path: Path) -> None:
    program = """
import trio
store = falaj.open(path)
topic, queue = store.topic("orders"), store.queue("jobs")
consumer = store.consumer("billing", [topic])

async def later():
    await trio.sleep(0.1)  # sleep: until the other waits
    topic.append(b"news")

async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(later)
        record = await trio.to_thread.run_sync(next, topic.follow("latest"))
        say(record.to_bytes())
    async def batches():
        async for _ in consumer.abatches(): pass
    async def follow():
        async for _ in topic.afollow(): pass
    async def consume():
        async for _ in consumer.afollow(): pass
    async def take():
        await queue.atake()
    async def poll():
        await consumer.apoll()
    for wait in batches, follow, consume, take, poll:
        try:
            await wait()
        except RuntimeError as error:
            say(wait.__name__, "trio.to_thread.run_sync" in str(error))

trio.run(main)
"""
    told = run(path, program).split()
    waits = ["batches", "follow", "consume", "take", "poll"]
    assert told == ["b'news'", *(word for wait in waits for word in (wait, "True"))]
