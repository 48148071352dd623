"""Compaction in Python: records that stay, records that are removed, and killed processes."""

import random
import time
from array import array
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj._compaction import Last
from falaj.errors import InvalidArgument, NotWritable, RecordCompacted, SettingsMismatch

SEGMENT = 1 << 16
KEYS = 40


def compacted(store: falaj.Store, name: str = "prices", **more: Any) -> Any:
    opens: Any = store.partitioned_topic if "partitions" in more else store.topic
    return opens(name, codec="str", segment_bytes=SEGMENT, sync="none", compacted=True, **more)


def filled(store: falaj.Store, records: int = 2000, **more: Any) -> Any:
    prices = compacted(store, **more)
    for i in range(records):
        prices.append(f"{i:0300}", key=b"%d" % (i % KEYS))
    return prices


def test_of_each_key_the_last_record_stays_and_all_ways_to_read_agree(store: falaj.Store) -> None:
    prices = filled(store)
    first = prices[0].raw
    done = prices.compact(seal=True)
    assert (done["records"], done["removed"], done["tombstones"]) == (2000, 1960, 0)
    assert done["bytes_after"] < done["bytes_before"] / 4
    left = list(range(1960, 2000))
    assert [record.offset for record in prices] == left
    assert (len(prices), prices.start_offset, prices.end_offset) == (2000, 0, 2000)
    assert [record.offset for batch in prices.batches() for record in batch] == left
    assert sum(len(batch) for batch in prices.batches()) == 40
    assert [record.offset for record in prices[1000:1970]] == left[:10]
    assert prices[1999].key == b"39"
    assert [record.offset for record in prices.follow(start=0, timeout=0)] == left
    for gone in (0, 1959):
        with pytest.raises(RecordCompacted, match=f"record {gone} "):
            prices[gone]
    at = prices.at(prices[1980].timestamp)
    assert at is not None
    assert 1960 <= at.offset <= 1980
    assert first is not None
    assert bytes(first) == b"0" * 300, "a view must stay valid"
    for n in (0, 5, 40, 41, 2**70):
        assert [record.offset for record in prices.read(0, n)] == left[:n]
    assert [record.offset for record in prices.read(-30, 5)] == left[10:15]


def test_the_last_records_are_found_beyond_what_compaction_took(store: falaj.Store) -> None:
    prices = compacted(store)
    for burst in (3, 1000, 2):
        for i in range(burst):
            prices.append("x" * 200, key=b"once %d" % prices.end_offset)
            prices.extend([(b"again", "y")] * (i % 5 + 1))
        for _ in range(40):
            prices.extend([(b"again", "y")] * 250)
    end = prices.end_offset
    prices.compact(seal=True)
    left = [record.offset for record in prices]
    assert len(left) == 1006
    assert end - left[-2] > 10_000
    assert left[-1] == end - 1
    for n in (0, 1, 2, 3, 999, 1005, 1006, 1007, 2**70):
        assert [record.offset for record in prices.last(n)] == left[max(0, 1006 - n) :]
    prices.trim(before_offset=left[500])
    for n in (505, 506, 507):
        assert [record.offset for record in prices.last(n)] == left[max(500, 1006 - n) :]


def test_negative_places_of_a_slice_count_the_records_that_are_left_in_its_own_order(
    store: falaj.Store,
) -> None:
    prices = compacted(store)
    prices.extend([(b"a", "1"), (b"b", "1"), (b"a", "2"), (b"c", "1"), (b"b", "2")])
    prices.compact(seal=True)
    left = [record.offset for record in prices]
    assert len(left) < len(prices)
    for of in (prices[:], prices[::-1], prices[left[0] + 1 :], prices[: left[0] : -1]):
        expected = [record.offset for record in of]
        found = [of[-n].offset for n in range(1, len(expected) + 1)]
        assert found == expected[::-1]
        with pytest.raises(IndexError, match="fewer than"):
            of[-len(expected) - 1]


