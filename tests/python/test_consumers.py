"""Consumers: cursors that survive, partitions that are shared, and members that die."""

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import (
    HandleClosed,
    InvalidArgument,
    InvalidName,
    LogTruncated,
    NotWritable,
    OffsetOutOfRange,
    PartitionNotAssigned,
    TopicDeleted,
    UnknownGroup,
    UnknownTopic,
)

SOON_S = 30.0
"""Far more than anything here takes: a limit, not a duration."""


def numbers(records: Any) -> list[int]:
    return [int(record.to_bytes()) for record in records]


def filled(store: falaj.Store, records: int = 10, name: str = "orders", **settings: Any) -> Any:
    opens: Any = store.partitioned_topic if "partitions" in settings else store.topic
    topic = opens(name, **settings)
    topic.extend([b"%d" % n for n in range(records)])
    return topic


def test_a_consumer_goes_on_where_it_committed_in_whichever_process(path: Path) -> None:
    with falaj.open(path) as store:
        filled(store)
        with store.consumer("billing", "orders") as billing:
            for record in billing:
                if record.offset == 6:
                    billing.commit()
        program = """
        store = falaj.open(path)
        with store.consumer("billing", "orders") as billing:
            say(*[record.offset for record in billing])
            billing.commit()
        """
        with child(path, program.replace("\n        ", "\n")) as other:
            assert other.hear() == "7 8 9"
            other.process.wait(SOON_S)
        with store.consumer("billing", "orders") as billing:
            assert list(billing) == []
            assert billing.lag == 0


def test_what_a_killed_process_committed_stays_and_what_it_did_not_comes_again(path: Path) -> None:
    with falaj.open(path) as store:
        filled(store, 100)
        program = """
store = falaj.open(path)
billing = store.consumer("billing", "orders")
for record in billing:
    if record.offset == 57:
        billing.commit()
    if record.offset == 80:
        say("80")
        hear()
"""
        with child(path, program) as other:
            assert other.hear() == "80"
            other.kill()
        with store.consumer("billing", "orders") as billing:
            assert billing.committed() == 58
            assert numbers(billing)[0] == 58


def test_a_plain_for_ends_and_follow_goes_on_until_its_timeout_or_close(path: Path) -> None:
    with falaj.open(path) as store:
        orders = filled(store, 3)
        billing = store.consumer("billing", "orders")
        assert numbers(billing) == [0, 1, 2]
        assert numbers(billing) == []
        orders.append(b"3")
        assert numbers(billing.follow(timeout=0)) == [3]
        late = threading.Timer(0.05, lambda: orders.append(b"4"))
        late.start()
        assert numbers(billing.poll(timeout=SOON_S)) == [4]
        following = billing.follow()
        closer = threading.Timer(0.05, billing.close)
        closer.start()  # an iterator ends, whether it waits by then or not
        assert numbers(following) == []
        with pytest.raises(HandleClosed):
            billing.commit()


def test_poll_and_batches_hand_out_what_comes_next_and_commit_covers_it(path: Path) -> None:
    with falaj.open(path) as store:
        filled(store, 10)
        billing = store.consumer("billing", "orders")
        assert numbers(billing.poll(3, timeout=0)) == [0, 1, 2]
        billing.commit()
        assert (billing.position(), billing.committed()) == (3, 3)
        batch = next(billing.batches(size=4, timeout=0))
        assert batch.to_list()[0] == b"3"
        billing.commit()
        assert billing.committed() == batch.offsets[-1] + 1 == billing.position()
        assert numbers(billing.poll(timeout=0)) == list(range(batch.offsets[-1] + 1, 10))
        assert billing.poll(timeout=0) == []


def test_several_topics_and_partitions_are_read_and_committed_together(path: Path) -> None:
    with falaj.open(path) as store:
        filled(store, 10)
        audit = store.partitioned_topic("audit", partitions=3)
        for n in range(9):
            audit.append(b"%d" % n, partition=n % 3)
        with store.consumer("billing", ["orders", "audit"]) as billing:
            found = [(record.topic, record.partition, record.offset) for record in billing]
            assert len(found) == len(set(found)) == 19
            billing.commit()
            assert [billing.committed("audit", p) for p in range(3)] == [3, 3, 3]
            assert billing.lag == 0
            with pytest.raises(InvalidArgument, match="topic="):
                billing.commit(3)
            billing.commit(1, topic="audit", partition=2)
            assert billing.lag == 2


def test_a_topic_with_a_codec_is_read_through_it(path: Path) -> None:
    with falaj.open(path) as store:
        orders = store.topic("orders", codec="json")
        orders.append({"id": 1})
        by_name = store.consumer("billing", "orders")
        by_handle = store.consumer("audit", [orders])
        assert [r.value for r in by_name] == [r.value for r in by_handle] == [{"id": 1}]


