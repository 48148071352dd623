"""Queues of the client: as native ones, and through lost replies and kills."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import falaj
import falaj_client
from falaj_client.protocols import StoreLike
from server.doors import Server
from server.test_client import connect
from server.test_client_lossy import Door


@pytest.fixture(params=["native", "client"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLike]:
    """A store of each kind."""
    if request.param == "native":
        with falaj.open(tmp_path / "events") as native:
            yield native
        return
    with Server(tmp_path / "events") as server, connect(server) as client:
        yield client


def test_jobs_are_put_taken_and_settled_alike(both: StoreLike) -> None:
    queue = both.queue("jobs", codec="str", max_attempts=2)
    assert queue.put("a", "ann") == 0
    assert queue.put_many(["b", ("bob", "c")]) == range(1, 3)
    first, second = queue.take(2)
    assert (first.value, first.key, first.offset, first.attempt) == ("a", b"ann", 0, 1)
    first.ack()
    assert first.settled
    second.nack(reason="too large")
    assert sorted((job.value, job.attempt) for job in queue.take(5, timeout=1)) in (
        [("b", 2)],
        [("b", 2), ("c", 1)],
        [("c", 1)],
    )
    assert queue.put("later", delay=3600) == 3
    with pytest.raises(falaj.errors.InvalidArgument):
        queue.take(0)
    with pytest.raises(falaj.errors.UnknownQueue):
        both.queue("nothing", create=False)


def test_the_block_of_a_job_settles_it_alike(both: StoreLike) -> None:
    queue = both.queue("jobs", codec="str", max_attempts=2)
    queue.put("poison")
    for _ in range(2):
        with pytest.raises(ValueError, match="planted"), queue.take(1)[0]:
            raise ValueError("planted")
    assert len(queue.take(timeout=0)) == 0
    (letter,) = both.any_topic("jobs.dead")
    headers = dict(letter.headers)
    assert letter.value == "poison"
    assert b"planted" in (headers["falaj-reason"] or b"")
    queue.put("fine")
    for job in queue.jobs(timeout=0):
        with job:
            assert job.value == "fine"
    assert len(queue.take(timeout=0)) == 0


def test_a_job_whose_lease_is_over_is_refused(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server, connect(server) as store:
        queue = store.queue("jobs", codec="str")
        queue.put("a")
        (late,) = queue.take(lease=0.05)
        (again,) = queue.take(lease=60)
        assert (again.value, again.attempt) == ("a", 2)
        with pytest.raises(falaj.errors.LeaseExpired):
            late.ack()
        again.extend(120)
        again.ack()


def test_jobs_are_done_once_each_through_lost_replies_and_kills(tmp_path: Path) -> None:
    with Door(tmp_path / "events") as door:
        done: list[int] = []

        def put() -> None:
            with falaj.connect(door.url, token=door.server.token, timeout=60) as store:
                queue = store.queue("jobs", codec="json")
                for i in range(0, 60, 3):
                    queue.put_many([i, i + 1, i + 2])

        def work() -> None:
            with falaj.connect(door.url, token=door.server.token, timeout=60) as store:
                queue = store.queue("jobs", codec="json")
                while jobs := queue.take(3, lease=60, timeout=8):
                    for job in jobs:
                        job.ack()
                        done.append(job.value)

        door.run(put, work, work)
        with falaj.open(tmp_path / "events") as native:
            assert native.topic("jobs").count() == 60
            numbers = native.queues["jobs"]
        # An answer that was lost with its server hides its jobs until their leases end.
        assert max(Counter(done).values()) == 1
        assert len(done) == numbers["done"]
        # Such jobs are reserved, which a native look counts as delayed.
        assert len(done) + numbers["in_flight"] + numbers["delayed"] == 60


def test_dead_letters_are_put_back_once_each_alike(both: StoreLike) -> None:
    queue = both.queue("jobs", codec="str", max_attempts=1)
    assert queue.redrive() == 0
    queue.put_many([("ann", "a"), ("bob", "b"), ("eve", "c")])
    for job in queue.take(3, timeout=0):
        job.nack(reason="planted")
    assert len(queue.take(timeout=0)) == 0
    assert (queue.redrive(0), queue.redrive(2), queue.redrive(), queue.redrive()) == (0, 2, 1, 0)
    assert {(job.key, job.value, job.attempt) for job in queue.take(5, timeout=0)} == {
        (b"ann", "a", 1),
        (b"bob", "b", 1),
        (b"eve", "c", 1),
    }
    with pytest.raises(falaj.errors.InvalidArgument):
        queue.redrive(-1)
    with pytest.raises(TypeError):
        queue.redrive("2")  # type: ignore[arg-type]
    with pytest.raises(falaj.errors.InvalidArgument, match="max_attempts="):
        both.queue("others").redrive()
    elsewhere = both.queue("more", codec="str", max_attempts=1, dead_letter="letters")
    elsewhere.put("d")
    elsewhere.take()[0].nack()
    assert elsewhere.redrive() == 1


def test_what_a_repeat_would_count_wrongly_is_asked_for_once(tmp_path: Path) -> None:
    with Door(tmp_path / "events", 0.0) as door, falaj.open(tmp_path / "events") as native:
        topic = native.topic("prices", codec="str", compacted=True)
        topic.extend([("tea", f"{i}") for i in range(5)])
        queue = native.queue("jobs", codec="str", max_attempts=1)
        queue.put_many(["a", "b", "c"])
        for job in queue.take(3, timeout=0):
            job.nack()
        store = falaj.connect(door.url, token=door.server.token, timeout=60)
        there, prices = store.queue("jobs", max_attempts=1), store.topic("prices")
        door.proxy.always, door.proxy.only = "reply", b"redrive"
        with pytest.raises(falaj_client.errors.ServerUnavailable) as lost:
            there.redrive(1)
        assert lost.value.may_have_happened
        door.proxy.always = ""
        assert native.queues["jobs"]["ready"] == 1
        assert there.redrive() == 2
        door.proxy.always, door.proxy.only = "reply", b":compact"
        with pytest.raises(falaj_client.errors.ServerUnavailable) as lost:
            prices.compact(seal=True)
        assert lost.value.may_have_happened
        door.proxy.always = ""
        assert [record.value for record in topic] == ["4"]
        store.close()


def test_a_worker_from_asyncio_does_the_same(tmp_path: Path) -> None:
    async def use(url: str, token: str) -> None:
        async with falaj.aconnect(url, token=token) as store:
            queue = await store.queue("jobs", codec="json")
            assert await queue.put(1) == 0
            assert await queue.put_many([2, 3]) == range(1, 3)
            (job,) = await queue.take()
            assert isinstance(job, falaj_client.AsyncJob)
            await job.extend(60)
            await job.nack()
            once = await store.queue("once", codec="json", max_attempts=1)
            await once.put(0)
            await (await once.take())[0].nack()
            assert await once.redrive() == 1
            seen = list[int]()
            async for each in queue.jobs(timeout=0):
                async with each:
                    seen.append(each.value)
            assert sorted(seen) == [1, 2, 3]

    with Server(tmp_path / "events") as server:
        asyncio.run(use(f"http://127.0.0.1:{server.port}", server.token))