def test_arrow_and_scans_of_a_compacted_topic_hold_what_is_left(store: falaj.Store) -> None:
    pytest.importorskip("pyarrow")
    prices = filled(store)
    prices.compact(seal=True)
    table = prices.to_arrow()
    assert table["offset"].to_pylist() == list(range(1960, 2000))
    assert table["key"].to_pylist() == [b"%d" % (i % KEYS) for i in range(1960, 2000)]
    scanned = prices.scan(start=1990).to_table()
    assert scanned["offset"].to_pylist() == list(range(1990, 2000))


def test_it_is_marked_when_it_is_made_or_any_day(store: falaj.Store) -> None:
    plain = store.topic("plain", codec="str")
    with pytest.raises(InvalidArgument, match=r"not marked compacted.*configure\(compacted=True\)"):
        plain.compact()
    assert plain.configure(compacted=True)["bytes"] is None
    assert plain.compact()["records"] == 0
    assert store.info()["topics"][0]["compacted"] is True
    store.topic("plain", compacted=True)
    with pytest.raises(SettingsMismatch, match="compacted = true, not false"):
        store.topic("plain", compacted=False)
    plain.configure(compacted=False)
    with pytest.raises(InvalidArgument, match="not marked"):
        plain.compact()


def test_what_cannot_be_is_refused(store: falaj.Store, tmp_path: Path) -> None:
    prices = filled(store, 10)
    for wrong, error in (
        ({"delete_retention": -1}, InvalidArgument),
        ({"delete_retention": timedelta(-1)}, InvalidArgument),
        ({"delete_retention": b"1d"}, TypeError),
        ({"delete_retention": 1e300}, InvalidArgument),
        ({"memory": 0}, InvalidArgument),
        ({"last": {0: Last(11, array("Q"))}}, InvalidArgument),
        ({"last": {0: Last(5, array("Q", [3, 3]))}}, InvalidArgument),
        ({"last": {1: Last(0, array("Q"))}}, InvalidArgument),
    ):
        with pytest.raises(error):
            prices.compact(**wrong)
    shared = [compacted(store, name, log="shop") for name in ("one", "two")]
    with pytest.raises(InvalidArgument, match='shares the log "shop" with "two"'):
        shared[0].compact()
    prices.flush()
    with falaj.open(store.path, read_only=True) as reading, pytest.raises(NotWritable):
        reading.topic("prices").compact()
    assert len(list(prices)) == 10


def test_a_tombstone_deletes_a_key_and_goes_itself_when_its_time_is_over(
    store: falaj.Store,
) -> None:
    prices = filled(store, 200)
    at = prices.tombstone(b"7", headers={"why": b"sold out"})
    assert prices[at].is_tombstone
    prices.append("x" * 300, key=b"1")
    prices.append("y" * 300, key=b"1")
    assert prices.compact(seal=True)["tombstones"] == 0
    assert [record.key for record in prices].count(b"7") == 1
    assert prices.compact()["tombstones"] == 0, "a day"
    assert prices.compact(delete_retention=0)["tombstones"] == 1
    assert b"7" not in {record.key for record in prices}
    spread = compacted(store, "spread", partitions=3)
    assert isinstance(spread.tombstone(b"k"), falaj.Position)


def test_jobs_whose_records_are_gone_are_over(store: falaj.Store) -> None:
    prices = filled(store, 3 * KEYS)
    with store.queue("work", prices) as queue:
        held, back = queue.take(2)
        prices.compact(seal=True)
        assert held.record.key == b"0", "a delivered record must stay readable"
        held.ack()
        back.nack()
    with falaj.open(store.path) as other, other.queue("work", compacted(other)) as queue:
        left = []
        while jobs := queue.take(KEYS, timeout=0):
            left += [job.record.offset for job in jobs]
            jobs.ack()
        assert sorted(left) == list(range(2 * KEYS, 3 * KEYS))
        assert (queue.info()["ready"], queue.info()["delayed"]) == (0, 0)


def test_a_list_of_last_records_lets_compaction_remove_the_others(store: falaj.Store) -> None:
    prices = filled(store, 400)
    prices.compact(last={}, seal=True)
    assert len(list(prices)) == 400, "records without an entry must stay"
    told: list[tuple[int, int]] = []
    last = Last(200, array("Q", [5, 199]))
    done = prices.compact(last={0: last}, progress=lambda at, of: told.append((at, of)))
    assert done["removed"] == 198
    assert [record.offset for record in prices] == [5, *range(199, 400)]
    assert told[-1][0] == told[-1][1] > 0