def test_seek_goes_anywhere_and_is_committed_with_the_next_commit(path: Path) -> None:
    with falaj.open(path) as store:
        orders = store.topic("orders")
        for n in range(10):
            orders.append(b"%d" % n, timestamp=f"2026-11-20T08:00:0{n}Z")
        billing = store.consumer("billing", "orders")
        places: list[tuple[Any, int | None]] = [("latest", None), ("earliest", 0), (4, 4), (-2, 8)]
        for to, first in places:
            billing.seek(to)
            assert numbers(billing)[:1] == ([] if first is None else [first])
        billing.seek("2026-11-20T08:00:05Z")
        assert billing.committed() == 0
        billing.commit()
        assert billing.committed() == 5
        with pytest.raises(OffsetOutOfRange):
            billing.seek(11)
        assert billing.position() == 5


def test_a_paused_partition_hands_out_nothing_until_it_is_resumed(path: Path) -> None:
    with falaj.open(path) as store:
        orders = store.partitioned_topic("orders", partitions=2)
        for n in range(6):
            orders.append(b"%d" % n, partition=n % 2)
        billing = store.consumer("billing", "orders")
        billing.pause(partition=1)
        assert {record.partition for record in billing} == {0}
        billing.resume()
        assert {record.partition for record in billing} == {1}


def test_auto_commit_commits_what_was_handed_out_before_and_not_what_is_worked_on(
    path: Path,
) -> None:
    with falaj.open(path) as store:
        filled(store, 5)

        def fails_at_3() -> None:
            with store.consumer("billing", "orders", auto_commit=0.0) as billing:
                for record in billing:
                    _ = 1 // (3 - record.offset)

        with pytest.raises(ZeroDivisionError):
            fails_at_3()
        with store.consumer("billing", "orders", auto_commit=True) as billing:
            assert billing.committed() == 3
            assert numbers(billing) == [3, 4]
        assert store.info()["groups"][0]["partitions"][0]["committed"] == 5


def test_only_what_is_durable_is_handed_out_where_that_is_asked(path: Path) -> None:
    with falaj.open(path) as store:
        orders = store.topic("orders", sync="none", sync_interval_ms=3_600_000)
        orders.extend([b"0", b"1"])
        billing = store.consumer("billing", "orders", visibility="durable")
        assert numbers(billing) == []
        orders.flush()
        assert numbers(billing) == [0, 1]


def test_one_topic_is_named_alone_and_poll_and_batches_wait_unless_they_get_a_timeout(
    path: Path,
) -> None:
    with falaj.open(path) as store:
        topic = store.topic("orders")
        with store.consumer("billing", "orders") as billing:
            assert (billing.group, billing.topics) == ("billing", ["orders"])
            assert (billing.poll(timeout=0), list(billing.batches(timeout=0))) == ([], [])
            for take in (billing.poll, lambda: next(billing.batches()).to_list()):
                threading.Timer(0.05, lambda: topic.append(b"7")).start()
                assert len(take()) == 1
        with store.consumer("typed", topic) as typed:
            assert numbers(typed.poll()) == [7, 7]


def test_what_cannot_be_is_refused_and_changes_nothing(path: Path) -> None:
    with falaj.open(path) as store:
        filled(store, 3)
        for topics in (
            [],
            ["orders", "orders"],
            [store.partitioned_topic("p", partitions=2).partition(0)],
        ):
            with pytest.raises(InvalidArgument):
                store.consumer("billing", topics)
        with pytest.raises(UnknownTopic):
            store.consumer("billing", "nothing")
        for name in ("", "..", "a/b"):
            with pytest.raises(InvalidName):
                store.consumer(name, ["orders"])
        with pytest.raises(OffsetOutOfRange):
            store.consumer("billing", "orders", start=4)
        assert store.info()["groups"] == []
        assert "nothing" not in store.topics
        billing = store.consumer("billing", "orders")
        with pytest.raises(OffsetOutOfRange):
            billing.commit(4)
        with pytest.raises(InvalidArgument):
            billing.commit(1, topic="audit")
        with pytest.raises(InvalidArgument):
            billing.poll(0, timeout=0)
        assert billing.committed() == 0
        with pytest.raises(InvalidArgument, match="other topics"):
            store.consumer("billing", ["orders", "p"])
        with pytest.raises(InvalidArgument, match=f"process {os.getpid()}"):
            store.seek_group("billing", "orders", "latest")
        with pytest.raises(UnknownGroup):
            store.delete_group("nobody")
        with falaj.open(path, read_only=True) as reader, pytest.raises(NotWritable):
            reader.consumer("billing", "orders")


