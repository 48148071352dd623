"""Replays: all of a range once, as it was, in its rhythm, whichever process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.errors import (
    AppendTooLarge,
    InvalidArgument,
    OffsetOutOfRange,
    PartitionNotAssigned,
    UnknownTopic,
)
from falaj.pipeline import ReplayConfig, replay
from falaj.pipeline.replaying.run import _Replay
from spark.pipelines.test_pacing import Hand

if TYPE_CHECKING:
    from pathlib import Path

    from spark.pipelines.conftest import Flown, Told

BEGAN_NS = 1_000_000_123_456_789
S = 1_000_000_000


def config(store: falaj.Store | Path, **rest: Any) -> ReplayConfig:
    path = store.path if isinstance(store, falaj.Store) else store
    usual: dict[str, Any] = {"store": path, "topic": "source", "into": "into", "speed": "max"}
    return ReplayConfig(**usual | rest)


def filled(
    store: falaj.Store, records: int = 50, partitions: int = 3
) -> falaj.PartitionedTopic[Any]:
    """A topic of everything that a record can have, a second apart, partitions in turn."""
    topic = store.partitioned_topic("source", partitions=partitions, codec="json")
    for n in range(records):
        topic.append(
            {"n": n},
            key=None if n % 7 == 0 else b"k%d" % (n % 5),
            headers=[("n", b"%d" % n), ("none", None)] if n % 3 else None,
            timestamp_ns=BEGAN_NS + n * S,
            partition=n % partitions,
        )
    return topic


def content(topic: falaj.AnyTopic[Any]) -> list[list[Any]]:
    """All that is in a topic, by partition."""
    return [
        [(r.key, None if r.raw is None else r.to_bytes(), r.headers, r.timestamp_ns) for r in part]
        for part in map(topic.partition, topic.partitions)
    ]


def test_records_come_as_they_were_into_the_partitions_where_they_were(store: falaj.Store) -> None:
    source = filled(store)
    with source.bulk_load("tombstone") as job:
        job.tombstone(b"gone", partition=1)
    source.append({"n": "without a time of its own"}, partition=2)
    assert any(record.timestamp_ns % 1_000 for record in source)
    done = replay(None, config(store))
    into = store.any_topic("into")
    assert (done.records, done.before, into.codec) == (52, 0, "json")
    assert done.bytes == sum(len(record) for record in source)
    assert content(into) == content(source)


def test_of_a_compacted_topic_what_is_left_is_replayed_into_one_that_is_marked_too(
    store: falaj.Store,
) -> None:
    source = filled(store)
    source.configure(compacted=True)
    removed = source.compact(seal=True)["removed"]
    done = replay(None, config(store))
    into = store.any_topic("into")
    assert (removed > 20, done.records) == (True, 50 - removed)
    assert content(into) == content(source)
    assert [topic["compacted"] for topic in store.info()["topics"]] == [True, True]
    store.topic("plain").append(b"")
    replay(None, config(store, topic="plain", into="copy"))
    told = {topic["name"]: topic["compacted"] for topic in store.info()["topics"]}
    assert (told["plain"], told["copy"]) == (False, False)


def test_partitions_are_merged_by_time_where_the_target_has_others(store: falaj.Store) -> None:
    source = filled(store)
    into = store.topic("into", codec="json")
    replay(None, config(store))
    assert [record.value["n"] for record in into] == list(range(50))
    assert [r.timestamp_ns for r in into] == [r.timestamp_ns for r in source]


def test_a_range_of_time_is_replayed(store: falaj.Store) -> None:
    filled(store)
    began = datetime.fromtimestamp(BEGAN_NS // S, UTC)
    start, end = began + timedelta(seconds=9.5), began + timedelta(seconds=19.5)
    done = replay(None, config(store, start=start, end=end))
    assert (done.records, done.before) == (10, 0)
    assert [r.value["n"] for r in store.any_topic("into")] == list(range(10, 20))
    again = replay(None, config(store, start=start, end=end))
    assert (again.records, again.before) == (0, 10)


def run(store: falaj.Store, clock: Hand, told: Any = None, **rest: Any) -> _Replay:
    from falaj.pipeline.base import places
    from falaj.pipeline.base.frame import SILENT
    from falaj.spark.reading.ranges import open_raw

    source = open_raw(store, "source")
    into = places.like(store, "into", source)
    made = _Replay(store, source, into, config(store, **rest), told or SILENT, clock)
    made.run()
    return made


def test_the_speed_is_kept_by_the_clock_and_what_is_due_goes_together(
    store: falaj.Store, told: Told
) -> None:
    filled(store, 40)
    clock = Hand()
    run(store, clock, told, speed=10.0)
    assert clock.now - 7 * S == pytest.approx(3.9 * S, abs=0.001 * S)
    assert (told.totals, told.done) == ([40], 40)
    assert clock.waits == 39
    # A clock that oversleeps by 0.45 s finds four or five records due each time.
    late = Hand(oversleep=450_000_000)
    run(store, late, speed=10.0, resume=False)
    assert late.waits < 12


def test_shifted_times_are_those_of_now_at_the_distance_of_the_speed(store: falaj.Store) -> None:
    filled(store, 20)
    before = time.time_ns()
    run(store, Hand(), speed=4.0, shift=True)
    times = [record.timestamp_ns for record in store.any_topic("into")]
    assert before - 1_000 <= times[0] <= time.time_ns()
    assert [at - times[0] for at in times] == pytest.approx(
        [n * S // 4 for n in range(20)], abs=2_000
    )


def test_an_interrupt_ends_it_in_the_middle_and_the_next_run_goes_on(store: falaj.Store) -> None:
    source = filled(store)

    class Interrupted(Hand):
        def wait_ns(self, span_ns: int) -> None:
            super().wait_ns(span_ns)
            if self.waits == 20:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(store, Interrupted(), speed=1.0)
    seen = store.any_topic("into")
    assert sum(len(seen.partition(p)) for p in seen.partitions) == 20
    done = replay(None, config(store))
    assert (done.records, done.before) == (30, 20)
    assert content(seen) == content(source)


def test_beginning_anew_replays_all_of_it_once_more(store: falaj.Store) -> None:
    filled(store, 9)
    replay(None, config(store))
    assert replay(None, config(store)).records == 0
    assert replay(None, config(store, resume=False)).records == 9
    assert sum(map(len, content(store.any_topic("into")))) == 18


def test_what_comes_later_is_replayed_by_the_next_run(store: falaj.Store) -> None:
    source = filled(store, 9)
    replay(None, config(store))
    source.append({"n": 9}, partition=0)
    assert replay(None, config(store)).records == 1
    [kept] = store.info()["groups"]
    assert [cursor["lag"] for cursor in kept["partitions"]] == [0, 0, 0]


def test_a_target_of_small_segments_takes_less_at_a_time(store: falaj.Store) -> None:
    source = store.topic("source")
    source.extend([b"x" * 3_000] * 300)
    into = store.topic("into", segment_bytes=64 << 10)
    assert replay(None, config(store)).records == len(into) == 300
    source.append(b"x" * (20 << 10))
    with pytest.raises(AppendTooLarge):
        replay(None, config(store))
    assert len(into) == 300


def test_two_replays_at_once_do_not_do_it_twice(store: falaj.Store) -> None:
    filled(store, 9)
    waiting, go = threading.Event(), threading.Event()

    class Held(Hand):
        def wait_ns(self, span_ns: int) -> None:
            waiting.set()
            assert go.wait(60)
            super().wait_ns(span_ns)

    first = threading.Thread(target=run, args=(store, Held()), kwargs={"speed": 1.0})
    first.start()
    try:
        assert waiting.wait(60)
        with pytest.raises(PartitionNotAssigned, match="another process replays source"):
            replay(None, config(store))
    finally:
        go.set()
        first.join()
    assert sum(map(len, content(store.any_topic("into")))) == 9


def test_what_cannot_be_right_is_refused(store: falaj.Store) -> None:
    with pytest.raises(InvalidArgument, match="read and written at once"):
        config(store, into="source")
    for speed in (0, -1.0, float("inf"), float("nan"), 1e-300, 1e300, 10**400):
        with pytest.raises(InvalidArgument, match="speed is a number from 1e-09 to 1,000,000,000"):
            config(store, speed=speed)
    with pytest.raises(InvalidArgument, match=r"into is x\.imports, and topics whose names end"):
        config(store, into="x.imports")
    with pytest.raises(InvalidArgument, match=r"replay is too long: replay\.source"):
        config(store, into="x" * 240)
    for pause in (-1.0, float("nan"), float("inf"), 10**5000):
        with pytest.raises(InvalidArgument, match="longest_pause is a number of seconds"):
            config(store, longest_pause=pause)
    with pytest.raises(UnknownTopic):
        replay(None, config(store))
    assert list(store.topics) == []


def test_what_was_trimmed_before_it_was_replayed_is_told(store: falaj.Store) -> None:
    source = filled(store, 9, partitions=1)
    replay(None, config(store, end=3))
    source.partition(0).trim(before_offset=5)
    with pytest.raises(OffsetOutOfRange):
        replay(None, config(store))
    assert replay(None, config(store, resume=False)).records == 4


KILLED = """
import sys
from falaj.pipeline import ReplayConfig, replay

