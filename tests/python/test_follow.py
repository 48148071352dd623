"""Following: no record is missed, no process polls, and it ends at once when asked."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from children import child, ends_within

import falaj
from falaj.errors import HandleClosed, InvalidArgument, OffsetOutOfRange, TopicDeleted

SOON_S = 5.0
"""Far more than anything here takes: a limit, not a duration."""


def numbers(records: Any) -> list[int]:
    return [int(record.to_bytes()) for record in records]


def in_thread(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_follower_sees_what_was_there_and_what_another_thread_appends(
    topic: falaj.Topic[memoryview],
) -> None:
    topic.extend([b"0", b"1"])
    follower = topic.follow(timeout=SOON_S)
    assert numbers([next(follower), next(follower)]) == [0, 1]
    writer = in_thread(lambda: [topic.append(b"%d" % i) for i in range(2, 1000)])
    assert numbers(next(follower) for _ in range(998)) == list(range(2, 1000))
    writer.join()


def test_a_follower_sees_what_another_process_appends(path: Path, store: falaj.Store) -> None:
    topic = store.topic("orders", segment_bytes=1 << 16)
    program = """
topic = falaj.open(path).topic("orders")
for i in range(20_000):
    topic.append(b"%d" % i)
"""
    with child(path, program), topic.follow(timeout=SOON_S) as follower:
        assert [int(next(follower).to_bytes()) for _ in range(20_000)] == list(range(20_000))


@pytest.mark.parametrize("mode", ["r", "w"])
def test_a_follower_sleeps_until_there_is_news(
    path: Path, topic: falaj.Topic[memoryview], mode: Any
) -> None:
    reader = falaj.open(path, read_only=mode == "r").topic("orders")
    follower = reader.follow(timeout=SOON_S)
    before = time.process_time()
    # sleep: the follower must be asleep when the record comes, for long enough to measure
    timer = threading.Timer(0.5, lambda: topic.append(b"7"))
    timer.start()
    assert numbers([next(follower)]) == [7]
    timer.join()
    assert time.process_time() - before < 0.25


@pytest.mark.parametrize("mode", ["r", "w"])
def test_a_record_whose_writer_died_before_it_said_so_is_read_once_and_waited_behind(
    path: Path, topic: falaj.Topic[memoryview], mode: Any
) -> None:
    control = next(path.glob("logs/orders@*/control"))
    topic.append(b"0")
    tail = control.read_bytes()[264:272]
    topic.append(b"1")
    with control.open("r+b") as page:
        page.seek(264)
        page.write(tail)  # as if it had been killed right after the commit word
    follower = falaj.open(path, read_only=mode == "r").topic("orders").follow(timeout=0.2)
    assert numbers(follower) == [0, 1]
    # It waits for the next record, not for the one that it has read.
    assert follower._seen > int.from_bytes(tail, "little")


def test_it_begins_where_it_is_told_to(topic: falaj.Topic[memoryview]) -> None:
    topic.extend([falaj.NewRecord(b"%d" % i, timestamp_ns=(100 + i) * 10**9) for i in range(5)])
    starts: list[tuple[Any, list[int]]] = [
        ("earliest", [0, 1, 2, 3, 4]),
        ("latest", []),
        (0, [0, 1, 2, 3, 4]),
        (3, [3, 4]),
        (5, []),
        (-2, [3, 4]),
        (-100, [0, 1, 2, 3, 4]),
        ("1970-01-01T00:01:41.500Z", [2, 3, 4]),
        ("1970-01-01T00:01:43Z", [3, 4]),
        ("1970-01-02T00:00:00Z", []),
    ]
    for start, expected in starts:
        assert numbers(topic.follow(start, timeout=0)) == expected, start
    with pytest.raises(OffsetOutOfRange):
        topic.follow(6)
    for wrong in ("first", "2026-01-01T00:00:00"):
        with pytest.raises(InvalidArgument):
            topic.follow(wrong)
    with pytest.raises(TypeError):
        topic.follow(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        topic.follow(timeout=-1)


def test_it_ends_quietly_when_nothing_comes_within_its_timeout(
    topic: falaj.Topic[memoryview],
) -> None:
    begin = time.monotonic()
    assert list(topic.follow(timeout=0.2)) == []
    assert 0.2 <= time.monotonic() - begin < SOON_S


def test_its_timeout_begins_anew_with_every_record(topic: falaj.Topic[memoryview]) -> None:
    follower = topic.follow(timeout=0.4)

    def slowly() -> None:
        for i in range(4):
            time.sleep(0.2)  # sleep: four of these are longer than the timeout, one is not
            topic.append(b"%d" % i)

    writer = in_thread(slowly)
    assert numbers(follower) == [0, 1, 2, 3]
    writer.join()


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("what", ["follower", "topic", "store"])
def test_closing_from_another_thread_ends_a_follow_within_50_ms(path: Path, what: str) -> None:
    def end() -> float:
        store = falaj.open(path)
        topic = store.topic("orders")
        follower = topic.follow()
        closed = {"follower": follower, "topic": topic, "store": store}[what]
        ended: list[float] = []
        waiting = in_thread(lambda: ended.append([*follower, time.monotonic()][-1]))
        time.sleep(0.2)  # sleep: the thread must be in the middle of its wait
        begin = time.monotonic()
        closed.close()  # type: ignore[attr-defined]
        waiting.join(SOON_S)
        assert ended
        assert follower.closed
        assert list(follower) == []
        return ended[0] - begin

    assert ends_within(0.05, end)


def test_deleting_the_topic_in_another_process_ends_a_follow_with_an_error(
    path: Path, topic: falaj.Topic[memoryview]
) -> None:
    with child(path, "hear(); falaj.open(path).delete_topic('orders')") as deleter:
        deleter.tell()
        with pytest.raises(TopicDeleted, match="orders"):
            next(topic.follow(timeout=SOON_S))


def test_poll_returns_what_is_there_and_never_waits(topic: falaj.Topic[memoryview]) -> None:
    follower = topic.follow()
    assert follower.poll() is None
    topic.append(b"1")
    record = follower.poll()
    assert record is not None
    assert record.to_bytes() == b"1"
    assert follower.poll() is None


def test_a_durable_follower_holds_back_what_is_not_on_the_medium(store: falaj.Store) -> None:
    topic = store.topic("slow", sync="none", sync_interval_ms=3_600_000)
    topic.append(b"0", sync="durable")
    topic.append(b"1")
    follower = topic.follow(visibility="durable", timeout=0)
    assert numbers(follower) == [0]
    assert numbers(topic) == [0, 1]
    follower = topic.follow(1, visibility="durable", timeout=SOON_S)
    flusher = threading.Timer(0.1, topic.flush)
    flusher.start()
    assert numbers([next(follower)]) == [1]
    flusher.join()


def test_two_threads_on_one_follower_get_an_error_that_says_one_each(
    topic: falaj.Topic[memoryview],
) -> None:
    follower = topic.follow()
    waiting = in_thread(lambda: list(follower))
    try:
        time.sleep(0.2)  # sleep: the other thread must be in its wait
        with pytest.raises(RuntimeError, match="each its own"):
            follower.poll()
    finally:
        follower.close()
        waiting.join()


def test_following_a_closed_topic_is_refused(topic: falaj.Topic[memoryview]) -> None:
    topic.close()
    with pytest.raises(HandleClosed):
        topic.follow()


def test_a_follower_of_several_partitions_sees_them_all(store: falaj.Store) -> None:
    topic = store.partitioned_topic("parted", codec="str", partitions=3)
    follower = topic.follow(timeout=SOON_S)
    writer = in_thread(lambda: [topic.append(str(i)) for i in range(300)])
    seen = [next(follower) for _ in range(300)]
    writer.join()
    assert sorted(int(record.value) for record in seen) == list(range(300))
    for partition in range(3):
        offsets = [record.offset for record in seen if record.partition == partition]
        assert offsets == list(range(100))