def test_what_is_trimmed_rewound_or_deleted_is_told_with_the_choices(path: Path) -> None:
    with falaj.open(path) as store:
        orders = filled(store, 10)
        billing = store.consumer("billing", "orders")
        orders.trim(before_offset=4)
        assert (billing.lag, store.info()["groups"][0]["partitions"][0]["lag"]) == (6, 6)
        with pytest.raises(OffsetOutOfRange) as trimmed:
            list(billing)
        assert "seek" in trimmed.value.__notes__[0]
        billing.seek("earliest")
        assert numbers(billing) == [4, 5, 6, 7, 8, 9]
        billing.commit(sync="durable")
        store.backup(path.with_name("copy"))
        orders.append(b"10")
        list(billing)
        billing.commit(sync="durable")
        billing.close()
        cursors = (path / "consumers/billing").read_bytes()
    with falaj.open(path.with_name("copy")) as older:
        assert numbers(older.consumer("billing", "orders")) == []
        (path.with_name("copy") / "consumers/billing").write_bytes(cursors)
        billing = older.consumer("billing", "orders")
        with pytest.raises(LogTruncated) as rewound:
            list(billing)
        assert (rewound.value.offset, rewound.value.end) == (11, 10)
        billing.seek("latest")
        billing.commit()
        assert billing.committed() == 10
        older.delete_topic("orders")
        with pytest.raises(TopicDeleted):
            list(billing.follow(timeout=SOON_S))


def test_uncommitted_names_the_cursor_by_consumer_generation_and_partition(path: Path) -> None:
    with falaj.open(path) as store:
        filled(store, 3)
        billing = store.consumer("billing", "orders")
        assert billing.uncommitted() == []
        billing.poll(2, timeout=0)
        [(name, offset, crc)] = billing.uncommitted()
        generation = str(store.info()["topics"][0]["generation"])
        assert name == b"billing\0%s\0000" % generation.encode()
        assert offset == 2
        assert crc != 0


MEMBER = """
store = falaj.open(path)
billing = store.consumer("billing", "orders")
say("in")
for record in billing.follow():
    say(record.partition, record.offset)
    billing.commit()
"""


def shares(store: falaj.Store) -> dict[int, list[int]]:
    """List the partitions of each process."""
    found: dict[int, list[int]] = {}
    for cursor in store.info()["groups"][0]["partitions"]:
        owner = cursor["owner"]
        if owner is not None:
            found.setdefault(owner["process"] or 0, []).append(cursor["partition"])
    return found


def until(is_so: Any) -> None:
    """Wait for other processes, which send no signal."""
    ends = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.005)  # sleep: what others do in their own time


def test_members_share_the_partitions_and_the_killed_are_replaced(path: Path) -> None:
    with falaj.open(path) as store:
        orders = store.partitioned_topic("orders", partitions=4)
        with child(path, MEMBER) as a, child(path, MEMBER) as b:
            assert a.hear() == b.hear() == "in"
            until(lambda: sorted(map(len, shares(store).values())) == [2, 2])
            b.kill()
            until(lambda: list(shares(store)) == [a.process.pid])
            for p in range(4):
                orders.append(b"x", partition=p)
            assert sorted(a.hear() for _ in range(4)) == ["0 0", "1 0", "2 0", "3 0"]


def test_a_stopped_member_keeps_its_partitions_and_the_others_go_on(path: Path) -> None:
    with falaj.open(path) as store:
        orders = store.partitioned_topic("orders", partitions=2)
        with child(path, MEMBER) as a, child(path, MEMBER) as b:
            assert a.hear() == b.hear() == "in"
            until(lambda: len(shares(store)) == 2)
            before = shares(store)
            os.kill(b.process.pid, signal.SIGSTOP)
            try:
                for p in range(2):
                    orders.append(b"x", partition=p)
                [mine] = before[a.process.pid]
                assert a.hear() == f"{mine} 0"
                for n in range(1, 20):
                    orders.append(b"x", partition=mine)
                    assert a.hear() == f"{mine} {n}"
                assert shares(store) == before
            finally:
                os.kill(b.process.pid, signal.SIGCONT)
            [its] = before[b.process.pid]
            assert b.hear() == f"{its} 0"