print("ready", flush=True)
speed = float(sys.argv[2])
replay(None, ReplayConfig(store=sys.argv[1], topic="flights", into="into", speed=speed))
"""


def test_replays_that_are_killed_replay_every_flight_once(january: Flown, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with falaj.open(january.store, read_only=True) as store:
        store.backup(copy)
    # A month in about two seconds.
    for records in (2_000, 9_000):
        worker = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(copy), "1300000"], stdout=subprocess.PIPE
        )
        assert worker.stdout is not None
        worker.stdout.readline()
        with falaj.open(copy, read_only=True) as store:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                if "into" in store.topics:
                    into = store.any_topic("into")
                    if sum(into.partition(p).end_offset for p in into.partitions) >= records:
                        break
                time.sleep(0.002)  # sleep: another process's appends are what is waited for
        worker.send_signal(signal.SIGKILL)
        assert worker.wait() == -signal.SIGKILL
        worker.stdout.close()
    done = replay(None, config(copy, topic="flights"))
    assert done.before >= 9_000
    assert done.before + done.records == january.records
    with falaj.open(copy, read_only=True) as store:
        source, into = store.any_topic("flights"), store.any_topic("into")
        for partition in source.partitions:
            ours, theirs = source.partition(partition), into.partition(partition)
            assert [(r.key, r.to_bytes(), r.timestamp_ns) for r in theirs] == [
                (r.key, r.to_bytes(), r.timestamp_ns) for r in ours
            ]