COMPACT = """
with falaj.open(path) as store:
    prices = store.topic("prices")
    say("ready")
    while True:
        prices.compact(delete_retention=1e6)
"""

WRITE = """
import random
with falaj.open(path) as store:
    prices = store.topic("prices", sync="none")
    say("ready")
    i = 0
    while True:
        key = random.randrange(40)
        prices.append(f"{key} {i} {'.' * 300}", key=b"%d" % key)
        i += 1
"""

READ = """
with falaj.open(path, read_only=True) as store:
    prices = store.topic("prices")
    say("ready")
    while True:
        last, at = {}, -1
        for record in prices:
            assert record.offset > at, (record.offset, at)
            at = record.offset
            assert record.value.split()[0].encode() == record.key
            last[record.key] = record.offset
        # The last record of a key is still the last, or was followed by another.
        for key, offset in last.items():
            try:
                assert prices[offset].key == key
            except falaj.errors.RecordCompacted:
                pass
        say(len(last), at)
"""


def killed_again_and_again(path: Path, kills: int) -> Iterator[None]:
    seeded = random.Random(5)
    for _ in range(kills):
        with child(path, COMPACT) as compacting:
            assert compacting.hear() == "ready"
            # sleep: it must be killed at any moment, not at one that it reports
            time.sleep(seeded.uniform(0, 0.15))
            compacting.kill()
        yield


def test_compactions_killed_at_any_moment_beside_a_writer_and_readers_lose_no_last_record(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    with falaj.open(path) as store:
        prices = compacted(store)
        for i in range(3000):
            prices.append(f"{i % KEYS} {i} {'.' * 300}", key=b"%d" % (i % KEYS))
        with child(path, WRITE) as writer, child(path, READ) as reading:
            assert (writer.hear(), reading.hear()) == ("ready", "ready")
            at = 2999
            for _ in killed_again_and_again(path, 8):
                before = at
                # Until it has read everything since: its earlier reports wait in a pipe.
                while at <= before:
                    keys, at = map(int, reading.hear().split())
                    assert keys == KEYS
            writer.kill()
            reading.kill()
        expected = {record.key: record.offset for record in prices}
        prices.compact(seal=True)
        assert {record.key: record.offset for record in prices} == expected
        assert len(list(prices)) == KEYS
        assert store.verify()["findings"] == [] or all(
            finding["severity"] in ("note", "rebuildable") for finding in store.verify()["findings"]
        )


def test_offsets_of_a_batch_with_gaps_are_those_of_its_records(store: falaj.Store) -> None:
    topic = store.topic("prices", codec="str", compacted=True)
    topic.extend([(key, key) for key in "aabbcc"])
    (batch,) = topic.batches()
    assert batch.offsets == range(6)
    topic.compact(seal=True)
    (batch,) = topic.batches()
    assert list(batch.offsets) == [record.offset for record in batch] == [1, 3, 5]
    assert batch.to_arrow()["offset"].to_pylist() == [1, 3, 5]


def test_a_job_that_compaction_removed_is_not_handed_out_beside_another_of_its_key(
    store: falaj.Store,
) -> None:
    topic = store.topic("accounts", codec="str", compacted=True)
    queue = store.queue("accounts", topic, order="key")
    for value in "123":
        topic.append(value, key="ann")
    (first,) = queue.take(timeout=0)
    topic.append("4", key="ann")
    topic.append("x", key="bob")
    topic.compact(seal=True)
    jobs = queue.take(10, timeout=0)
    assert [(job.key, job.value) for job in jobs] == [(b"bob", "x")]
    assert queue.info()["in_flight"] == 2
    first.ack()
    (last,) = queue.take(10, timeout=0)
    assert (last.key, last.value) == (b"ann", "4")
    last.ack()
    jobs[0].ack()
    info = queue.info()
    assert (info["ready"], info["in_flight"]) == (0, 0)