def test_what_a_killed_member_had_goes_to_who_looks_while_another_is_stopped(path: Path) -> None:
    with falaj.open(path) as store:
        orders = store.partitioned_topic("orders", partitions=6)
        with child(path, MEMBER) as a, child(path, MEMBER) as b, child(path, MEMBER) as c:
            assert a.hear() == b.hear() == c.hear() == "in"
            until(lambda: sorted(map(len, shares(store).values())) == [2, 2, 2])
            before = shares(store)
            mine, its, left = (before[member.process.pid] for member in (a, b, c))

            def nobody_loses_any() -> dict[int, list[int]]:
                now = shares(store)
                assert set(mine) <= set(now[a.process.pid])
                assert set(its) <= set(now[b.process.pid])
                return now

            os.kill(b.process.pid, signal.SIGSTOP)
            try:
                c.kill()
                until(lambda: nobody_loses_any()[a.process.pid] == sorted(mine + left))
                for p in mine + left:
                    orders.append(b"x", partition=p)
                assert sorted(a.hear() for _ in range(4)) == [f"{p} 0" for p in sorted(mine + left)]
            finally:
                os.kill(b.process.pid, signal.SIGCONT)
            until(lambda: [len(n) for n in nobody_loses_any().values()] == [3, 3])


def test_a_member_that_lost_a_partition_by_handing_it_over_commits_it_no_more(path: Path) -> None:
    with falaj.open(path) as store:
        filled(store, 4, partitions=2)
        first = store.consumer("billing", "orders")
        second = store.consumer("billing", "orders")
        assert len(first.partitions) == 1
        [(_, given)] = second.partitions
        with pytest.raises(PartitionNotAssigned, match=f"process {os.getpid()}"):
            first.commit(0, partition=given)
        second.close()
        assert len(first.partitions) == 2


def test_a_forked_child_opens_its_own_and_its_end_takes_nothing(path: Path) -> None:
    with falaj.open(path) as store:
        filled(store, 4)
        billing = store.consumer("billing", "orders")
        billing.poll(2, timeout=0)
        pid = os.fork()
        if pid == 0:
            try:
                billing.commit()
            except HandleClosed:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        billing.commit()
        assert numbers(billing) == [2, 3]


def test_ctrl_c_ends_a_wait_at_once(path: Path) -> None:
    program = """
store = falaj.open(path)
store.topic("orders")
billing = store.consumer("billing", "orders")
say("in")
try:
    next(billing.follow())
except KeyboardInterrupt:
    say("out")
"""
    with falaj.open(path), child(path, program) as other:
        assert other.hear() == "in"
        time.sleep(0.3)  # sleep: until it sleeps
        os.kill(other.process.pid, signal.SIGINT)
        assert other.hear() == "out"


def test_tasks_follow_several_topics_and_are_woken_by_each(path: Path) -> None:
    with falaj.open(path) as store:
        topics = [store.topic("a"), store.topic("b")]
        billing = store.consumer("billing", ["a", "b"])

        async def read() -> list[str]:
            found = []
            async for record in billing.afollow(timeout=SOON_S):
                found.append(record.topic)
                billing.commit()
                if len(found) == 6:
                    break
                topics[len(found) % 2].append(b"x")
            return found

        topics[0].append(b"x")
        assert asyncio.run(read()) == ["a", "b", "a", "b", "a", "b"]
        assert billing.lag == 0


def test_closing_the_store_lets_go_of_the_partitions(path: Path) -> None:
    with falaj.open(path) as watcher:
        with falaj.open(path) as store:
            filled(store, 2)
            billing = store.consumer("billing", "orders")
            assert len(watcher.info()["groups"][0]["members"]) == 1
        assert billing.closed
        assert watcher.info()["groups"][0]["members"] == []


def test_a_cursor_in_a_backup_never_lies_behind_its_log(path: Path) -> None:
    with falaj.open(path) as store:
        orders = store.topic("orders", sync="none")
        over = threading.Event()

        def work() -> None:
            with store.consumer("billing", "orders") as billing:
                while not over.is_set():
                    orders.append(b"x")
                    list(billing)
                    billing.commit()

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for n in range(10):
                copy = path.with_name(f"copy{n}")
                store.backup(copy)
                with falaj.open(copy) as copied:
                    for consumer in copied.info()["groups"]:
                        for cursor in consumer["partitions"]:
                            assert cursor["committed"] <= copied.topic("orders").end_offset
                        list(copied.consumer(consumer["name"], ["orders"]))
        finally:
            over.set()
            worker.join(SOON_S)


def test_threads_that_commit_durably_at_once_all_find_it_durable(path: Path) -> None:
    with falaj.open(path) as store:
        filled(store, 100)
        store.topic("orders").flush()
        errors: list[BaseException] = []

        def work(name: str) -> None:
            try:
                with store.consumer(name, ["orders"]) as billing:
                    for record in billing:
                        billing.commit(sync="durable")
                        info = {c["name"]: c for c in store.info()["groups"]}
                        assert info[name]["partitions"][0]["safe"] == record.offset + 1
            except BaseException as error:  # noqa: BLE001  # raised below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(f"c{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON_S)
        assert errors == []
